#include "job/lines/parameter_page.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <span>

#include "base/check.h"
#include "base/marked_page.h"
#include "job/lines/parameters.h"

namespace forebay::job {
namespace {

constexpr double kUnbounded = std::numeric_limits<int32_t>::max();

// What the table itself does not say of a parameter; "" where it does.
struct Described {
  std::string_view name, type, range, fallback, note;
};

constexpr Described kPrompts[] = {
    {"model", "string", "", "",
     "names the model; may be absent. The last part of a path, with or without `.gguf`, is "
     "compared "
     "with the model's name (one of `--served-model-name`, where `*` stands for any, else the last "
     "part of `-m`). Another name is a 404"},
    {"messages", "array of objects with a string `role`", "at least one", "",
     "The template decides which roles exist. `content` is a string, `null`, or a list of text "
     "parts, which are joined by LF unless the template loops over parts itself. Parts of other "
     "types are refused. `tool_calls[].function.arguments` reach the template as an object, or as "
     "JSON text where it takes text alone. Absent, `null`, `\"\"` and `\"null\"` are `{}`. An "
     "empty `tool_calls`, `function_call`, `refusal` or `audio` counts as absent"},
    {"prompt", "string, list of strings, token ids, list of lists of token ids",
     "2048 prompts a line, 4096 choices (prompts times `n`)", "", "likelihoods: one prompt"},
    {"continuations", "list of strings, or of lists of token ids", "1 to 2048", "",
     "of the prompt's kind"},
    {"input", "as `prompt`", "2048 texts a line", "", ""},
    {"text_1", "as `prompt`", "one, or as many as `text_2`", "", ""},
    {"text_2", "as `prompt`", "2048 texts a line", "", ""},
    {"query", "string", "", "", ""},
    {"truncate_prompt_tokens", "integer",
     "1 and above; -1: as many as the context holds beside `max_tokens`, or one token of an answer "
     "without it",
     "all",
     "the number of the prompt's last tokens that stay; for text that becomes a vector or a score, "
     "of its first tokens, beside those that the tokenizer adds"},
    {"add_special_tokens", "boolean", "", "chat `false`, else `true`",
     "whether the tokenizer adds its own (BOS)"},
    {"tools", "array of objects", "", "",
     "given to the template; the model's answer stays in `content`"},
    {"tool_choice", "`\"auto\"`, `\"none\"`", "", "", "no effect"},
    {"parallel_tool_calls", "boolean", "", "", "no effect: calls stay in `content`"},
    {"documents", "chat: array of objects; rerank: list of strings", "rerank: 1 to 2048", "",
     "chat: a variable of the template"},
    {"reasoning_effort", "string", "`none`, `minimal`, `low`, `medium`, `high`, `xhigh`", "",
     "a variable of the template; one in `chat_template_kwargs` overrides it"},
    {"chat_template_kwargs", "object", "", "", "more variables for the template"},
    {"add_generation_prompt", "boolean", "", "`true`", ""},
    {"continue_final_message", "boolean", "", "`false`",
     "not together with `add_generation_prompt`"},
};

constexpr Described kSampling[] = {
    {"temperature", "", "0 to 2; 0 is greedy", "1", ""},
    {"top_p", "", "0 to 1; 0: the most probable token alone", "1", ""},
    {"top_k", "", "-1 and above; -1 and 0: off", "0", ""},
    {"min_p", "", "", "0", ""},
    {"presence_penalty", "", "", "0", ""},
    {"frequency_penalty", "", "", "0", ""},
    {"repetition_penalty", "", "", "1", ""},
    {"logit_bias", "object: token id -> number", "-100 to 100; at most 4096 tokens", "none", ""},
    {"allowed_token_ids", "token ids", "at least one", "all", "only these tokens are drawn"},
    {"bad_words", "list of strings", "none empty; at most 1024", "none",
     "no choice generates their tokens, with or without a space before them, unless "
     "`allowed_token_ids` leaves no other; a line whose allowed tokens are all bad words is "
     "refused"},
    {"seed", "integer", "64 bits with a sign", "the job's seed and the line", ""},
    {"n", "", "", "1", ""},
    {"best_of", "", "equal to `n`", "`n`", ""},
};

constexpr Described kLengths[] = {
    {"max_tokens", "", "1 and above; 0 with `echo` or `prompt_logprobs`",
     "completions 16; chat: up to the context's end", ""},
    {"max_completion_tokens", "", "the same; not different from `max_tokens`", "", ""},
    {"min_tokens", "", "0 to `max_tokens`", "0", ""},
    {"stop", "string, list of strings",
     "none empty; at most 64; one that spells a special token stops at that token", "none", ""},
    {"stop_token_ids", "token ids", "at most 1024", "none", ""},
    {"ignore_eos", "", "", "`false`", ""},
    {"include_stop_str_in_output", "", "", "`false`", ""},
    {"skip_special_tokens", "", "", "`true`", ""},
};

constexpr Described kAnswers[] = {
    {"echo", "", "chat: `false` alone", "`false`", ""},
    {"logprobs", "completions: integer; chat: boolean",
     "0 to `--max-logprobs` (20); -1, the whole vocabulary, with `--max-logprobs -1`",
     "completions none, chat `false`", ""},
    {"top_logprobs", "integer", "as `logprobs` of completions; needs `logprobs: true`", "0", ""},
    {"prompt_logprobs", "integer", "as `logprobs` of completions", "none", ""},
    {"prompt_logprobs_from", "", "1 to the prompt's last token", "1",
     "the first position with a log probability; those before it are `null`, and their rows may "
     "come from the prefix cache"},
    {"encoding_format", "string", "`float`, `base64`", "`float`", ""},
    {"dimensions", "", "1 to the vector's width", "all",
     "the number of the vector's first elements that stay; it is normalised afterwards"},
    {"normalize", "boolean", "", "as the model says", "vectors have length 1"},
    {"top_n", "", "0 and above; 0: all", "0",
     "the number of documents returned, the nearest first"},
    {"use_activation", "", "", "`true`",
     "`false`: the head's numbers as they are, before softmax or sigmoid"},
    {"return_token_ids", "", "", "`false`", ""},
    {"return_tokens_as_token_ids", "", "", "`false`",
     "`token_id:<id>` in place of a token's text in logprobs; folders without a tokenizer always "
     "do"},
    {"service_tier", "string", "", "none",
     "`flex`: the answer may wait; with any other tier it does not ([people beside a "
     "batch](../traffic.md)). Answers to lines of a file always may wait. The answer names `flex` "
     "or `default`"},
};

// Why the program needs none of these.
constexpr Described kIgnored[] = {
    {"user", "", "", "", ""},
    {"metadata", "", "", "", ""},
    {"store", "", "", "", ""},
    {"safety_identifier", "", "", "", ""},
    {"prompt_cache_key", "", "", "", "prefixes are shared without it"},
    {"prompt_cache_retention", "", "", "", ""},
    {"prompt_cache_options", "", "", "", ""},
    {"request_id", "", "", "", "results are told apart by `custom_id` and `id`"},
    {"cache_salt", "", "", "", "the cache is the job's own"},
    {"stream_options", "", "", "", "describes a stream, and `stream: true` is refused"},
    {"stream_interval", "", "", "", "likewise"},
    {"skip_reading_prefix_cache", "", "", "", "the prefix cache changes no answer"},
};

struct Section {
  std::string_view name;
  std::span<const Described> rows;
};
constexpr Section kSections[] = {
    {"prompts", kPrompts}, {"sampling", kSampling}, {"lengths", kLengths}, {"answers", kAnswers}};

const Parameter& ParameterOf(std::string_view name) {
  const auto found = std::ranges::find(Parameters(), name, &Parameter::name);
  FB_CHECK(found != Parameters().end(), "{} is described and is no parameter", name);
  return *found;
}

std::string EndpointsOf(const Parameter& parameter) {
  constexpr std::pair<EndpointSet, std::string_view> kNames[] = {{kInChat, "chat"},
                                                                 {kInCompletion, "completions"},
                                                                 {kInLikelihood, "likelihoods"},
                                                                 {kInEmbedding, "embeddings"},
                                                                 {kInClassify, "classify"},
                                                                 {kInScore, "score"},
                                                                 {kInRerank, "rerank"}};
  if (parameter.endpoints == kInAll) return "all";
  std::string names;
  for (const auto& [bit, name] : kNames) {
    if (parameter.endpoints & bit) names += fmt::format("{}{}", names.empty() ? "" : ", ", name);
  }
  return names;
}

std::string TypeOf(const Parameter& parameter) {
  if (std::holds_alternative<FloatField>(parameter.target)) return "number";
  if (std::holds_alternative<IntField>(parameter.target)) return "integer";
  if (std::holds_alternative<BoolField>(parameter.target)) return "boolean";
  return "";
}

std::string RangeOf(const Parameter& parameter) {
  if (parameter.min == parameter.max) return "";
  if (parameter.max == kUnbounded)
    return fmt::format("{}{}", parameter.above_min ? "above " : "", parameter.min) +
           (parameter.above_min ? "" : " and above");
  return fmt::format("{} to {}", parameter.min, parameter.max);
}

std::string TableOf(std::span<const Described> rows) {
  std::string table =
      "| parameter | endpoint | type | range | default | |\n|---|---|---|---|---|---|\n";
  for (const Described& row : rows) {
    const Parameter& parameter = ParameterOf(row.name);
    table +=
        fmt::format("| `{}` | {} | {} | {} | {} | {} |\n", row.name, EndpointsOf(parameter),
                    row.type.empty() ? TypeOf(parameter) : row.type,
                    row.range.empty() ? RangeOf(parameter) : row.range, row.fallback, row.note);
  }
  return table;
}

std::string IgnoredTable() {
  std::string table = "| parameter | |\n|---|---|\n";
  for (const Described& row : kIgnored) table += fmt::format("| `{}` | {} |\n", row.name, row.note);
  return table;
}

std::string RefusedTable() {
  std::string table = "| parameter | accepted value |\n|---|---|\n";
  for (const Parameter& parameter : Parameters()) {
    const auto* refused = std::get_if<Refused>(&parameter.target);
    const bool is_format = parameter.name == "response_format";
    if (refused == nullptr && !is_format) continue;
    const std::string_view harmless = is_format ? R"({"type":"text"})" : refused->harmless;
    table += fmt::format("| `{}` | {}{}{} |\n", parameter.name, harmless.empty() ? "" : "`",
                         harmless, harmless.empty() ? "" : "`");
  }
  return table;
}

}  // namespace

base::Result<std::string> FillParameters(std::string_view page) {
  std::vector<base::MarkedTable> tables;
  for (const Section& section : kSections) tables.push_back({section.name, TableOf(section.rows)});
  tables.push_back({"ignored", IgnoredTable()});
  tables.push_back({"refused", RefusedTable()});
  return base::FillMarks(page, "parameters", tables);
}

}  // namespace forebay::job
