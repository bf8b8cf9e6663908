#include "job/lines/result_format.h"

#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "base/json_writer.h"
#include "job/lines/likelihood.h"
#include "job/lines/logprob_format.h"
#include "job/lines/vectors.h"

namespace forebay::job {
namespace {

using base::JsonWriter;

void AppendTokenIds(const std::vector<int32_t>& ids, JsonWriter& writer) {
  writer.BeginArray();
  for (const int32_t id : ids) writer.Int(id);
  writer.EndArray();
}

void AppendNullable(const std::string& text, JsonWriter& writer) {
  text.empty() ? writer.Null() : writer.String(text);
}

// {"id","custom_id","response":{"status_code","request_id","body": ; CloseLine ends it.
void OpenLine(const ResultId& id, const std::optional<std::string>& custom_id, int status,
              JsonWriter& writer) {
  writer.BeginObject().Key("id").String(FormatResultId(id)).Key("custom_id");
  custom_id ? writer.String(*custom_id) : writer.Null();
  writer.Key("response").BeginObject().Key("status_code").Int(status);
  writer.Key("request_id")
      .String(fmt::format("req_{}_{:016x}", id.line, id.hash.input))
      .Key("body");
}

void CloseLine(JsonWriter& writer) { writer.EndObject().Key("error").Null().EndObject(); }

// One result being written.
class BodyWriter {
 public:
  BodyWriter(const ResultStyle& style, const Answered& answered, const TokenText& text,
             std::function<void()> drain, JsonWriter& writer)
      : style_(style),
        line_(answered.line),
        prompts_(answered.prompts),
        result_(answered.result),
        text_(text),
        drain_(std::move(drain)),
        writer_(writer) {}

  void Body(const ResultId& id, int64_t created) {
    switch (line_.endpoint) {
      case Endpoint::kLikelihood: return Likelihoods(id, created);
      case Endpoint::kEmbedding: return Embeddings(id, created);
      case Endpoint::kClassify: return Classes(id, created);
      case Endpoint::kScore: return Scores(id, created);
      case Endpoint::kRerank: return Ranking(id);
      default: break;
    }
    const bool is_chat = line_.endpoint == Endpoint::kChat;
    writer_.BeginObject().Key("id").String(
        fmt::format("{}-{}-{:016x}", is_chat ? "chatcmpl" : "cmpl", id.line, id.hash.input));
    writer_.Key("object").String(is_chat ? "chat.completion" : "text_completion");
    writer_.Key("created").Int(created).Key("model").String(style_.model);
    writer_.Key("choices").BeginArray();
    for (const Choice& choice : result_.choices)
      is_chat ? ChatChoice(choice) : CompletionChoice(choice);
    writer_.EndArray();
    Usage();
    // A chat has one prompt, and what belongs to it stands beside the choices; each choice of a
    // completion tells of its own.
    if (is_chat && line_.report_prompt_logprobs) PromptLogprobs(0);
    if (is_chat && line_.return_token_ids) PromptTokenIds(0);
    writer_.EndObject();
  }

 private:
  LogprobStyle logprob_style() const { return {text_, line_.return_tokens_as_token_ids, drain_}; }

  void Usage() {
    writer_.Key("usage").BeginObject();
    writer_.Key("prompt_tokens")
        .Int(result_.prompt_tokens)
        .Key("completion_tokens")
        .Int(result_.completion_tokens);
    writer_.Key("total_tokens").Int(result_.prompt_tokens + result_.completion_tokens);
    writer_.Key("prompt_tokens_details")
        .BeginObject()
        .Key("cached_tokens")
        .Int(result_.cached_tokens)
        .EndObject();
    writer_.EndObject();
    if (line_.service)
      writer_.Key("service_tier").String(*line_.service == Service::kBatch ? "flex" : "default");
    writer_.Key("system_fingerprint").String(style_.system_fingerprint);
  }

  // {"id","object","created","model","data":[ ; EndList closes it.
  void BeginList(std::string_view kind, const ResultId& id, int64_t created) {
    writer_.BeginObject().Key("id").String(
        fmt::format("{}-{}-{:016x}", kind, id.line, id.hash.input));
    writer_.Key("object").String("list").Key("created").Int(created);
    writer_.Key("model").String(style_.model).Key("data").BeginArray();
  }
  void EndList() {
    writer_.EndArray();
    Usage();
    writer_.EndObject();
  }

  void Embeddings(const ResultId& id, int64_t created) {
    BeginList("embd", id, created);
    for (size_t i = 0; i < result_.vectors.size(); ++i) {
      const std::vector<float> vector = VectorOf(result_.vectors[i], line_.vectors);
      writer_.BeginObject().Key("index").Int(static_cast<int64_t>(i));
      writer_.Key("object").String("embedding").Key("embedding");
      if (line_.vectors.base64) {
        writer_.String(Base64(vector));
      } else {
        writer_.BeginArray();
        for (const float number : vector) writer_.Float(number);
        writer_.EndArray();
      }
      writer_.EndObject();
    }
    EndList();
  }

  // The likeliest label, of equal ones the first.
  void Classes(const ResultId& id, int64_t created) {
    BeginList("classify", id, created);
    const std::vector<std::string>& names = line_.vectors.labels->names;
    for (size_t i = 0; i < result_.vectors.size(); ++i) {
      const std::vector<double> scores = ProbabilitiesOf(result_.vectors[i], line_.vectors);
      const auto label = std::ranges::max_element(scores) - scores.begin();
      writer_.BeginObject().Key("index").Int(static_cast<int64_t>(i));
      writer_.Key("label").String(names[static_cast<size_t>(label)]);
      writer_.Key("probs").BeginArray();
      for (const double score : scores) writer_.Double(score);
      writer_.EndArray().Key("num_classes").Int(std::ssize(scores)).EndObject();
    }
    EndList();
  }

  void Scores(const ResultId& id, int64_t created) {
    BeginList("score", id, created);
    int64_t index = 0;
    for (const double score : ScoresOf(result_.vectors, line_.vectors)) {
      writer_.BeginObject().Key("index").Int(index++).Key("object").String("score");
      writer_.Key("score").Double(score).EndObject();
    }
    EndList();
  }

  // The nearest first, of equal ones the first.
  void Ranking(const ResultId& id) {
    writer_.BeginObject().Key("id").String(
        fmt::format("rerank-{}-{:016x}", id.line, id.hash.input));
    writer_.Key("model").String(style_.model);
    const std::vector<double> scores = ScoresOf(result_.vectors, line_.vectors);
    std::vector<size_t> order(scores.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::stable_sort(order, std::greater<>(), [&](size_t i) { return scores[i]; });
    if (line_.vectors.top_n > 0)
      order.resize(std::min(order.size(), static_cast<size_t>(line_.vectors.top_n)));
    writer_.Key("results").BeginArray();
    for (const size_t i : order) {
      writer_.BeginObject().Key("index").Int(static_cast<int64_t>(i)).Key("document");
      writer_.BeginObject().Key("text").String(std::get<std::string>(line_.prompts[i + 1]));
      writer_.EndObject().Key("relevance_score").Double(scores[i]).EndObject();
    }
    EndList();
  }

  // vLLM's list of scores, and what each is the sum of.
  void Likelihoods(const ResultId& id, int64_t created) {
    BeginList("score", id, created);
    for (const Choice& choice : result_.choices) {
      const Likelihood likelihood =
          LikelihoodOf(result_.prompt_logprobs[static_cast<size_t>(choice.index)]);
      writer_.BeginObject().Key("index").Int(choice.index).Key("object").String("score");
      writer_.Key("score").Double(likelihood.logprob);
      writer_.Key("is_greedy").Bool(likelihood.is_greedy);
      writer_.Key("token_logprobs").BeginArray();
      for (const TokenLogprob& token : likelihood.tokens) writer_.Float(token.logprob);
      writer_.EndArray();
      if (line_.return_token_ids) {
        writer_.Key("token_ids").BeginArray();
        for (const TokenLogprob& token : likelihood.tokens) writer_.Int(token.token);
        writer_.EndArray();
      }
      if (style_.digests) writer_.Key("digest").String(fmt::format("{:016x}", choice.digest));
      writer_.EndObject();
    }
    EndList();
  }

  void ChatChoice(const Choice& choice) {
    writer_.BeginObject().Key("index").Int(choice.index);
    writer_.Key("message")
        .BeginObject()
        .Key("role")
        .String("assistant")
        .Key("content")
        .String(choice.text);
    writer_.Key("refusal").Null().EndObject();
    writer_.Key("logprobs");
    if (line_.sampling.logprobs >= 0) {
      AppendChatLogprobs(logprob_style(), line_.sampling.logprobs, choice.logprobs, writer_);
    } else {
      writer_.Null();
    }
    EndChoice(choice);
    writer_.EndObject();
  }

  void CompletionChoice(const Choice& choice) {
    // Choices are numbered over all prompts of the line, n for each.
    const auto prompt = static_cast<size_t>(choice.index / line_.n);
    const std::string prompt_text = line_.echo ? PromptText(prompt) : "";
    writer_.BeginObject()
        .Key("index")
        .Int(choice.index)
        .Key("text")
        .String(prompt_text + choice.text);
    writer_.Key("logprobs");
    if (line_.sampling.logprobs >= 0) {
      std::vector<TokenRun> runs;
      if (line_.echo)
        runs.push_back({prompts_[prompt], result_.prompt_logprobs[prompt], prompt_text, true});
      runs.push_back(
          {choice.tokens, choice.logprobs, "", false, line_.sampling.skip_special_tokens});
      AppendCompletionLogprobs(logprob_style(), line_.sampling.logprobs, runs, writer_);
    } else {
      writer_.Null();
    }
    EndChoice(choice);
    if (line_.report_prompt_logprobs) PromptLogprobs(prompt);
    if (line_.return_token_ids) PromptTokenIds(prompt);
    writer_.EndObject();
  }

  void EndChoice(const Choice& choice) {
    writer_.Key("finish_reason")
        .String(choice.finish_reason == FinishReason::kStop ? "stop" : "length");
    writer_.Key("stop_reason");
    if (choice.stop_string) {
      writer_.String(*choice.stop_string);
    } else if (choice.stop_token) {
      writer_.Int(*choice.stop_token);
    } else {
      writer_.Null();
    }
    if (line_.return_token_ids) {
      writer_.Key("token_ids");
      AppendTokenIds(choice.tokens, writer_);
    }
    if (style_.digests) writer_.Key("digest").String(fmt::format("{:016x}", choice.digest));
  }

  std::string PromptText(size_t prompt) const {
    const auto* given = std::get_if<std::string>(&line_.prompts[prompt]);
    // What was given as text is echoed as it was: decoded tokens may read otherwise.
    return given ? *given : text_.Decode(prompts_[prompt]);
  }

  void PromptLogprobs(size_t prompt) {
    writer_.Key("prompt_logprobs");
    AppendPromptLogprobs(logprob_style(), *line_.report_prompt_logprobs,
                         result_.prompt_logprobs[prompt], writer_);
  }

  void PromptTokenIds(size_t prompt) {
    writer_.Key("prompt_token_ids");
    AppendTokenIds(prompts_[prompt], writer_);
  }

  const ResultStyle& style_;
  const ParsedLine& line_;
  const std::vector<std::vector<int32_t>>& prompts_;
  const RequestResult& result_;
  const TokenText& text_;
  const std::function<void()> drain_;
  JsonWriter& writer_;
};

}  // namespace

bool ShowsPrompts(const ParsedLine& line) {
  return line.echo || line.endpoint == Endpoint::kRerank;
}

bool NeedsPromptTokens(const ParsedLine& line) { return line.echo || line.return_token_ids; }

void AppendResult(const ResultStyle& style, const ResultId& id, int64_t created,
                  const Answered& answered, const TokenText& text, std::string* out,
                  const Drain& drain) {
  JsonWriter writer(out);
  const auto drain_out = [&] {
    if (drain) drain(out);
  };
  OpenLine(id, answered.line.custom_id, 200, writer);
  BodyWriter(style, answered, text, drain_out, writer).Body(id, created);
  CloseLine(writer);
}

void AppendErrorResult(const ResultId& id, const std::optional<std::string>& custom_id,
                       const LineError& error, std::string* out) {
  JsonWriter writer(out);
  OpenLine(id, custom_id, error.http_status, writer);
  writer.BeginObject()
      .Key("error")
      .BeginObject()
      .Key("message")
      .String(error.message)
      .Key("type")
      .String(error.type);
  writer.Key("param");
  AppendNullable(error.param, writer);
  writer.Key("code");
  AppendNullable(error.code, writer);
  writer.EndObject().EndObject();
  CloseLine(writer);
}

LineError ToLineError(const RequestResult& result) {
  LineError error{.http_status = result.http_status,
                  .message = result.error_message,
                  .param = result.error_param,
                  .code = result.error_code};
  if (!result.error_type.empty()) error.type = result.error_type;
  return error;
}

}  // namespace forebay::job
