// Prompts, as callers and tables write them, for the parser: as they are, or as the JSON of a
// line's "prompt".
#include "prompts.h"

#include <fmt/format.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <span>
#include <utility>

#include "base/json_writer.h"
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
    PyObject* const id = PySequence_Fast_GET_ITEM(ids.ptr(), i);
    if (!PyLong_Check(id) || PyBool_Check(id))
      TypeError("prompt {} holds what is no token id; expected integers", index);
    int overflow = 0;
    const int64_t value = PyLong_AsLongLongAndOverflow(id, &overflow);
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

// What a prompt holds: a str, or token ids.
struct Held {
  nb::object value;
  bool is_ids;
};

Held HeldIn(nb::handle prompt, int64_t index) {
  nb::object held = nb::borrow(prompt);
  if (PyDict_Check(prompt.ptr())) {
    const auto member = [&](const char* name) {
      return nb::borrow(PyDict_GetItemString(prompt.ptr(), name));
    };
    if (nb::object ids = member("prompt_token_ids"); ids.is_valid()) return {std::move(ids), true};
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

std::vector<std::string> Prompts(const nb::list& prompts, int64_t first) {
  std::vector<std::string> values;
  values.reserve(prompts.size());
  for (size_t i = 0; i < prompts.size(); ++i) {
    const int64_t index = first + static_cast<int64_t>(i);
    values.push_back(Json(HeldIn(nb::object(prompts[i]), index), index));
  }
  return values;
}

template <typename T>
std::vector<T> Numbers(const nb::bytes& bytes) {
  std::vector<T> numbers(bytes.size() / sizeof(T));
  std::memcpy(numbers.data(), bytes.c_str(), numbers.size() * sizeof(T));
  return numbers;
}

// Lists of token ids as a table's column holds them: a byte each, 0 where it is null; where each
// begins and the last ends, in 64 bits; the ids from the first one's begin on, in 64 bits each.
std::vector<std::string> IdLists(const nb::bytes& valid, const nb::bytes& offsets,
                                 const nb::bytes& ids) {
  const std::vector<int64_t> all = Numbers<int64_t>(ids), at = Numbers<int64_t>(offsets);
  std::vector<std::string> values;
  for (size_t i = 0; i < valid.size(); ++i) {
    const auto begin = static_cast<size_t>(at[i] - at[0]),
               end = static_cast<size_t>(at[i + 1] - at[0]);
    const auto list = std::span(all).subspan(begin, end - begin);
    values.push_back(valid.c_str()[i] == 0 ? "null" : fmt::format("[{}]", fmt::join(list, ",")));
  }
  return values;
}

}  // namespace

GivenPrompt ReadPrompt(nb::handle prompt, int64_t index, int64_t vocab_size) {
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

void AddPrompts(nb::module_& module) {
  module.def("prompts_json", &Prompts);
  module.def("id_lists_json", &IdLists);
}

}  // namespace forebay::python
