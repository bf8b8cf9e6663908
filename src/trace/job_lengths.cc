#include "trace/job_lengths.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>

#include "price/cpu_prices.h"
#include "trace/trace.h"

namespace forebay::trace {
namespace {

// What a running choice holds, on average over the steps in which it decodes. 0 of no choices.
double MeanContext(const std::vector<layout::ChoiceShape>& choices) {
  double context = 0, steps = 0;
  for (const layout::ChoiceShape& choice : choices) {
    const auto output = static_cast<double>(choice.output);
    context += output * (static_cast<double>(choice.prompt) + output / 2);
    steps += output;
  }
  return steps == 0 ? 0 : context / steps;
}

struct Alike {
  layout::ChoiceShape choice;
  int64_t count = 0;
};

// So many of these choices that they are not too many.
JobLengths Expand(const std::vector<Alike>& measured) {
  int64_t total = 0, before = 0;
  for (const Alike& alike : measured) total += alike.count;
  const int64_t kept = std::min(total, kMostMeasuredChoices);
  JobLengths job{.times = static_cast<double>(total) / static_cast<double>(kept)};
  for (const Alike& alike : measured) {
    const int64_t end = before + alike.count;
    const int64_t taken = end * kept / total - before * kept / total;
    job.choices.insert(job.choices.end(), static_cast<size_t>(taken), alike.choice);
    before = end;
  }
  return job;
}

}  // namespace

void DescribeJob(JobLengths job, bool all_there, layout::EngineOptions* options) {
  if (options->limits.mean_context != 0) return;
  options->limits.mean_context = std::llround(MeanContext(job.choices));
  if (!all_there) return;
  options->job = std::make_shared<const std::vector<layout::ChoiceShape>>(std::move(job.choices));
  options->job_times = job.times;
  options->job_exact = job.exact;
}

base::Result<JobLengths> MeasureJob(const LineJob& job, const layout::EngineOptions& options) {
  job::RequestBuilder builder(job.file, job.rules, job.text, nullptr);
  const int64_t longest = options.limits.max_model_len > 0 ? options.limits.max_model_len
                                                           : job.config.max_position_embeddings;
  const int64_t without_bound = layout::RequireSimulated(options.machine.devices).ok()
                                    ? std::numeric_limits<int64_t>::max()
                                    : kAnswerWithoutBound;
  const auto lines = static_cast<int64_t>(job.file.size()),
             measured = std::min(lines, kMostMeasuredLines);
  std::vector<Alike> choices;
  std::string first_error;
  for (int64_t i = 0; i < measured; ++i) {
    // So many of `lines` the measured one stands for.
    const int64_t line = i * lines / measured, stands_for = (i + 1) * lines / measured - line;
    FB_ASSIGN_OR_RETURN(const job::BuiltLine built, builder.Build(static_cast<size_t>(line)));
    if (built.error) {
      if (first_error.empty()) first_error = built.error->message;
      continue;
    }
    const Request& request = built.request;
    const int64_t wanted = request.sampling.most_tokens();
    for (const std::vector<int32_t>& prompt : request.prompts) {
      const auto tokens = static_cast<int64_t>(prompt.size());
      const int64_t room = longest - tokens;
      const int64_t most = wanted < 0 ? room : std::min(room, wanted);
      if (most < 1) continue;
      const bool may_end = wanted < 0 && !request.sampling.ignore_eos;
      int64_t output = may_end ? std::min(most, without_bound) : most;
      if (job.lengths != nullptr) {
        const auto found = job.lengths->find(request.line);
        if (found != job.lengths->end()) output = std::clamp<int64_t>(found->second, 1, most);
      }
      choices.push_back(
          {{.prompt = tokens, .output = output, .bound = std::max<int64_t>(0, wanted)},
           stands_for * request.n});
    }
  }
  if (!choices.empty()) return Expand(choices);
  return base::Status(
      kTraceInvalid,
      fmt::format("{}: none of {} lines can run{}{}; expected at least one", job.file.path(),
                  measured, first_error.empty() ? "" : ", the first for: ", first_error));
}

base::Status DescribeLines(const LineJob& job, bool all_there, layout::EngineOptions* options) {
  const bool decides = price::DecidesByPrices(*options) || price::StreamsByPrices(*options);
  if (!decides || options->limits.mean_context != 0) return {};
  base::Result<JobLengths> lengths = MeasureJob(job, *options);
  if (!lengths.ok() && lengths.status().code() != kTraceInvalid) return lengths.status();
  DescribeJob(lengths.ok() ? *std::move(lengths) : JobLengths{.choices = {{}}}, all_there, options);
  return {};
}

}  // namespace forebay::trace
