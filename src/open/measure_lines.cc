#include "open/measure_lines.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "model/family.h"

namespace forebay::open {
namespace {

struct Alike {
  layout::ChoiceShape choice;
  int64_t count = 0;
};

// Why the engine refuses all requests of this kind; empty: it does not.
std::string CannotDo(const Request& request, const model::ModelConfig& config) {
  if (request.pooled && !config.pooling)
    return "the model makes no vectors; expected --pooling last, first or mean";
  if (!request.pooled && !model::Generates(config)) return "the model generates no text";
  return "";
}

// kMostMeasuredChoices of these choices at most, evenly chosen.
trace::JobLengths Expand(const std::vector<Alike>& measured) {
  int64_t total = 0, before = 0;
  for (const Alike& alike : measured) total += alike.count;
  const int64_t kept = std::min(total, kMostMeasuredChoices);
  trace::JobLengths job{.times = static_cast<double>(total) / static_cast<double>(kept)};
  for (const Alike& alike : measured) {
    const int64_t end = before + alike.count;
    const int64_t taken = end * kept / total - before * kept / total;
    job.choices.insert(job.choices.end(), static_cast<size_t>(taken), alike.choice);
    before = end;
  }
  return job;
}

}  // namespace

base::Result<trace::JobLengths> MeasureLines(const LineJob& job,
                                             const layout::EngineOptions& options) {
  const int64_t longest = options.limits.max_model_len > 0 ? options.limits.max_model_len
                                                           : job.config.max_position_embeddings;
  job::RequestRules rules = job.rules;
  rules.context = longest;
  job::RequestBuilder builder(job.file, std::move(rules), job.text, nullptr);
  const int64_t without_bound = layout::RequireSimulated(options.machine.devices).ok()
                                    ? std::numeric_limits<int64_t>::max()
                                    : kAnswerWithoutBound;
  const auto lines = static_cast<int64_t>(job.file.size()),
             measured = std::min(lines, kMostMeasuredLines);
  std::vector<Alike> choices;
  std::string first_error;
  trace::MeanHeld held;
  std::vector<int32_t> before;  // the last prompt
  int64_t line_before = -1;
  for (int64_t i = 0; i < measured; ++i) {
    // The measured line stands for `stands_for` of the `lines`.
    const int64_t stands_for = (i + 1) * lines / measured - i * lines / measured;
    // In pairs, which tell how much neighbours share.
    const int64_t line = i / 2 * 2 * lines / measured + i % 2;
    FB_ASSIGN_OR_RETURN(const job::BuiltLine built, builder.Build(static_cast<size_t>(line)));
    const Request& request = built.request;
    const std::string error = built.error ? built.error->message : CannotDo(request, job.config);
    if (!error.empty()) {
      if (first_error.empty()) first_error = error;
      continue;
    }
    // A prompt alone takes the steps of one whose answer is the token that its last row gives.
    const bool alone = request.sampling.max_tokens == 0;
    const int64_t wanted = alone ? 1 : request.sampling.most_tokens();
    const bool neighbour = std::exchange(line_before, line) + 1 == line;
    for (const std::vector<int32_t>& prompt : request.prompts) {
      const int64_t shared =
          options.prefix_caching ? std::ranges::mismatch(prompt, before).in1 - prompt.begin() : 0;
      before = prompt;
      auto tokens = static_cast<int64_t>(prompt.size());
      if (alone && tokens == longest) --tokens;  // it may fill the context
      const int64_t room = longest - tokens;
      const int64_t most = wanted < 0 ? room : std::min(room, wanted);
      if (most < 1) continue;
      const bool may_end = wanted < 0 && !request.sampling.ignore_eos;
      int64_t output = may_end ? std::min(most, without_bound) : most;
      if (job.lengths != nullptr) {
        const auto found = job.lengths->find(request.line);
        if (found != job.lengths->end()) output = std::clamp<int64_t>(found->second, 1, most);
      }
      choices.push_back({{.prompt = tokens,
                          .output = output,
                          .bound = std::max<int64_t>(0, wanted),
                          .cut = built.line.truncate_prompt_tokens < 0},
                         stands_for * request.n});
      // The choices of a prompt share it.
      if (neighbour) {
        held.Add(static_cast<double>(tokens - std::min(shared, tokens)) / request.n,
                 static_cast<double>(output), request.n);
      }
    }
  }
  if (!choices.empty()) {
    trace::JobLengths measured_job = Expand(choices);
    measured_job.held = held.mean();
    return measured_job;
  }
  return base::Status(
      trace::kTraceInvalid,
      fmt::format("{}: none of {} lines can run{}{}; expected at least one", job.file.path(),
                  measured, first_error.empty() ? "" : ", the first for: ", first_error));
}

}  // namespace forebay::open
