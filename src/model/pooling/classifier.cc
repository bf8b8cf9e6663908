// What config.json says of a head that gives labels.
#include <algorithm>
#include <charconv>

#include "base/log.h"
#include "model/family.h"
#include "model/files/json_fields.h"

namespace forebay::model {
namespace {

constexpr int64_t kMostLabels = 1 << 12;

// id2label: {"0": "NEGATIVE", "1": "POSITIVE"}. transformers leaves it out where it is as without.
std::vector<std::string> ReadNames(JsonFields* in) {
  std::vector<std::string> names(static_cast<size_t>(in->Int("num_labels", 1, kMostLabels, 2)));
  for (size_t i = 0; i < names.size(); ++i) names[i] = fmt::format("LABEL_{}", i);
  const std::optional<JsonFields> object = in->Object("id2label");
  if (!object) return names;
  const size_t count = object->object().size();
  names.assign(count, "");
  for (const auto& [key, value] : object->object()) {
    size_t id = count;
    const char* const end = key.data() + key.size();
    std::string_view name;
    const bool whole = std::from_chars(key.data(), end, id).ptr == end;
    if (!whole || id >= count || value.get(name) || name.empty()) {
      in->Invalid(
          fmt::format("id2label has {} for {}; expected names of the labels \"0\" to \"{}\"",
                      base::ShownName(simdjson::minify(value)), base::ShownName(key),
                      static_cast<int64_t>(count) - 1));
      return {"LABEL_0"};
    }
    names[id] = name;
  }
  if (names.empty() || std::ranges::count(names, "") > 0) {
    in->Invalid("id2label lacks a label; expected a name for each, from \"0\" on");
    return {"LABEL_0"};
  }
  return names;
}

// What a cross-encoder of sentence-transformers says of the function behind it: "" if nothing.
std::string CrossEncoderFunction(JsonFields* in) {
  std::string function = in->String("sbert_ce_default_activation_function", "");
  if (std::optional<JsonFields> object = in->Object("sentence_transformers")) {
    function = object->String("activation_fn", function);
    in->Fail(object->status());
  }
  return function.substr(function.rfind('.') + 1);
}

}  // namespace

Labels ReadLabels(JsonFields* in) {
  Labels labels{.names = ReadNames(in)};
  if (labels.names.size() == 1) labels.rule = Labels::Rule::kSigmoid;
  const std::string problem = in->String("problem_type", "");
  if (problem == "regression") {
    labels.rule = Labels::Rule::kIdentity;
  } else if (problem == "multi_label_classification") {
    labels.rule = Labels::Rule::kSigmoid;
  } else if (!problem.empty() && problem != "single_label_classification") {
    in->Unsupported("problem_type", problem,
                    "regression, single_label_classification, multi_label_classification");
  }
  const std::string function = CrossEncoderFunction(in);
  if (function == "Identity") {
    labels.rule = Labels::Rule::kIdentity;
  } else if (function == "Sigmoid") {
    labels.rule = Labels::Rule::kSigmoid;
  } else if (!function.empty()) {
    in->Unsupported("activation_fn", function, "torch.nn.modules' Identity and Sigmoid");
  }
  return labels;
}

bool Generates(const ModelConfig& config) {
  return !config.both_ways && !config.architecture.ends_with(kOfLabels);
}

}  // namespace forebay::model
