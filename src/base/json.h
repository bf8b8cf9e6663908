// JSON as simdjson reads it: one document at a time, whole and validated. JsonWriter writes.
// Takes long to compile: what only writes includes base/json_writer.h.
#pragma once

#include <simdjson.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "base/json_writer.h"
#include "base/read_file.h"
#include "base/status.h"

namespace forebay::base {

// Parses one document. `parser` owns what the element refers to and is reused by the next call:
// keep one for each thread. Numbers beyond 64 bits, invalid UTF-8 and a second document are
// kJsonInvalid errors.
Result<simdjson::dom::element> ParseJson(simdjson::dom::parser& parser, std::string_view text);

// Reads a whole file and parses it; errors name the file. `max_bytes` guards against a wrong path.
Result<simdjson::dom::element> ParseJsonFile(simdjson::dom::parser& parser, const std::string& path,
                                             uint64_t max_bytes = 1ull << 30);

}  // namespace forebay::base
