// Bytes as a text in segments and as ids, through one tokenizer of each kind. The first byte
// chooses the kind, the second how the text is cut.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "text/detokenizer.h"
#include "text/normalizer.h"
#include "text/tokenizer.h"
#include "text/unicode/byte_alphabet.h"
#include "text/unicode/unicode.h"

namespace forebay::text {
namespace {

using Kind = PreTokenizerStep::Kind;

std::unique_ptr<Tokenizer> Make(TokenizerSpec spec) {
  const int32_t first = static_cast<int32_t>(spec.tokens.size());
  spec.added = {{.content = "<|x|>", .id = first, .special = true},
                {.content = "<x>", .id = first + 1, .normalized = true},
                {.content = "  ", .id = first + 2}};
  auto made = Tokenizer::FromSpec(std::move(spec));
  FB_CHECK(made.ok(), "{}", made.status().ToString());
  return std::move(*made);
}

// Adds the merge of two tokens, and what it makes as a new token.
void AddMerge(TokenizerSpec* spec, int32_t left, int32_t right) {
  spec->merges.push_back({left, right, static_cast<int32_t>(spec->tokens.size()),
                          static_cast<uint32_t>(spec->merges.size())});
  spec->tokens.push_back(spec->tokens[left] + spec->tokens[right]);
}

std::unique_ptr<Tokenizer> ByteLevel(std::vector<PreTokenizerStep> steps, bool nfc) {
  TokenizerSpec spec;
  for (const char32_t c : kByteToCharacter) AppendUtf8(&spec.tokens.emplace_back(), c);
  for (const auto& [left, right] : std::initializer_list<std::pair<int, int>>{{' ', 'a'},
                                                                              {'a', 'a'},
                                                                              {257, 257},
                                                                              {'e', 'r'},
                                                                              {256, 259},
                                                                              {'\n', '\n'},
                                                                              {0xC3, 0xA9},
                                                                              {0xF0, 0x9F},
                                                                              {'1', '2'}}) {
    AddMerge(&spec, left, right);
  }
  if (nfc) spec.normalizers = {{NormalizerStep::Kind::kNfc, "", ""}};
  spec.pre_tokenizers = std::move(steps);
  spec.pre_tokenizers.push_back(
      {.kind = Kind::kByteLevel, .gpt2_split = spec.pre_tokenizers.empty()});
  spec.decoder.kind = DecoderSpec::Kind::kByteLevel;
  return Make(std::move(spec));
}

std::unique_ptr<Tokenizer> Pieces(bool prepend) {
  static constexpr char kHex[] = "0123456789ABCDEF";
  TokenizerSpec spec;
  for (int b = 0; b < 256; ++b)
    spec.tokens.push_back(std::string("<0x") + kHex[b >> 4] + kHex[b & 15] + ">");
  for (const char* token : {kMetaspace, "a", "b", "\xC3\xA9"}) spec.tokens.push_back(token);
  for (const auto& [left, right] :
       std::initializer_list<std::pair<int, int>>{{256, 257}, {257, 258}, {260, 258}, {256, 256}}) {
    AddMerge(&spec, left, right);
  }
  if (prepend)
    spec.normalizers = {{NormalizerStep::Kind::kPrepend, "", kMetaspace},
                        {NormalizerStep::Kind::kReplace, " ", kMetaspace}};
  if (!prepend)
    spec.pre_tokenizers = {
        {.kind = Kind::kMetaspace, .prepend = PreTokenizerStep::Prepend::kFirst}};
  spec.decoder = {.kind = DecoderSpec::Kind::kPieces,
                  .replacements = {{kMetaspace, " "}},
                  .byte_fallback = true,
                  .strip_spaces = 1};
  spec.byte_fallback = true;
  return Make(std::move(spec));
}

struct Fixture {
  std::unique_ptr<Tokenizer> tokenizer;
  bool lossless, nfc;  // decoding gives the text back, composed if `nfc`
};

const std::vector<Fixture>& Fixtures() {
  static const std::vector<Fixture> fixtures = [] {
    const auto split = [](const char* pattern) {
      return PreTokenizerStep{.kind = Kind::kSplit, .pattern = pattern};
    };
    std::vector<Fixture> out;
    out.push_back({ByteLevel({}, false), true, false});
    out.push_back({ByteLevel({split(kLlama3Pattern)}, false), true, false});
    out.push_back({ByteLevel({split(kQwen2Pattern)}, true), true, true});
    out.push_back({ByteLevel({split(kDeepSeekNumbersPattern), split(kDeepSeekCjkPattern),
                              split(kDeepSeekPattern)},
                             false),
                   true, false});
    out.push_back({ByteLevel({split(kTekkenPattern)}, false), true, false});
    out.push_back({Pieces(true), false, false});
    out.push_back({Pieces(false), false, false});
    return out;
  }();
  return fixtures;
}

void CheckDecoding(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  for (const bool skip_special : {false, true}) {
    Detokenizer detokenizer(tokenizer, skip_special);
    std::string text;
    for (const int32_t id : ids) {
      const std::string piece = detokenizer.Append(id);
      FB_CHECK(IsValidUtf8(piece), "a piece is not valid UTF-8");
      text += piece;
    }
    text += detokenizer.Flush();
    FB_CHECK(text == tokenizer.Decode(ids, skip_special), "pieces differ from the whole");
  }
}

void CheckEncoding(const Fixture& fixture, std::string_view text, uint8_t cut) {
  const Tokenizer& tokenizer = *fixture.tokenizer;
  std::vector<Segment> segments;
  std::string valid;
  bool trusted = (cut & 1) != 0;
  for (const size_t length = 1 + cut / 2; !text.empty(); trusted = !trusted) {
    segments.push_back({text.substr(0, length), trusted});
    valid += ToValidUtf8(segments.back().text);
    text.remove_prefix(segments.back().text.size());
  }
  const auto ids = tokenizer.EncodeSegments(segments, true);
  const std::string decoded = tokenizer.Decode(ids, false);
  if (fixture.lossless)
    FB_CHECK(decoded == (fixture.nfc ? ToNfc(valid) : valid), "the text does not come back");
  CheckDecoding(tokenizer, ids);
  for (Segment& segment : segments) segment.parse_special = false;
  for (const int32_t id : tokenizer.EncodeSegments(segments, false)) {
    FB_CHECK(!tokenizer.IsSpecial(id) && id != tokenizer.TokenToId("<x>"),
             "untrusted text became the token {}", id);
  }
}

}  // namespace
}  // namespace forebay::text

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace forebay::text;
  if (size < 2) return 0;
  const Fixture& fixture = Fixtures()[data[0] % Fixtures().size()];
  CheckEncoding(fixture, std::string_view(reinterpret_cast<const char*>(data) + 2, size - 2),
                data[1]);
  std::vector<int32_t> ids(data + 2, data + size);
  for (size_t i = 0; i < ids.size(); i += 3) ids[i] += data[1] % 16;
  CheckDecoding(*fixture.tokenizer, ids);
  return 0;
}
