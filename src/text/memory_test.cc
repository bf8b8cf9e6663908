// No tokenizer file, however bent, makes its reader allocate more than 16 times its size and 4 MB.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include "base/testing/allocation_counter.h"
#include "text/tokenizer.h"
#include "text/tokenizer_config.h"
#include "text/tokenizer_json.h"

namespace forebay::text {
namespace {

constexpr size_t kFileBytes = 4 << 20;

// What stands around a model.
std::string File(const std::string& model, const std::string& members = "") {
  return "{" + members + R"("model":{"type":"BPE",)" + model + "}}";
}

// unit(0), unit(1), ... with commas between them, until there are `bytes`.
template <typename Unit>
std::string Repeat(size_t bytes, const Unit& unit) {
  std::string text(unit(0));
  for (size_t i = 1; text.size() < bytes; ++i) text.append(",").append(unit(i));
  return text;
}

void ExpectBounded(std::string_view what, const std::string& json, bool valid) {
  std::string outcome = "read";
  const size_t taken = base::PeakBytes([&] {
    auto spec = ParseTokenizerJson(json);
    const base::Status status =
        spec.ok() ? Tokenizer::FromSpec(std::move(*spec)).status() : spec.status();
    if (!status.ok()) outcome = status.ToString().substr(0, 200);
  });
  EXPECT_GT(taken, json.size()) << what;
  EXPECT_LE(taken, base::AllocationLimit(json.size()))
      << what << ": " << taken / double(json.size()) << "x, " << outcome;
  EXPECT_EQ(outcome == "read", valid) << what << ": " << outcome;
}

TEST(TextMemory, ATokenizerOfEightMegabytes) {
  // Words of four letters, each a merge of a pair and a pair.
  const auto pair = [](size_t i) {
    return std::string{static_cast<char>('a' + i / 26 % 26), static_cast<char>('a' + i % 26)};
  };
  std::string vocab, merges;
  size_t id = 0;
  for (size_t i = 0; i < 26; ++i)
    vocab += fmt::format("\"{}\":{},", static_cast<char>('a' + i), id++);
  for (size_t i = 0; i < 676; ++i) {
    vocab += fmt::format("\"{}\":{},", pair(i), id++);
    merges += fmt::format("[\"{}\",\"{}\"],", pair(i)[0], pair(i)[1]);
  }
  for (size_t i = 0; vocab.size() + merges.size() < 2 * kFileBytes; ++i) {
    vocab += fmt::format("\"{}{}\":{},", pair(i / 676), pair(i), id++);
    merges += fmt::format("\"{} {}\",", pair(i / 676), pair(i));
  }
  vocab.pop_back(), merges.pop_back();
  ExpectBounded("words", File(R"("vocab":{)" + vocab + R"(},"merges":[)" + merges + "]"), true);
}

TEST(TextMemory, BentModels) {
  const auto vocab = [](const std::string& fields) {
    return File(R"("vocab":{)" + fields + R"(},"merges":[])");
  };
  const std::string empty_keys = Repeat(kFileBytes, [](size_t) { return R"("":0)"; });
  const std::string last_id = fmt::format(",\"a\":{}", empty_keys.size() / 5 + 65000);
  ExpectBounded("one id far away", vocab(empty_keys + last_id), true);
  ExpectBounded(
      "distinct tokens",
      vocab(Repeat(kFileBytes, [](size_t i) { return fmt::format("\"{:x}\":{}", i, i); })), true);
  ExpectBounded("an id beyond", vocab(empty_keys + R"(,"a":100000000)"), false);
  const std::string merges = Repeat(kFileBytes, [](size_t) { return "\"a a\""; });
  ExpectBounded("merges", File(R"("vocab":{"a":0,"aa":1},"merges":[)" + merges + "]"), true);
  ExpectBounded("brackets", std::string(kFileBytes, '['), false);
  ExpectBounded("brackets for a vocabulary", vocab(std::string(kFileBytes, '{')), false);
}

TEST(TextMemory, BentMembers) {
  const std::string model = R"("vocab":{"a":0},"merges":[])";
  const auto members = [&](std::string_view name, const std::string& unit) {
    return File(model, fmt::format(R"("{}":[{}],)", name,
                                   Repeat(kFileBytes, [&](size_t) { return unit; })));
  };
  ExpectBounded("added tokens", members("added_tokens", R"({"id":9,"content":"b"})"), true);
  const std::string added = Repeat(kFileBytes, [](size_t i) {
    return fmt::format(R"({{"id":{},"content":"<{:x}>"}})", i + 1, i);
  });
  ExpectBounded("distinct added tokens", File(model, R"("added_tokens":[)" + added + "],"), true);
  const auto component = [&](std::string_view key, std::string_view list, const std::string& unit) {
    const std::string units = Repeat(kFileBytes, [&](size_t) { return unit; });
    return File(model, fmt::format(R"("{}":{{"type":"Sequence","{}":[{}]}},)", key, list, units));
  };
  ExpectBounded("normalizers", component("normalizer", "normalizers", R"({"type":"NFC"})"), false);
  ExpectBounded("pre-tokenizers",
                component("pre_tokenizer", "pretokenizers", R"({"type":"Digits"})"), false);
  const std::string ids = Repeat(30000, [](size_t) { return "0"; });
  const std::string single = Repeat(30000, [](size_t) { return R"({"SpecialToken":{"id":"a"}})"; });
  ExpectBounded(
      "special tokens around a text",
      File(model, R"("post_processor":{"type":"TemplateProcessing","single":[)" + single +
                      R"(,{"Sequence":{}}],"special_tokens":{"a":{"ids":[)" + ids + "]}}},"),
      false);
}

TEST(TextMemory, TokenizerConfig) {
  const std::string config = "{" + Repeat(kFileBytes, [](size_t) { return R"("":0)"; }) + "}";
  TokenizerSpec spec;
  const size_t taken =
      base::PeakBytes([&] { EXPECT_TRUE(ApplyTokenizerTexts({.config = config}, &spec).ok()); });
  EXPECT_LE(taken, base::AllocationLimit(config.size()));
}

}  // namespace
}  // namespace forebay::text
