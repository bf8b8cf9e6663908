// Requests of one caller: lines go in, tuples come out.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

#include "model.h"

namespace forebay::python {
namespace {

nb::list Ids(const std::vector<int32_t>& ids) {
  nb::list list;
  for (const int32_t id : ids) list.append(id);
  return list;
}

// What a caller asks for at once, and what has come of it. For one thread.
class Call {
 public:
  explicit Call(std::shared_ptr<Model> model)
      : model_(std::move(model)), inbox_(std::make_shared<job::Inbox>(model_->runtime())) {
    model_->Check();
  }

  // Parses the lines (as those of a job's input; each with the key of its draws), to be begun by
  // Start. Returns the errors of those that are bad: index, code, message, parameter. `unbounded`:
  // answers may be as long as the context.
  std::vector<nb::tuple> Add(std::vector<std::string> lines, const std::vector<int64_t>& keys,
                             const std::vector<bool>& unbounded, bool stream) {
    model_->Check();
    std::vector<std::pair<int64_t, job::LineError>> errors;
    {
      const GilRelease release;
      for (size_t i = 0; i < lines.size(); ++i) {
        const int64_t tag = next_tag_++;
        job::BuiltLine built = model_->Parse(&lines[i], keys[i]);
        if (built.error) {
          errors.emplace_back(tag, std::move(*built.error));
          continue;
        }
        built.request.stream = stream;
        if (unbounded[i])
          built.request.sampling.max_tokens = built.request.sampling.default_max_tokens = -1;
        asked_.emplace(tag, Asked{built.request.prompts, built.request.sampling});
        ready_.push_back({.request = std::move(built.request), .tag = tag});
      }
    }
    std::vector<nb::tuple> tuples;
    for (const auto& [tag, error] : errors)
      tuples.push_back(nb::make_tuple(tag, error.code, error.message, error.param));
    return tuples;
  }

  void Start() {
    model_->Check();
    const GilRelease release;
    std::vector<int64_t> tags;
    for (const auto& each : ready_) tags.push_back(each.tag);
    const auto ids = model_->session().Submit(std::exchange(ready_, {}), inbox_);
    for (size_t i = 0; i < ids.size(); ++i) asked_.at(tags[i]).id = ids[i];
  }

  void Cancel(int64_t tag) {
    const auto found = asked_.find(tag);
    if (found != asked_.end() && found->second.id >= 0) model_->session().Cancel(found->second.id);
  }
  // Everything; the latest first.
  void CancelAll() {
    std::vector<int64_t> ids;
    for (const auto& [tag, asked] : asked_)
      if (asked.id >= 0) ids.push_back(asked.id);
    std::ranges::sort(ids, std::greater<>());
    const GilRelease release;
    for (const int64_t id : ids) model_->session().Cancel(id);
  }

  int Descriptor() { return inbox_->descriptor(); }

  // What has come, as tuples: (tag, None, piece) and (tag, result, None).
  nb::list Take(double timeout_s) {
    std::vector<job::Arrival> arrivals;
    {
      const GilRelease release;
      arrivals = inbox_->Take(static_cast<runtime::TimeNs>(timeout_s * 1e9));
    }
    nb::list list;
    for (job::Arrival& arrival : arrivals) {
      const auto asked = asked_.find(arrival.tag);
      if (!arrival.result) {
        list.append(nb::make_tuple(arrival.tag, nb::none(), Piece(arrival.piece, asked->second)));
        continue;
      }
      list.append(nb::make_tuple(arrival.tag, Result(*arrival.result, asked->second), nb::none()));
      asked_.erase(asked);
    }
    return list;
  }

 private:
  struct Asked {
    std::vector<std::vector<int32_t>> prompts;
    SamplingParams sampling;
    int64_t id = -1;  // once it was submitted
  };

  // {token: (logprob, rank, text)} of one position; the position's own token comes first.
  nb::object Position(const PositionLogprobs& position) const {
    nb::dict dict;
    const auto add = [&](const TokenLogprob& token) {
      const std::string bytes = model_->text().TokenBytes(token.token);
      dict[nb::int_(token.token)] =
          nb::make_tuple(token.logprob, token.rank,
                         nb::steal(PyUnicode_DecodeUTF8(
                             bytes.data(), static_cast<Py_ssize_t>(bytes.size()), "replace")));
    };
    if (position.top.empty()) return nb::none();
    add(position.top[static_cast<size_t>(position.chosen)]);
    for (const TokenLogprob& token : position.top) add(token);
    return dict;
  }
  nb::object Logprobs(const std::vector<PositionLogprobs>& positions, bool asked) const {
    if (!asked) return nb::none();
    nb::list list;
    for (const PositionLogprobs& position : positions) list.append(Position(position));
    return list;
  }
  static double Sum(const std::vector<PositionLogprobs>& positions) {
    double sum = 0;
    for (const PositionLogprobs& position : positions)
      sum += position.top[static_cast<size_t>(position.chosen)].logprob;
    return sum;
  }

  // (choice, text, tokens, logprobs)
  nb::tuple Piece(const ChoicePiece& piece, const Asked& asked) const {
    return nb::make_tuple(piece.choice, piece.text, Ids(piece.tokens),
                          Logprobs(piece.logprobs, asked.sampling.logprobs >= 0));
  }

  // (prompt ids, cached tokens, prompt logprobs, choices, error)
  nb::tuple Result(const RequestResult& result, const Asked& asked) const {
    const nb::list prompt = Ids(asked.prompts[0]);
    if (!result.error_message.empty()) {
      return nb::make_tuple(prompt, 0, nb::none(), nb::list(),
                            nb::make_tuple(result.error_code, result.error_message));
    }
    nb::list choices;
    for (const Choice& choice : result.choices) {
      nb::object reason = nb::none();
      if (choice.stop_token) reason = nb::int_(*choice.stop_token);
      if (choice.stop_string) reason = nb::cast(*choice.stop_string);
      const bool logprobs = asked.sampling.logprobs >= 0;
      choices.append(nb::make_tuple(choice.index, choice.text, Ids(choice.tokens),
                                    choice.finish_reason == FinishReason::kStop ? "stop" : "length",
                                    reason, Logprobs(choice.logprobs, logprobs),
                                    logprobs ? nb::cast(Sum(choice.logprobs)) : nb::none(),
                                    choice.digest));
    }
    nb::object prompt_logprobs = nb::none();
    if (!result.prompt_logprobs.empty())
      prompt_logprobs = Logprobs(result.prompt_logprobs[0], true);
    return nb::make_tuple(prompt, result.cached_tokens, prompt_logprobs, choices, nb::none());
  }

  std::shared_ptr<Model> model_;
  std::shared_ptr<job::Inbox> inbox_;
  int64_t next_tag_ = 0;
  std::vector<job::Session::Submitted> ready_;
  std::unordered_map<int64_t, Asked> asked_;  // without an end yet
};

}  // namespace

void AddCall(nb::module_& module) {
  nb::class_<Call>(module, "Call")
      .def(nb::init<std::shared_ptr<Model>>())
      .def("add", &Call::Add)
      .def("start", &Call::Start)
      .def("cancel", &Call::Cancel)
      .def("cancel_all", &Call::CancelAll)
      .def("descriptor", &Call::Descriptor)
      .def("take", &Call::Take);
}

}  // namespace forebay::python
