#include "job/lines/logprob_format.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <unordered_set>

#include "job/lines/likelihood.h"

namespace forebay::job {
namespace {

std::string TokenName(const LogprobStyle& style, int32_t id) {
  return style.tokens_as_ids || !style.text.has_tokenizer() ? fmt::format("token_id:{}", id)
                                                            : style.text.TokenBytes(id);
}

void AppendLogprob(float logprob, base::JsonWriter& writer) {
  writer.Float(std::max(logprob, kLeastLogprob));
}

// {"token","logprob","bytes"...; the caller closes the object.
void OpenChatToken(const LogprobStyle& style, const TokenLogprob& entry, base::JsonWriter& writer) {
  writer.BeginObject().Key("token").String(TokenName(style, entry.token)).Key("logprob");
  AppendLogprob(entry.logprob, writer);
  writer.Key("bytes");
  if (!style.text.has_tokenizer()) {
    writer.Null();
    return;
  }
  writer.BeginArray();
  for (const char byte : style.text.TokenBytes(entry.token))
    writer.Int(static_cast<unsigned char>(byte));
  writer.EndArray();
}

// Calls show(entry) for the `count` likeliest and the position's own token.
template <typename Show>
void ForShown(const PositionLogprobs& position, int32_t count, const Show& show) {
  for (size_t i = 0; i < position.top.size(); ++i) {
    if (static_cast<int64_t>(i) < count || static_cast<int32_t>(i) == position.chosen)
      show(position.top[i]);
  }
}

bool IsEmpty(const TokenRun& run, size_t i) {
  return i >= run.positions.size() || run.positions[i].top.empty();
}

int64_t CountCharacters(std::string_view bytes) {
  return std::count_if(bytes.begin(), bytes.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

void AppendOffsets(const LogprobStyle& style, std::span<const TokenRun> runs,
                   base::JsonWriter& writer) {
  int64_t offset = 0;
  for (const TokenRun& run : runs) {
    size_t position = 0;  // in run.text
    for (const int32_t token : run.tokens) {
      writer.Int(offset);
      const std::string bytes = style.text.TokenBytes(token);
      if (style.text.IsSpecial(token)) {
        const bool shown =
            run.is_prompt ? run.text.substr(std::min(position, run.text.size())).starts_with(bytes)
                          : !run.skip_special;
        if (!shown) continue;
      }
      position += bytes.size();
      offset += CountCharacters(bytes);
    }
  }
}

void AppendTop(const LogprobStyle& style, const PositionLogprobs& position, int32_t count,
               base::JsonWriter& writer) {
  // tokens may read alike, parts of characters among them; the likeliest stays
  std::unordered_set<std::string> seen;
  writer.BeginObject();
  ForShown(position, count, [&](const TokenLogprob& entry) {
    const std::string name = TokenName(style, entry.token);
    std::string shown;
    base::AppendJsonString(&shown, name);
    if (!seen.insert(std::move(shown)).second) return;
    writer.Key(name);
    AppendLogprob(entry.logprob, writer);
  });
  writer.EndObject();
}

// Calls append(run, i) for each token, i counting within its run.
template <typename Append>
void AppendColumn(std::string_view name, std::span<const TokenRun> runs, base::JsonWriter& writer,
                  const Append& append) {
  writer.Key(name).BeginArray();
  for (const TokenRun& run : runs) {
    for (size_t i = 0; i < run.tokens.size(); ++i) append(run, i);
  }
  writer.EndArray();
}

}  // namespace

void AppendChatLogprobs(const LogprobStyle& style, int32_t count,
                        std::span<const PositionLogprobs> positions, base::JsonWriter& writer) {
  writer.BeginObject().Key("content").BeginArray();
  for (const PositionLogprobs& position : positions) {
    OpenChatToken(style, position.top[static_cast<size_t>(position.chosen)], writer);
    writer.Key("top_logprobs").BeginArray();
    const size_t shown = std::min(position.top.size(), static_cast<size_t>(count));
    for (size_t i = 0; i < shown; ++i) {
      OpenChatToken(style, position.top[i], writer);
      writer.EndObject();
    }
    writer.EndArray().EndObject();
    style.drain();
  }
  writer.EndArray().Key("refusal").Null().EndObject();
}

void AppendCompletionLogprobs(const LogprobStyle& style, int32_t count,
                              std::span<const TokenRun> runs, base::JsonWriter& writer) {
  writer.BeginObject().Key("text_offset").BeginArray();
  AppendOffsets(style, runs, writer);
  writer.EndArray();
  AppendColumn("token_logprobs", runs, writer, [&](const TokenRun& run, size_t i) {
    if (IsEmpty(run, i)) {
      writer.Null();
      return;
    }
    AppendLogprob(run.positions[i].top[static_cast<size_t>(run.positions[i].chosen)].logprob,
                  writer);
  });
  AppendColumn("tokens", runs, writer, [&](const TokenRun& run, size_t i) {
    writer.String(TokenName(style, run.tokens[i]));
  });
  AppendColumn("top_logprobs", runs, writer, [&](const TokenRun& run, size_t i) {
    if (IsEmpty(run, i)) {
      writer.Null();
      return;
    }
    AppendTop(style, run.positions[i], count, writer);
    style.drain();
  });
  writer.EndObject();
}

void AppendPromptLogprobs(const LogprobStyle& style, int32_t count,
                          std::span<const PositionLogprobs> positions, base::JsonWriter& writer) {
  writer.BeginArray();
  for (const PositionLogprobs& position : positions) {
    if (position.top.empty()) {
      writer.Null();
      continue;
    }
    writer.BeginObject();
    ForShown(position, count, [&](const TokenLogprob& entry) {
      writer.Key(std::to_string(entry.token)).BeginObject().Key("logprob");
      AppendLogprob(entry.logprob, writer);
      writer.Key("rank")
          .Int(entry.rank)
          .Key("decoded_token")
          .String(TokenName(style, entry.token))
          .EndObject();
    });
    writer.EndObject();
    style.drain();
  }
  writer.EndArray();
}

}  // namespace forebay::job
