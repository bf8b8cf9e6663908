// Shift Parallelism (arXiv 2509.16495): what follows from shapes alone, and what is simulated.
#include <algorithm>
#include <iterator>

#include "choose/decide.h"
#include "fabric/collectives.h"
#include "layout/shift_plan.h"
#include "model/builtin_configs.h"
#include "model/decoder_weights.h"
#include "model/modes.h"
#include "repro/claim.h"
#include "repro/shift/rows.h"
#include "repro/shift/traffic.h"

namespace forebay::repro {
namespace {

using model::Degrees;

constexpr char kQwen[] = "Qwen3-32B", kMoe[] = "Qwen3-30B-A3B", kScout[] = "Llama-4-Scout";

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
        LayerBytes(model::PlanDecoder(config, tensor::DType::kBF16, cut, mode)));
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
  FB_ASSIGN_OR_RETURN(const choose::Decision one, choose::Decide(options, config));
  options.shift.mode.reset();
  options.shift.threshold = 256;
  FB_ASSIGN_OR_RETURN(const choose::Decision shifting, choose::Decide(options, config));
  const auto weights = [](const layout::LayoutPlan& plan) {
    return static_cast<double>(plan.ranks[0].memory.bytes(layout::RegionUse::kWeights));
  };
  return Finding{.calibrated = 100 * (weights(shifting) - weights(one)) / weights(one)};
}

base::Result<choose::Decision> PlanLlama(const char* layout, const layout::ShiftOptions& shift) {
  layout::EngineOptions options;
  FB_ASSIGN_OR_RETURN(options.machine.devices, layout::ParseDevices("sim:8xh200"));
  FB_ASSIGN_OR_RETURN(options.layout, layout::ParseLayout(layout));
  options.machine.quantization.format = cost::NumberFormat::kFP8;
  options.shift = shift;
  FB_ASSIGN_OR_RETURN(const model::ModelConfig config, model::LoadBuiltinConfig(kLlama));
  return choose::Decide(options, config);
}

double KvTokens(const layout::LayoutPlan& plan) {
  return static_cast<double>(plan.ranks[0].memory.kv_tokens());
}

FindingOr KvOfViews(const Degrees&, double, Lab&) {
  layout::ShiftOptions shift{.threshold = 256};
  FB_ASSIGN_OR_RETURN(const choose::Decision views, PlanLlama("sp=8", shift));
  shift.copies_weights = true;
  FB_ASSIGN_OR_RETURN(const choose::Decision copy, PlanLlama("sp=8", shift));
  return Finding{
      .calibrated = KvTokens(views) / KvTokens(copy),
      .account = {{"KV tokens", KvTokens(views)}, {"with a second model", KvTokens(copy)}}};
}

// What all layers pooled along sp come to.
enum class PoolFigure : uint8_t { kKv, kFetchMs, kHiddenRows };

FindingOr PoolAlongSp(const PoolFigure& figure, double, Lab&) {
  FB_ASSIGN_OR_RETURN(const choose::Decision copies, PlanLlama("sp=8", {}));
  FB_ASSIGN_OR_RETURN(const choose::Decision pooled, PlanLlama("sp=8,weights=striped,pool=80", {}));
  FB_CHECK(!pooled.mode_prices.empty(), "no prices of modes");
  const double fetch = pooled.mode_prices.front().seconds.front();
  double hidden = 0;
  for (size_t i = copies.mode_prices.size(); i-- > 0;) {
    if (copies.mode_prices[i].seconds.front() < fetch) break;
    hidden = static_cast<double>(copies.mode_prices[i].rows);
  }
  const double kv = KvTokens(pooled) / KvTokens(copies);
  return Finding{.calibrated = figure == PoolFigure::kKv        ? kv
                               : figure == PoolFigure::kFetchMs ? 1e3 * fetch
                                                                : hidden,
                 .account = {{"KV tokens over copies", kv},
                             {"fetch ms", 1e3 * fetch},
                             {"rows of a step that takes as long", hidden}}};
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

constexpr std::string_view kPadWhy = "9 of 16 rows are 56 %";
constexpr std::string_view kGroupWhy =
    "rank 2 is in the group of ranks 0, 2 and 4, and groups of one kind share no rank";

constexpr std::string_view kSh1 =
    "prompts of random tokens: no prefix is shared; 8192 tokens a step; Shift Parallelism takes "
    "one "
    "of its two modes, by price; sums of TP travel in fp32, exactly";
constexpr std::string_view kSh1Bf16 =
    "as SH1, but for sums of TP, which are priced as if they travelled in bf16 (--sim-tp-wire)";
constexpr std::string_view kSh3 = "as SH1; Qwen3-32B up to 32K: its context ends at 40,960 tokens";
constexpr std::string_view kSh2 =
    "requests of 150 + 200 and 6000 + 250 tokens in turn, 2 a second, in each burst 20 a second "
    "for "
    "10 s: lengths and rates are ours";
constexpr std::string_view kSh4 = "160 requests, a Poisson process";
constexpr std::string_view kSh4Above = "a Poisson process; the account has shorter runs";
constexpr std::string_view kSh4Printed =
    "160 requests, a Poisson process; TTFT + 250 x TPOT is one interval too many";
constexpr std::string_view kSh9 =
    "16 M tokens of prompts, at most 1,920 requests; the H100's tables are the H200's; Qwen3-32B "
    "up to 32K; shares are "
    "of what a rank is busy with; overhead is the host's time of a step; "
    "the paper takes one cost at a time to 0: kernels follow each other here, so that a cost's "
    "share is what that would save";
constexpr std::string_view kSh10 = "a byte a weight, bf16 KV; the default step of 16,384 rows";
constexpr std::string_view kSh14 =
    "as SH1; experts cut over TP's ranks, whole; Scout's layout is SP = 4, TP = 2; balanced "
    "experts";
constexpr std::string_view kBest = "budgets of 2048, 4096, 8192 and 16384 tokens a step";
constexpr std::string_view kSha =
    "every second request; gaps as recorded, times one number so that they come at .5, 1 and 2 "
    "times the rate at which DP ends them where all are there at once; as SH1";
constexpr std::string_view kLowestWhy =
    "Figure 9 gives 9.34 ms to TP, and 10.1 ms to Shift Parallelism";
constexpr std::string_view kBurstsWhy = "Table 5 gives 1,355 and 148 ms";
constexpr std::string_view kLossWhy = "37.4 of 45.9 K tok/s are 18.5 % less";

// Prompts of so many times 1024 tokens fit into the model's context.
int LongestThousands(std::string_view model) { return model == kQwen ? 32 : 128; }

using ComparedValue = Keyed<Compared>;

std::string Short(const std::string& model) { return model == kLlama ? "Llama" : "Qwen3"; }

// The cells of figure 9 for one model: DP, TP, SP, Shift.
std::vector<Keyed<TradeOff>> TradeOffCells(const std::string& model, Figure figure,
                                           std::vector<std::string_view> printed) {
  std::vector<Keyed<TradeOff>> cells;
  const ShiftLayout layouts[] = {kDp8, kTp8, kSp8, kShift};
  for (size_t i = 0; i < std::size(layouts); ++i)
    cells.push_back({NameOf(layouts[i]), printed[i], {model, layouts[i], figure}});
  return cells;
}

// The cells of TP and Shift Parallelism, whose sums would be half as long in bf16.
std::vector<Keyed<TradeOff>> CellsOfBf16Sums() {
  struct Printed {
    const char* model;
    Figure figure;
    const char *name, *tp, *shift;
  };
  std::vector<Keyed<TradeOff>> cells;
  for (const Printed& cell : {Printed{kLlama, Figure::kTtft, "TTFT", "159", "102"},
                              {kLlama, Figure::kTpot, "TPOT", "9.34", "10.1"},
                              {kLlama, Figure::kTokens, "tokens", "24.7", "37.4"},
                              {kQwen, Figure::kTtft, "TTFT", "113", "86.41"},
                              {kQwen, Figure::kTpot, "TPOT", "8.68", "9.48"},
                              {kQwen, Figure::kTokens, "tokens", "38.3", "53.8"}}) {
    for (const auto& [layout, printed] : {std::pair{kTp8, cell.tp}, {kShift, cell.shift}})
      cells.push_back({fmt::format("{}, {}: {}", Short(cell.model), NameOf(layout), cell.name),
                       printed,
                       {cell.model, layout, cell.figure, true}});
  }
  return cells;
}

// Shift Parallelism against DP and TP, by the length of prompts.
std::vector<ComparedValue> ByLength(Figure figure, const ShiftLayout& other,
                                    std::string_view printed) {
  std::vector<ComparedValue> values;
  for (const char* const model : {kLlama, kQwen}) {
    for (const int thousands : {2, 4, 8, 16, 32, 64, 128}) {
      if (thousands > LongestThousands(model)) continue;
      // The longest and its output fit into 128K.
      const int32_t prompt = std::min(thousands * 1024, 128 * 1024 - 250);
      const auto run = [&](const ShiftLayout& layout) {
        return figure == Figure::kTokens ? AtOnce(model, layout, prompt)
                                         : OneAtATime(model, layout, prompt);
      };
      values.push_back({fmt::format("{}, {}K, over {}", Short(model), thousands, NameOf(other)),
                        printed,
                        {figure, run(kShift), {run(other)}}});
    }
  }
  return values;
}

std::vector<Compared> AllLengths(Figure figure, const ShiftLayout& other) {
  std::vector<Compared> cells;
  for (ComparedValue& value : ByLength(figure, other, "> 1")) cells.push_back(std::move(value.key));
  return cells;
}

// The same of the models with experts, of which Scout's layout is SP = 4, TP = 2 (section 4.6).
std::vector<Compared> WithExperts(Figure figure) {
  std::vector<Compared> cells;
  for (const char* const model : {kMoe, kScout}) {
    const auto run = [&](const ShiftLayout& layout) {
      return figure == Figure::kTokens ? AtOnce(model, layout, 2048)
                                       : OneAtATime(model, layout, 2048);
    };
    cells.push_back({figure, run(model == kMoe ? kShift : kShiftOfScout), {run(kTp8)}});
  }
  return cells;
}
void AddWithExperts(Figure figure, std::string_view name, std::string_view printed,
                    std::vector<ComparedValue>* values) {
  for (Compared& cell : WithExperts(figure)) {
    values->push_back(
        {fmt::format("{}, {}K{}", cell.above.model, cell.above.traffic.prompt / 1024, name),
         printed, std::move(cell)});
  }
}
std::vector<ComparedValue> TokensWithExperts() {
  std::vector<ComparedValue> values;
  AddWithExperts(Figure::kTokens, "", "> 1", &values);
  return values;
}
std::vector<ComparedValue> LatencyWithExperts() {
  std::vector<ComparedValue> values;
  AddWithExperts(Figure::kTtft, ": TTFT", "< 1.02", &values);
  AddWithExperts(Figure::kTpot, ": TPOT", "< 1.02", &values);
  return values;
}

// What the fastest layout of Figure 14's smallest model does with short prompts.
FindingOr PeakWithExperts(const ShiftLayout& layout, double, Lab& lab) {
  FB_ASSIGN_OR_RETURN(const ShiftOutcome outcome, RunShift(AtOnce(kMoe, layout, 2048), lab));
  return Finding{.calibrated = 1e-3 * outcome.tokens_per_s,
                 .account = TermsOf(outcome),
                 .shortened = outcome.shortened};
}
Compared ShortOverDp(const ShiftLayout& layout) {
  return {Figure::kTokens, AtOnce(kMoe, layout, 2048), {AtOnce(kMoe, kDp8, 2048)}};
}

// What Shift Parallelism is compared with beyond the paper's DP and TP.
constexpr ShiftLayout kFurther[] = {kSp8, kSp4Tp2, kTwoTp4, kFourTp2};

// Over DP and TP, where requests come at these rates; as they are, or all at their best step
// budgets and over every other layout too.
template <typename Key>
std::vector<Keyed<Key>> ByRates(Figure figure) {
  std::vector<Keyed<Key>> values;
  const auto add = [&](const char* model, double rate) {
    Compared cell{figure,
                  Arriving(model, kShift, rate),
                  {Arriving(model, kDp8, rate), Arriving(model, kTp8, rate)}};
    if constexpr (std::is_same_v<Key, AtBest>) {
      for (const ShiftLayout& layout : kFurther)
        cell.below.push_back(Arriving(model, layout, rate));
    }
    values.push_back(
        {fmt::format("{}, {} requests/s", Short(model), rate), "< 1.02", Key{std::move(cell)}});
  };
  for (const double rate : {0.5, 1.0, 2.0, 3.0, 4.0}) add(kLlama, rate);
  for (const double rate : {0.5, 1.0, 2.0, 3.0, 4.0, 6.0}) add(kQwen, rate);
  return values;
}

std::vector<Keyed<LongRuns>> AboveCapacity() {
  std::vector<Keyed<LongRuns>> values;
  for (const char* const model : {kLlama, kQwen})
    values.push_back(
        {std::string(Short(model)) + ", 1600 requests", "> 1", {model, 12, {100, 400, 1600}}});
  return values;
}

constexpr int kBurstRate = 20;

Compared Bursts(Figure figure, const ShiftLayout& above, const ShiftLayout& below,
                int rate = kBurstRate) {
  return {figure, InBursts(kLlama, above, rate), {InBursts(kLlama, below, rate)}};
}

// The orders of table 5; at the best step budgets over every other layout too.
template <typename Key>
std::vector<Keyed<Key>> BurstRatios() {
  const auto ratio = [](std::string label, const char* printed, Figure figure,
                        const ShiftLayout& below) {
    return Keyed<Key>{std::move(label), printed, Key{Bursts(figure, kShift, below)}};
  };
  std::vector<Keyed<Key>> values = {ratio("median TTFT over DP", "< 1", Figure::kMedianTtft, kDp8),
                                    ratio("median TTFT over TP", "< 1", Figure::kMedianTtft, kTp8),
                                    ratio("median TPOT over DP", "< 1", Figure::kMedianTpot, kDp8),
                                    ratio("median TPOT over TP", "< 1", Figure::kMedianTpot, kTp8),
                                    ratio("peak over DP", "< 1", Figure::kPeak, kDp8),
                                    ratio("peak over TP", "> 1", Figure::kPeak, kTp8)};
  for (const ShiftLayout& layout : kFurther) {
    if (!std::is_same_v<Key, AtBest>) break;
    const std::string over = " over " + NameOf(layout);
    values.push_back(ratio("median TTFT" + over, "< 1.02", Figure::kMedianTtft, layout));
    values.push_back(ratio("median TPOT" + over, "< 1.02", Figure::kMedianTpot, layout));
    values.push_back(ratio("peak" + over, "> 0.98", Figure::kPeak, layout));
  }
  return values;
}
constexpr int kBurstRates[] = {5, 8, 10, 20, 40};

// Peaks by the height of bursts, of which the source says nothing.
std::vector<ComparedValue> Peaks() {
  std::vector<ComparedValue> values;
  for (const int rate : kBurstRates) {
    for (const auto& [below, printed] : {std::pair{kDp8, ".915"}, {kTp8, "1.35"}})
      values.push_back({fmt::format("{} requests/s, over {}", rate, NameOf(below)), printed,
                        Bursts(Figure::kPeak, kShift, below, rate)});
  }
  return values;
}
// The same, each as a ratio above 1.
Counted OrdersOfBursts(int rate) {
  return {1,
          {Bursts(Figure::kMedianTtft, kDp8, kShift, rate),
           Bursts(Figure::kMedianTtft, kTp8, kShift, rate),
           Bursts(Figure::kMedianTpot, kDp8, kShift, rate),
           Bursts(Figure::kMedianTpot, kTp8, kShift, rate),
           Bursts(Figure::kPeak, kDp8, kShift, rate), Bursts(Figure::kPeak, kShift, kTp8, rate)}};
}

std::vector<Keyed<Counted>> OrdersByRate() {
  std::vector<Keyed<Counted>> values;
  for (const int rate : kBurstRates)
    values.push_back({fmt::format("{} requests/s", rate), "> 5", OrdersOfBursts(rate)});
  return values;
}

// A figure of the first H100 layout over that of the second, by length.
std::vector<ComparedValue> CollectivesByLength() {
  std::vector<ComparedValue> values;
  for (const int thousands : {2, 8, 32, 128}) {
    const int32_t prompt = std::min(thousands * 1024, 128 * 1024 - 250);
    values.push_back(
        {fmt::format("Llama, {}K: SP4xTP2 over TP8", thousands),
         "< 1",
         {Figure::kCollectives, OnH100(kLlama, kSp4Tp2, prompt), {OnH100(kLlama, kTp8, prompt)}}});
    if (thousands > LongestThousands(kQwen)) continue;
    values.push_back(
        {fmt::format("Qwen3, {}K: SP8 over TP8", thousands),
         "< 1",
         {Figure::kCollectives, OnH100(kQwen, kSp8, prompt), {OnH100(kQwen, kTp8, prompt)}}});
  }
  return values;
}
std::vector<ComparedValue> SharesByLength(Figure figure, std::string_view printed) {
  std::vector<ComparedValue> values;
  const auto add = [&](const char* model, const ShiftLayout& layout) {
    const int longest = LongestThousands(model);
    const int32_t prompt = std::min(longest * 1024, 128 * 1024 - 250);
    values.push_back({fmt::format("{}, {}: {}K over 2K", Short(model), NameOf(layout), longest),
                      printed,
                      {figure, OnH100(model, layout, prompt), {OnH100(model, layout, 2048)}}});
  };
  for (const ShiftLayout& layout : {kFourTp2, kTp8, kSp4Tp2}) add(kLlama, layout);
  for (const ShiftLayout& layout : {kDp8, kTp8, kSp8}) add(kQwen, layout);
  return values;
}

ShiftLayout ShiftBy(bool ends, int64_t threshold) {
  ShiftLayout layout = kShift;
  layout.ends = ends;
  layout.threshold = threshold;
  return layout;
}

// All modes over the two ends, or the ends by price over one threshold, in tokens a second.
std::vector<Compared> ModesCompared(const ShiftLayout& above, const ShiftLayout& below) {
  std::vector<Compared> cells;
  for (const char* const model : {kLlama, kQwen}) {
    for (const int32_t running : {256, 512, 768})
      cells.push_back({Figure::kTokens,
                       Decoding128(model, above, running),
                       {Decoding128(model, below, running)}});
  }
  return cells;
}
std::vector<ComparedValue> EachOf(std::vector<Compared> cells) {
  std::vector<ComparedValue> values;
  for (Compared& cell : cells) {
    const ShiftLayout& below = cell.below.front().layout;
    values.push_back(
        {fmt::format("{}, {} running{}", Short(cell.above.model), cell.above.traffic.running,
                     below.threshold > 0 ? fmt::format(", {}", below.threshold) : ""),
         "> 0.99", std::move(cell)});
  }
  return values;
}
std::vector<ComparedValue> ThresholdsCompared() {
  std::vector<ComparedValue> values;
  for (const int64_t threshold : {256, 512}) {
    for (ComparedValue& value : EachOf(ModesCompared(ShiftBy(true, 0), ShiftBy(true, threshold))))
      values.push_back(std::move(value));
  }
  return values;
}

std::vector<Keyed<AtBest>> Baselines(const std::string& model) {
  const auto over = [&](const ShiftLayout& below, std::string_view printed) {
    return Keyed<AtBest>{"Shift over " + NameOf(below),
                         printed,
                         {{Figure::kTokens, AtOnce(model, kShift), {AtOnce(model, below)}}}};
  };
  return {over(kTp8, "> 1"),    over(kTwoTp4, "> 1"), over(kFourTp2, "> 1"),
          over(kSp4Tp2, "> 1"), over(kSp8, "> 0.99"), over(kDp8, "< 1")};
}

Compared AtOnceOver(Figure figure, const ShiftLayout& above, const ShiftLayout& below) {
  return {figure, AtOnce(kLlama, above), {AtOnce(kLlama, below)}};
}
Compared AloneOver(Figure figure, const ShiftLayout& above, const ShiftLayout& below) {
  return {figure, OneAtATime(kLlama, above), {OneAtATime(kLlama, below)}};
}

// DP's peak is 1.23 times Shift Parallelism's in figure 9: what it may be behind where DP is full.
std::vector<Keyed<UnderLoad>> Loads(Recording recorded) {
  return {{"half of what DP sustains", "< 1.02", {recorded, 0.5}},
          {"all of it", "< 1.23", {recorded, 1}},
          {"twice as much", "< 1.23", {recorded, 2}}};
}

FindingOr LossAgainstDp(const std::string& model, double, Lab& lab) {
  FB_ASSIGN_OR_RETURN(
      Finding finding,
      Compare({Figure::kTokens, AtOnce(model, kShift), {AtOnce(model, kDp8)}}, 0, lab));
  finding.calibrated = 100 * (1 - finding.calibrated);
  return finding;
}

}  // namespace

// clang-format off
std::vector<Claim> ShiftClaims() {
  std::vector<Claim> claims = {
      Row<Degrees>(
          {"SH6", "Shift Parallelism, Section 3.3.2", "Weights of a second model for tp alone, % of the layout's",
           "Llama-3.1-70B, bf16, the layers' matrices", Kind::kExact},
          &CopiedWeights, {{"SP = 8", "12.5", {8, 1}}, {"SP = 4", "25", {4, 1}}, {"SP = 2", "50", {2, 1}}, {"SP = 4, TP = 2", "25", {4, 2}}}),
      Row<Degrees>(
          {"SH6.views", kBeyondThePaper, "The same where the weights of modes are views, %", "", Kind::kExact},
          &ViewedWeights, {{"SP = 8", "0.0", {8, 1}}, {"SP = 4, TP = 2", "0.0", {4, 2}}}),
      Row<Degrees>(
          {"SH6.kv", kBeyondThePaper, "Llama-3.1-70B, FP8, SP = 8: KV tokens with views over those with a second model", "", Kind::kBand, 0.02},
          &KvOfViews, {{"KV tokens", "1.16", {8, 1}}}),
      Row<PoolFigure>(
          {"SHX.pool", kBeyondThePaper, "Llama-3.1-70B, FP8, SP = 8: the FFN of all layers pooled along sp",
           "rows at four numbers an octave", Kind::kBand, 0.1},
          &PoolAlongSp,
          {{"KV tokens over copies", "1.75", PoolFigure::kKv}, {"a step's fetch, ms", "137", PoolFigure::kFetchMs}, {"rows that hide it", "7500", PoolFigure::kHiddenRows}}),
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
      Row<MoeLayout>(
          {"SHW", kBeyondThePaper, "Llama-3.1-70B: bytes that a row of a layer sends in all-to-alls", "n (s - 1) / s (2 h + 2 k) D a: its closed form",
           Kind::kExact},
          &AllToAllBytes, {{"SP = 8", "32256", {kLlama, {8, 1}}}, {"SP = 4, TP = 2", "27648", {kLlama, {4, 2}}}}),
      Row<CountedBytes>(
          {"SHW.counted", kBeyondThePaper, "The same by the counters of a step of 8,064 rows, and what sums move", "prices of the datasheet, but for one meeting; 2 (t - 1) d (4 + a) and, in one meeting, 8 t (t - 1) d: closed forms", Kind::kExact},
          &BytesCounted,
          {{"TP = 8: sums", "688128", {kTp8, true}}, {"SP = 4, TP = 2: sums", "98304", {kSp4Tp2, true}}, {"SP = 4, TP = 2: all-to-alls", "27648", {kSp4Tp2}},
           {"TP = 8: sums in one meeting", "3670016", {kTp8, true, false}}, {"SP = 8: all-to-alls", "32256", {kSp8}}}),
      Row<TradeOff>(
          {"SH1.ttft.Llama", "Shift Parallelism, Figure 9", "Llama-3.1-70B, FP8, 8 x H200, 4000 + 250 tokens, one at a time: TTFT, ms",
           kSh1, Kind::kBand, 0.1}, &TradeOffCell, TradeOffCells(kLlama, Figure::kTtft, {"614", "159", "103", "102"})),
      Row<TradeOff>(
          {"SH1.tpot.Llama", "Shift Parallelism, Figure 9", "The same: TPOT, ms", kSh1, Kind::kBand, 0.1},
          &TradeOffCell, TradeOffCells(kLlama, Figure::kTpot, {"22.5", "9.34", "32.5", "10.1"})),
      Row<TradeOff>(
          {"SH1.tokens.Llama", "Shift Parallelism, Figure 9", "The same, 2,000 at once: prompt and output tokens, K tok/s", kSh1, Kind::kBand, 0.1},
          &TradeOffCell, TradeOffCells(kLlama, Figure::kTokens, {"45.9", "24.7", "37.2", "37.4"})),
      Row<TradeOff>(
          {"SH1.ttft.Qwen3", "Shift Parallelism, Figure 9", "Qwen3-32B, the same: TTFT, ms", kSh1, Kind::kBand, 0.1},
          &TradeOffCell, TradeOffCells(kQwen, Figure::kTtft, {"385", "113", "79.8", "86.41"})),
      Row<TradeOff>(
          {"SH1.tpot.Qwen3", "Shift Parallelism, Figure 9", "Qwen3-32B, the same: TPOT, ms", kSh1, Kind::kBand, 0.1},
          &TradeOffCell, TradeOffCells(kQwen, Figure::kTpot, {"18.8", "8.68", "24.4", "9.48"})),
      Row<TradeOff>(
          {"SH1.tokens.Qwen3", "Shift Parallelism, Figure 9", "Qwen3-32B, 2,000 at once: K tok/s", kSh1, Kind::kBand, 0.1},
          &TradeOffCell, TradeOffCells(kQwen, Figure::kTokens, {"70.1", "38.3", "52.3", "53.8"})),
      Row<TradeOff>(
          {"SH1.bf16", "Shift Parallelism, Figure 9", "TTFT and TPOT in ms, 2,000 at once in K tok/s, sums in bf16", kSh1Bf16, Kind::kBand, 0.1},
          &TradeOffCell, CellsOfBf16Sums()),
      Row<AtBest>(
          {"SHB.Llama", kBeyondThePaper, "Llama-3.1-70B, 2,000 at once: tokens/s, each at its best step budget",
           kBest, Kind::kOrder}, &BestOverBest, Baselines(kLlama)),
      Row<AtBest>(
          {"SHB.Qwen3", kBeyondThePaper, "Qwen3-32B, the same", "", Kind::kOrder}, &BestOverBest, Baselines(kQwen)),
      Row<AtBest>(
          {"SHB.bursts", kBeyondThePaper, "SH2 with each layout at its best step budget, by figure", kBest, Kind::kOrder},
          &BestOverBest, BurstRatios<AtBest>()),
      Row<AtBest>(
          {"SHB.rates", kBeyondThePaper, "SH4.exact with each layout at its best step budget", kBest, Kind::kOrder},
          &BestOverBest, ByRates<AtBest>(Figure::kCompletion)),
      Row<UnderLoad>(
          {"SHA.code", kBeyondThePaper, "Llama-3.1-70B, Azure's code trace, its busiest 15 minutes: mean completion of Shift Parallelism over the best layout that does not shift", kSha,
           Kind::kOrder, 0, {}, true},
          &CompletionUnderLoad, Loads(Recording::kAzureCode)),
      Row<UnderLoad>(
          {"SHA.conversation", kBeyondThePaper, "The same of Azure's conversation trace", kSha, Kind::kOrder, 0, {}, true},
          &CompletionUnderLoad, Loads(Recording::kAzureConversation)),
      Row<Compared>(
          {"SH2", "Shift Parallelism, Table 5", "Llama-3.1-70B, a stream with four bursts: Shift Parallelism over DP and TP", kSh2, Kind::kOrder},
          &Compare, BurstRatios<Compared>()),
      Row<Compared>(
          {"SH2.peak", "Shift Parallelism, Table 5", "The same by the height of bursts: peak tokens/s over a second, ratios", kSh2, Kind::kBand, 0.15},
          &Compare, Peaks()),
      Row<Counted>(
          {"SH2.sweep", kBeyondThePaper, "The same by the height of bursts: of the six orders of SH2 hold", "the requests and the stream of SH2, bursts of 10 s", Kind::kOrder, 0, {}, true},
          &CountThatHold, OrdersByRate()),
      Row<Compared>(
          {"SH3.ttft", "Shift Parallelism, Figures 10 and 14", "One at a time, by length of prompts: Shift Parallelism's TTFT over DP's", kSh3, Kind::kOrder},
          &Compare, ByLength(Figure::kTtft, kDp8, "< 1")),
      Row<Compared>(
          {"SH3.ttft.TP", "Shift Parallelism, Figures 10 and 14", "The same over TP's", kSh3, Kind::kOrder}, &Compare, ByLength(Figure::kTtft, kTp8, "< 1")),
      Row<Compared>(
          {"SH3.tpot", "Shift Parallelism, Figures 10 and 14", "The same: TPOT over DP's", kSh3, Kind::kOrder}, &Compare, ByLength(Figure::kTpot, kDp8, "< 1")),
      Row<Compared>(
          {"SH3.tokens", "Shift Parallelism, Figures 10 and 14", "All at once: tokens/s over TP's", "8 M tokens of prompts, at most 2,000 requests; Qwen3-32B up to 32K",
           Kind::kOrder}, &Compare, ByLength(Figure::kTokens, kTp8, "> 1")),
      Row<Extreme>(
          {"SH3.most", "Shift Parallelism, Section 4", "The same: the most that Shift Parallelism gains by any length, of both models",
           "as SH3: two-sided, where SH3's other rows are orders", Kind::kBand, 0.1},
          &MostGained,
          {{"TTFT over DP", "6.97", {true, AllLengths(Figure::kTtft, kDp8)}}, {"TTFT over TP", "1.56", {true, AllLengths(Figure::kTtft, kTp8)}},
           {"TPOT over DP", "2.45", {true, AllLengths(Figure::kTpot, kDp8)}}, {"tokens/s over TP", "1.51", {false, AllLengths(Figure::kTokens, kTp8)}}}),
      Row<ByRate>(
          {"SH4.cross", "Shift Parallelism, Figure 11", "8K + 250 tokens: how often completion times of DP and TP cross", kSh4, Kind::kExact},
          &Crossings, {{"Llama, .5 to 12 requests/s", "1", {kLlama, {0.5, 1, 2, 3, 4, 6, 8, 12}}}, {"Qwen3", "1", {kQwen, {0.5, 1, 2, 3, 4, 6, 8, 12}}}}),
      Row<Compared>(
          {"SH4", "Shift Parallelism, Figure 11", "The same: completion as printed, Shift Parallelism's over the better of DP and TP",
           kSh4Printed, Kind::kOrder}, &Compare, ByRates<Compared>(Figure::kPrinted)),
      Row<Compared>(
          {"SH4.exact", "Shift Parallelism, Figure 11", "The same, completion as it is", kSh4, Kind::kOrder}, &Compare, ByRates<Compared>(Figure::kCompletion)),
      Row<LongRuns>(
          {"SH4.above", "Shift Parallelism, Figure 11", "The same at 12 requests/s, more than is sustained: Shift Parallelism's over DP's in a long run, whose peak wins there", kSh4Above,
           Kind::kOrder, 0, {}, true},
          &ByRunLength, AboveCapacity()),
      Row<Compared>(
          {"SH9", "Shift Parallelism, Figure 13", "8 x H100, FP8: seconds of a rank in collectives", kSh9, Kind::kOrder}, &Compare, CollectivesByLength()),
      Row<Compared>(
          {"SH9.overhead", "Shift Parallelism, Figure 13", "The same: the share of overhead, long prompts over short ones", kSh9, Kind::kOrder},
          &Compare, SharesByLength(Figure::kOverheadShare, "< 1")),
      Row<Compared>(
          {"SH9.attention", "Shift Parallelism, Figure 13", "The same: the share of attention", kSh9, Kind::kOrder},
          &Compare, SharesByLength(Figure::kAttentionShare, "> 1")),
      Row<MoeLayout>(
          {"SH10", "Shift Parallelism, Section 4.6", "Qwen3-30B-A3B: copies of a KV head at SP = 8", "", Kind::kExact},
          &CopiesOfKvHeads, {{"copies", "2", {kMoe, {8, 1}}}}),
      Row<MoeLayout>(
          {"SH10.heads", kBeyondThePaper, "KV heads of ranks 0 to 7, counted from 1 and read as digits of a number", "", Kind::kExact},
          &KvHeadsOfRanks,
          {{"Qwen3-30B-A3B, SP = 8", "11223344", {kMoe, {8, 1}}}, {"Scout, SP = 8", "12345678", {kScout, {8, 1}}}, {"Scout, SP = 4, TP = 2", "15263748", {kScout, {4, 2}}}}),
      Row<MoeLayout>(
          {"SH10.bytes", kBeyondThePaper, "The same: bytes that a row of a layer sends in all-to-alls", "n (s - 1) / s (2 h + 2 k R) D a: its closed form", Kind::kExact},
          &AllToAllBytes,
          {{"Qwen3-30B-A3B, SP = 8", "17920", {kMoe, {8, 1}}}, {"Scout, SP = 8", "21504", {kScout, {8, 1}}}, {"Scout, SP = 4, TP = 2", "18432", {kScout, {4, 2}}}}),
      Row<MoeLayout>(
          {"SH10.kv", kBeyondThePaper, "The same, FP8 on 8 x H200: millions of KV tokens of the engine's plan; printed by hand from the models' sizes, without workspace", kSh10, Kind::kBand, 0.02},
          &MoeKvTokens,
          {{"Qwen3-30B-A3B, SP = 8", "4.14", {kMoe, {8, 1}}}, {"Scout, SP = 8", ".997", {kScout, {8, 1}}}, {"Scout, SP = 4, TP = 2", "3.19", {kScout, {4, 2}}}}),
      Row<MoeLayout>(
          {"SH10.Scout", "Shift Parallelism, Section 4.6", "Llama-4-Scout, FP8: KV tokens at SP = 4, TP = 2 over SP = 8", kSh10, Kind::kOrder},
          &MoeKvTokensOverSp, {{"KV tokens", "> 1", {kScout, {4, 2}}}}),
      Row<ShiftLayout>(
          {"SH14.peak", "Shift Parallelism, Section 4.6", "Qwen3-30B-A3B, FP8, 8 x H200, 2K + 250 tokens, 2,000 at once: K tok/s", kSh14, Kind::kBand, 0.1},
          &PeakWithExperts, {{"DP8", "250", kDp8}}),
      Row<Compared>(
          {"SH14.drop", "Shift Parallelism, Section 4.6", "The same: tokens/s over DP's, from which they suddenly drop", kSh14, Kind::kOrder},
          &Compare, {{"TP8", "< 1", ShortOverDp(kTp8)}, {"SP8", "< 1", ShortOverDp(kSp8)}, {"Shift", "< 1", ShortOverDp(kShift)}}),
      Row<Compared>(
          {"SH14.tokens", "Shift Parallelism, Figure 14", "Models with experts, all at once: Shift Parallelism's tokens/s over TP's", kSh14, Kind::kOrder},
          &Compare, TokensWithExperts()),
      Row<Extreme>(
          {"SH14.most", "Shift Parallelism, Section 4.6", "The same: the most of both models", kSh14, Kind::kBand, 0.1},
          &MostGained, {{"tokens/s over TP", "1.5", {false, WithExperts(Figure::kTokens)}}}),
      Row<Compared>(
          {"SH14.latency", "Shift Parallelism, Section 4.6", "Models with experts, one at a time: Shift Parallelism's over TP's, which it does not increase", kSh14, Kind::kOrder},
          &Compare, LatencyWithExperts()),
      Row<MoeLayout>(
          {"SH14.ep.kv", kBeyondThePaper, "SP with EP, the paper's future work: KV tokens where ranks along sp share the experts, over those where each has all", kSh10, Kind::kOrder},
          &KvOfSharedExperts, {{"Scout, SP = 8", "> 3", {kScout, {8, 1}}}, {"Qwen3-30B-A3B, SP = 8", "> 1", {kMoe, {8, 1}}}}),
      Row<Compared>(
          {"SH14.ep", kBeyondThePaper, "The same, shifting: tokens/s of 2K + 250 tokens, all at once", kSh14, Kind::kOrder},
          &Compare,
          {{"Scout, over SP = 4, TP = 2", "> 1", {Figure::kTokens, AtOnce(kScout, kShiftByExpert, 2048), {AtOnce(kScout, kShiftOfScout, 2048)}}},
           {"Qwen3-30B-A3B, over SP = 8", "> 1", {Figure::kTokens, AtOnce(kMoe, kShiftByExpert, 2048), {AtOnce(kMoe, kShift, 2048)}}}}),
      Row<Compared>(
          {"SHT", "Shift Parallelism, Tables 1 and 3", "Llama-3.1-70B: who wins in low and in high traffic", "4000 + 250 tokens, one at a time and 2,000 at once",
           Kind::kOrder}, &Compare,
          {{"low, TTFT: SP over TP", "< 1", AloneOver(Figure::kTtft, kSp8, kTp8)}, {"low, TTFT: SP over DP", "< 1", AloneOver(Figure::kTtft, kSp8, kDp8)},
           {"low, TPOT: TP over SP", "< 1", AloneOver(Figure::kTpot, kTp8, kSp8)}, {"low, TPOT: TP over DP", "< 1", AloneOver(Figure::kTpot, kTp8, kDp8)},
           {"high, TTFT: SP over TP", "< 1", AtOnceOver(Figure::kTtft, kSp8, kTp8)}, {"high, TTFT: SP over DP", "< 1", AtOnceOver(Figure::kTtft, kSp8, kDp8)},
           {"high, TPOT: SP over TP", "< 1", AtOnceOver(Figure::kTpot, kSp8, kTp8)}, {"high, TPOT: SP over DP", "< 1", AtOnceOver(Figure::kTpot, kSp8, kDp8)},
           {"high, tokens/s: DP over SP", "> 1", AtOnceOver(Figure::kTokens, kDp8, kSp8)}, {"high, tokens/s: SP over TP", "> 1", AtOnceOver(Figure::kTokens, kSp8, kTp8)}}),
      Row<TradeOff>(
          {"SHT.lowest", "Shift Parallelism, Section 4.3", "Llama-3.1-70B: the lowest TPOT, which is said to be Shift Parallelism's, ms", kSh1, Kind::kBand, 0.1},
          &TradeOffCell, {{"TPOT", "9.34", {kLlama, kShift, Figure::kTpot}, {kLowestWhy, "10.1"}}}),
      Row<Compared>(
          {"SHT.bursts", "Shift Parallelism, Section 4", "Llama-3.1-70B, bursts: DP's median TTFT over Shift Parallelism's", kSh2, Kind::kBand, 0.15},
          &Compare, {{"TTFT", "3.23", Bursts(Figure::kMedianTtft, kDp8, kShift), {kBurstsWhy, "9.16"}}}),
      Row<std::string>(
          {"SHT.loss", "Shift Parallelism, Section 1", "Llama-3.1-70B, 2,000 at once: tokens/s lost against DP, %", kSh1, Kind::kPoints, 5},
          &LossAgainstDp, {{"%", "17", kLlama, {kLossWhy, "18.5"}}}),
      Row<Compared>(
          {"SHX", kBeyondThePaper, "All modes over the two ends: tokens/s of 128 + 512 tokens", "three batches of requests, all at once", Kind::kOrder},
          &Compare, EachOf(ModesCompared(ShiftBy(false, 0), ShiftBy(true, 0)))),
      Row<int32_t>(
          {"SHX.costs", kBeyondThePaper, "Llama-3.1-70B, FP8: of linears, norms and collectives a mode between saves, %", "of the better of SP = 8 and TP = 8", Kind::kPoints, 2},
          &SavedBetween, {{"256 rows", "24", 256}, {"512 rows", "16", 512}}),
      Row<Counted>(
          {"SHX.gains", kBeyondThePaper, "The same: cells of six in which it is at least 1.05", "", Kind::kOrder},
          &CountThatHold, {{"cells", "> 2", {1.05, ModesCompared(ShiftBy(false, 0), ShiftBy(true, 0))}}}),
      Row<Compared>(
          {"SHX.threshold", kBeyondThePaper, "The two ends by price over a threshold of 256 and of 512 rows: tokens/s", "", Kind::kOrder},
          &Compare, ThresholdsCompared()),
  };
  std::ranges::move(TrafficClaims(), std::back_inserter(claims));
  return claims;
}
// clang-format on

}  // namespace forebay::repro
