#include "job/line_order.h"

#include <simdjson.h>

#include <algorithm>
#include <bit>
#include <queue>
#include <string>
#include <tuple>
#include <utility>

#include "base/hash.h"
#include "base/json.h"
#include "engine/request_queue.h"
#include "job/lines/parameters.h"

namespace forebay::job {
namespace {

using simdjson::dom::array;
using simdjson::dom::element;
using simdjson::dom::object;

constexpr size_t kNear = 256, kFar = 2048;
// Bytes of a line; JSON around a short prompt counts, too, which is as well: it is a guess.
constexpr uint32_t kBytesPerToken = 4;
constexpr uint32_t kMostOutput = (1 << 24) - 1, kMostChoices = 255;

// The begin of a text that comes in pieces.
class Start {
 public:
  // False: it is as long as it may become.
  bool Add(std::string_view piece) {
    text_ += piece.substr(0, kFar - text_.size());
    return text_.size() < kFar;
  }
  // All that a prompt may be: a text, tokens, or a list of either; a message's content, a text or
  // parts of one.
  bool Add(element value) {
    std::string_view text;
    int64_t token;
    array list;
    object part;
    if (!value.get(text)) return Add(text);
    if (!value.get(token)) return Add(fmt::format("{},", token));
    if (!value.get(part)) return part["text"].get(text) || Add(text);
    if (value.get(list)) return true;
    for (const element each : list) {
      if (!Add(each)) return false;
    }
    return true;
  }
  PromptStart Hash() const {
    const std::string_view text = text_;
    return {static_cast<uint32_t>(base::HashBytes(text.substr(0, kNear))),
            static_cast<uint32_t>(base::HashBytes(text))};
  }

 private:
  std::string text_;
};

// The number of that name, at most `most`; 0 where there is none.
uint32_t NumberIn(const object& body, std::string_view name, uint32_t most) {
  int64_t value;
  if (body[name].get(value) || value < 0) return 0;
  return static_cast<uint32_t>(std::min<int64_t>(value, most));
}

LineSketch ReadSketch(simdjson::dom::parser& parser, std::string_view line) {
  LineSketch sketch{.prompt = static_cast<uint32_t>(line.size()) / kBytesPerToken};
  const auto parsed = base::ParseJson(parser, line);
  object request, body;
  if (!parsed.ok() || parsed->get(request)) return sketch;
  if (request["body"].get(body)) body = request;
  sketch.output = std::max(NumberIn(body, "max_tokens", kMostOutput),
                           NumberIn(body, "max_completion_tokens", kMostOutput));
  sketch.choices = std::max(1u, NumberIn(body, "n", kMostChoices));
  Start start;
  array messages;
  element prompt;
  if (!body["messages"].get(messages)) {
    for (const element each : messages) {
      object message;
      std::string_view role;
      element content;
      if (each.get(message) || message["role"].get(role) || message["content"].get(content)) break;
      if (!start.Add(role) || !start.Add("\n") || !start.Add(content)) break;
    }
  } else if (!body["prompt"].get(prompt)) {
    start.Add(prompt);
    if (sketch.output == 0) sketch.output = kCompletionTokens;
  } else {
    return sketch;
  }
  sketch.start = start.Hash();
  return sketch;
}

// Sets `key` of the starts of all that are equal by `equal` to the lowest of their ordinals.
template <typename Equal>
void NameByFirst(std::vector<LineSketch>* lines, uint32_t PromptStart::*key, const Equal& equal) {
  std::ranges::sort(*lines, {},
                    [&](const LineSketch& line) { return std::tuple(equal(line), line.ordinal); });
  for (size_t begin = 0, end = 0; begin < lines->size(); begin = end) {
    const uint32_t first = (*lines)[begin].ordinal;
    const auto name = equal((*lines)[begin]);
    while (end < lines->size() && equal((*lines)[end]) == name) ++end;
    for (size_t i = begin; i < end; ++i) (*lines)[i].start.*key = first;
  }
}

// Tokens that a line comes to hold, and what it holds in all of its steps together.
double Tokens(const LineSketch& line) {
  return line.choices * (static_cast<double>(line.prompt) + line.output);
}
double TokenSteps(const LineSketch& line) {
  return line.choices * static_cast<double>(line.output) * (line.prompt + line.output / 2.0);
}

// A line, by its place, that is to move forward; the most urgent first.
struct EarlyLine {
  int32_t latest;  // the last place from which its answer ends with the job; below 0: there is none
  uint32_t place;

  auto operator<=>(const EarlyLine&) const = default;
};

// The steps of a job of these lines, of which those without a bound are taken for the mean others.
double JobSteps(std::span<const LineSketch> lines, double kv_tokens) {
  double sum = 0, bounded = 0;
  for (const LineSketch& line : lines) {
    sum += TokenSteps(line);
    bounded += line.output > 0 ? 1 : 0;
  }
  return bounded > 0 ? sum / kv_tokens * static_cast<double>(lines.size()) / bounded : 0;
}

// The lines before those that the engine chooses from when it has read all.
int64_t LinesInOrder(std::span<const LineSketch> lines, const LineOrdering& ordering) {
  int64_t in_order = std::ssize(lines), tokens = 0;
  while (in_order > 0 && std::ssize(lines) - in_order < ordering.requests_ahead &&
         tokens < ordering.prompt_tokens_ahead)
    tokens += lines[static_cast<size_t>(--in_order)].prompt;
  return in_order;
}

}  // namespace

LineOrdering OrderOf(const layout::EngineOptions& options, const engine::LocalEngine& engine,
                     LineOrder otherwise) {
  if (!options.policy->make()->orders_lines()) return {.order = otherwise};
  return {.order = LineOrder::kMakespan,
          .kv_tokens = static_cast<double>(engine.facts().kv_capacity_tokens),
          .requests_ahead = engine.requests_ahead(),
          .prompt_tokens_ahead = engine::RequestQueue::kMostPromptTokensAhead};
}

LineSketch SketchOf(std::string_view line) {
  simdjson::dom::parser parser;
  return ReadSketch(parser, line);
}

void GroupByStart(std::vector<LineSketch>* lines) {
  NameByFirst(lines, &PromptStart::near, [](const LineSketch& line) { return line.start.near; });
  NameByFirst(lines, &PromptStart::far,
              [](const LineSketch& line) { return std::pair(line.start.near, line.start.far); });
  std::ranges::sort(*lines, {}, [](const LineSketch& line) {
    return std::tuple(line.start.near, line.start.far, line.ordinal);
  });
}

std::vector<uint32_t> LongOnesInTime(std::span<const LineSketch> lines,
                                     const LineOrdering& ordering) {
  const double kv_tokens = ordering.kv_tokens, job_steps = JobSteps(lines, kv_tokens);
  const int64_t in_order = LinesInOrder(lines, ordering);
  const auto latest = [&](size_t place) {
    const LineSketch& line = lines[place];
    const auto count = static_cast<double>(lines.size());
    if (line.output == 0) return static_cast<int32_t>(lines.size());
    const double left = 1 - std::bit_ceil(uint32_t{line.output}) / job_steps;
    return static_cast<int32_t>(std::max(left * count, -1e9));
  };
  std::vector<EarlyLine> early;
  early.reserve(lines.size());
  for (uint32_t place = 0; place < lines.size(); ++place) {
    const int32_t at_latest = latest(place);
    if (std::max(at_latest, 0) < std::min<int64_t>(place, in_order))
      early.push_back({at_latest, place});
  }
  std::ranges::sort(early);
  std::vector<bool> given(lines.size());
  std::vector<uint32_t> order;
  order.reserve(lines.size());
  // By the step at which it ends, what a line that was moved holds then.
  std::priority_queue<std::pair<double, double>, std::vector<std::pair<double, double>>,
                      std::greater<>>
      moved;
  double held = 0, step = 0;
  const auto give = [&](uint32_t place) {
    given[place] = true;
    order.push_back(lines[place].ordinal);
    step += TokenSteps(lines[place]) / kv_tokens;
  };
  size_t next_early = 0;
  for (uint32_t place = 0; place < lines.size();) {
    if (given[place]) {
      ++place;
      continue;
    }
    for (; !moved.empty() && moved.top().first <= step; moved.pop()) held -= moved.top().second;
    while (next_early < early.size() && given[early[next_early].place]) ++next_early;
    if (next_early < early.size() &&
        early[next_early].latest <= static_cast<int64_t>(order.size()) &&
        early[next_early].latest < latest(place)) {
      const LineSketch& line = lines[early[next_early].place];
      if (moved.empty() || held + Tokens(line) <= kv_tokens / 2) {  // One alone always fits.
        held += Tokens(line);
        moved.emplace(step + line.output, Tokens(line));
        give(early[next_early].place);
        continue;
      }
    }
    give(place);
  }
  return order;
}

base::Result<std::vector<uint32_t>> OrderLines(const JobFile& file, const LineOrdering& ordering,
                                               const std::function<bool(size_t)>& done) {
  if (ordering.order == LineOrder::kOfTheFile) return std::vector<uint32_t>();
  std::vector<LineSketch> lines;
  lines.reserve(file.size());
  simdjson::dom::parser parser;
  std::string text;
  for (size_t ordinal = 0; ordinal < file.size(); ++ordinal) {
    if (done && done(ordinal)) continue;
    LineSketch sketch;
    if (file[ordinal].length <= kMaxLineBytes) {
      FB_RETURN_IF_ERROR(file.Read(ordinal, &text));
      sketch = ReadSketch(parser, text);
    }
    sketch.ordinal = static_cast<uint32_t>(ordinal);
    lines.push_back(sketch);
  }
  GroupByStart(&lines);
  if (ordering.order == LineOrder::kMakespan) return LongOnesInTime(lines, ordering);
  std::vector<uint32_t> ordinals;
  ordinals.reserve(lines.size());
  for (const LineSketch& line : lines) ordinals.push_back(line.ordinal);
  return ordinals;
}

}  // namespace forebay::job
