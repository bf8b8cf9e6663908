// The scenarios of Shift Parallelism's rows that are simulated; the table is in claims.cc.
#pragma once

#include "repro/shift/runs.h"

namespace forebay::repro {

// Times are means in ms, but for the medians; `kPrinted` is the mean time to the first token and as
// often that of a token as there are tokens, one interval too many; shares are of all costs.
enum class Figure : uint8_t {
  kTtft,
  kTpot,
  kMedianTtft,
  kMedianTpot,
  kCompletion,
  kPrinted,
  kTokens,
  kPeak,
  kCollectives,
  kOverheadShare,
  kAttentionShare
};

// A cell of figure 9.
struct TradeOff {
  std::string model;
  ShiftLayout layout;
  Figure figure = Figure::kTtft;
  bool bf16_wire = false;
};
// A figure of one run over that of another; of several below, over the least.
struct Compared {
  Figure figure;
  ShiftRun above;
  std::vector<ShiftRun> below;
};
// How many of these hold: the figure of `above` is at least so many times that of `below`.
struct Counted {
  double at_least;
  std::vector<Compared> cells;
};
// The most by which one of these is better: times below over above, or rates above over below.
struct Extreme {
  bool times = false;
  std::vector<Compared> cells;
};
// Completion by arrival rate.
struct ByRate {
  std::string model;
  std::vector<double> rates;
};
// The same where each run has the step budget of kBudgets at which its figure is best.
struct AtBest {
  Compared compared;
};
// Mean completion under recorded traffic at so many times the rate that DP sustains: of Shift
// Parallelism over the least of all layouts that do not shift.
struct UnderLoad {
  Recording recorded;
  double load = 1;
};
// Runs of so many requests, which come faster than they are done.
struct LongRuns {
  std::string model;
  double rate;
  std::vector<int64_t> requests;
};
// What ranks counted in their sums, or in their all-to-alls: with prices of the datasheet, by which
// sums of many rows take two meetings, or with those of the measured all-reduce, which is one.
struct CountedBytes {
  ShiftLayout layout;
  bool sums = false, by_datasheet = true;
};
// What heads and KV make of a layout, by configuration.
struct MoeLayout {
  std::string model;
  model::Degrees layout;
};

// The runs of the rows.
ShiftRun AtOnce(std::string model, ShiftLayout layout, int32_t prompt = 4000);
ShiftRun OneAtATime(std::string model, ShiftLayout layout, int32_t prompt = 4000);
ShiftRun Arriving(std::string model, ShiftLayout layout, double rate, int64_t requests = 160);
ShiftRun InBursts(std::string model, ShiftLayout layout, int burst_rate);
ShiftRun Decoding128(std::string model, ShiftLayout layout, int32_t running);
ShiftRun OnH100(std::string model, ShiftLayout layout, int32_t prompt);

FindingOr TradeOffCell(const TradeOff& key, double claimed, Lab& lab);
FindingOr Compare(const Compared& key, double claimed, Lab& lab);
FindingOr CountThatHold(const Counted& key, double claimed, Lab& lab);
FindingOr MostGained(const Extreme& key, double claimed, Lab& lab);
FindingOr Crossings(const ByRate& key, double claimed, Lab& lab);
FindingOr BestOverBest(const AtBest& key, double claimed, Lab& lab);
FindingOr CompletionUnderLoad(const UnderLoad& key, double claimed, Lab& lab);
// Shift Parallelism's mean completion over DP's in the longest run; all lengths are in the account.
FindingOr ByRunLength(const LongRuns& key, double claimed, Lab& lab);
// Bytes that a row of a layer of Llama-3.1-70B takes between ranks, by the engine's counters.
FindingOr BytesCounted(const CountedBytes& key, double claimed, Lab& lab);
// Percent that the best mode between saves of linears, norms and collectives of a layout's better
// end, in a step of so many rows of Llama-3.1-70B.
FindingOr SavedBetween(const int32_t& rows, double claimed, Lab& lab);
// What follows from configurations: which KV head each rank holds, as digits from 1 on; bytes that
// a row of a layer takes in all-to-alls. What the engine plans: millions of KV tokens, and over
// those with sp alone.
FindingOr CopiesOfKvHeads(const MoeLayout& key, double claimed, Lab& lab);
FindingOr KvHeadsOfRanks(const MoeLayout& key, double claimed, Lab& lab);
FindingOr AllToAllBytes(const MoeLayout& key, double claimed, Lab& lab);
FindingOr MoeKvTokens(const MoeLayout& key, double claimed, Lab& lab);
FindingOr MoeKvTokensOverSp(const MoeLayout& key, double claimed, Lab& lab);
// KV tokens where ranks along sp share the experts, over those where each has all.
FindingOr KvOfSharedExperts(const MoeLayout& key, double claimed, Lab& lab);

}  // namespace forebay::repro
