// One implementation of every operation, for one instruction set. All sets of a numerics class give
// the same bytes.
#pragma once

#include <string_view>
#include <vector>

#include "base/status.h"
#include "device/operation.h"
#include "kernels/attention.h"
#include "kernels/cut_rows.h"
#include "kernels/delta_net.h"
#include "kernels/draw.h"
#include "kernels/experts.h"
#include "kernels/latent_attention.h"
#include "kernels/linear.h"
#include "kernels/mma_order.h"
#include "kernels/norm.h"
#include "kernels/reduce.h"
#include "kernels/route.h"
#include "kernels/tile_order.h"

namespace forebay::kernels {

enum class Isa : uint8_t { kRef, kAvx2, kAvx512f, kAvx512bf16, kAmx, kCuda };

inline constexpr base::ErrorCode kIsaUnavailable{"isa_unavailable"};
inline constexpr base::ErrorCode kNumericsUnavailable{"numerics_unavailable"};

struct KernelSet {
  Isa isa;
  const char* name;  // "avx512bf16"
  // The class of bf16: "pair", or NumericsClassOf an order of tiles or tensor cores; fp32 is "pair"
  // in every set.
  const char* numerics_class;
  // How weights of bf16 lie for it, and K and V where their sizes allow it.
  PackedForm packed = PackedForm::kPairs;
  LinearFunction linear;
  ExpertsFunction experts;
  void (*attention)(const AttentionArgs&, const device::WorkerContext&);
  void (*rope_kv)(const RopeKvArgs&, const device::WorkerContext&);
  void (*rope_rows)(const RopeRowsArgs&, const device::WorkerContext&);
  void (*store_kv)(const StoreKvArgs&, const device::WorkerContext&);
  void (*latent_kv)(const LatentKvArgs&, const device::WorkerContext&);
  void (*gather_latents)(const GatherLatentsArgs&, const device::WorkerContext&);
  void (*store_expanded)(const StoreExpandedArgs&, const device::WorkerContext&);
  void (*rms_norm)(const RmsNormArgs&, const device::WorkerContext&);
  void (*add_normed)(const AddNormedArgs&, const device::WorkerContext&);
  void (*finish_logits)(const FinishLogitsArgs&, const device::WorkerContext&);
  void (*gate_rows)(const GateRowsArgs&, const device::WorkerContext&);
  void (*layer_inputs)(const LayerInputsArgs&, const device::WorkerContext&);
  void (*short_conv)(const ShortConvArgs&, const device::WorkerContext&);
  void (*delta_net)(const DeltaNetArgs&, const device::WorkerContext&);
  void (*mamba2)(const Mamba2Args&, const device::WorkerContext&);
  void (*gated_norm)(const GatedNormArgs&, const device::WorkerContext&);
  void (*embed)(const EmbedArgs&, const device::WorkerContext&);
  void (*logits_digest)(const LogitsDigestArgs&, const device::WorkerContext&);
  // Null: the host draws from where the logits lie.
  void (*draw_rows)(const DrawRowsArgs&, const device::WorkerContext&);
  void (*likely_rows)(const LikelyRowsArgs&, const device::WorkerContext&);
  void (*route)(const RouteArgs&, const device::WorkerContext&);
  void (*group_rows)(const GroupRowsArgs&, const device::WorkerContext&);
  void (*weigh_rows)(const WeighRowsArgs&, const device::WorkerContext&);
  void (*combine_rows)(const CombineRowsArgs&, const device::WorkerContext&);
  void (*reduce)(const ReduceArgs&, const device::WorkerContext&);
  // Bytes of worker scratch that attention needs for these shapes; the other operations need less
  // than 1 MiB.
  uint64_t (*attention_scratch)(const KvLayout& layout, int32_t heads);
};

// Plain C++, the oracle of the tests.
const KernelSet& RefKernels();
// The same of class `mma_*` with this order: a GPU's answers on a CPU.
const KernelSet& RefKernels(MmaOrder order);

// The sets that this machine can run, fastest first, ref last. The first call tries the machine's
// own sums against their models, times its products (.2 ms) and asks the system for tiles.
std::vector<const KernelSet*> AvailableKernels();

// The order of this machine's tiles: what set `amx` computes with. kUnknown: there is no such set.
TileOrder HardwareTileOrder();

// "auto" (the fastest), or a set by name: kIsaUnavailable says what the machine has. `numerics`:
// "auto" (the set's own class), or a class by name: kNumericsUnavailable says what the set has.
base::Result<const KernelSet*> ChooseKernels(std::string_view name,
                                             std::string_view numerics = "auto");

}  // namespace forebay::kernels
