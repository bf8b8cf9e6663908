#include "kernels/kernel_set.h"

#include <cpuid.h>
#include <fmt/core.h>

#include <string>

#include "kernels/linear_sets.h"
#include "kernels/sets.h"

namespace forebay::kernels {
namespace {

constexpr KernelSet kRef{Isa::kRef,   "ref",        "pair",     ref::Linear,       ref::Attention,
                         ref::RopeKv, ref::RmsNorm, ref::Embed, ref::LogitsDigest, AttentionScratch};
constexpr KernelSet kAvx2{Isa::kAvx2,   "avx2",        "pair",     avx2::Linear,      avx2::Attention,
                          avx2::RopeKv, avx2::RmsNorm, ref::Embed, ref::LogitsDigest, AttentionScratch};
constexpr KernelSet kAvx512f{Isa::kAvx512f,   "avx512f",        "pair",     avx512f::Linear,   avx512f::Attention,
                             avx512f::RopeKv, avx512f::RmsNorm, ref::Embed, ref::LogitsDigest, AttentionScratch};
constexpr KernelSet kAvx512bf16{
    Isa::kAvx512bf16,   "avx512bf16",        "pair",     avx512bf16::Linear, avx512bf16::Attention,
    avx512bf16::RopeKv, avx512bf16::RmsNorm, ref::Embed, ref::LogitsDigest,  AttentionScratch};

// Features that clang 14 does not know by name; what they need of the system, AVX2 and AVX-512F imply.
bool HasF16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
bool HasAvx512Bf16Bit() {
  constexpr unsigned kAvx512Bf16 = 1u << 5;  // leaf 7, subleaf 1, EAX
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & kAvx512Bf16);
}

// What the files of a set are compiled for (CMakeLists.txt).
bool HasAvx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && HasF16c();
}
bool HasAvx512f() {
  return HasAvx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
bool HasAvx512bf16() {
  static const bool has =
      HasAvx512f() && HasAvx512Bf16Bit() && avx512bf16::DotProductMatchesFma();
  return has;
}

}  // namespace

const KernelSet& RefKernels() { return kRef; }

std::vector<const KernelSet*> AvailableKernels() {
  std::vector<const KernelSet*> sets;
  if (HasAvx512bf16()) sets.push_back(&kAvx512bf16);
  if (HasAvx512f()) sets.push_back(&kAvx512f);
  if (HasAvx2()) sets.push_back(&kAvx2);
  sets.push_back(&kRef);
  return sets;
}

base::Result<const KernelSet*> ChooseKernels(std::string_view name) {
  const std::vector<const KernelSet*> available = AvailableKernels();
  if (name == "auto") return available.front();
  std::string names;
  for (const KernelSet* kernels : available) {
    if (kernels->name == name) return kernels;
    names += names.empty() ? kernels->name : fmt::format(", {}", kernels->name);
  }
  return base::Status(kIsaUnavailable,
                      fmt::format("instruction set '{}' is not available; this machine has {}", name, names));
}

}  // namespace forebay::kernels
