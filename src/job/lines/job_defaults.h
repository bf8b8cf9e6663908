// Values for parameters of a whole job (--defaults): what a line does not say itself.
#pragma once

#include <simdjson.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace forebay::job {

inline constexpr base::ErrorCode kDefaultsInvalid{"defaults_invalid"};

// A JSON object of request parameters, checked. Copies share it. Thread-safe.
class JobDefaults {
 public:
  // No values.
  JobDefaults() = default;
  // "" is no values. kDefaultsInvalid: no object; a parameter that does not exist, is a line's own
  // (`model`, and what a line asks about: `messages`, `prompt`, `input`, ...), or has a value that
  // no line could have.
  static base::Result<JobDefaults> Parse(const std::string& json);

  // As it was given.
  const std::string& text() const { return text_; }
  // The parameter's value; nothing, also for null: there is none.
  std::optional<simdjson::dom::element> Find(std::string_view parameter) const;

 private:
  std::string text_;
  std::shared_ptr<const simdjson::dom::parser> parser_;  // Owns what `values_` refers to.
  simdjson::dom::object values_;
};

}  // namespace forebay::job
