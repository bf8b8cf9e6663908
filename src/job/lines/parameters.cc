#include "job/lines/parameters.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "base/json.h"
#include "job/lines/line_errors.h"
#include "job/lines/messages.h"

namespace forebay::job {
namespace {

using simdjson::dom::element;
using MaybeError = std::optional<LineError>;

constexpr double kInt32Max = std::numeric_limits<int32_t>::max();
// Bounds of what one line may ask for; they keep a line's cost in proportion to its size.
constexpr int64_t kMostChoices = 4096;
constexpr size_t kMostPrompts = 2048;
constexpr size_t kMostStops = 64;
constexpr size_t kMostStopIds = 1024;
constexpr size_t kMostBiases = 4096;
constexpr size_t kMostBadWords = 1024;

int32_t ToInt32(int64_t value) { return static_cast<int32_t>(value); }

enum class Whole { kYes, kNo, kTooLarge };

// Reads an integer. A float that is one counts as well, since tables of numbers are written so
// (256.0); beyond 2^53 floats are no longer exact, and are none.
Whole ReadWhole(element value, int64_t* number) {
  if (value.is_uint64() && !value.is_int64()) return Whole::kTooLarge;
  if (value.is_int64()) {
    *number = value.get_int64().value_unsafe();
    return Whole::kYes;
  }
  constexpr double kMostExact = 9007199254740992.0;
  double real;
  if (!value.is_double() || value.get(real)) return Whole::kNo;
  if (std::trunc(real) != real || std::fabs(real) > kMostExact) return Whole::kNo;
  *number = static_cast<int64_t>(real);
  return Whole::kYes;
}

// A token id inside an array: an integer from 0 below the vocabulary's size.
MaybeError ReadTokenId(const LineDraft& draft, std::string_view param, element value, int32_t* id) {
  int64_t number;
  const int64_t limit = draft.rules->vocab_size;
  const Whole whole = ReadWhole(value, &number);
  if (whole == Whole::kNo) return WrongType(param, value, "token ids (integers)");
  if (whole == Whole::kTooLarge || number < 0 || number >= limit) {
    return OutOfRange(param, value, fmt::format("token ids from 0 to {}", limit - 1));
  }
  *id = ToInt32(number);
  return std::nullopt;
}

MaybeError ReadTokenIds(const LineDraft& draft, std::string_view param, simdjson::dom::array array,
                        std::vector<int32_t>* ids) {
  size_t count = 0;
  for ([[maybe_unused]] const element item : array) ++count;
  ids->reserve(count);
  for (const element item : array) {
    if (auto error = ReadTokenId(draft, param, item, &ids->emplace_back())) return error;
  }
  return std::nullopt;
}

// A model's name is its path's last part, without ".gguf": "org/Model", "/models/Model/" and
// "Model.gguf" are "Model".
std::string_view ModelName(std::string_view path) {
  while (path.ends_with('/')) path.remove_suffix(1);
  path = path.substr(path.rfind('/') + 1);
  if (path.ends_with(".gguf")) path.remove_suffix(5);
  return path;
}

MaybeError SetModel(LineDraft& draft, element value) {
  std::string_view name;
  if (value.get(name)) return WrongType("model", value, "a string");
  const std::vector<std::string>& ours = draft.rules->model_names;
  const auto is_ours = [&](const std::string& our) {
    return our == "*" || our == name || our == ModelName(name);
  };
  if (ours.empty() || std::ranges::any_of(ours, is_ours)) return std::nullopt;
  return LineError{.http_status = 404,
                   .message = fmt::format("the model `{}` does not exist; this job runs `{}` "
                                          "(--served-model-name gives it other names, \"*\" any)",
                                          Shorten(name), fmt::join(ours, "`, `")),
                   .param = "model",
                   .code = "model_not_found"};
}

// Of an array one entry.
LineError WrongEntry(std::string_view param, size_t index, element found,
                     std::string_view expected) {
  LineError error = WrongType(param, found, expected);
  error.message = fmt::format("{}[{}] is {}; expected {}", param, index, Describe(found), expected);
  return error;
}

// Appends the value's prompts.
MaybeError ReadPrompts(LineDraft& draft, std::string_view param, element value) {
  constexpr std::string_view kExpected =
      "a string, a list of strings, token ids, or a list of lists of token ids";
  auto& prompts = draft.line->prompts;
  const size_t before = prompts.size();
  if (value.is_string()) {
    prompts.emplace_back(std::string(value.get_string().value_unsafe()));
    return std::nullopt;
  }
  simdjson::dom::array array;
  if (value.get(array)) return WrongType(param, value, kExpected);
  if (array.begin() == array.end())
    return InvalidValue(param, fmt::format("`{}` is empty; expected {}", param, kExpected));
  const element first = *array.begin();
  if (!first.is_string() && !first.is_array()) {
    std::vector<int32_t> ids;
    if (auto error = ReadTokenIds(draft, param, array, &ids)) return error;
    prompts.emplace_back(std::move(ids));
    return std::nullopt;
  }
  for (const element item : array) {
    if (prompts.size() - before == kMostPrompts) {
      return InvalidValue(
          param, fmt::format("`{}` holds more than {} {}; split the line", param, kMostPrompts,
                             param == "prompt" ? "prompts" : "texts"));
    }
    if (item.type() != first.type()) {
      return InvalidValue(param, fmt::format("{}[{}] is {}, but {}[0] is {}; expected {}", param,
                                             prompts.size() - before, Describe(item), param,
                                             Describe(first), kExpected));
    }
    if (item.is_string()) {
      prompts.emplace_back(std::string(item.get_string().value_unsafe()));
      continue;
    }
    std::vector<int32_t> ids;
    if (auto error = ReadTokenIds(draft, param, item.get_array().value_unsafe(), &ids))
      return error;
    if (ids.empty())
      return InvalidValue(param, fmt::format("{}[{}] is empty; expected token ids", param,
                                             prompts.size() - before));
    prompts.emplace_back(std::move(ids));
  }
  return std::nullopt;
}

MaybeError SetPrompt(LineDraft& draft, element value) {
  return ReadPrompts(draft, "prompt", value);
}
MaybeError SetInput(LineDraft& draft, element value) { return ReadPrompts(draft, "input", value); }

// Texts that are compared: the first kind comes before the second in the table.
MaybeError SetText1(LineDraft& draft, element value) {
  if (auto error = ReadPrompts(draft, "text_1", value)) return error;
  draft.line->vectors.queries = static_cast<int32_t>(draft.line->prompts.size());
  return std::nullopt;
}
MaybeError SetText2(LineDraft& draft, element value) { return ReadPrompts(draft, "text_2", value); }
MaybeError SetQuery(LineDraft& draft, element value) {
  if (!value.is_string()) return WrongType("query", value, "a string");
  draft.line->prompts.emplace_back(std::string(value.get_string().value_unsafe()));
  draft.line->vectors.queries = 1;
  return std::nullopt;
}

MaybeError SetEncodingFormat(LineDraft& draft, element value) {
  std::string_view format;
  if (value.get(format) || (format != "float" && format != "base64"))
    return OutOfRange("encoding_format", value, "\"float\" or \"base64\"");
  draft.line->vectors.base64 = format == "base64";
  return std::nullopt;
}
MaybeError SetNormalize(LineDraft& draft, element value) {
  bool on;
  if (value.get(on)) return WrongType("normalize", value, "true or false");
  draft.line->vectors.normalize = on;
  return std::nullopt;
}

// Text, or a list of token ids, that follow the prompt.
MaybeError SetContinuations(LineDraft& draft, element value) {
  constexpr std::string_view kExpected = "a list of strings or of lists of token ids";
  simdjson::dom::array array;
  if (value.get(array)) return WrongType("continuations", value, kExpected);
  std::vector<Prompt>& continuations = draft.line->continuations;
  for (const element item : array) {
    if (continuations.size() == kMostPrompts) {
      return InvalidValue(
          "continuations",
          fmt::format("`continuations` holds more than {}; split the line", kMostPrompts));
    }
    if (item.is_string()) {
      continuations.emplace_back(std::string(item.get_string().value_unsafe()));
      continue;
    }
    simdjson::dom::array ids;
    if (item.get(ids)) return WrongType("continuations", item, kExpected);
    std::vector<int32_t> read;
    if (auto error = ReadTokenIds(draft, "continuations", ids, &read)) return error;
    continuations.emplace_back(std::move(read));
  }
  return std::nullopt;
}

MaybeError SetMessages(LineDraft& draft, element value) {
  return AppendMessages(value, &draft.line->chat.messages);
}

MaybeError SetTools(LineDraft& draft, element value) {
  simdjson::dom::array tools;
  if (value.get(tools)) return WrongType("tools", value, "an array of tools");
  for (const element tool : tools) {
    if (!tool.is_object())
      return InvalidValue("tools",
                          fmt::format("`tools` holds {}; expected objects", Describe(tool)));
  }
  if (tools.begin() != tools.end()) AppendJson(value, &draft.line->chat.tools);
  return std::nullopt;
}

MaybeError SetToolChoice(LineDraft&, element value) {
  std::string_view choice;
  if (!value.get(choice) && (choice == "none" || choice == "auto")) return std::nullopt;
  return Unsupported("tool_choice",
                     fmt::format("`tool_choice` is {}; \"auto\" and \"none\" alone are supported",
                                 Describe(value)));
}

// Of a chat variables of the template, of a ranking texts.
MaybeError SetDocuments(LineDraft& draft, element value) {
  const bool ranks = draft.line->endpoint == Endpoint::kRerank;
  simdjson::dom::array documents;
  if (value.get(documents))
    return WrongType("documents", value, ranks ? "a list of strings" : "an array of objects");
  size_t index = 0;
  for (const element document : documents) {
    if (ranks ? !document.is_string() : !document.is_object())
      return WrongEntry("documents", index, document, ranks ? "a string" : "an object");
    ++index;
  }
  if (ranks && index == 0)
    return InvalidValue("documents", "`documents` is empty; expected a list of strings");
  if (ranks) return ReadPrompts(draft, "documents", value);
  if (index > 0) AppendJson(value, &draft.line->chat.documents);
  return std::nullopt;
}

MaybeError SetReasoningEffort(LineDraft& draft, element value) {
  constexpr std::string_view kEfforts[] = {"none", "minimal", "low", "medium", "high", "xhigh"};
  std::string_view effort;
  if (value.get(effort) || std::ranges::count(kEfforts, effort) == 0) {
    return OutOfRange("reasoning_effort", value,
                      fmt::format("\"{}\"", fmt::join(kEfforts, "\", \"")));
  }
  draft.line->chat.reasoning_effort = effort;
  return std::nullopt;
}

MaybeError SetParallelToolCalls(LineDraft&, element value) {
  bool ignored;
  if (value.get(ignored)) return WrongType("parallel_tool_calls", value, "true or false");
  return std::nullopt;
}

MaybeError SetTemplateKwargs(LineDraft& draft, element value) {
  if (!value.is_object()) return WrongType("chat_template_kwargs", value, "an object");
  AppendJson(value, &draft.line->chat.chat_template_kwargs);
  return std::nullopt;
}

MaybeError SetStop(LineDraft& draft, element value) {
  auto& stop = draft.line->sampling.stop;
  stop.clear();
  const auto add = [&](element item) -> MaybeError {
    if (!item.is_string()) return WrongType("stop", item, "a string or a list of strings");
    const std::string_view text = item.get_string().value_unsafe();
    if (text.empty()) return OutOfRange("stop", item, "stop strings that are not empty");
    if (stop.size() == kMostStops)
      return InvalidValue("stop", fmt::format("`stop` holds more than {} strings", kMostStops));
    stop.emplace_back(text);
    return std::nullopt;
  };
  simdjson::dom::array items;
  if (value.get(items)) return add(value);
  for (const element item : items) {
    if (auto error = add(item)) return error;
  }
  return std::nullopt;
}

MaybeError SetStopTokenIds(LineDraft& draft, element value) {
  simdjson::dom::array items;
  if (value.get(items)) return WrongType("stop_token_ids", value, "an array of token ids");
  auto& ids = draft.line->sampling.stop_token_ids;
  ids.clear();
  if (auto error = ReadTokenIds(draft, "stop_token_ids", items, &ids)) return error;
  if (ids.size() <= kMostStopIds) return std::nullopt;
  return InvalidValue("stop_token_ids", fmt::format("`stop_token_ids` holds {} ids, at most {}",
                                                    ids.size(), kMostStopIds));
}

MaybeError SetAllowedTokenIds(LineDraft& draft, element value) {
  simdjson::dom::array items;
  if (value.get(items)) return WrongType("allowed_token_ids", value, "an array of token ids");
  auto& ids = draft.line->sampling.allowed_token_ids;
  if (auto error = ReadTokenIds(draft, "allowed_token_ids", items, &ids)) return error;
  if (ids.empty())
    return InvalidValue("allowed_token_ids",
                        "`allowed_token_ids` is empty; expected at least one token id");
  std::ranges::sort(ids);
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return std::nullopt;
}

MaybeError SetBadWords(LineDraft& draft, element value) {
  constexpr std::string_view kExpected = "a list of strings, none empty";
  simdjson::dom::array items;
  if (value.get(items)) return WrongType("bad_words", value, kExpected);
  auto& words = draft.line->bad_words;
  for (const element item : items) {
    if (!item.is_string()) return WrongType("bad_words", item, kExpected);
    const std::string_view word = item.get_string().value_unsafe();
    if (word.find_first_not_of(' ') == std::string_view::npos)
      return OutOfRange("bad_words", item, kExpected);
    if (words.size() == kMostBadWords)
      return InvalidValue("bad_words",
                          fmt::format("`bad_words` holds more than {} words", kMostBadWords));
    words.emplace_back(word);
  }
  return std::nullopt;
}

MaybeError SetTruncatePromptTokens(LineDraft& draft, element value) {
  constexpr std::string_view kExpected =
      "an integer of at least 1, or -1 for as many as the context holds";
  int64_t number;
  const Whole whole = ReadWhole(value, &number);
  if (whole == Whole::kNo) return WrongType("truncate_prompt_tokens", value, kExpected);
  if (whole == Whole::kTooLarge || number < -1 || number == 0 || number > kInt32Max)
    return OutOfRange("truncate_prompt_tokens", value, kExpected);
  draft.line->truncate_prompt_tokens = ToInt32(number);
  return std::nullopt;
}

// {"<token id>": bias}; a repeated id's last bias counts.
MaybeError SetLogitBias(LineDraft& draft, element value) {
  simdjson::dom::object object;
  if (value.get(object)) return WrongType("logit_bias", value, "an object of token id -> number");
  auto& biases = draft.line->sampling.logit_bias;
  biases.clear();
  for (const auto member : object) {
    int32_t id = -1;
    const char* end = member.key.data() + member.key.size();
    const auto [stopped, failed] = std::from_chars(member.key.data(), end, id);
    if (failed != std::errc() || stopped != end || id < 0 || id >= draft.rules->vocab_size) {
      return InvalidValue(
          "logit_bias",
          fmt::format("`logit_bias` has the key \"{}\"; expected token ids from 0 to {}",
                      Shorten(member.key), draft.rules->vocab_size - 1));
    }
    if (member.value.is_bool() || !member.value.is_number())
      return WrongType("logit_bias", member.value, "numbers from -100 to 100");
    const double bias = member.value.get_double().value_unsafe();
    if (!(bias >= -100 && bias <= 100))
      return OutOfRange("logit_bias", member.value, "numbers from -100 to 100");
    if (biases.size() == kMostBiases) {
      return InvalidValue("logit_bias",
                          fmt::format("`logit_bias` holds more than {} tokens", kMostBiases));
    }
    biases.emplace_back(id, static_cast<float>(bias));
  }
  // In a fixed order, and one bias a token, so that equal requests are equal.
  std::stable_sort(biases.begin(), biases.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  const auto last = std::unique(biases.rbegin(), biases.rend(),
                                [](const auto& a, const auto& b) { return a.first == b.first; });
  biases.erase(biases.begin(), last.base());
  return std::nullopt;
}

// Chat's `logprobs` is a boolean, completions' a number.
MaybeError ReadLogprobCount(const LineDraft& draft, std::string_view param, element value,
                            std::optional<int32_t>* count) {
  const int32_t most =
      draft.rules->max_logprobs < 0 ? draft.rules->vocab_size : draft.rules->max_logprobs;
  const int64_t least = draft.rules->max_logprobs < 0 ? -1 : 0;
  int64_t number;
  const Whole whole = ReadWhole(value, &number);
  if (whole == Whole::kNo)
    return WrongType(param, value, fmt::format("an integer from {} to {}", least, most));
  if (whole == Whole::kTooLarge || number < least || number > most) {
    return OutOfRange(param, value,
                      fmt::format("an integer from {} to {} (--max-logprobs)", least, most));
  }
  *count = number < 0 ? kAllLogprobs : ToInt32(number);
  return std::nullopt;
}

MaybeError SetLogprobs(LineDraft& draft, element value) {
  if (draft.line->endpoint == Endpoint::kCompletion)
    return ReadLogprobCount(draft, "logprobs", value, &draft.logprobs);
  if (value.get(draft.chat_logprobs)) return WrongType("logprobs", value, "true or false");
  return std::nullopt;
}
MaybeError SetTopLogprobs(LineDraft& draft, element value) {
  return ReadLogprobCount(draft, "top_logprobs", value, &draft.top_logprobs);
}
MaybeError SetPromptLogprobs(LineDraft& draft, element value) {
  return ReadLogprobCount(draft, "prompt_logprobs", value, &draft.line->report_prompt_logprobs);
}

// "flex" is slower and promises nothing, so it may wait; all other tiers do not.
MaybeError SetServiceTier(LineDraft& draft, element value) {
  std::string_view tier;
  if (value.get(tier)) return WrongType("service_tier", value, "a string");
  draft.line->service = tier == "flex" ? Service::kBatch : Service::kInteractive;
  return std::nullopt;
}

MaybeError SetSeed(LineDraft& draft, element value) {
  int64_t seed;
  const Whole whole = ReadWhole(value, &seed);
  if (whole == Whole::kNo) return WrongType("seed", value, "an integer");
  if (whole == Whole::kTooLarge)
    return OutOfRange("seed", value, "an integer of 64 bits with a sign");
  draft.line->sampling.seed = seed;
  return std::nullopt;
}

MaybeError SetResponseFormat(LineDraft&, element value) {
  simdjson::dom::object format;
  std::string_view type;
  if (value.get(format)) return WrongType("response_format", value, "an object");
  if (!format["type"].get(type) && type == "text") return std::nullopt;
  return Unsupported(
      "response_format",
      "parameter `response_format` is not supported; \"type\" can be \"text\" alone");
}

constexpr Parameter kTable[] = {
    {"model", kInAll, Special(SetModel)},
    {"messages", kInChat, Special(SetMessages)},
    {"prompt", kInPrompts, Special(SetPrompt)},
    {"continuations", kInLikelihood, Special(SetContinuations)},
    {"input", EndpointSet(kInEmbedding | kInClassify), Special(SetInput)},
    {"text_1", kInScore, Special(SetText1)},
    {"text_2", kInScore, Special(SetText2)},
    {"query", kInRerank, Special(SetQuery)},

    {"temperature", kInBoth,
     FloatField([](LineDraft& d) -> float& { return d.line->sampling.temperature; }), 0, 2},
    {"top_p", kInBoth, FloatField([](LineDraft& d) -> float& { return d.line->sampling.top_p; }), 0,
     1},
    {"top_k", kInBoth, IntField([](LineDraft& d, int64_t v) {
       d.line->sampling.top_k = ToInt32(std::max<int64_t>(v, 0));
     }),
     -1, kInt32Max},
    {"min_p", kInBoth, FloatField([](LineDraft& d) -> float& { return d.line->sampling.min_p; }), 0,
     1},
    {"presence_penalty", kInBoth,
     FloatField([](LineDraft& d) -> float& { return d.line->sampling.presence_penalty; }), -2, 2},
    {"frequency_penalty", kInBoth,
     FloatField([](LineDraft& d) -> float& { return d.line->sampling.frequency_penalty; }), -2, 2},
    {"repetition_penalty", kInBoth,
     FloatField([](LineDraft& d) -> float& { return d.line->sampling.repetition_penalty; }), 0,
     kInt32Max, true},
    {"logit_bias", kInBoth, Special(SetLogitBias)},
    {"allowed_token_ids", kInBoth, Special(SetAllowedTokenIds)},
    {"bad_words", kInBoth, Special(SetBadWords)},
    {"seed", kInBoth, Special(SetSeed)},

    {"max_tokens", kInBoth, IntField([](LineDraft& d, int64_t v) { d.max_tokens = ToInt32(v); }), 0,
     kInt32Max},
    {"max_completion_tokens", kInBoth,
     IntField([](LineDraft& d, int64_t v) { d.max_completion_tokens = ToInt32(v); }), 0, kInt32Max},
    {"min_tokens", kInBoth,
     IntField([](LineDraft& d, int64_t v) { d.line->sampling.min_tokens = ToInt32(v); }), 0,
     kInt32Max},
    {"stop", kInBoth, Special(SetStop)},
    {"stop_token_ids", kInBoth, Special(SetStopTokenIds)},
    {"ignore_eos", kInBoth,
     BoolField([](LineDraft& d) -> bool& { return d.line->sampling.ignore_eos; })},
    {"include_stop_str_in_output", kInBoth,
     BoolField([](LineDraft& d) -> bool& { return d.line->sampling.include_stop_str_in_output; })},
    {"skip_special_tokens", kInBoth,
     BoolField([](LineDraft& d) -> bool& { return d.line->sampling.skip_special_tokens; })},

    {"n", kInBoth, IntField([](LineDraft& d, int64_t v) { d.line->n = ToInt32(v); }), 1, 128},
    {"best_of", kInCompletion, IntField([](LineDraft& d, int64_t v) { d.best_of = ToInt32(v); }), 1,
     128},
    {"echo", kInBoth, BoolField([](LineDraft& d) -> bool& { return d.line->echo; })},
    {"logprobs", kInBoth, Special(SetLogprobs)},
    {"top_logprobs", kInChat, Special(SetTopLogprobs)},
    {"prompt_logprobs", kInBoth, Special(SetPromptLogprobs)},
    {"prompt_logprobs_from", kInBoth,
     IntField([](LineDraft& d, int64_t v) { d.line->prompt_logprobs_from = ToInt32(v); }), 1,
     kInt32Max},
    {"encoding_format", kInEmbedding, Special(SetEncodingFormat)},
    {"dimensions", kInEmbedding,
     IntField([](LineDraft& d, int64_t v) { d.line->vectors.dimensions = ToInt32(v); }), 1,
     kInt32Max},
    {"normalize", kInEmbedding, Special(SetNormalize)},
    {"top_n", kInRerank,
     IntField([](LineDraft& d, int64_t v) { d.line->vectors.top_n = ToInt32(v); }), 0, kInt32Max},
    {"use_activation", kInHeads,
     BoolField([](LineDraft& d) -> bool& { return d.line->vectors.activation; })},
    {"return_token_ids", kInTokens,
     BoolField([](LineDraft& d) -> bool& { return d.line->return_token_ids; })},
    {"return_tokens_as_token_ids", kInBoth,
     BoolField([](LineDraft& d) -> bool& { return d.line->return_tokens_as_token_ids; })},

    {"tools", kInChat, Special(SetTools)},
    {"tool_choice", kInChat, Special(SetToolChoice)},
    {"parallel_tool_calls", kInChat, Special(SetParallelToolCalls)},
    {"documents", EndpointSet(kInChat | kInRerank), Special(SetDocuments)},
    {"reasoning_effort", kInChat, Special(SetReasoningEffort)},
    {"chat_template_kwargs", kInChat, Special(SetTemplateKwargs)},
    {"add_generation_prompt", kInChat,
     BoolField([](LineDraft& d) -> bool& { return d.line->chat.add_generation_prompt; })},
    {"continue_final_message", kInChat,
     BoolField([](LineDraft& d) -> bool& { return d.line->chat.continue_final_message; })},
    {"truncate_prompt_tokens", kInAll, Special(SetTruncatePromptTokens)},
    {"add_special_tokens", kInAll, BoolField([](LineDraft& d) -> bool& {
       return d.line->endpoint == Endpoint::kChat ? d.line->chat.add_special_tokens
                                                  : d.line->add_special_tokens;
     })},

    {"user", kInAll, Ignored{}},
    {"metadata", kInAll, Ignored{}},
    {"store", kInAll, Ignored{}},
    {"service_tier", kInAll, Special(SetServiceTier)},
    {"safety_identifier", kInAll, Ignored{}},
    {"prompt_cache_key", kInAll, Ignored{}},
    {"prompt_cache_retention", kInAll, Ignored{}},
    {"prompt_cache_options", kInAll, Ignored{}},
    {"request_id", kInAll, Ignored{}},
    {"cache_salt", kInAll, Ignored{}},
    {"stream_options", kInAll, Ignored{}},
    {"stream_interval", kInBoth, Ignored{}},
    {"skip_reading_prefix_cache", kInAll, Ignored{}},

    {"stream", kInAll, Refused{"false"}},
    {"response_format", kInBoth, Special(SetResponseFormat)},
    {"suffix", kInCompletion, Refused{"\"\""}},
    {"functions", kInChat, Refused{}},
    {"function_call", kInChat, Refused{}},
    {"modalities", kInChat, Refused{"[\"text\"]"}},
    {"audio", kInChat, Refused{}},
    {"prediction", kInChat, Refused{}},
    {"include_reasoning", kInChat, Refused{"true"}},
    {"verbosity", kInChat, Refused{}},
    {"web_search_options", kInChat, Refused{}},
    {"moderation", kInChat, Refused{}},
    {"use_beam_search", kInBoth, Refused{"false"}},
    {"length_penalty", kInBoth, Refused{"1.0"}},
    {"spaces_between_special_tokens", kInBoth, Refused{"true"}},
    {"chat_template", kInChat, Refused{}},
    {"mm_processor_kwargs", kInBoth, Refused{}},
    {"media_io_kwargs", kInChat, Refused{}},
    {"structured_outputs", kInBoth, Refused{}},
    {"guided_json", kInBoth, Refused{}},
    {"guided_regex", kInBoth, Refused{}},
    {"guided_choice", kInBoth, Refused{}},
    {"guided_grammar", kInBoth, Refused{}},
    {"guided_decoding_backend", kInBoth, Refused{}},
    {"guided_whitespace_pattern", kInBoth, Refused{}},
    {"structural_tag", kInBoth, Refused{}},
    {"logits_processors", kInBoth, Refused{}},
    {"prompt_embeds", kInCompletion, Refused{}},
    {"embed_dtype", kInEmbedding, Refused{"\"float32\""}},
    {"endianness", kInEmbedding, Refused{"\"native\""}},
    {"truncation_side", kInVectors, Refused{"\"right\""}},
    {"priority", kInAll, Refused{"0"}},
    {"kv_transfer_params", kInBoth, Refused{}},
    {"vllm_xargs", kInBoth, Refused{}},
    {"flat_logprobs", kInBoth, Refused{"false"}},
    {"repetition_detection", kInBoth, Refused{}},
    {"thinking_token_budget", kInBoth, Refused{}},
    {"logprob_token_ids", kInBoth, Refused{}},
    {"prompt_logprob_token_ids", kInBoth, Refused{}},
    {"prompt_logprob_start", kInBoth, Refused{}},
    {"trace_decode_token_ids", kInBoth, Refused{}},
    {"routed_experts_prompt_start", kInBoth, Refused{"0"}},
    {"extra_args", kInBoth, Refused{}},
    {"softmax", kInHeads, Refused{"true"}},
    {"activation", kInHeads, Refused{"true"}},
    {"step_tag_id", kInVectors, Refused{}},
    {"returned_token_ids", kInVectors, Refused{}},
    {"task", kInVectors, Refused{}},
    {"extra_kwargs", kInVectors, Refused{}},
};

std::string Range(const Parameter& p, std::string_view type) {
  if (p.max == kInt32Max) {
    return fmt::format("{} {} {}, at most 2147483647", type, p.above_min ? "above" : "of at least",
                       p.min);
  }
  return fmt::format("{} {} {} to {}", type, p.above_min ? "above" : "from", p.min, p.max);
}

MaybeError ApplyFloat(const Parameter& p, FloatField field, element value, LineDraft& draft) {
  double number;
  if (value.get(number)) return WrongType(p.name, value, Range(p, "a number"));
  const bool fits = number <= p.max && (p.above_min ? number > p.min : number >= p.min);
  if (!fits) return OutOfRange(p.name, value, Range(p, "a number"));
  const float narrow = static_cast<float>(number);
  // A positive double below the smallest float must not turn into a 0 that is out of range.
  if (p.above_min && !(narrow > p.min)) return OutOfRange(p.name, value, Range(p, "a number"));
  field(draft) = narrow;
  return std::nullopt;
}

MaybeError ApplyInt(const Parameter& p, IntField set, element value, LineDraft& draft) {
  int64_t number;
  const Whole whole = ReadWhole(value, &number);
  if (whole == Whole::kNo) return WrongType(p.name, value, Range(p, "an integer"));
  if (whole == Whole::kTooLarge || number < p.min || number > p.max)
    return OutOfRange(p.name, value, Range(p, "an integer"));
  set(draft, number);
  return std::nullopt;
}

MaybeError CheckHarmless(const Parameter& p, const Refused& refused, element value) {
  std::string text;
  if (!refused.harmless.empty()) AppendJson(value, &text);
  const auto is_float_of = [](std::string_view a, std::string_view b) {
    return a.size() == b.size() + 2 && a.starts_with(b) && a.ends_with(".0");
  };
  if (!text.empty() && (text == refused.harmless || is_float_of(text, refused.harmless) ||
                        is_float_of(refused.harmless, text))) {
    return std::nullopt;
  }
  std::string message = fmt::format("parameter `{}` is not supported", p.name);
  if (!refused.harmless.empty()) message += fmt::format("; it can be {} alone", refused.harmless);
  return Unsupported(p.name, message);
}

// Nothing is generated, and each continuation's log probabilities are all that is wanted.
MaybeError FinishLikelihood(LineDraft& draft) {
  ParsedLine& line = *draft.line;
  if (line.prompts.size() > 1)
    return InvalidValue(
        "prompt", fmt::format("`prompt` holds {} prompts; expected one beside `continuations`",
                              line.prompts.size()));
  if (line.continuations.empty())
    return InvalidValue("continuations", "`continuations` is empty; expected at least one");
  for (const Prompt& continuation : line.continuations) {
    if (continuation.index() == line.prompts[0].index()) continue;
    return InvalidValue("continuations",
                        "`continuations` and `prompt` are not both text, or both token ids");
  }
  line.sampling = {.max_tokens = 0, .prompt_logprobs = 0};
  return std::nullopt;
}

// A head gives labels and no vectors, and a score is what it says with one label.
MaybeError CheckHead(Endpoint endpoint, const Labels* labels) {
  if (endpoint == Endpoint::kClassify && labels == nullptr) {
    return LineError{.message =
                         "the model has no head that gives labels; expected one whose "
                         "architecture ends in ForSequenceClassification",
                     .code = "head_missing"};
  }
  if (endpoint == Endpoint::kClassify || labels == nullptr) return std::nullopt;
  if (endpoint == Endpoint::kEmbedding) {
    return LineError{.message =
                         "the model has a head, which gives labels and no vectors; expected "
                         "a line of /v1/classify, or --pooling last, first or mean",
                     .param = "input",
                     .code = "pooling_missing"};
  }
  if (labels->names.size() == 1) return std::nullopt;
  return LineError{.message = fmt::format("the model's head gives {} labels, of which none is a "
                                          "score; expected a line of /v1/classify",
                                          labels->names.size()),
                   .code = "head_has_labels"};
}

MaybeError FinishPooled(LineDraft& draft) {
  ParsedLine& line = *draft.line;
  line.sampling = {.max_tokens = 0};
  line.vectors.labels = draft.rules->labels;
  if (auto error = CheckHead(line.endpoint, line.vectors.labels.get())) return error;
  const auto queries = static_cast<size_t>(line.vectors.queries);
  const auto ids = std::ranges::find_if(line.prompts, [](const Prompt& prompt) {
    return !std::holds_alternative<std::string>(prompt);
  });
  if (line.vectors.pairs() && ids != line.prompts.end()) {
    const bool is_query = ids < line.prompts.begin() + line.vectors.queries;
    const std::string_view param = is_query ? "text_1" : "text_2";
    return InvalidValue(param, fmt::format("`{}` holds token ids, and the model's head reads pairs "
                                           "of texts; expected strings",
                                           param));
  }
  const size_t texts = line.prompts.size() - queries;
  if (line.endpoint != Endpoint::kScore || queries == 1 || queries == texts) return std::nullopt;
  return InvalidValue("text_2",
                      fmt::format("`text_1` holds {} texts and `text_2` {}; expected one text in "
                                  "`text_1`, or as many",
                                  queries, texts));
}

MaybeError FinishLengths(LineDraft& draft) {
  ParsedLine& line = *draft.line;
  SamplingParams& sampling = line.sampling;
  if (draft.max_tokens && draft.max_completion_tokens &&
      *draft.max_tokens != *draft.max_completion_tokens) {
    return InvalidValue(
        "max_tokens",
        fmt::format("`max_tokens` is {} and `max_completion_tokens` is {}; expected one of them",
                    *draft.max_tokens, *draft.max_completion_tokens));
  }
  const std::optional<int32_t> most =
      draft.max_completion_tokens ? draft.max_completion_tokens : draft.max_tokens;
  const std::string_view name =
      draft.max_completion_tokens ? "max_completion_tokens" : "max_tokens";
  if (most) {
    sampling.max_tokens = *most;
  } else if (line.endpoint == Endpoint::kCompletion) {
    sampling.default_max_tokens = kCompletionTokens;
  }
  if (sampling.max_tokens == 0 && !line.echo && !line.report_prompt_logprobs) {
    return InvalidValue(name, fmt::format("`{}` is 0; expected an integer of at least 1 (0 goes "
                                          "with `echo` or `prompt_logprobs` alone)",
                                          name));
  }
  const bool counts_default = !most && line.endpoint == Endpoint::kCompletion;
  const int32_t limit = counts_default ? kCompletionTokens : sampling.max_tokens;
  if (limit >= 0 && sampling.min_tokens > limit) {
    return InvalidValue("min_tokens",
                        fmt::format("`min_tokens` is {}; expected at most `{}`, which is {}",
                                    sampling.min_tokens, name, limit));
  }
  return std::nullopt;
}

MaybeError FinishLogprobs(LineDraft& draft) {
  ParsedLine& line = *draft.line;
  SamplingParams& sampling = line.sampling;
  if (line.endpoint == Endpoint::kChat) {
    if (draft.top_logprobs.value_or(0) != 0 && !draft.chat_logprobs) {
      return InvalidValue(
          "top_logprobs",
          "`top_logprobs` is given without `logprobs`; expected `logprobs` to be true");
    }
    sampling.logprobs = draft.chat_logprobs ? draft.top_logprobs.value_or(0) : -1;
  } else {
    sampling.logprobs = draft.logprobs.value_or(-1);
  }
  sampling.prompt_logprobs = line.report_prompt_logprobs.value_or(-1);
  if (line.echo && sampling.logprobs >= 0 && sampling.logprobs > sampling.prompt_logprobs) {
    sampling.prompt_logprobs = sampling.logprobs;
  }
  if (line.prompt_logprobs_from > 0 && sampling.prompt_logprobs < 0) {
    return InvalidValue("prompt_logprobs_from",
                        "`prompt_logprobs_from` is given without `prompt_logprobs`, or `echo` with "
                        "`logprobs`; expected one of them");
  }
  return std::nullopt;
}

}  // namespace

std::span<const Parameter> Parameters() { return kTable; }

std::optional<LineError> Apply(const Parameter& parameter, element value, LineDraft& draft) {
  struct Visitor {
    const Parameter& p;
    element value;
    LineDraft& draft;
    MaybeError operator()(FloatField field) const { return ApplyFloat(p, field, value, draft); }
    MaybeError operator()(IntField set) const { return ApplyInt(p, set, value, draft); }
    MaybeError operator()(BoolField field) const {
      if (value.get(field(draft))) return WrongType(p.name, value, "true or false");
      return std::nullopt;
    }
    MaybeError operator()(Special read) const { return read(draft, value); }
    MaybeError operator()(Ignored) const { return std::nullopt; }
    MaybeError operator()(const Refused& refused) const { return CheckHarmless(p, refused, value); }
  };
  return std::visit(Visitor{parameter, value, draft}, parameter.target);
}

std::optional<LineError> Finish(LineDraft& draft) {
  ParsedLine& line = *draft.line;
  if (line.endpoint == Endpoint::kLikelihood) return FinishLikelihood(draft);
  if (IsPooled(line.endpoint)) return FinishPooled(draft);
  if (line.endpoint == Endpoint::kChat && line.echo) {
    return Unsupported("echo", "parameter `echo` is not supported in chat; it can be false alone");
  }
  if (line.chat.add_generation_prompt && line.chat.continue_final_message) {
    return InvalidValue(
        "continue_final_message",
        "`continue_final_message` and `add_generation_prompt` are both true; expected one of them");
  }
  if (draft.best_of && *draft.best_of != line.n) {
    return Unsupported("best_of",
                       fmt::format("`best_of` is {}; it can be equal to `n`, which is {}, alone",
                                   *draft.best_of, line.n));
  }
  if (static_cast<int64_t>(line.prompts.size()) * line.n > kMostChoices) {
    return InvalidValue(
        "n", fmt::format("{} prompts with `n` {} make {} choices; expected at most {} a line",
                         line.prompts.size(), line.n,
                         static_cast<int64_t>(line.prompts.size()) * line.n, kMostChoices));
  }
  if (auto error = FinishLengths(draft)) return error;
  return FinishLogprobs(draft);
}

}  // namespace forebay::job
