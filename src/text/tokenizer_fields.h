// Members of JSON objects with the errors of tokenizer files.
#pragma once

#include <fmt/core.h>

#include <string>
#include <string_view>
#include <utility>

#include "base/json.h"
#include "text/tokenizer_spec.h"

namespace forebay::text::fields {

using base::Result;
using base::Status;
using simdjson::dom::array;
using simdjson::dom::element;
using simdjson::dom::object;

inline Status Unsupported(std::string_view where, std::string_view what) {
  return Status(kTokenizerUnsupported, fmt::format("{}: {:.100} is not supported", where, what));
}

template <typename T>
inline constexpr const char* kTypeName = "an object";
template <>
inline constexpr const char* kTypeName<array> = "an array";
template <>
inline constexpr const char* kTypeName<simdjson::ondemand::array> = "an array";
template <>
inline constexpr const char* kTypeName<bool> = "true or false";
template <>
inline constexpr const char* kTypeName<int64_t> = "an integer";
template <>
inline constexpr const char* kTypeName<std::string_view> = "a string";

template <typename T, typename Value>
Result<T> As(Value value, std::string_view where) {
  T out;
  if (value.get(out)) return InvalidTokenizer(fmt::format("{}: expected {}", where, kTypeName<T>));
  return out;
}

// A member that must be there.
template <typename T>
Result<T> Get(object from, std::string_view key, std::string_view where) {
  element value;
  if (from[key].get(value))
    return InvalidTokenizer(fmt::format("{}: \"{}\" is missing", where, key));
  return As<T>(value, fmt::format("{}, \"{}\"", where, key));
}

// A member that may be absent or null.
template <typename T>
Result<T> GetOr(object from, std::string_view key, T otherwise, std::string_view where) {
  element value;
  if (from[key].get(value) || value.is_null()) return otherwise;
  return As<T>(value, fmt::format("{}, \"{}\"", where, key));
}

}  // namespace forebay::text::fields
