#include "kernels/kernel_set.h"

#include <cpuid.h>
#include <fmt/core.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <string>

#include "base/log.h"
#include "kernels/cpu/probes.h"
#include "kernels/linear_sets.h"
#include "kernels/sets.h"
#include "kernels/tile_attention.h"

namespace forebay::kernels {
namespace {

// The functions of namespace `set`, which has one of each name but for those that serve every set.
#define FB_SET_OF(isa_value, set)                                                                 \
  KernelSet {                                                                                     \
    .isa = isa_value, .name = #set, .numerics_class = "pair", .linear = set::Linear,              \
    .experts = set::Experts, .attention = set::Attention, .rope_kv = set::RopeKv,                 \
    .rope_rows = set::RopeRows, .store_kv = set::StoreKv, .latent_kv = set::LatentKv,             \
    .gather_latents = set::GatherLatents, .store_expanded = set::StoreExpanded,                   \
    .rms_norm = set::RmsNorm, .add_normed = set::AddNormed, .finish_logits = set::FinishLogits,   \
    .gate_rows = set::GateRows, .layer_inputs = set::LayerInputs, .short_conv = set::ShortConv,   \
    .delta_net = set::DeltaNet, .mamba2 = set::Mamba2, .gated_norm = set::GatedNorm,              \
    .embed = ref::Embed, .logits_digest = ref::LogitsDigest, .route = set::Route,                 \
    .group_rows = ref::GroupRows, .weigh_rows = set::WeighRows, .combine_rows = set::CombineRows, \
    .reduce = ref::Reduce, .attention_scratch = AttentionScratch                                  \
  }
constexpr KernelSet kRef = FB_SET_OF(Isa::kRef, ref);
constexpr KernelSet kPlainAvx2 = FB_SET_OF(Isa::kAvx2, avx2);
constexpr KernelSet kPlainAvx512f = FB_SET_OF(Isa::kAvx512f, avx512f);
constexpr KernelSet kAvx512bf16 = FB_SET_OF(Isa::kAvx512bf16, avx512bf16);
#undef FB_SET_OF

// With the instruction that multiplies codes of int8, where the CPU has it.
const KernelSet& Avx2Kernels() {
  static const KernelSet kernels = [] {
    KernelSet set = kPlainAvx2;
    if (HasAvxVnni()) {
      set.linear = avx2::LinearWithVnni;
      set.experts = avx2::ExpertsWithVnni;
    }
    return set;
  }();
  return kernels;
}
const KernelSet& Avx512fKernels() {
  static const KernelSet kernels = [] {
    KernelSet set = kPlainAvx512f;
    if (HasAvx512Vnni()) {
      set.linear = avx512f::LinearWithVnni;
      set.experts = avx512f::ExpertsWithVnni;
    }
    return set;
  }();
  return kernels;
}

KernelSet RefOf(MmaOrder order) {
  KernelSet set = kRef;
  set.numerics_class = NumericsClassOf(order);
  set.linear = ref::MmaLinear(order);
  set.experts = ref::MmaExperts(order);
  set.attention = ref::MmaAttention(order);
  return set;
}

// Class `amx_*_p1024` of this order.
KernelSet RefOf(TileOrder order) {
  KernelSet set = kRef;
  set.numerics_class = PartClassOf(order);
  set.linear = ref::TileLinear(order);
  set.experts = ref::TileExperts(order);
  set.attention = ref::TileAttention(order);
  return set;
}

// All but linear layers is that of class `pair`. Products there are fused multiply-adds, which the
// CPUs that have tiles do twice as fast as vdpbf16ps.
KernelSet AmxKernels(TileOrder order) {
  KernelSet set = kPlainAvx512f;
  set.isa = Isa::kAmx;
  set.name = "amx";
  set.numerics_class = NumericsClassOf(order);
  set.linear = amx::Linear;
  set.experts = amx::Experts;
  return set;
}
// Attention too: class `amx_*_p1024`.
KernelSet AttendingAmxKernels(TileOrder order) {
  KernelSet set = AmxKernels(order);
  set.numerics_class = PartClassOf(order);
  set.attention = amx::Attention;
  return set;
}

// Features that clang 14 does not know by name; what they need of the system, AVX2 and AVX-512F
// imply.
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
      HasAvx512f() && HasAvx512Bf16Bit() && HasAvx512Vnni() && avx512bf16::DotProductMatchesFma();
  return has;
}

bool HasTiles() {
  constexpr unsigned kAmxBf16 = 1u << 22, kAmxTile = 1u << 24;  // leaf 7, EDX
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d & kAmxBf16) || !(d & kAmxTile)) return false;
  // Palette 1: eight registers of 16 rows of 64 bytes.
  return __get_cpuid_count(0x1D, 1, &a, &b, &c, &d) && b >> 16 == 8 && (b & 0xFFFF) == 64 &&
         (c & 0xFFFF) == 16;
}

// Whether the system saves tiles, and lets this process have them. REQUIRES: HasAvx512f(), which
// implies XGETBV.
bool SystemKeepsTiles() {
  constexpr unsigned kTileConfig = 1u << 17, kTileData = 1u << 18;
  unsigned low, high;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  if (!(low & kTileConfig) || !(low & kTileData)) return false;
  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  constexpr long kRequestPermission = 0x1023, kTileDataComponent = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileDataComponent) == 0;
}

// Set `amx` on this machine, or why it has none.
struct TileState {
  TileOrder order = TileOrder::kUnknown;
  const char* lack = nullptr;
};
const TileState& Tiles() {
  static const TileState state = []() -> TileState {
    if (!HasAvx512f() || !HasTiles()) return {.lack = "this CPU has no AMX tiles for bf16"};
    TileState found;
    if (!SystemKeepsTiles()) {
      found.lack = "the system does not give AMX tiles to this process";
    } else {
      found.order = FindTileOrder(&amx::Linear);
      if (found.order == TileOrder::kUnknown)
        found.lack = "the AMX tiles of this CPU sum in an order that is not known";
    }
    if (found.lack != nullptr)
      base::Log(base::LogLevel::kWarning, fmt::format("{}: set amx is not used", found.lack));
    return found;
  }();
  return state;
}

// Whether vdpbf16ps multiplies faster than fused multiply-adds do: twice as fast on AMD's CPUs, at
// half of their rate on Intel's. REQUIRES: HasAvx512bf16().
bool DotProductIsFaster() {
  static const bool faster = [] {
    double dot = std::numeric_limits<double>::infinity(), fma = dot;
    for (int burst = 0; burst < 64; ++burst) {
      dot = std::min(dot, TicksPerFlop(kDotProbe));
      fma = std::min(fma, TicksPerFlop(kFma512Probe));
    }
    return dot < fma;
  }();
  return faster;
}

// Those that only a class by name gives: tiles were not seen attending, and the oracles are slow.
std::vector<const KernelSet*> KernelsByClass() {
  std::vector<const KernelSet*> sets;
  if (HardwareTileOrder() != TileOrder::kUnknown) {
    static const KernelSet kAmx = AttendingAmxKernels(HardwareTileOrder());
    sets.push_back(&kAmx);
  }
  for (const MmaOrder order : kMmaOrders) sets.push_back(&RefKernels(order));
  static const KernelSet kTiles[] = {RefOf(kTileOrders[0]), RefOf(kTileOrders[1]),
                                     RefOf(kTileOrders[2])};
  for (const KernelSet& set : kTiles) sets.push_back(&set);
  return sets;
}

// The fastest set of this name, or of any where it is "auto", that computes in the class.
base::Result<const KernelSet*> ChooseOfClass(std::string_view name, std::string_view numerics) {
  std::vector<const KernelSet*> sets = AvailableKernels();
  for (const KernelSet* set : KernelsByClass()) sets.push_back(set);
  std::string classes;
  for (const KernelSet* set : sets) {
    if (name != "auto" && set->name != name) continue;
    if (set->numerics_class == numerics) return set;
    if (classes.find(set->numerics_class) != std::string::npos) continue;
    classes += classes.empty() ? set->numerics_class : fmt::format(", {}", set->numerics_class);
  }
  if (classes.empty()) return ChooseKernels(name);  // says that there is no such set
  return base::Status(kNumericsUnavailable,
                      fmt::format("numerics class '{}' is not one of instruction set '{}' on this "
                                  "machine; it has {}",
                                  numerics, name, classes));
}

std::vector<const KernelSet*> KernelsWithoutTiles() {
  std::vector<const KernelSet*> sets;
  if (HasAvx512f()) sets.push_back(&Avx512fKernels());
  if (HasAvx512bf16()) sets.insert(DotProductIsFaster() ? sets.begin() : sets.end(), &kAvx512bf16);
  if (HasAvx2()) sets.push_back(&Avx2Kernels());
  sets.push_back(&kRef);
  return sets;
}

}  // namespace

bool HasAvxVnni() {
  constexpr unsigned kAvxVnni = 1u << 4;  // leaf 7, subleaf 1, EAX
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & kAvxVnni);
}
bool HasAvx512Vnni() { return __builtin_cpu_supports("avx512vnni"); }

TileOrder HardwareTileOrder() { return Tiles().order; }

const KernelSet& RefKernels() { return kRef; }

const KernelSet& RefKernels(MmaOrder order) {
  static const KernelSet k16f25 = RefOf(MmaOrder::kK16F25), k8f24 = RefOf(MmaOrder::kK8F24);
  return order == MmaOrder::kK16F25 ? k16f25 : k8f24;
}

std::vector<const KernelSet*> AvailableKernels() {
  std::vector<const KernelSet*> sets = KernelsWithoutTiles();
  if (HardwareTileOrder() != TileOrder::kUnknown) {
    static const KernelSet kAmx = AmxKernels(HardwareTileOrder());
    sets.insert(sets.begin(), &kAmx);
  }
  return sets;
}

base::Result<const KernelSet*> ChooseKernels(std::string_view name, std::string_view numerics) {
  if (numerics != "auto") return ChooseOfClass(name, numerics);
  // A set with another name needs no tiles: the system is not asked for them.
  for (const KernelSet* kernels : KernelsWithoutTiles()) {
    if (kernels->name == name) return kernels;
  }
  std::string names;
  for (const KernelSet* kernels : AvailableKernels()) {
    if (name == "auto" || kernels->name == name) return kernels;
    names += names.empty() ? kernels->name : fmt::format(", {}", kernels->name);
  }
  const std::string why = name == "amx" ? fmt::format(" ({})", Tiles().lack) : "";
  return base::Status(kIsaUnavailable,
                      fmt::format("instruction set '{}' is not available{}; this machine has {}",
                                  name, why, names));
}

}  // namespace forebay::kernels
