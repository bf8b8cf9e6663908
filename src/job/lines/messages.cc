#include "job/lines/messages.h"

#include <fmt/core.h>

#include <string_view>

#include "base/json.h"
#include "job/lines/line_errors.h"

namespace forebay::job {
namespace {

using simdjson::dom::element;
using simdjson::dom::element_type;

// Calls append(i-th item) between commas.
template <typename Container, typename Append>
void AppendList(const Container& items, char open, char close, std::string* out,
                const Append& append) {
  out->push_back(open);
  bool first = true;
  for (const auto item : items) {
    if (!first) out->push_back(',');
    first = false;
    append(item);
  }
  out->push_back(close);
}

void AppendKey(std::string_view key, std::string* out) {
  base::AppendJsonString(out, key);
  out->push_back(':');
}

void AppendDouble(double value, std::string* out) {
  const size_t begin = out->size();
  base::JsonWriter(out).Double(value);
  if (out->find_first_of(".e", begin) == std::string::npos) *out += ".0";
}

}  // namespace

void AppendJson(element value, std::string* out) {
  base::JsonWriter writer(out);
  switch (value.type()) {
    case element_type::ARRAY:
      AppendList(value.get_array().value_unsafe(), '[', ']', out,
                 [&](element item) { AppendJson(item, out); });
      break;
    case element_type::OBJECT:
      AppendList(value.get_object().value_unsafe(), '{', '}', out, [&](const auto& member) {
        AppendKey(member.key, out);
        AppendJson(member.value, out);
      });
      break;
    case element_type::STRING: writer.String(value.get_string().value_unsafe()); break;
    case element_type::INT64: writer.Int(value.get_int64().value_unsafe()); break;
    case element_type::UINT64: writer.UInt(value.get_uint64().value_unsafe()); break;
    case element_type::DOUBLE: AppendDouble(value.get_double().value_unsafe(), out); break;
    case element_type::BOOL: writer.Bool(value.get_bool().value_unsafe()); break;
    case element_type::NULL_VALUE: writer.Null(); break;
  }
}

std::optional<LineError> AppendMessages(element messages, std::string* out) {
  simdjson::dom::array array;
  if (messages.get(array)) return WrongType("messages", messages, "an array of messages");
  if (array.begin() == array.end())
    return InvalidValue("messages", "`messages` is empty; expected at least one message");
  AppendJson(messages, out);
  return std::nullopt;
}

}  // namespace forebay::job
