// Prompts, as callers and tables write them, for the parser: as they are, or as the JSON of a
// line's "prompt".
#include "prompts.h"

#include <fmt/format.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/json_writer.h"
#include "base/log.h"
#include "model.h"

namespace forebay::python {
namespace {

template <typename... Args>
[[noreturn]] void TypeError(fmt::format_string<Args...> format, Args&&... args) {
  throw nb::type_error(fmt::format(format, std::forward<Args>(args)...).c_str());
}

void AppendText(nb::handle text, std::string* json) {
  Py_ssize_t size = 0;
  if (const char* const bytes = PyUnicode_AsUTF8AndSize(text.ptr(), &size)) {
    base::AppendJsonString(json, {bytes, static_cast<size_t>(size)});
    return;
  }
  // Half a pair of surrogates is no UTF-8: escaped, it comes to the parser, which says so.
  PyErr_Clear();
  *json += nb::cast<std::string>(nb::module_::import_("json").attr("dumps")(text));
}

// Calls `take` with each id, and with its value where 64 bits hold it.
template <typename Take>
void ForEachId(nb::handle given, int64_t index, const Take& take) {
  const nb::object ids = nb::steal(PySequence_Fast(given.ptr(), "token ids are no sequence"));
  if (!ids.is_valid()) throw nb::python_error();
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(ids.ptr()); ++i) {
    PyObject* const given_id = PySequence_Fast_GET_ITEM(ids.ptr(), i);
    // numpy's integers are integers too.
    const nb::object id = nb::steal(PyBool_Check(given_id) ? nullptr : PyNumber_Index(given_id));
    if (!id.is_valid()) {
      PyErr_Clear();
      TypeError("prompt {} holds what is no token id; expected integers", index);
    }
    int overflow = 0;
    const int64_t value = PyLong_AsLongLongAndOverflow(id.ptr(), &overflow);
    take(nb::handle(id), overflow == 0 ? std::optional(value) : std::nullopt);
  }
}

void AppendIds(nb::handle given, int64_t index, std::string* json) {
  char before = '[';
  ForEachId(given, index, [&](nb::handle id, std::optional<int64_t> value) {
    *json += std::exchange(before, ',');
    *json += value ? fmt::format_int(*value).c_str() : nb::str(id).c_str();
  });
  *json += before == '[' ? "[]" : "]";
}

// A prompt's members that nobody reads, an image for example, would be left out of the answer
// without a word. A salt of the prefix cache changes no answer.
void RefuseOthers(const nb::dict& prompt, int64_t index) {
  for (const auto [name, value] : prompt) {
    const std::string text = nb::str(name).c_str();
    if (value.is_none() || text == "prompt" || text == "prompt_token_ids" || text == "cache_salt")
      continue;
    TypeError("prompt {} has the member {}; expected \"prompt\" or \"prompt_token_ids\" alone",
              index, base::ShownName(text));
  }
}

// What a prompt holds: a str, or token ids.
struct Held {
  nb::object value;
  bool is_ids;
};

Held HeldIn(nb::handle prompt, int64_t index) {
  nb::object held = nb::borrow(prompt);
  if (PyDict_Check(prompt.ptr())) {
    RefuseOthers(nb::borrow<nb::dict>(prompt), index);
    const auto member = [&](const char* name) {
      return nb::borrow(PyDict_GetItemString(prompt.ptr(), name));
    };
    if (nb::object ids = member("prompt_token_ids"); ids.is_valid() && !ids.is_none())
      return {std::move(ids), true};
    held = member("prompt");
    if (!held.is_valid()) held = nb::none();
  }
  const bool is_ids = PyList_Check(held.ptr()) || PyTuple_Check(held.ptr());
  if (!is_ids && !PyUnicode_Check(held.ptr())) {
    TypeError(
        "prompt {} is {}; expected str, token ids, or a dict of \"prompt\" or \"prompt_token_ids\"",
        index, Py_TYPE(held.ptr())->tp_name);
  }
  return {std::move(held), is_ids};
}

std::string Json(const Held& held, int64_t index) {
  std::string json;
  held.is_ids ? AppendIds(held.value, index, &json) : AppendText(held.value, &json);
  return json;
}

std::string PromptJson(nb::handle prompt, int64_t index) {
  return Json(HeldIn(prompt, index), index);
}

// The bytes of what has the buffer protocol.
class Bytes {
 public:
  explicit Bytes(nb::handle object) {
    if (PyObject_GetBuffer(object.ptr(), &buffer_, PyBUF_SIMPLE) != 0) throw nb::python_error();
  }
  ~Bytes() { PyBuffer_Release(&buffer_); }
  Bytes(const Bytes&) = delete;
  Bytes& operator=(const Bytes&) = delete;

  const char* data() const { return static_cast<const char*>(buffer_.buf); }
  size_t size() const { return static_cast<size_t>(buffer_.len); }
  // The number at an index, one of `width` bytes with a sign.
  int64_t Number(size_t index, size_t width) const {
    const char* const at = data() + index * width;
    switch (width) {
      case 1: return Load<int8_t>(at);
      case 2: return Load<int16_t>(at);
      case 4: return Load<int32_t>(at);
      default: return Load<int64_t>(at);
    }
  }

 private:
  template <typename T>
  static int64_t Load(const char* from) {
    T number;
    std::memcpy(&number, from, sizeof(number));
    return number;
  }

  Py_buffer buffer_{};
};

void AppendIds(const Bytes& ids, size_t begin, size_t end, size_t width, std::string* json) {
  char before = '[';
  for (size_t i = begin; i < end; ++i) {
    *json += std::exchange(before, ',');
    const fmt::format_int id(ids.Number(i, width));
    json->append(id.data(), id.size());
  }
  *json += before == '[' ? "[]" : "]";
}

// Rows of a table's column as the JSON of prompts, from Arrow's buffers: a bit each, 1 where it has
// a value (no bytes: all have); where each begins and the last ends, in numbers of `begin_bytes`;
// what they hold, text (`value_bytes` 0) or token ids of so many bytes. The rows are those from
// `first_row` on; begins are counted from `first_value`.
std::vector<nb::bytes> ColumnJson(size_t rows, size_t first_row, nb::handle bits, nb::handle begins,
                                  size_t begin_bytes, size_t first_value, nb::handle values,
                                  size_t value_bytes) {
  const Bytes valid(bits), at(begins), held(values);
  const size_t last_row = first_row + rows;
  if (at.size() < (last_row + 1) * begin_bytes || (valid.size() > 0 && valid.size() * 8 < last_row))
    throw nb::value_error("a column's buffers are shorter than its rows");
  const size_t num_values = held.size() / std::max<size_t>(value_bytes, 1);
  std::vector<nb::bytes> made;
  made.reserve(rows);
  std::string json;
  for (size_t row = first_row; row < last_row; ++row) {
    json.clear();
    if (valid.size() > 0 && (valid.Number(row / 8, 1) >> row % 8 & 1) == 0) {
      json = "null";
    } else {
      const auto begin = static_cast<size_t>(at.Number(row, begin_bytes)) + first_value,
                 end = static_cast<size_t>(at.Number(row + 1, begin_bytes)) + first_value;
      if (begin > end || end > num_values)
        throw nb::value_error("a column's rows are not within its values");
      if (value_bytes == 0) {
        base::AppendJsonString(&json, {held.data() + begin, end - begin});
      } else {
        AppendIds(held, begin, end, value_bytes, &json);
      }
    }
    made.emplace_back(json.data(), json.size());
  }
  return made;
}

GivenPrompt Read(nb::handle prompt, int64_t index, int64_t vocab_size) {
  const Held held = HeldIn(prompt, index);
  if (held.is_ids) {
    std::vector<int32_t> ids;
    bool good = true;
    ForEachId(held.value, index, [&](nb::handle, std::optional<int64_t> value) {
      good = good && value && *value >= 0 && *value < vocab_size;
      if (good) ids.push_back(static_cast<int32_t>(*value));
    });
    if (good && !ids.empty()) return {.prompt = std::move(ids)};
  } else {
    Py_ssize_t size = 0;
    if (const char* const bytes = PyUnicode_AsUTF8AndSize(held.value.ptr(), &size))
      return {.prompt = std::string(bytes, static_cast<size_t>(size))};
    PyErr_Clear();
  }
  return {.json = Json(held, index)};
}

}  // namespace

GivenPrompt ReadPrompt(nb::handle prompt, int64_t index, int64_t vocab_size, bool returns) {
  try {
    return Read(prompt, index, vocab_size);
  } catch (const nb::builtin_exception& error) {
    if (!returns || error.type() != nb::exception_type::type_error) throw;
    return {.no_prompt = error.what()};
  } catch (const nb::python_error& error) {  // of what should be a sequence
    if (!error.matches(PyExc_TypeError)) throw;
    const std::string why = nb::str(error.value()).c_str();
    if (!returns) TypeError("prompt {}: {}", index, why);
    return {.no_prompt = fmt::format("prompt {}: {}", index, why)};
  }
}

void AddPrompts(nb::module_& module) {
  module.def("prompt_json", &PromptJson, nb::arg("prompt").none(), nb::arg("index"));
  module.def("column_json", &ColumnJson);
}

}  // namespace forebay::python
