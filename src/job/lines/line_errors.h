// The wording of errors about a request's parameters: what was found, what was expected.
#pragma once

#include <simdjson.h>

#include <string>
#include <string_view>

#include "job/lines/parsed_line.h"

namespace forebay::job {

// A value as an error shows it, cut to a few dozen bytes: "\"hot\" (a string)", "3", "an array".
std::string Describe(simdjson::dom::element value);
// The same for a name that the user chose.
std::string Shorten(std::string_view text);

LineError WrongType(std::string_view param, simdjson::dom::element found,
                    std::string_view expected);
LineError OutOfRange(std::string_view param, simdjson::dom::element found,
                     std::string_view expected);
LineError InvalidValue(std::string_view param, std::string message);
LineError Missing(std::string_view param, std::string_view expected);
LineError Unsupported(std::string_view param, std::string_view what);

}  // namespace forebay::job
