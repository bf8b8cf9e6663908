// Results of a table's job as the columns that they add, laid out as Arrow lays them out, so that
// no value becomes a Python object on its way.
#include <fmt/format.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <fstream>
#include <string>

#include "base/json.h"
#include "model.h"

namespace forebay::python {
namespace {

using simdjson::dom::element;

// One column of `rows` rows: a bit each for those that have a value; where the values of each
// begin, of strings and lists; the values.
class Column {
 public:
  Column() { Append(&offsets_, int32_t{0}); }

  void Null() { End(false); }
  void Number(int64_t number) {
    Append(&values_, number);
    End(true);
  }
  void NoNumber() {
    Append(&values_, int64_t{0});
    End(false);
  }
  void Text(std::string_view text) {
    values_ += text;
    count_ += static_cast<int32_t>(text.size());
    End(true);
  }
  // Returns how many.
  int64_t Ids(simdjson::dom::array ids) {
    const int32_t before = count_;
    for (const element id : ids) {
      Append(&values_, static_cast<int32_t>(id.get_int64().value()));
      ++count_;
    }
    End(true);
    return count_ - before;
  }

  // (bits, offsets, values)
  nb::tuple Take() const {
    const auto bytes = [](const std::string& text) { return nb::bytes(text.data(), text.size()); };
    return nb::make_tuple(bytes(bits_), bytes(offsets_), bytes(values_));
  }

 private:
  template <typename T>
  static void Append(std::string* to, T number) {
    to->append(reinterpret_cast<const char*>(&number), sizeof(number));
  }
  void End(bool has_value) {
    if (rows_ % 8 == 0) bits_.push_back(0);
    if (has_value) bits_.back() = static_cast<char>(bits_.back() | 1 << rows_ % 8);
    Append(&offsets_, count_);
    ++rows_;
  }

  std::string bits_, offsets_, values_;
  int32_t count_ = 0;  // of strings: bytes
  int64_t rows_ = 0;
};

// The columns in the order in which a table has them.
struct Columns {
  Column prompt_ids, prompt_tokens, ids, text, tokens, finish_reason, error;

  // A row whose answer is the result line. Throws simdjson's error where it is none.
  void Add(element line) {
    const simdjson::dom::object body = line["response"]["body"];
    simdjson::dom::object failed;
    if (!body["error"].get(failed)) {
      for (Column* column : {&prompt_ids, &ids, &text, &finish_reason}) column->Null();
      for (Column* column : {&prompt_tokens, &tokens}) column->NoNumber();
      error.Text(fmt::format("{} [{}]", std::string_view(failed["message"]),
                             std::string_view(failed["code"])));
      return;
    }
    const element choice = body["choices"].at(0);
    simdjson::dom::array prompt;
    // A chat's are the body's, a completion's its choice's.
    if (body["prompt_token_ids"].get(prompt)) prompt = choice["prompt_token_ids"];
    prompt_ids.Ids(prompt);
    prompt_tokens.Number(body["usage"]["prompt_tokens"]);
    tokens.Number(ids.Ids(choice["token_ids"]));
    std::string_view told;
    if (choice["text"].get(told)) told = choice["message"]["content"];
    text.Text(told);
    finish_reason.Text(choice["finish_reason"]);
    error.Null();
  }
};

// The lines of a results file in their order.
class Answers {
 public:
  explicit Answers(const std::string& path) : path_(path), file_(path, std::ios::binary) {}

  // The next `rows` lines as columns.
  nb::list Read(int64_t rows) {
    Columns columns;
    {
      const GilRelease release;
      for (int64_t i = 0; i < rows; ++i) ReadLine(&columns);
    }
    nb::list list;
    for (const Column* column :
         {&columns.prompt_ids, &columns.prompt_tokens, &columns.ids, &columns.text, &columns.tokens,
          &columns.finish_reason, &columns.error})
      list.append(column->Take());
    return list;
  }

 private:
  void ReadLine(Columns* columns) {
    ++line_;
    std::string why = "it ends before this line";
    if (std::getline(file_, text_)) {
      auto parsed = base::ParseJson(parser_, text_);
      try {
        if (parsed.ok()) return columns->Add(*parsed);
        why = parsed.status().message();
      } catch (const simdjson::simdjson_error& error) {
        why = error.what();
      }
    }
    throw Failure{base::kJsonInvalid.name,
                  fmt::format("{}: line {} is no result: {}", path_, line_, why), false};
  }

  const std::string path_;
  std::ifstream file_;
  std::string text_;
  int64_t line_ = 0;
  simdjson::dom::parser parser_;
};

}  // namespace

void AddAnswers(nb::module_& module) {
  nb::class_<Answers>(module, "Answers")
      .def(nb::init<const std::string&>())
      .def("read", &Answers::Read);
}

}  // namespace forebay::python
