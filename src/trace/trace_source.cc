#include "trace/trace_source.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/rng.h"

namespace forebay::trace {
namespace {

// Two ids of each 64 random bits: the upper half of (32 bits x vocabulary) is uniform but for a
// bias below 2^-15.
void FillRandom(uint64_t key, int32_t vocab_size, int32_t* begin, int32_t* end) {
  const auto vocab = static_cast<uint64_t>(vocab_size);
  base::Rng rng(key);
  for (; end - begin >= 2; begin += 2) {
    const uint64_t bits = rng.Next();
    begin[0] = static_cast<int32_t>(((bits & 0xFFFFFFFF) * vocab) >> 32);
    begin[1] = static_cast<int32_t>(((bits >> 32) * vocab) >> 32);
  }
  if (begin < end) *begin = static_cast<int32_t>(rng.Below(vocab));
}

}  // namespace

TraceSource::TraceSource(const LengthTrace& trace, const ModelFacts& facts, uint64_t seed,
                         const RunControl& control, const job::LineOrdering& order,
                         int64_t first_line)
    : trace_(trace), facts_(facts), seed_(seed), control_(control), first_line_(first_line) {
  if (trace.online()) return;
  if (trace.has_deadlines()) {
    order_.resize(trace.rows.size());
    std::iota(order_.begin(), order_.end(), 0U);
    std::ranges::stable_sort(order_, {},
                             [&](uint32_t row) { return trace.rows[row].deadline_seconds; });
    return;
  }
  if (order.order != job::LineOrder::kMakespan) return;
  std::vector<job::LineSketch> lines;
  lines.reserve(trace.rows.size());
  for (const TraceRow& row : trace.rows) {
    lines.push_back({.ordinal = static_cast<uint32_t>(lines.size()),
                     .prompt = static_cast<uint32_t>(row.prompt_tokens),
                     .output = static_cast<uint32_t>(BoundOf(row)),
                     .choices = static_cast<uint32_t>(trace.choices)});
  }
  order_ = job::LongOnesInTime(lines, order);
}

std::optional<Request> TraceSource::Next(bool) {
  while (!ended()) {
    const size_t next = next_++, line = order_.empty() ? next : order_[next];
    if (Fits(trace_.rows[line])) return Make(line);
    Refuse(line);
  }
  return std::nullopt;
}

void TraceSource::Refuse(size_t line) {
  const TraceRow& row = trace_.rows[line];
  ++refused_;
  failures_.Add("context_length_exceeded", static_cast<int64_t>(line) + 1,
                fmt::format("the row has {} prompt and {} output tokens; expected at most {} "
                            "together (--max-model-len)",
                            row.prompt_tokens, row.output_tokens, facts_.max_model_len));
}

std::vector<double> TraceSource::arrivals() const {
  std::vector<double> seconds;
  if (!trace_.online()) return seconds;
  for (const TraceRow& row : trace_.rows) {
    if (Fits(row)) seconds.push_back(row.arrival_seconds);
  }
  return seconds;
}

int32_t TraceSource::BoundOf(const TraceRow& row) const {
  if (trace_.bound == 0) return 0;
  const auto bound = static_cast<int64_t>(std::ceil(trace_.bound * row.output_tokens));
  const int64_t room = std::max(row.output_tokens, facts_.max_model_len - row.prompt_tokens);
  return static_cast<int32_t>(std::clamp<int64_t>(bound, row.output_tokens, room));
}

Request TraceSource::Make(size_t line) const {
  const TraceRow& row = trace_.rows[line];
  std::vector<int32_t> prompt(static_cast<size_t>(row.prompt_tokens));
  const int32_t shared = std::min(row.prompt_tokens, trace_.shared_prefix_tokens);
  int32_t* const begin = prompt.data();
  FillRandom(base::Combine64(seed_, 0), facts_.vocab_size, begin, begin + shared);
  const int64_t id = first_line_ + static_cast<int64_t>(line);
  FillRandom(base::Combine64(seed_, static_cast<uint64_t>(id) + 1), facts_.vocab_size,
             begin + shared, begin + row.prompt_tokens);
  Request request{.id = id,
                  .line = id,
                  .n = trace_.choices,
                  .ends_after = row.output_tokens,
                  .service = row.service,
                  .deadline_seconds = row.deadline_seconds};
  request.prompts.push_back(std::move(prompt));
  request.sampling.ignore_eos = true;
  if (trace_.bound > 0) request.sampling.max_tokens = BoundOf(row);
  return request;
}

}  // namespace forebay::trace
