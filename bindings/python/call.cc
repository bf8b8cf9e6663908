// Requests of one caller: lines go in, what forebay/outputs.py declares comes out.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>

#include "job/lines/likelihood.h"
#include "job/lines/vectors.h"
#include "model.h"
#include "prompts.h"

namespace forebay::python {
namespace {

// How long lines become requests before Python may look at its signals.
constexpr std::chrono::milliseconds kGlance(50);

// The code of what is no prompt at all; other errors are of what it holds.
constexpr const char* kNoPrompt = "no_prompt";

nb::list Ids(const std::vector<int32_t>& ids) {
  const nb::list list = nb::steal<nb::list>(PyList_New(static_cast<Py_ssize_t>(ids.size())));
  for (size_t i = 0; i < ids.size(); ++i)
    PyList_SET_ITEM(list.ptr(), static_cast<Py_ssize_t>(i), PyLong_FromLong(ids[i]));
  return list;
}

nb::object Text(const std::string& text) {
  return nb::steal(
      PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace"));
}

// Many objects are made, none of them garbage: what looks for cycles looks once, afterwards.
class NoGarbage {
 public:
  NoGarbage() : was_on_(PyGC_Disable() != 0) {}
  ~NoGarbage() {
    if (was_on_) PyGC_Enable();
  }
  NoGarbage(const NoGarbage&) = delete;
  NoGarbage& operator=(const NoGarbage&) = delete;

 private:
  const bool was_on_;
};

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
    return Ready(lines.size(), unbounded, stream,
                 [&](size_t i) { return model_->Parse(&lines[i], keys[i]); });
  }
  // The same of completions: prompts, and what a line of each would hold behind its prompt. What is
  // no prompt is a TypeError, or with `returns` among the errors, its code kNoPrompt.
  std::vector<nb::tuple> AddPrompts(const nb::list& prompts, const std::vector<std::string>& rests,
                                    const std::vector<int64_t>& keys,
                                    const std::vector<bool>& unbounded, bool returns) {
    std::vector<GivenPrompt> given;
    given.reserve(prompts.size());
    for (size_t i = 0; i < prompts.size(); ++i)
      given.push_back(ReadPrompt(nb::object(prompts[i]), static_cast<int64_t>(i),
                                 model_->opened().facts().vocab_size, returns));
    return Ready(given.size(), unbounded, false, [&](size_t i) {
      if (!given[i].no_prompt.empty())
        return job::BuiltLine{
            .error = job::LineError{.message = std::move(given[i].no_prompt), .code = kNoPrompt}};
      if (given[i].prompt) return model_->Build(std::move(*given[i].prompt), rests[i], keys[i]);
      std::string line = R"({"prompt": )" + given[i].json + rests[i] + "}";
      return model_->Parse(&line, keys[i]);
    });
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
    if (model_->is_forked()) return;  // as in CancelAll
    const auto found = asked_.find(tag);
    if (found != asked_.end() && found->second.id >= 0) model_->session().Cancel(found->second.id);
  }
  // Everything; the latest first.
  void CancelAll() {
    if (model_->is_forked()) return;  // a generator that ends with the child
    std::vector<int64_t> ids;
    for (const auto& [tag, asked] : asked_)
      if (asked.id >= 0) ids.push_back(asked.id);
    std::ranges::sort(ids, std::greater<>());
    const GilRelease release;
    for (const int64_t id : ids) model_->session().Cancel(id);
  }

  int Descriptor() { return inbox_->descriptor(); }

  // Have `least` come? Waits for them, but no longer than the time.
  bool Wait(double timeout_s, size_t least) {
    const GilRelease release;
    return inbox_->Wait(static_cast<runtime::TimeNs>(timeout_s * 1e9), least);
  }

  // What has come, as (tag, RequestOutput or None, None or a CompletionOutput of what is new).
  // Waits as Wait does. `decode`: outputs have the prompt's text.
  nb::list Take(double timeout_s, size_t least, bool decode) {
    std::vector<job::Delivery> deliveries;
    std::vector<std::string> prompts;
    {
      const GilRelease release;
      deliveries = inbox_->Take(static_cast<runtime::TimeNs>(timeout_s * 1e9), least);
      const text::Tokenizer* const tokenizer = model_->text().tokenizer();
      decode = decode && tokenizer;
      for (const job::Delivery& delivery : deliveries)
        if (decode) prompts.push_back(tokenizer->Decode(asked_.at(delivery.tag).prompt, false));
    }
    const NoGarbage no_garbage;
    nb::list list;
    for (size_t i = 0; i < deliveries.size(); ++i) {
      const job::Delivery& delivery = deliveries[i];
      const auto asked = asked_.find(delivery.tag);
      const bool logprobs = asked->second.logprobs;
      if (!delivery.result) {
        list.append(nb::make_tuple(delivery.tag, nb::none(), Piece(delivery.piece, logprobs)));
        continue;
      }
      const nb::object text = decode ? Text(prompts[i]) : nb::none();
      list.append(nb::make_tuple(delivery.tag, Output(delivery, text, asked->second), nb::none()));
      asked_.erase(asked);
    }
    return list;
  }

 private:
  std::vector<nb::tuple> Ready(size_t count, const std::vector<bool>& unbounded, bool stream,
                               const std::function<job::BuiltLine(size_t)>& build) {
    model_->Check();
    std::vector<std::pair<int64_t, job::LineError>> errors;
    {
      std::optional<GilRelease> release(std::in_place);
      auto looked = std::chrono::steady_clock::now();
      for (size_t i = 0; i < count; ++i) {
        // Many lines take long, and Ctrl-C does not wait for all of them.
        if (const auto now = std::chrono::steady_clock::now(); now - looked > kGlance) {
          release.reset();
          if (PyErr_CheckSignals() != 0) throw nb::python_error();
          release.emplace();
          looked = now;
        }
        const int64_t tag = next_tag_++;
        job::BuiltLine built = build(i);
        if (built.error) {
          errors.emplace_back(tag, std::move(*built.error));
          continue;
        }
        built.request.stream = stream;
        if (unbounded[i])
          built.request.sampling.max_tokens = built.request.sampling.default_max_tokens = -1;
        asked_.emplace(tag, Asked{built.request.prompts[0], built.request.sampling.logprobs >= 0,
                                  built.line.endpoint, built.line.vectors});
        ready_.push_back({.request = std::move(built.request), .tag = tag});
      }
    }
    std::vector<nb::tuple> tuples;
    for (const auto& [tag, error] : errors)
      tuples.push_back(nb::make_tuple(tag, error.code, error.message, error.param));
    return tuples;
  }

  struct Asked {
    std::vector<int32_t> prompt;
    bool logprobs;
    job::Endpoint endpoint;
    job::VectorStyle vectors;
    int64_t id = -1;  // once it was submitted
  };

  // {token: Logprob} of one position; the position's own token comes first.
  nb::object Position(const PositionLogprobs& position) const {
    nb::dict dict;
    const auto add = [&](const TokenLogprob& token) {
      dict[nb::int_(token.token)] =
          logprob_(token.logprob, token.rank, Text(model_->text().TokenBytes(token.token)));
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
  static nb::object Sum(const std::vector<PositionLogprobs>& positions, bool asked) {
    if (!asked) return nb::none();
    double sum = 0;
    for (const PositionLogprobs& position : positions)
      sum += position.top[static_cast<size_t>(position.chosen)].logprob;
    return nb::float_(sum);
  }

  nb::object Piece(const ChoicePiece& piece, bool logprobs) const {
    return completion_(piece.choice, piece.text, Ids(piece.tokens), nb::none(),
                       Logprobs(piece.logprobs, logprobs));
  }

  nb::object Completion(const Choice& choice, bool logprobs) const {
    nb::object reason = nb::none();
    if (choice.stop_token) reason = nb::int_(*choice.stop_token);
    if (choice.stop_string) reason = nb::cast(*choice.stop_string);
    return completion_(choice.index, choice.text, Ids(choice.tokens),
                       Sum(choice.logprobs, logprobs), Logprobs(choice.logprobs, logprobs),
                       choice.finish_reason == FinishReason::kStop ? "stop" : "length", reason,
                       choice.digest);
  }

  nb::object Likelihoods(const job::Delivery& delivery, const nb::object& error) const {
    nb::list list;
    for (const auto& positions : delivery.result->prompt_logprobs) {
      const job::Likelihood likelihood = job::LikelihoodOf(positions);
      nb::list tokens, logprobs;
      for (const TokenLogprob& token : likelihood.tokens) {
        tokens.append(token.token);
        logprobs.append(token.logprob);
      }
      list.append(likelihood_(likelihood.logprob, likelihood.is_greedy, tokens, logprobs));
    }
    return likelihoods_(std::to_string(delivery.tag), list, delivery.result->cached_tokens, error);
  }

  // What has come of pooled prompts: a vector, the scores of labels, or those of texts.
  nb::object Pooled(const job::Delivery& delivery, const Asked& asked,
                    const nb::object& error) const {
    const RequestResult& result = *delivery.result;
    nb::list numbers;
    if (!result.vectors.empty() && asked.endpoint == job::Endpoint::kEmbedding) {
      for (const float number : job::VectorOf(result.vectors[0], asked.vectors))
        numbers.append(number);
    } else if (!result.vectors.empty()) {
      const bool classifies = asked.endpoint == job::Endpoint::kClassify;
      for (const double score : classifies ? job::ProbabilitiesOf(result.vectors[0], asked.vectors)
                                           : job::ScoresOf(result.vectors, asked.vectors))
        numbers.append(score);
    }
    return pooled_(std::to_string(delivery.tag), numbers, Ids(asked.prompt), result.cached_tokens,
                   error);
  }

  nb::object Output(const job::Delivery& delivery, const nb::object& text,
                    const Asked& asked) const {
    const RequestResult& result = *delivery.result;
    nb::list choices;
    for (const Choice& choice : result.choices) choices.append(Completion(choice, asked.logprobs));
    nb::object error = nb::none();
    if (!result.error_message.empty())
      error = make_error_(result.error_code, result.error_message, false);
    if (asked.endpoint == job::Endpoint::kLikelihood) return Likelihoods(delivery, error);
    if (job::IsPooled(asked.endpoint)) return Pooled(delivery, asked, error);
    nb::object prompt_logprobs = nb::none();
    if (!result.prompt_logprobs.empty())
      prompt_logprobs = Logprobs(result.prompt_logprobs[0], true);
    return request_(std::to_string(delivery.tag), text, Ids(asked.prompt), prompt_logprobs, choices,
                    true, nb::none(), result.cached_tokens, error);
  }

  const nb::module_ outputs_ = nb::module_::import_("forebay.outputs");
  const nb::object logprob_ = outputs_.attr("Logprob"),
                   completion_ = outputs_.attr("CompletionOutput"),
                   request_ = outputs_.attr("RequestOutput"),
                   likelihood_ = outputs_.attr("Likelihood"),
                   likelihoods_ = outputs_.attr("LikelihoodOutput"),
                   pooled_ = outputs_.attr("PooledOutput"),
                   make_error_ = nb::module_::import_("forebay.errors").attr("make_error");
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
      .def("add_prompts", &Call::AddPrompts)
      .def("start", &Call::Start)
      .def("cancel", &Call::Cancel)
      .def("cancel_all", &Call::CancelAll)
      .def("descriptor", &Call::Descriptor)
      .def("wait", &Call::Wait)
      .def("take", &Call::Take);
}

}  // namespace forebay::python
