#include "job/lines/job_defaults.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <span>

#include "base/json.h"
#include "job/lines/parameters.h"

namespace forebay::job {
namespace {

constexpr std::string_view kOfLines[] = {"model",  "messages", "prompt", "continuations", "input",
                                         "text_1", "text_2",   "query",  "documents"};

base::Status InvalidDefaults(std::string_view why) {
  return {kDefaultsInvalid,
          fmt::format("--defaults: {}; expected a JSON object of request parameters, as "
                      "{{\"max_tokens\": 32}}",
                      why)};
}

// The error that each line of this endpoint would have.
std::optional<LineError> ErrorIn(Endpoint endpoint, simdjson::dom::object values) {
  RequestRules rules;
  // What depends on the model is checked line by line.
  rules.vocab_size = std::numeric_limits<int32_t>::max();
  rules.max_logprobs = -1;
  ParsedLine line;
  line.endpoint = endpoint;
  LineDraft draft{.rules = &rules, .line = &line};
  for (const Parameter& parameter : Parameters()) {
    simdjson::dom::element value;
    if (!parameter.belongs_to(endpoint) || values.at_key(parameter.name).get(value) ||
        value.is_null())
      continue;
    if (auto error = Apply(parameter, value, draft)) return error;
  }
  // A line may complete what goes together, so a draft alone says nothing of that.
  return std::nullopt;
}

}  // namespace

base::Result<JobDefaults> JobDefaults::Parse(const std::string& json) {
  JobDefaults defaults;
  if (json.empty()) return defaults;
  auto parser = std::make_shared<simdjson::dom::parser>();
  const auto root = base::ParseJson(*parser, json);
  if (!root.ok()) return InvalidDefaults(root.status().message());
  if (root->get(defaults.values_)) return InvalidDefaults("it is no object");
  const std::span<const Parameter> table = Parameters();
  for (const auto member : defaults.values_) {
    if (std::ranges::find(kOfLines, member.key) != std::end(kOfLines))
      return InvalidDefaults(fmt::format("`{}` is a line's own", member.key));
    if (std::ranges::find(table, member.key, &Parameter::name) == table.end())
      return InvalidDefaults(fmt::format("`{}` is no request parameter", member.key));
  }
  for (const Endpoint endpoint :
       {Endpoint::kChat, Endpoint::kCompletion, Endpoint::kLikelihood, Endpoint::kEmbedding,
        Endpoint::kClassify, Endpoint::kScore, Endpoint::kRerank}) {
    if (const auto error = ErrorIn(endpoint, defaults.values_))
      return InvalidDefaults(error->message);
  }
  defaults.text_ = json;
  defaults.parser_ = std::move(parser);
  return defaults;
}

std::optional<simdjson::dom::element> JobDefaults::Find(std::string_view parameter) const {
  simdjson::dom::element value;
  if (parser_ == nullptr || values_.at_key(parameter).get(value) || value.is_null())
    return std::nullopt;
  return value;
}

}  // namespace forebay::job
