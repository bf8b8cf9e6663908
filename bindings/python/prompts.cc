// Prompts, as callers and tables write them, as the JSON of a line's "prompt": many at once.
#include <fmt/format.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <span>

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

void AppendIds(nb::handle given, int64_t index, std::string* json) {
  const nb::object ids = nb::steal(PySequence_Fast(given.ptr(), "token ids are no sequence"));
  if (!ids.is_valid()) throw nb::python_error();
  *json += '[';
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(ids.ptr()); ++i) {
    PyObject* const id = PySequence_Fast_GET_ITEM(ids.ptr(), i);
    if (!PyLong_Check(id) || PyBool_Check(id))
      TypeError("prompt {} holds what is no token id; expected integers", index);
    if (i > 0) *json += ',';
    int overflow = 0;
    const long long value = PyLong_AsLongLongAndOverflow(id, &overflow);
    *json += overflow == 0 ? fmt::format_int(value).c_str() : nb::str(nb::handle(id)).c_str();
  }
  *json += ']';
}

// A str, token ids, or a dict of "prompt" or "prompt_token_ids".
std::string Prompt(nb::handle prompt, int64_t index) {
  std::string json;
  nb::object held = nb::borrow(prompt);
  if (PyDict_Check(prompt.ptr())) {
    const auto member = [&](const char* name) {
      return nb::borrow(PyDict_GetItemString(prompt.ptr(), name));
    };
    if (const nb::object ids = member("prompt_token_ids"); ids.is_valid()) {
      AppendIds(ids, index, &json);
      return json;
    }
    held = member("prompt");
    if (!held.is_valid()) held = nb::none();
  }
  if (PyUnicode_Check(held.ptr())) {
    AppendText(held, &json);
  } else if (PyList_Check(held.ptr()) || PyTuple_Check(held.ptr())) {
    AppendIds(held, index, &json);
  } else {
    TypeError(
        "prompt {} is {}; expected str, token ids, or a dict of \"prompt\" or \"prompt_token_ids\"",
        index, Py_TYPE(held.ptr())->tp_name);
  }
  return json;
}

std::vector<std::string> Prompts(const nb::list& prompts, int64_t first) {
  std::vector<std::string> values;
  values.reserve(prompts.size());
  for (size_t i = 0; i < prompts.size(); ++i)
    values.push_back(Prompt(nb::object(prompts[i]), first + static_cast<int64_t>(i)));
  return values;
}

template <typename T>
std::vector<T> Numbers(const nb::bytes& bytes) {
  std::vector<T> numbers(bytes.size() / sizeof(T));
  std::memcpy(numbers.data(), bytes.c_str(), numbers.size() * sizeof(T));
  return numbers;
}

// Lists of token ids as a table's column holds them: how many each has (-1: null), and all of them.
std::vector<std::string> IdLists(const nb::bytes& lengths, const nb::bytes& ids) {
  const std::vector<int64_t> all = Numbers<int64_t>(ids);
  std::vector<std::string> values;
  std::span rest(all);
  for (const int64_t length : Numbers<int64_t>(lengths)) {
    const auto count = static_cast<size_t>(std::max<int64_t>(length, 0));
    values.push_back(length < 0 ? "null" : fmt::format("[{}]", fmt::join(rest.first(count), ",")));
    rest = rest.subspan(count);
  }
  return values;
}

}  // namespace

void AddPrompts(nb::module_& module) {
  module.def("prompts_json", &Prompts);
  module.def("id_lists_json", &IdLists);
}

}  // namespace forebay::python
