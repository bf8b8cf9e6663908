// JSON: simdjson reads (one document at a time, whole and validated), JsonWriter writes.
#pragma once

#include <simdjson.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace forebay::base {

// Parses one document. `parser` owns what the element refers to and is reused by the next call:
// keep one for each thread. Numbers beyond 64 bits, invalid UTF-8 and a second document are
// kJsonInvalid errors.
Result<simdjson::dom::element> ParseJson(simdjson::dom::parser& parser, std::string_view text);

// Reads a whole file and parses it; errors name the file. `max_bytes` guards against a wrong path.
Result<simdjson::dom::element> ParseJsonFile(simdjson::dom::parser& parser, const std::string& path,
                                             uint64_t max_bytes = 1ull << 30);

// The whole file as bytes; errors name it and say why.
Result<std::string> ReadFile(const std::string& path, uint64_t max_bytes = 1ull << 30);

// Emits compact JSON into a string that the caller owns. Commas are the writer's business.
//   JsonWriter w(&out);  w.BeginObject();  w.Key("id").String(id);  w.EndObject();
// REQUIRES: calls form a valid document. Strings must be UTF-8; bad bytes become U+FFFD.
class JsonWriter {
 public:
  explicit JsonWriter(std::string* out) : out_(out) {}

  JsonWriter& BeginObject() { return Open('{'); }
  JsonWriter& EndObject() { return Close('}'); }
  JsonWriter& BeginArray() { return Open('['); }
  JsonWriter& EndArray() { return Close(']'); }
  JsonWriter& Key(std::string_view key);
  JsonWriter& String(std::string_view value);
  JsonWriter& Int(int64_t value);
  JsonWriter& UInt(uint64_t value);
  // The shortest decimal form that reads back as the same double; infinities and NaN become null.
  JsonWriter& Double(double value);
  // The shortest decimal form that reads back as the same float.
  JsonWriter& Float(float value);
  JsonWriter& Bool(bool value) { return Raw(value ? "true" : "false"); }
  JsonWriter& Null() { return Raw("null"); }
  // Emits a value that is already JSON.
  JsonWriter& Raw(std::string_view json);

 private:
  JsonWriter& Open(char bracket);
  JsonWriter& Close(char bracket);
  void Separate();

  std::string* out_;
  bool need_comma_ = false;
};

// Appends `text` as a quoted JSON string.
void AppendJsonString(std::string* out, std::string_view text);

}  // namespace forebay::base
