#include "kernels/kernel_set.h"

#include <fmt/core.h>

#include <string>

#include "kernels/linear_sets.h"
#include "kernels/sets.h"

namespace forebay::kernels {
namespace {

constexpr KernelSet kRef{Isa::kRef,      "ref",       "pair",      ref::Linear,   ref::Attention,
                         ref::RopeKv,    ref::RmsNorm, ref::Embed, ref::LogitsDigest, AttentionScratch};

}  // namespace

uint64_t AttentionScratch(const KvLayout&, int32_t) { return 0; }

const KernelSet& RefKernels() { return kRef; }

std::vector<const KernelSet*> AvailableKernels() { return {&kRef}; }

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
