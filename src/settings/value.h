// How a setting's texts become a member of RunOptions, and how a member is shown. A row of the
// table (table.h) says which member by FB_AT, and its kind by one of the functions below.
#pragma once

#include <algorithm>
#include <charconv>
#include <concepts>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <fmt/ranges.h>

#include "base/status.h"
#include "base/units.h"
#include "settings/run_options.h"

// The member of RunOptions that a row sets: FB_AT(engine.pool.by_matrix).
#define FB_AT(member) \
  [](auto& options) -> auto& { return options.member; }

namespace forebay::settings {

struct Value {
  enum class Arity : uint8_t { kSwitch, kOne, kMany };

  Arity arity = Arity::kOne;
  std::string_view kind = "TEXT";    // As --help names what follows the flag.
  std::vector<std::string> allowed;  // All texts that there are; empty: see `read`.
  // Sets the member. A switch gets "true" or "false"; kMany is called for each text in turn. Errors
  // name `flag`, what was given and what was expected.
  std::function<base::Status(std::string_view flag, const std::string& text, RunOptions& options)>
      read;
  // The text that `read` takes for what the member is; "": it was not set.
  std::function<std::string(const RunOptions& options)> print;
};

// The type of the member.
template <typename At>
using Member = std::remove_reference_t<std::invoke_result_t<At, RunOptions&>>;

// Parses all of `text`. Errors say `what` it is not.
template <typename T>
base::Result<T> ParseNumber(std::string_view flag, const std::string& text, std::string_view what) {
  T number = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, number);
  if (error == std::errc() && end == last) return number;
  const bool too_large = error == std::errc::result_out_of_range;
  return base::Status(base::kInvalidArgument,
                      fmt::format("{}: \"{}\" is no {}{}", flag, text, what,
                                  too_large ? " that fits; expected a smaller one" : ""));
}

// "a", "a or b", "a, b or c".
std::string OneOf(const std::vector<std::string>& texts);

// A text: a path, a name. Of std::string or std::optional<std::string>.
template <typename At>
Value Text(At at) {
  return {.read =
              [=](std::string_view, const std::string& text, RunOptions& options) {
                at(options) = text;
                return base::Status::Ok();
              },
          .print = [=](const RunOptions& options) -> std::string {
            if constexpr (std::same_as<Member<At>, std::string>)
              return at(options);
            else
              return at(options).value_or("");
          }};
}

// Texts, one or more; the flag may be repeated.
template <typename At>
Value Texts(At at) {
  return {.arity = Value::Arity::kMany,
          .read =
              [=](std::string_view, const std::string& text, RunOptions& options) {
                at(options).push_back(text);
                return base::Status::Ok();
              },
          .print =
              [=](const RunOptions& options) {
                return fmt::format("{}", fmt::join(at(options), " "));
              }};
}

// On or off; a flag without a value.
template <typename At>
Value Switch(At at) {
  return {.arity = Value::Arity::kSwitch,
          .allowed = {"true", "false"},
          .read = [=](std::string_view flag, const std::string& text,
                      RunOptions& options) -> base::Status {
            if (text != "true" && text != "false") {
              return {base::kInvalidArgument,
                      fmt::format("{} is given \"{}\"; expected no value", flag, text)};
            }
            at(options) = text == "true";
            return {};
          },
          .print = [=](const RunOptions& options) -> std::string {
            const std::optional<bool> on = at(options);
            return !on ? "" : *on ? "true" : "false";
          }};
}

// Any number.
template <typename At>
Value Number(At at) {
  using T = Member<At>;
  constexpr std::string_view kWhat = std::floating_point<T>  ? "number"
                                     : std::is_unsigned_v<T> ? "integer from 0 to 2^64 - 1"
                                                             : "integer";
  return {.kind = std::floating_point<T> ? "NUMBER" : "INT",
          .read = [=](std::string_view flag, const std::string& text,
                      RunOptions& options) -> base::Status {
            FB_ASSIGN_OR_RETURN(at(options), ParseNumber<T>(flag, text, kWhat));
            return {};
          },
          .print = [=](const RunOptions& options) { return fmt::format("{}", at(options)); }};
}

// A number of at least `least`.
template <typename At>
Value AtLeast(At at, Member<At> least) {
  Value value = Number(at);
  value.read = [=, any = value.read](std::string_view flag, const std::string& text,
                                     RunOptions& options) -> base::Status {
    FB_RETURN_IF_ERROR(any(flag, text, options));
    if (at(options) >= least) return {};
    return {base::kInvalidArgument,
            fmt::format("{} is {}; expected at least {}", flag, text, least)};
  };
  return value;
}

// A number above 0, where 0 stands for "not set".
template <typename At>
Value Positive(At at) {
  using T = Member<At>;
  constexpr std::string_view kWhat = std::floating_point<T> ? "number above 0" : "integer above 0";
  Value value = Number(at);
  value.read = [=](std::string_view flag, const std::string& text,
                   RunOptions& options) -> base::Status {
    FB_ASSIGN_OR_RETURN(const T number, ParseNumber<T>(flag, text, kWhat));
    if (!(number > 0)) {
      return {base::kInvalidArgument, fmt::format("{}: \"{}\" is no {}", flag, text, kWhat)};
    }
    at(options) = number;
    return {};
  };
  value.print = [=](const RunOptions& options) {
    return at(options) > 0 ? fmt::format("{}", at(options)) : "";
  };
  return value;
}

// A number where 0 stands for "not set".
template <typename At>
Value Optional(At at) {
  Value value = Number(at);
  value.print = [=](const RunOptions& options) {
    return at(options) == 0 ? "" : fmt::format("{}", at(options));
  };
  return value;
}

// A size, as 8GiB; 0 stands for "not set".
template <typename At>
Value Bytes(At at) {
  return {.kind = "SIZE",
          .read = [=](std::string_view flag, const std::string& text,
                      RunOptions& options) -> base::Status {
            const auto bytes = base::ParseBytes(text);
            if (!bytes.ok()) return bytes.status().WithContext(flag);
            if (*bytes == 0) {
              return {base::kInvalidArgument,
                      fmt::format("{} is {}; expected at least a byte", flag, text)};
            }
            at(options) = *bytes;
            return {};
          },
          .print =
              [=](const RunOptions& options) {
                return at(options) == 0 ? "" : fmt::format("{}", at(options));
              }};
}

// One of the names that stand for values. The first name of a value is the one that is printed and
// offered; later ones are read.
template <typename T>
struct Named {
  std::string name;
  T value;
};
template <typename At>
Value Choice(At at, std::vector<Named<Member<At>>> choices) {
  Value value;
  for (auto choice = choices.begin(); choice != choices.end(); ++choice) {
    const bool again = std::any_of(choices.begin(), choice, [&](const auto& earlier) {
      return earlier.value == choice->value;
    });
    if (!again) value.allowed.emplace_back(choice->name);
  }
  value.read = [=, names = value.allowed](std::string_view flag, const std::string& text,
                                          RunOptions& options) -> base::Status {
    for (const auto& choice : choices) {
      if (text != choice.name) continue;
      at(options) = choice.value;
      return {};
    }
    return {base::kInvalidArgument,
            fmt::format("{} \"{}\" is unknown; expected {}", flag, text, OneOf(names))};
  };
  value.print = [=](const RunOptions& options) -> std::string {
    for (const auto& choice : choices) {
      if (at(options) == choice.value) return choice.name;
    }
    return "";
  };
  return value;
}

// A text that `parse` turns into a base::Result of the member, and `print` back.
template <typename At, typename Parse, typename Print>
Value Parsed(At at, Parse parse, Print print, std::vector<std::string> allowed = {}) {
  return {
      .allowed = std::move(allowed),
      .read = [=](std::string_view, const std::string& text, RunOptions& options) -> base::Status {
        FB_ASSIGN_OR_RETURN(at(options), parse(text));
        return {};
      },
      .print = [=](const RunOptions& options) { return std::string(print(at(options))); }};
}

}  // namespace forebay::settings
