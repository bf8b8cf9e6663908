// Typed, checked access to a JSON object's keys, for configuration files.
#pragma once

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace forebay::model {

// The first fault is kept in status(), and every later answer is some valid value, so a reader can
// take all fields and check once at the end. A null counts as absent.
class JsonFields {
 public:
  static constexpr size_t kMostItems = 1 << 12;

  // `where` begins each message, e.g. "config.json" or "config.json: rope_scaling". Borrows the
  // parsed document.
  JsonFields(simdjson::dom::object object, std::string where)
      : object_(object), where_(std::move(where)) {}

  const base::Status& status() const { return status_; }
  const std::string& where() const { return where_; }
  const simdjson::dom::object& object() const { return object_; }
  bool Has(std::string_view key) const { return Find(key).has_value(); }
  // Whether any of the calls here was about the key.
  bool AskedFor(std::string_view key) const { return std::ranges::count(asked_, key) > 0; }

  // A number in [least, most], an integer perhaps as 50.0; without `otherwise` the key must be
  // there.
  int64_t Int(std::string_view key, int64_t least, int64_t most,
              std::optional<int64_t> otherwise = {});
  double Float(std::string_view key, double least, double most,
               std::optional<double> otherwise = {});
  bool Bool(std::string_view key, bool otherwise);
  std::string String(std::string_view key, std::string_view otherwise);
  // Absent: empty. A lone value counts as a list of one, and numbers' nulls do not. Lists of more
  // than kMostItems are errors.
  std::vector<std::string> Strings(std::string_view key);
  std::vector<double> Floats(std::string_view key, double least, double most);
  std::vector<int32_t> TokenIds(std::string_view key) { return Ints(key, "a token id"); }
  std::vector<int32_t> Sizes(std::string_view key) { return Ints(key, "a size"); }
  std::vector<int32_t> LayerIndices(std::string_view key) { return Ints(key, "a layer's index"); }
  // Absent: nothing.
  std::optional<JsonFields> Object(std::string_view key);

  // Keeps the first error.
  void Fail(base::Status error);
  void Invalid(std::string_view what);
  void Unsupported(std::string_view key, std::string_view found, std::string_view expected);

 private:
  std::optional<simdjson::dom::element> Find(std::string_view key) const;
  // Numbers from 0; `expected` says of what.
  std::vector<int32_t> Ints(std::string_view key, std::string_view expected);
  // The items of a list, or the value itself.
  std::vector<simdjson::dom::element> Items(std::string_view key);
  // An ill-typed or missing key.
  void Wrong(std::string_view key, std::string_view expected);

  simdjson::dom::object object_;
  std::string where_;
  base::Status status_;
  mutable std::vector<std::string> asked_;
};

}  // namespace forebay::model
