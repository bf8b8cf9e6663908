#include "kernels/cuda/launch/kernel_sets.h"

#include "kernels/cuda/launch/mma.h"
#include "kernels/cuda/launch/set/functions.h"
#include "kernels/sets.h"

namespace forebay::kernels::cuda {
namespace {

constexpr KernelSet kPairSet{.isa = Isa::kCuda,
                             .name = "pair",
                             .numerics_class = "pair",
                             .linear = set::Linear,
                             .experts = set::Experts,
                             .attention = set::Attention,
                             .rope_kv = set::RopeKv,
                             .rope_rows = set::RopeRows,
                             .store_kv = set::StoreKv,
                             .latent_kv = set::LatentKv,
                             .gather_latents = set::GatherLatents,
                             .store_expanded = set::StoreExpanded,
                             .rms_norm = set::RmsNorm,
                             .add_normed = set::AddNormed,
                             .finish_logits = set::FinishLogits,
                             .gate_rows = set::GateRows,
                             .layer_inputs = set::LayerInputs,
                             .short_conv = set::ShortConv,
                             .delta_net = set::DeltaNet,
                             .mamba2 = set::Mamba2,
                             .gated_norm = set::GatedNorm,
                             .embed = set::Embed,
                             .logits_digest = set::LogitsDigest,
                             .draw_rows = set::DrawRows,
                             .likely_rows = set::LikelyRows,
                             .route = set::Route,
                             .group_rows = set::GroupRows,
                             .weigh_rows = set::WeighRows,
                             .combine_rows = set::CombineRows,
                             .reduce = set::Reduce,
                             .attention_scratch = AttentionScratch};

KernelSet MmaSet() {
  KernelSet mma = kPairSet;
  mma.name = "mma";
  mma.numerics_class = NumericsClassOf(MmaOrder::kK16F25);
  mma.packed = PackedForm::kCuda;
  mma.attention = set::MmaAttention;
  return mma;
}

}  // namespace

const KernelSet& PairKernels() { return kPairSet; }

const KernelSet& MmaKernels() {
  static const KernelSet kSet = MmaSet();
  return kSet;
}

}  // namespace forebay::kernels::cuda
