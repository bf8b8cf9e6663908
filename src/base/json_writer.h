// Writes JSON; base/json.h reads it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace forebay::base {

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
