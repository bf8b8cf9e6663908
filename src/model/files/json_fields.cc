#include "model/files/json_fields.h"

#include <cmath>

#include "base/log.h"
#include "model/config.h"

namespace forebay::model {

using base::Status;

std::optional<simdjson::dom::element> JsonFields::Find(std::string_view key) const {
  if (key.empty()) return std::nullopt;  // a rule that names no key
  if (!AskedFor(key)) asked_.emplace_back(key);
  simdjson::dom::element element;
  if (object_.at_key(key).get(element) || element.is_null()) return std::nullopt;
  return element;
}

namespace {

// An integer, or a float that is a whole number ("50.0"), as some programs write them.
bool ReadWhole(simdjson::dom::element element, int64_t* value) {
  constexpr double kMostExact = 9007199254740992.0;  // 2^53
  if (!element.get_int64().get(*value)) return true;
  double number;
  if (element.get_double().get(number) || std::trunc(number) != number ||
      std::fabs(number) > kMostExact)
    return false;
  *value = static_cast<int64_t>(number);
  return true;
}

// A number, or what transformers writes for one that JSON does not have.
bool ReadNumber(simdjson::dom::element element, double* value) {
  if (!element.get_double().get(*value)) return true;
  std::string_view name;
  if (element["__float__"].get_string().get(name) || name != "Infinity") return false;
  *value = std::numeric_limits<double>::infinity();
  return true;
}

}  // namespace

void JsonFields::Fail(Status error) {
  if (status_.ok()) status_ = std::move(error);
}

void JsonFields::Invalid(std::string_view what) {
  Fail(Status(kConfigInvalid, fmt::format("{}: {}", where_, what)));
}

void JsonFields::Wrong(std::string_view key, std::string_view expected) {
  constexpr size_t kShown = 60;
  const std::optional<simdjson::dom::element> found = Find(key);
  std::string text = found ? simdjson::minify(*found) : "";
  if (text.size() > kShown) text = text.substr(0, kShown) + "...";
  Invalid(found ? fmt::format("{} is {}; expected {}", key, text, expected)
                : fmt::format("{} is missing; expected {}", key, expected));
}

void JsonFields::Unsupported(std::string_view key, std::string_view found,
                             std::string_view expected) {
  Fail(Status(kConfigUnsupported, fmt::format("{}: {} is {}, which is not supported; supported: {}",
                                              where_, key, base::ShownName(found), expected)));
}

int64_t JsonFields::Int(std::string_view key, int64_t least, int64_t most,
                        std::optional<int64_t> otherwise) {
  const auto element = Find(key);
  if (!element && otherwise) return *otherwise;
  int64_t value;
  if (element && ReadWhole(*element, &value) && least <= value && value <= most) return value;
  Wrong(key, fmt::format("an integer from {} to {}", least, most));
  return otherwise.value_or(least);
}

double JsonFields::Float(std::string_view key, double least, double most,
                         std::optional<double> otherwise) {
  const auto element = Find(key);
  if (!element && otherwise) return *otherwise;
  double value;
  if (element && !element->get_double().get(value) && least <= value && value <= most) return value;
  Wrong(key, fmt::format("a number from {} to {}", least, most));
  return otherwise.value_or(least);
}

bool JsonFields::Bool(std::string_view key, bool otherwise) {
  const auto element = Find(key);
  bool value = otherwise;
  if (element && element->get_bool().get(value)) Wrong(key, "true or false");
  return value;
}

std::string JsonFields::String(std::string_view key, std::string_view otherwise) {
  const auto element = Find(key);
  std::string_view value = otherwise;
  if (element && element->get_string().get(value)) Wrong(key, "a string");
  return std::string(value);
}

std::vector<simdjson::dom::element> JsonFields::Items(std::string_view key) {
  const auto element = Find(key);
  if (!element) return {};
  simdjson::dom::array array;
  if (element->get_array().get(array)) return {*element};
  std::vector<simdjson::dom::element> items;
  for (const simdjson::dom::element item : array) {
    if (items.size() == kMostItems) {
      Wrong(key, fmt::format("at most {} items", kMostItems));
      break;
    }
    items.push_back(item);
  }
  return items;
}

std::vector<std::string> JsonFields::Strings(std::string_view key) {
  std::vector<std::string> values;
  for (const simdjson::dom::element item : Items(key)) {
    std::string_view value;
    if (item.get_string().get(value)) Wrong(key, "a list of strings");
    values.emplace_back(value);
  }
  return values;
}

std::vector<double> JsonFields::Floats(std::string_view key, double least, double most) {
  std::vector<double> values;
  for (const simdjson::dom::element item : Items(key)) {
    double value = least;
    if (!ReadNumber(item, &value) || value < least || value > most)
      Wrong(key, fmt::format("a list of numbers from {} to {}", least, most));
    values.push_back(value);
  }
  return values;
}

std::vector<int32_t> JsonFields::Ints(std::string_view key, std::string_view expected) {
  std::vector<int32_t> values;
  for (const simdjson::dom::element item : Items(key)) {
    int64_t value;
    if (item.is_null()) continue;
    if (!ReadWhole(item, &value) || value < 0 || value > std::numeric_limits<int32_t>::max()) {
      Wrong(key, fmt::format("{} or a list of them", expected));
    } else {
      values.push_back(static_cast<int32_t>(value));
    }
  }
  return values;
}

std::optional<JsonFields> JsonFields::Object(std::string_view key) {
  const auto element = Find(key);
  simdjson::dom::object object;
  if (!element) return std::nullopt;
  if (element->get_object().get(object)) {
    Wrong(key, "an object");
    return std::nullopt;
  }
  return JsonFields(object, fmt::format("{}: {}", where_, key));
}

}  // namespace forebay::model
