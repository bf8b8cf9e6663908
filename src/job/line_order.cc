#include "job/line_order.h"

#include <simdjson.h>

#include <algorithm>
#include <string>
#include <tuple>

#include "base/hash.h"
#include "base/json.h"

namespace forebay::job {
namespace {

using simdjson::dom::array;
using simdjson::dom::element;
using simdjson::dom::object;

constexpr size_t kNear = 256, kFar = 2048;

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

PromptStart StartOf(simdjson::dom::parser& parser, std::string_view line) {
  const auto parsed = base::ParseJson(parser, line);
  object request, body;
  if (!parsed.ok() || parsed->get(request)) return {};
  if (request["body"].get(body)) body = request;
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
  } else {
    return {};
  }
  return start.Hash();
}

struct Place {
  uint32_t near, far, index;
};

// Sets `key` of all that are equal by `equal` to the lowest of their indices.
template <typename Equal>
void NameByFirst(std::vector<Place>* places, uint32_t Place::*key, const Equal& equal) {
  std::ranges::sort(*places, {},
                    [&](const Place& place) { return std::tuple(equal(place), place.index); });
  for (size_t begin = 0, end = 0; begin < places->size(); begin = end) {
    const uint32_t first = (*places)[begin].index;
    while (end < places->size() && equal((*places)[end]) == equal((*places)[begin])) ++end;
    for (size_t i = begin; i < end; ++i) (*places)[i].*key = first;
  }
}

}  // namespace

PromptStart StartOf(std::string_view line) {
  simdjson::dom::parser parser;
  return StartOf(parser, line);
}

std::vector<uint32_t> GroupByStart(std::span<const PromptStart> starts) {
  std::vector<Place> places;
  places.reserve(starts.size());
  for (size_t i = 0; i < starts.size(); ++i)
    places.push_back({starts[i].near, starts[i].far, static_cast<uint32_t>(i)});
  NameByFirst(&places, &Place::near, [](const Place& place) { return place.near; });
  NameByFirst(&places, &Place::far,
              [](const Place& place) { return std::pair(place.near, place.far); });
  std::ranges::sort(places, {}, [](const Place& place) {
    return std::tuple(place.near, place.far, place.index);
  });
  std::vector<uint32_t> order;
  order.reserve(places.size());
  for (const Place& place : places) order.push_back(place.index);
  return order;
}

base::Result<std::vector<uint32_t>> OrderByStart(const JobFile& file) {
  std::vector<PromptStart> starts(file.size());
  simdjson::dom::parser parser;
  std::string text;
  for (size_t ordinal = 0; ordinal < file.size(); ++ordinal) {
    if (file[ordinal].length > kMaxLineBytes) continue;
    FB_RETURN_IF_ERROR(file.Read(ordinal, &text));
    starts[ordinal] = StartOf(parser, text);
  }
  return GroupByStart(starts);
}

}  // namespace forebay::job
