#include "open/describe_job.h"

#include <utility>

#include "layout/layout_plan.h"
#include "open/measure_lines.h"
#include "price/cpu_prices.h"
#include "trace/job_lengths.h"

namespace forebay::open {

base::Status DescribeJob(const KnownJob& job, const job::RequestRules& rules,
                         job::TextPipeline* text, const model::ModelConfig& config,
                         layout::EngineOptions* engine) {
  if (job.trace) trace::DescribeTrace(*job.trace, engine, job.all_there);
  const bool decides = engine->limits.mean_context == 0 &&
                       (price::DecidesByPrices(*engine) || price::StreamsByPrices(*engine));
  if (!job.lines || !(decides || layout::FitsPlaces(*engine, config))) return {};
  FB_ASSIGN_OR_RETURN(const job::JobFile* const lines, job.lines());
  base::Result<trace::JobLengths> lengths =
      MeasureLines({*lines, rules, *text, config, job.lengths}, *engine);
  if (!lengths.ok() && lengths.status().code() != trace::kTraceInvalid) return lengths.status();
  if (!decides) {
    engine->job_held = lengths.ok() ? lengths->held : 0;
    return {};
  }
  trace::DescribeLengths(lengths.ok() ? *std::move(lengths) : trace::JobLengths{.choices = {{}}},
                         job.all_there, engine);
  return {};
}

}  // namespace forebay::open
