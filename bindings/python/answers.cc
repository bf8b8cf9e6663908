// Results of a table's job as the columns that they add, laid out as Arrow lays them out, so that
// no value becomes a Python object on its way.
#include <fcntl.h>
#include <fmt/format.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "job/files/log_io.h"
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
  // A row of so many entries, which another column has.
  void List(size_t entries) {
    count_ += static_cast<int32_t>(entries);
    End(true);
  }
  void Vector(simdjson::dom::array numbers) {
    for (const element number : numbers) {
      Append(&values_, static_cast<float>(number.get_double().value()));
      ++count_;
    }
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

// The columns in the order in which a table has them. Where a row has a list of choices, `lists`
// says whose each choice is, and the choices' columns have an entry for each instead of each row.
struct Columns {
  bool in_lists = false;
  bool vectors = false;  // the job's lines ask for embeddings
  Column prompt_ids, prompt_tokens, ids, text, tokens, finish_reason, vector, error, lists;

  std::vector<const Column*> all() const {
    if (vectors) return {&prompt_tokens, &vector, &error, &lists};
    return {&prompt_ids, &prompt_tokens, &ids, &text, &tokens, &finish_reason, &error, &lists};
  }

  // A row whose answer is the result line. Throws simdjson's error where it is none.
  void Add(element line) {
    const simdjson::dom::object body = line["response"]["body"];
    simdjson::dom::object failed;
    if (!body["error"].get(failed)) {
      prompt_ids.Null();
      prompt_tokens.NoNumber();
      lists.Null();
      vector.Null();
      if (!in_lists) {
        for (Column* column : {&ids, &text, &finish_reason}) column->Null();
        tokens.NoNumber();
      }
      error.Text(fmt::format("{} [{}]", std::string_view(failed["message"]),
                             std::string_view(failed["code"])));
      return;
    }
    if (vectors) {
      prompt_tokens.Number(body["usage"]["prompt_tokens"]);
      vector.Vector(body["data"].at(0)["embedding"]);
      error.Null();
      return;
    }
    const simdjson::dom::array choices = body["choices"];
    const element first = choices.at(0);
    simdjson::dom::array prompt;
    // A chat's are the body's, a completion's its choice's.
    if (body["prompt_token_ids"].get(prompt)) prompt = first["prompt_token_ids"];
    prompt_ids.Ids(prompt);
    prompt_tokens.Number(body["usage"]["prompt_tokens"]);
    for (const element choice : choices) {
      AddChoice(choice);
      if (!in_lists) break;
    }
    lists.List(choices.size());
    error.Null();
  }

 private:
  void AddChoice(element choice) {
    tokens.Number(ids.Ids(choice["token_ids"]));
    std::string_view told;
    if (choice["text"].get(told)) told = choice["message"]["content"];
    text.Text(told);
    finish_reason.Text(choice["finish_reason"]);
  }
};

// The results in a file, in the order of the input's lines, each of which is a row; also while a
// job appends to the file.
class Answers {
 public:
  // `in_lists`: a row has the list of its choices, not one; `vectors`: it has a vector.
  Answers(const std::string& path, size_t rows, bool in_lists, bool vectors)
      : path_(path),
        in_lists_(in_lists),
        vectors_(vectors),
        fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)),
        places_(rows) {
    if (fd_ < 0) python::Throw(job::ResultsIoError(path, "cannot open the results", errno));
  }
  ~Answers() { close(fd_); }
  Answers(const Answers&) = delete;
  Answers& operator=(const Answers&) = delete;

  // Are the next `rows` rows' results there?
  bool Has(size_t rows) {
    const GilRelease release;
    Look();
    const auto next = std::span(places_).subspan(next_);
    return next.size() >= rows && std::ranges::all_of(next.first(rows), [](const Place& place) {
             return place.bytes > 0;
           });
  }

  // The next `rows` rows as columns; the last one is `lists`.
  nb::list Read(size_t rows) {
    Columns columns{.in_lists = in_lists_, .vectors = vectors_};
    {
      const GilRelease release;
      Look();
      for (size_t i = 0; i < rows; ++i) ReadRow(&columns);
    }
    nb::list list;
    for (const Column* column : columns.all()) list.append(column->Take());
    return list;
  }

 private:
  static constexpr size_t kReadBytes = 1 << 20;
  struct Place {
    uint64_t begin = 0;
    uint32_t bytes = 0;  // without LF; 0: it is not there
  };

  // Finds the whole lines that were not there the last time.
  void Look() {
    for (;;) {
      if (held_ == tail_.size()) tail_.resize(2 * held_);
      const ssize_t count = pread(fd_, tail_.data() + held_, tail_.size() - held_,
                                  static_cast<off_t>(looked_ + held_));
      if (count < 0) python::Throw(job::ResultsIoError(path_, "cannot read the results", errno));
      if (count == 0) return;
      held_ += static_cast<size_t>(count);
      const std::string_view there(tail_.data(), held_);
      size_t begin = 0;
      for (size_t end; (end = there.find('\n', begin)) != std::string::npos; begin = end + 1)
        Note(there.substr(begin, end - begin), looked_ + begin);
      std::copy(there.begin() + static_cast<std::ptrdiff_t>(begin), there.end(), tail_.begin());
      held_ -= begin;
      looked_ += begin;
    }
  }
  void Note(std::string_view text, uint64_t begin) {
    ++line_;
    constexpr std::string_view kBegin = R"({"id":"batch_req_)";
    size_t row = 0;
    const char* const digits = text.data() + std::min(kBegin.size(), text.size());
    const auto read = std::from_chars(digits, text.data() + text.size(), row);
    if (!text.starts_with(kBegin) || read.ec != std::errc() || row == 0 || row > places_.size())
      Refuse(fmt::format("line {}", line_), "it has no id of a row's");
    places_[row - 1] = {begin, static_cast<uint32_t>(text.size())};
  }

  void ReadRow(Columns* columns) {
    const std::string name = fmt::format("the result of row {}", next_);
    if (next_ >= places_.size() || places_[next_].bytes == 0) Refuse(name, "it is not there");
    const Place place = places_[next_++];
    text_.resize(place.bytes);
    if (pread(fd_, text_.data(), place.bytes, static_cast<off_t>(place.begin)) != place.bytes)
      Refuse(name, "it cannot be read back");
    auto parsed = base::ParseJson(parser_, text_);
    if (!parsed.ok()) Refuse(name, parsed.status().message());
    try {
      columns->Add(*parsed);
    } catch (const simdjson::simdjson_error& error) {
      Refuse(name, error.what());
    }
  }
  [[noreturn]] void Refuse(const std::string& what, std::string_view why) const {
    throw Failure{base::kJsonInvalid.name, fmt::format("{}: {}: {}", path_, what, why), false};
  }

  const std::string path_;
  const bool in_lists_, vectors_;
  const int fd_;
  uint64_t looked_ = 0;  // so many bytes, lines that are whole
  int64_t line_ = 0;     // so many lines
  // What came behind them: so many bytes of the buffer.
  std::string tail_ = std::string(kReadBytes, '\0');
  size_t held_ = 0;
  std::vector<Place> places_;
  size_t next_ = 0;  // row
  std::string text_;
  simdjson::dom::parser parser_;
};

}  // namespace

void AddAnswers(nb::module_& module) {
  nb::class_<Answers>(module, "Answers")
      .def(nb::init<const std::string&, size_t, bool, bool>(), nb::arg("path"), nb::arg("rows"),
           nb::arg("in_lists") = false, nb::arg("vectors") = false)
      .def("has", &Answers::Has)
      .def("read", &Answers::Read);
}

}  // namespace forebay::python
