// Shift Parallelism (arXiv 2509.16495): what follows from shapes alone.
#include "fabric/collectives.h"
#include "layout/layout_plan.h"
#include "layout/shift_plan.h"
#include "model/builtin_configs.h"
#include "model/decoder_weights.h"
#include "model/modes.h"
#include "model/ulysses.h"
#include "repro/claim.h"

namespace forebay::repro {
namespace {

using model::Degrees;

constexpr char kLlama[] = "Llama-3.1-70B";

uint64_t LayerBytes(const model::DecoderPlan& plan) {
  uint64_t bytes = 0;
  for (const model::LayerPlan& layer : plan.layers) {
    for (const model::PlannedMatrix& matrix : layer.matrices) bytes += matrix.plan.TileBytes();
  }
  return bytes;
}

// What a rank's part of the layers under full tensor parallelism takes, where it is loaded a second
// time beside that of the layout: section 3.3.2, w / (SP TP) beside w / TP.
FindingOr CopiedWeights(const Degrees& layout, double, Lab&) {
  FB_ASSIGN_OR_RETURN(const model::ModelConfig config, model::LoadBuiltinConfig(kLlama));
  const model::ReplicaCut cut{.tp = layout.tp, .sp = layout.sp};
  const auto bytes = [&](const Degrees& mode) {
    return static_cast<double>(
        LayerBytes(model::PlanDecoder(config, tensor::DType::kBF16, 1, cut, mode)));
  };
  const double own = bytes(layout), shifted = bytes({1, layout.ranks()});
  return Finding{
      .calibrated = 100 * shifted / own,
      .account = {{"GB of the layout's mode", 1e-9 * own}, {"GB of tp alone", 1e-9 * shifted}}};
}

// What a rank holds more of where steps shift than where they take one mode: modes are views.
FindingOr ViewedWeights(const Degrees& layout, double, Lab&) {
  FB_ASSIGN_OR_RETURN(const model::ModelConfig config, model::LoadBuiltinConfig(kLlama));
  layout::EngineOptions options;
  FB_ASSIGN_OR_RETURN(options.machine.devices,
                      layout::ParseDevices(fmt::format("sim:{}xh200", layout.ranks())));
  options.layout = layout::Layout{.tp = layout.tp, .sp = layout.sp};
  options.shift.mode = layout;
  FB_ASSIGN_OR_RETURN(const layout::LayoutPlan one, layout::PlanLayout(options, config));
  options.shift.mode.reset();
  options.shift.threshold = 256;
  FB_ASSIGN_OR_RETURN(const layout::LayoutPlan shifting, layout::PlanLayout(options, config));
  const auto weights = [](const layout::LayoutPlan& plan) {
    return static_cast<double>(plan.ranks[0].memory.bytes(layout::RegionUse::kWeights));
  };
  return Finding{.calibrated = 100 * (weights(shifting) - weights(one)) / weights(one)};
}

FindingOr PaddedRows(const Degrees& mode, double, Lab&) {
  constexpr int64_t kRows = 9;
  return Finding{.calibrated = static_cast<double>(model::MostOwnRows(kRows, mode) * mode.sp)};
}

FindingOr PaddedRowsUsed(const Degrees& mode, double, Lab&) {
  constexpr int64_t kRows = 9;
  return Finding{.calibrated = 100.0 * static_cast<double>(kRows) /
                               static_cast<double>(model::MostOwnRows(kRows, mode) * mode.sp)};
}

// Ranks as the digits of one number.
double Digits(const std::vector<int>& ranks) {
  double number = 0;
  for (const int rank : ranks) number = 10 * number + rank;
  return number;
}

using Ranks = std::vector<int> (*)(const Degrees& layout);

FindingOr RankList(const Ranks& ranks, double, Lab&) {
  return Finding{.calibrated = Digits(ranks({.sp = 3, .tp = 2}))};
}

std::vector<int> InOrderOfHeads(const Degrees& layout) {
  return model::TpRanks(layout, {1, layout.ranks()}, 0);
}
std::vector<int> HeadsOfRanks(const Degrees& layout) {
  std::vector<int> blocks;
  for (int rank = 0; rank < layout.ranks(); ++rank)
    blocks.push_back(model::BlockOfRank(layout, rank));
  return blocks;
}
template <int kRank>
std::vector<int> SpGroup(const Degrees& layout) {
  return model::SpRanks(layout, layout, model::BlockOfRank(layout, kRank));
}
template <int kRank>
std::vector<int> TpGroup(const Degrees& layout) {
  return model::TpRanks(layout, layout, model::BlockOfRank(layout, kRank));
}

// What ranks read from each other in the two all-to-alls of a layer, of a row.
FindingOr AllToAllBytes(const Degrees& layout, double, Lab&) {
  FB_ASSIGN_OR_RETURN(const model::ModelConfig config, model::LoadBuiltinConfig(kLlama));
  constexpr int64_t kRows = 840;
  uint64_t bytes = 0;
  for (int block = 0; block < layout.ranks(); ++block) {
    const model::Shard shard = model::ShardOf(config, {.tp = layout.tp,
                                                       .tp_rank = layout.TpIndex(block),
                                                       .sp = layout.sp,
                                                       .sp_rank = layout.SpIndex(block)});
    const int index = layout.SpIndex(block);
    const model::UlyssesPlan plan(shard, config.head_dim, tensor::DType::kBF16, kRows, index);
    for (int i = 0; i < layout.sp; ++i) {
      if (i == index) continue;
      const fabric::GatherBlock &forth = plan.forth()[static_cast<size_t>(i)],
                                &back = plan.back()[static_cast<size_t>(i)];
      bytes += static_cast<uint64_t>(forth.rows) * (forth.bytes + plan.kv_row_bytes()) +
               static_cast<uint64_t>(back.rows) * back.bytes;
    }
  }
  return Finding{.calibrated = static_cast<double>(bytes) / kRows};
}

constexpr std::string_view kPadWhy = "9 of 16 rows are 56 %";
constexpr std::string_view kGroupWhy =
    "rank 2 is in the group of ranks 0, 2 and 4, and groups of one kind share no rank";

}  // namespace

// clang-format off
std::vector<Claim> ShiftClaims() {
  return {
      Row<Degrees>(
          {"SH6", "Shift Parallelism, Section 3.3.2", "Weights of a second model for tp alone, % of the layout's",
           "Llama-3.1-70B, bf16, the layers' matrices", Kind::kExact},
          &CopiedWeights, {{"SP = 8", "12.5", {8, 1}}, {"SP = 4", "25", {4, 1}}, {"SP = 2", "50", {2, 1}}, {"SP = 4, TP = 2", "25", {4, 2}}}),
      Row<Degrees>(
          {"SH6.views", "beyond the paper", "The same where the weights of modes are views, %", "", Kind::kExact},
          &ViewedWeights, {{"SP = 8", "0.0", {8, 1}}, {"SP = 4, TP = 2", "0.0", {4, 2}}}),
      Row<Degrees>(
          {"SH7", "Shift Parallelism, Section 3.2.1", "A batch of 9 at SP = 8: rows with padding", "", Kind::kExact},
          &PaddedRows, {{"rows", "16", {8, 1}}}),
      Row<Degrees>(
          {"SH7.used", "Shift Parallelism, Section 3.2.1", "The same: of these rows are used, %", "", Kind::kExact},
          &PaddedRowsUsed, {{"%", "50", {8, 1}, {kPadWhy, "56"}}}),
      Row<Ranks>(
          {"SH8", "Shift Parallelism, Section 3.3.1", "SP = 3, TP = 2: orders and groups of ranks, read as digits of a number",
           "0 2 4 1 3 5 reads 24135", Kind::kExact},
          &RankList,
          {{"ranks in the order of heads", "24135", &InOrderOfHeads}, {"heads in the order of ranks", "31425", &HeadsOfRanks},
           {"TP group of rank 0", "1", &TpGroup<0>}, {"TP group of rank 2", "23", &TpGroup<2>}, {"TP group of rank 4", "45", &TpGroup<4>},
           {"SP group of rank 0", "24", &SpGroup<0>}, {"SP group of rank 1", "125", &SpGroup<1>, {kGroupWhy, "135"}}}),
      Row<Degrees>(
          {"SHW", "beyond the paper", "Llama-3.1-70B: bytes that a row of a layer sends in all-to-alls", "n (s - 1) / s (2 h + 2 k) D a: its closed form",
           Kind::kExact},
          &AllToAllBytes, {{"SP = 8", "32256", {8, 1}}, {"SP = 4, TP = 2", "27648", {4, 2}}}),
  };
}
// clang-format on

}  // namespace forebay::repro
