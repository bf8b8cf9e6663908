#include "price/mode_price.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

#include "base/units.h"
#include "kernels/serve.h"

namespace forebay::price {
namespace {

using schedule::LoadRule;

// Layers of which it is looked at how a law spreads rows.
constexpr int64_t kDraws = 8;
// The part of the most rows that a step of whole prompts has.
constexpr double kFull = 15.0 / 16;
// The parts of the threshold for which it is reckoned at which spread they ship still.
constexpr decltype(LoadRule::tolerated) kParts{{{.75}, {.5}, {.25}, {.125}}};

// The least rows, to `most`, at which `holds` is no more true; most + 1 where it is for all.
int64_t FirstWithout(int64_t most, const std::function<bool(int64_t)>& holds) {
  int64_t without = most + 1, with = 0;
  while (without - with > 1) {
    const int64_t middle = with + (without - with) / 2;
    (holds(middle) ? with : without) = middle;
  }
  return without;
}

int64_t LayersWithExperts(const model::ModelConfig& config) {
  return config.moe ? std::ranges::count(config.moe->has_experts, 1) : 0;
}

// Rounds in which layers with experts ship so many rows of a rank.
int64_t RoundsOf(const share::ShipPlan& ship, int64_t rows) {
  if (ship.num_experts == 0 || rows == 0) return 1;
  return static_cast<int64_t>(
      base::CeilDiv(static_cast<uint64_t>(rows), static_cast<uint64_t>(ship.options.expert_rows)));
}

// How many members hold an expert, on average.
double Holders(const share::ShipPlan& ship) {
  if (ship.expert_holders.empty()) return 1;
  int64_t held = 0;
  for (const kernels::HolderMask holders : ship.expert_holders) held += std::popcount(holders);
  return static_cast<double>(held) / static_cast<double>(ship.expert_holders.size());
}

// Experts that a member holds.
double HeldExperts(const share::ShipPlan& ship) {
  return static_cast<double>(ship.num_experts) * Holders(ship) / ship.num_members();
}

// A copy within a rank, of what it has for itself.
double LocalCopy(const StepPricer& pricer, double bytes) {
  return pricer.Seconds({.kind = cost::OpKind::kCopy, .read_bytes = bytes, .write_bytes = bytes});
}

double RowBytes(const StepPricer& pricer) {
  const model::Decoder& decoder = pricer.decoder();
  return static_cast<double>(decoder.config->hidden_size) *
         static_cast<double>(tensor::SizeOf(decoder.dtype));
}

// Time until copies from so many peers are there.
double Trips(const StepPricer& pricer, int64_t copies) {
  const auto trips = static_cast<double>((copies + cost::kPeersRead - 1) / cost::kPeersRead);
  return trips * pricer.profile().link_latency_s;
}

// Until all have the rows that meet their weights: who has rows of its own copies these first, who
// has none gets one rank's more.
double Gathering(const StepPricer& pricer, const share::ShipPlan& ship, const RowsOfAll& all,
                 double own, int64_t copies_a_rank) {
  const double mine = own + Trips(pricer, copies_a_rank * (all.ranks - 1));
  return all.ranks == ship.num_replicas ? mine
                                        : std::max(mine, Trips(pricer, copies_a_rank * all.ranks));
}

// A layer without experts: rows go to its owners, partial sums come back and are added.
double ShippedLeaves(const StepPricer& pricer, const share::ShipPlan& ship, int64_t own_rows,
                     const RowsOfAll& all) {
  const share::ShipPlan::Layer& layer = *std::ranges::find_if(
      ship.layers, [](const share::ShipPlan::Layer& each) { return each.pooled && !each.experts; });
  const std::span<const base::Part> owners =
      std::span(layer.leaves)
          .subspan(static_cast<size_t>(ship.MemberOf(0)), static_cast<size_t>(ship.num_replicas));
  const base::Part& most = *std::ranges::max_element(owners, {}, &base::Part::size);
  const auto rows = static_cast<double>(own_rows);
  const double sums = static_cast<double>((ship.num_members() - 1) * ship.max_planes *
                                          pricer.decoder().config->hidden_size) *
                      sizeof(float);
  // Over the links of those that send or get most.
  const double bytes = rows * ((ship.num_replicas - 1) * RowBytes(pricer) + sums);
  return Gathering(pricer, ship, all, LocalCopy(pricer, rows * RowBytes(pricer)), 1) +
         pricer.ServedLeaves(layer, most, all.rows) + Trips(pricer, ship.num_members() - 1) +
         pricer.Seconds({.kind = cost::OpKind::kCollective, .label = "ship_reduce"}) +
         bytes / cost::PullRate(pricer.profile());
}

// A layer with experts: a row goes to each rank that has one of its experts and not the row, and
// comes back from each member that has one. `shared`: seconds of the shared expert on own rows.
double ShippedExperts(const StepPricer& pricer, const share::ShipPlan& ship, int64_t own_rows,
                      const RowsOfAll& all, const BusiestRank& busiest, double shared) {
  const auto rounds = static_cast<double>(RoundsOf(ship, own_rows)),
             members = static_cast<double>(ship.num_members());
  const double remote = 1 - Holders(ship) / members, k = ship.experts_per_token;
  const auto with_rows = std::max<int64_t>(1, std::llround(HeldExperts(ship) * busiest.part));
  const double served = static_cast<double>(all.rows) * k / members * busiest.rows;
  const double rows = static_cast<double>(own_rows) / rounds, row_bytes = RowBytes(pricer);
  // The busiest rank gets most rows, and most outputs are read from it.
  const double to_it = std::min(1.0, remote / (members - 1) * busiest.rows);
  const double sent = (ship.num_replicas - 1) * (1 - std::pow(1 - to_it, k)), returned = remote * k;
  // Which experts rows choose, then the rows: at once where that does not say who computes.
  const double choices = LocalCopy(pricer, rows * k * sizeof(int32_t)),
               own = LocalCopy(pricer, rows * row_bytes);
  const double gathering =
      ship.expert_holders.empty()
          ? Gathering(pricer, ship, all, choices + own, 2)
          : Gathering(pricer, ship, all, choices, 1) + Gathering(pricer, ship, all, own, 1);
  const double rate = cost::PullRate(pricer.profile());
  const double returning =
      Trips(pricer, ship.num_members() - 1) + rows * row_bytes * returned * busiest.rows / rate;
  const double round =
      gathering + rows * row_bytes * sent / rate +
      pricer.ServedExperts(with_rows, std::max<int64_t>(1, std::llround(served / rounds)),
                           busiest.skew) +
      LocalCopy(pricer, rows * (k - returned) * row_bytes) +
      (ship.options.hides_return ? std::max(returning, shared / rounds)
                                 : returning + shared / rounds);
  return rounds * round;
}

}  // namespace

double ShippedSeconds(const StepPricer& pricer, const share::ShipPlan& ship, const StepPrice& own,
                      int64_t own_rows, const RowsOfAll& all, const BusiestRank& busiest) {
  // Ranks that meet to pull compute with their own rows alone.
  if (ship.mode.pulls()) return own.all().seconds;
  int64_t leaves = 0, experts = 0;
  for (const share::ShipPlan::Layer& layer : ship.layers) {
    leaves += layer.pooled && !layer.experts;
    experts += layer.pooled && layer.experts;
  }
  // The plan is of one stage of a pipeline, prices are of a step through all.
  const model::ModelConfig& config = *pricer.decoder().config;
  const auto layers = static_cast<double>(config.num_layers),
             with_experts = static_cast<double>(LayersWithExperts(config)),
             stages = layers / static_cast<double>(ship.layers.size()),
             shipped_leaves = stages * static_cast<double>(leaves),
             shipped_experts = stages * static_cast<double>(experts);
  double seconds = own.all().seconds - own.ffn_sums * (shipped_leaves + shipped_experts) / layers;
  if (leaves > 0) {
    seconds += shipped_leaves * (ShippedLeaves(pricer, ship, own_rows, all) -
                                 own.ffn.seconds / (layers - with_experts));
  }
  if (experts > 0) {
    const double shared = own.shared_experts / with_experts;
    seconds += shipped_experts * (ShippedExperts(pricer, ship, own_rows, all, busiest, shared) -
                                  own.experts.seconds / with_experts - shared);
  }
  return seconds;
}

RoutedExperts::RoutedExperts(const model::ModelConfig& config, const model::Routing* routing)
    : moe_(config.moe ? &*config.moe : nullptr),
      law_(routing != nullptr && !routing->names_rows() ? routing : nullptr) {}

double RoutedExperts::Share(int64_t rows) const {
  if (moe_ == nullptr) return 0;
  const auto experts = static_cast<double>(moe_->num_experts),
             chosen = static_cast<double>(moe_->experts_per_token);
  if (law_ == nullptr) return 1 - std::pow(1 - chosen / experts, static_cast<double>(rows));
  int64_t with_rows = 0;
  std::vector<int32_t> counts(static_cast<size_t>(moe_->num_experts));
  for (int64_t layer = 0; layer < kDraws; ++layer) {
    law_->Count({.layer = layer, .rows = rows, .experts_per_token = moe_->experts_per_token},
                counts);
    with_rows += std::ranges::count_if(counts, [](int32_t count) { return count > 0; });
  }
  return static_cast<double>(with_rows) / experts / static_cast<double>(kDraws);
}

BusiestRank RoutedExperts::Busiest(const share::ShipPlan& ship, int64_t rows) const {
  if (ship.num_experts == 0 || rows == 0) return {};
  if (law_ == nullptr) return {.part = Share(ship.num_replicas * rows)};
  const auto ranks = static_cast<size_t>(ship.num_replicas),
             experts = static_cast<size_t>(ship.num_experts);
  BusiestRank busiest{0, 0, 0};
  std::vector<int32_t> counts(ranks * experts);
  std::vector<uint8_t> owners = ship.expert_owners;
  for (int64_t layer = 0; layer < kDraws; ++layer) {
    for (size_t reader = 0; reader < ranks; ++reader) {
      law_->Count({.rank = reader,
                   .layer = layer,
                   .rows = rows,
                   .experts_per_token = ship.experts_per_token},
                  std::span(counts).subspan(reader * experts, experts));
    }
    if (!ship.expert_holders.empty())
      kernels::ChooseOwners(ship.expert_holders, ship.num_replicas, counts.data(), owners.data());
    // [members, experts]
    std::vector<int64_t> computed(static_cast<size_t>(ship.num_members()) * experts);
    for (size_t at = 0; at < counts.size(); ++at)
      computed[owners[at] * experts + at % experts] += counts[at];
    double most = 0, skew = 1;
    int64_t most_experts = 0;
    for (int member = 0; member < ship.num_members(); ++member) {
      const std::span<const int64_t> own =
          std::span(computed).subspan(static_cast<size_t>(member) * experts, experts);
      const auto all = static_cast<double>(std::reduce(own.begin(), own.end()));
      const auto with_rows = std::ranges::count_if(own, [](int64_t count) { return count > 0; });
      most_experts = std::max(most_experts, int64_t{with_rows});
      if (all <= most) continue;
      most = all;
      skew = static_cast<double>(std::ranges::max(own)) * static_cast<double>(with_rows) / all;
    }
    busiest.rows += most * ship.tp / static_cast<double>(kDraws * rows * ship.experts_per_token);
    busiest.skew += skew / kDraws;
    busiest.part += static_cast<double>(most_experts) / HeldExperts(ship) / kDraws;
  }
  return busiest;
}

double PullPrices::Pulled(const StepPrice& own) const {
  return std::max(SecondsBeside(own.all(), pulls), pulls.seconds());
}

double PullPrices::Routed(const StepPrice& own, int64_t rows) const {
  const weights::PlacementGroup& group = pool.book->group();
  const auto layers = static_cast<double>(LayersWithExperts(*pricer.decoder().config));
  StepPulls ahead = pulls;
  double waits = 0;
  const double share = experts.Share(rows);
  for (int64_t layer = 0; layer < group.num_layers(); ++layer) {
    if (group.pool_index[layer] < 0 || group.layer(layer).tensors != weights::TensorKind::kExperts)
      continue;
    uint64_t lacked = 0;
    for (int32_t piece = 0; piece < group.layer(layer).num_pieces; ++piece)
      lacked += pool.book->PullBytes(pool.member, layer, piece);
    ahead.bytes -= std::min(ahead.bytes, lacked);
    const double held =
        1 - static_cast<double>(lacked) / static_cast<double>(group.layer(layer).bytes());
    const double comes =
        pricer.profile().link_latency_s + share * static_cast<double>(lacked) / pulls.bytes_per_s;
    waits += std::max(0.0, comes - held * own.experts.seconds / layers);
  }
  return std::max(SecondsBeside(own.all(), ahead), ahead.seconds()) + waits;
}

int64_t RoutedRows(const PullPrices& prices, int64_t context) {
  const auto routes = [&](int64_t rows) {
    const StepPrice own = prices.pricer.Decode(rows, context);
    return prices.Routed(own, rows) < prices.Pulled(own);
  };
  return FirstWithout(prices.pricer.decoder().capacity.rows, routes) - 1;
}

namespace {

// Seconds of a step of one rank where all have as many rows.
struct Compared {
  double pulled = 0, shipped = 0;

  bool ships() const { return shipped < pulled; }
};

// The step in a row from which on replicas meet, at most `most`: by then steps alone have lost what
// a needless meeting costs. That is a part of a step that pulls: one replica is at its step's
// border, the others anywhere in theirs, and all wait for the last of them.
int Patience(const Compared& step, int num_replicas, int most) {
  if (!step.ships()) return most;
  const double meeting = (1 - 1.0 / num_replicas) / 2 * step.pulled;
  return static_cast<int>(
      std::min<double>(most, std::ceil(meeting / (step.pulled - step.shipped))));
}

// Steps of ranks that share experts.
class ExpertSteps {
 public:
  ExpertSteps(const PullPrices& prices, const share::ShipPlan& ship, MostRows most, int64_t context)
      : prices_(prices), ship_(ship), most_(most), context_(context) {}

  Compared Decoding(int64_t rows) const { return Compare(DecodingPrice(rows), rows); }
  Compared Prompts(int64_t rows) const { return Compare(PromptsPrice(rows), rows); }

  // At which spread of so many rows on average what shipping saves is waited for the busiest rank:
  // for all but the experts' work, of which each computes its part of everybody's. Who pulls waits
  // for nobody, and ranks pull as much in all whoever has how many rows.
  double Tolerated(int64_t rows) const {
    const bool decoding = rows < most_.decoding;
    const int64_t busiest = std::min(2 * rows, decoding ? most_.decoding : most_.all);
    if (busiest <= rows) return std::numeric_limits<double>::infinity();  // nobody can have more
    const StepPrice own = decoding ? DecodingPrice(rows) : PromptsPrice(rows),
                    its = decoding ? DecodingPrice(busiest) : PromptsPrice(busiest);
    const Compared step = Compare(own, rows);
    const double more = static_cast<double>(busiest) / static_cast<double>(rows) - 1;
    const double wait = std::max(0.0, its.rest.seconds - own.rest.seconds) / more;
    return std::max(0.0, step.pulled - step.shipped) / std::max(wait, 1e-9);
  }

 private:
  StepPrice DecodingPrice(int64_t rows) const { return prices_.pricer.Decode(rows, context_); }
  StepPrice PromptsPrice(int64_t rows) const { return prices_.pricer.Prompts(rows, context_); }
  Compared Compare(const StepPrice& own, int64_t rows) const {
    return {std::min(prices_.Pulled(own), prices_.Routed(own, rows)),
            ShippedSeconds(prices_.pricer, ship_, own, rows,
                           {ship_.num_replicas * rows, ship_.num_replicas},
                           prices_.experts.Busiest(ship_, rows))};
  }

  const PullPrices& prices_;
  const share::ShipPlan& ship_;
  const MostRows most_;
  const int64_t context_;
};

LoadRule PlanExperts(const ExpertSteps& steps, MostRows most, int num_replicas, int patience) {
  const int64_t full = std::max<int64_t>(1, std::llround(kFull * static_cast<double>(most.all)));
  if (steps.Prompts(full).ships()) return {std::numeric_limits<double>::infinity(), {}, patience};
  int64_t rows =
      FirstWithout(most.decoding, [&](int64_t count) { return steps.Decoding(count).ships(); });
  const int64_t usual = rows / 2;  // of steps that ship
  if (rows > most.decoding)
    rows = std::max(
        rows, FirstWithout(most.all, [&](int64_t count) { return steps.Prompts(count).ships(); }));
  LoadRule rule{static_cast<double>(rows), {}, patience};
  double spread = 0;
  for (size_t i = 0; i < kParts.size() && rows * kParts.back().rows >= 1; ++i) {
    const auto fewer = static_cast<int64_t>(static_cast<double>(rows) * kParts[i].rows);
    spread = std::max(spread, steps.Tolerated(fewer));
    rule.tolerated[i] = {static_cast<double>(fewer), spread};
  }
  rule.patience = Patience(steps.Decoding(std::max<int64_t>(1, usual)), num_replicas, patience);
  return rule;
}

}  // namespace

LoadRule PlanShipping(const PullPrices& prices, const share::ShipPlan& ship, MostRows most,
                      int64_t context, int patience) {
  const StepPricer& pricer = prices.pricer;
  if (ship.num_experts > 0 && !ship.mode.pulls())
    return PlanExperts({prices, ship, most, context}, most, ship.num_replicas, patience);
  const int ranks = ship.mode.pulls() ? 1 : ship.num_replicas;
  const auto decoding = [&](int64_t rows) {
    const StepPrice own = pricer.Decode(rows, context);
    return Compared{prices.Pulled(own),
                    ShippedSeconds(pricer, ship, own, rows, {ranks * rows, ranks})};
  };
  const int64_t rows = FirstWithout(pricer.decoder().capacity.rows / ranks,
                                    [&](int64_t count) { return decoding(count).ships(); });
  return {static_cast<double>(rows),
          {},
          Patience(decoding(std::max<int64_t>(1, rows / 2)), ship.num_replicas, patience)};
}

}  // namespace forebay::price
