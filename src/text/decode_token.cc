#include "text/decode_token.h"

#include <charconv>
#include <optional>
#include <utility>

namespace forebay::text {
namespace {

std::string ReplaceAll(std::string_view text, std::string_view pattern, std::string_view content) {
  std::string out;
  for (size_t found; (found = text.find(pattern)) != std::string_view::npos;
       text.remove_prefix(found + pattern.size())) {
    out += text.substr(0, found);
    out += content;
  }
  return out += text;
}

// The byte of a token "<0x0A>".
std::optional<char> ByteOf(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  uint8_t byte = 0;
  const auto [end, error] = std::from_chars(token.data() + 3, token.data() + 5, byte, 16);
  if (error != std::errc() || end != token.data() + 5) return std::nullopt;
  return static_cast<char>(byte);
}

// As transformers' clean_up_tokenization does it, within a token.
std::string CleanUp(std::string piece) {
  static constexpr std::pair<std::string_view, std::string_view> kShorter[] = {
      {" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
      {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
      {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [from, to] : kShorter) piece = ReplaceAll(piece, from, to);
  return piece;
}

}  // namespace

DecodedToken DecodeToken(const DecoderSpec& decoder, std::string_view token, bool first) {
  switch (decoder.kind) {
    case DecoderSpec::Kind::kByteLevel: return {std::string(token)};
    case DecoderSpec::Kind::kJoin: return {first ? std::string(token) : " " + std::string(token)};
    case DecoderSpec::Kind::kMetaspace:
      return {ReplaceAll(token, kMetaspace, first && decoder.drop_first ? "" : " ")};
    case DecoderSpec::Kind::kWordPiece: {
      const bool goes_on = token.starts_with(decoder.prefix);
      std::string piece = first     ? std::string(token)
                          : goes_on ? std::string(token.substr(decoder.prefix.size()))
                                    : " " + std::string(token);
      return {decoder.cleanup ? CleanUp(std::move(piece)) : std::move(piece)};
    }
    case DecoderSpec::Kind::kPieces: break;
  }
  std::string piece(token);
  for (const auto& [pattern, content] : decoder.replacements)
    piece = ReplaceAll(piece, pattern, content);
  if (decoder.byte_fallback) {
    if (const std::optional<char> byte = ByteOf(piece)) return {std::string(1, *byte), true};
  }
  return {std::move(piece)};
}

}  // namespace forebay::text
