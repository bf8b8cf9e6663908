#include "price/step_table.h"

#include <algorithm>
#include <map>
#include <memory>
#include <vector>

#include "layout/memory_plan.h"
#include "price/step_price.h"

namespace forebay::price {
namespace {

// Positions before a row, and rows, by which the price of one more position or drawn row is found.
constexpr int64_t kContext = 4096, kRows = 256;

// Four an octave, and on both sides of each border between modes.
std::vector<int64_t> RowsToPrice(const schedule::ShiftTable& shift, int64_t max_rows) {
  std::vector<int64_t> rows;
  for (int64_t octave = 1; octave <= max_rows; octave *= 2) {
    for (int64_t part = 4; part < 8; ++part) rows.push_back(octave * part / 4);
  }
  for (const schedule::ShiftEntry& entry : shift.entries) {
    if (entry.most_rows < max_rows) rows.insert(rows.end(), {entry.most_rows, entry.most_rows + 1});
  }
  rows.push_back(max_rows);
  std::erase_if(rows, [&](int64_t count) { return count < 1 || count > max_rows; });
  std::ranges::sort(rows);
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  return rows;
}

StepLoad Prompt(int64_t before, int64_t rows) {
  StepLoad load{.sampled = 1};
  load.sums.Add(before, rows);
  return load;
}

// Seconds of steps in the mode that their rows take.
class Pricers {
 public:
  Pricers(const layout::EngineOptions& options, const layout::LayoutPlan& plan)
      : options_(options), plan_(plan) {}

  double Seconds(const StepLoad& load) {
    const model::Degrees own = plan_.layout.degrees(),
                         mode = plan_.shift.table.Shift({.degrees = own}, load.rows(), 0).degrees;
    const StepPricer& pricer = Of(mode);
    const cost::Work work = pricer.Step(load).all();
    const auto& pools = plan_.ranks.front().request.pool;
    if (mode != own || pools.empty()) return work.seconds;
    const StepPulls pulls = PullsOf(pricer, plan_.machine, pools, plan_.layout.pp);
    return std::max(SecondsBeside(work, pulls), pulls.seconds());
  }

 private:
  const StepPricer& Of(const model::Degrees& mode) {
    std::unique_ptr<StepPricer>& pricer = pricers_[mode];
    const int64_t rows = plan_.machine.max_num_batched_tokens;
    if (!pricer) {
      pricer = std::make_unique<StepPricer>(
          plan_.config, plan_.dtype, mode,
          model::StepCapacity{rows, layout::LogitRows(plan_.config, rows)}, plan_.machine.profile,
          options_.pricing());
    }
    return *pricer;
  }

  const layout::EngineOptions& options_;
  const layout::LayoutPlan& plan_;
  std::map<model::Degrees, std::unique_ptr<StepPricer>> pricers_;
};

}  // namespace

schedule::StepPrices PriceSteps(const layout::EngineOptions& options,
                                const layout::LayoutPlan& plan) {
  Pricers pricers(options, plan);
  const int64_t max_rows = plan.machine.max_num_batched_tokens, many = std::min(max_rows, kRows);
  const auto decode = [&](int64_t context, int64_t sampled) {
    StepLoad load = Decoding(many, context);
    load.sampled = sampled;
    return pricers.Seconds(load);
  };
  const auto positions = static_cast<double>(many * kContext);
  schedule::RowSlopes slopes;
  slopes.decode_token = std::max(0.0, decode(kContext + 1, 1) - decode(1, 1)) / positions;
  slopes.prompt_token =
      std::max(0.0, pricers.Seconds(Prompt(kContext, many)) - pricers.Seconds(Prompt(0, many))) /
      positions;
  if (many > 1)
    slopes.sampled_row =
        std::max(0.0, decode(1, many) - decode(1, 1)) / static_cast<double>(many - 1);
  std::vector<schedule::RowPrice> prices;
  for (const int64_t rows : RowsToPrice(plan.shift.table, max_rows)) {
    const double seconds = pricers.Seconds(Prompt(0, rows)),
                 context = (rows == 1 ? slopes.decode_token : slopes.prompt_token) *
                           static_cast<double>(rows * (rows + 1) / 2);
    // Slopes are those of long contexts; a short one may take less than they say.
    prices.push_back({rows, std::max(seconds - context, 0.5 * seconds)});
  }
  return {std::move(prices), slopes};
}

}  // namespace forebay::price
