// What a step takes by how its rows reach weights that ranks share: they are pulled, those of
// experts that have rows are, or rows are shipped to them. From it follows when `--mode auto` takes
// which. Pure.
#pragma once

#include "layout/group_options.h"
#include "price/step_price.h"

namespace forebay::price {

// The rank that computes the most rows of experts: how many times the mean rank's, at least 1; how
// many times the mean rows of its experts with rows its busiest expert has; and of a rank with the
// most such experts, which part of all that it holds they are.
struct BusiestRank {
  double rows = 1, skew = 1, part = 1;
};

// The seconds of a step that ships, of a rank whose own rows cost `own`; all wait for the one that
// computes the most.
double ShippedSeconds(const StepPricer& pricer, const share::ShipPlan& ship, const StepPrice& own,
                      int64_t own_rows, const RowsOfAll& all, const BusiestRank& busiest = {});

// Which experts rows go to, on average: by the law that spreads rows where there is one, else as if
// each row chose independently.
class RoutedExperts {
 public:
  // `routing` (null: there is none) outlives this.
  RoutedExperts(const model::ModelConfig& config, const model::Routing* routing);
  // What part of a layer's experts has rows in a step. 0 of a model without experts.
  double Share(int64_t rows) const;
  // Who computes the most where each rank has so many rows and all ship.
  BusiestRank Busiest(const share::ShipPlan& ship, int64_t rows) const;

 private:
  const model::MoeConfig* const moe_;
  const model::Routing* const law_;
};

// How a rank's steps pull weights.
struct PullPrices {
  const StepPricer& pricer;
  StepPulls pulls;  // what a step pulls in which all come that the rank lacks
  const share::PoolPlan& pool;
  const RoutedExperts& experts;

  // The seconds of a step of `rows` whose kernels cost `own`: where all come ahead; and where of
  // experts those come that have rows, each layer's while held ones compute.
  double Pulled(const StepPrice& own) const;
  double Routed(const StepPrice& own, int64_t rows) const;
};

// Most rows of steps that are over sooner where experts come that have rows; rows decode, each with
// `context` positions before it.
int64_t RoutedRows(const PullPrices& prices, int64_t context);

// Most rows of a rank's step, and those of them that can decode.
struct MostRows {
  int64_t all = 0, decoding = 0;
};

// When the ranks of a pool ship.
struct ShipRule {
  // B_th: rows of each rank below which a step ships, which is then over before it is with weights
  // that are pulled in either way; infinite: all steps do.
  double threshold = 0;
  // At which spread of the ranks' rows steps of fewer rows ship still: those that meet wait for the
  // busiest, which has more of all but the experts to compute.
  decltype(layout::GroupOptions::tolerated) tolerated{};
  // The step in a row that no rank takes alone any more: by then those before have lost what the
  // wait of ranks that meet costs.
  int patience = 0;
};

// The rule for layers without experts asks for rows that decode, each with `context` positions
// before it. With experts a step of prompts of that length is asked too, which hides its pulls at
// other rows than one that decodes. `patience`: the most.
ShipRule PlanShipping(const PullPrices& prices, const share::ShipPlan& ship, MostRows most,
                      int64_t context, int patience);

}  // namespace forebay::price
