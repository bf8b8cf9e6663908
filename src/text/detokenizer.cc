#include "text/detokenizer.h"

#include <utility>

#include "text/decode_token.h"
#include "text/unicode.h"

namespace forebay::text {

std::string Detokenizer::Append(int32_t id) {
  const Tokenizer& t = *tokenizer_;
  if (!t.Has(id) || t.tokens_[id].empty() || (skip_special_ && t.special_[id])) return "";
  DecodedToken token = DecodeToken(t.decoder_, t.tokens_[id], std::exchange(first_, false));
  if (t.decoder_.kind == DecoderSpec::Kind::kByteLevel) {
    pending_ += token.bytes;
    const size_t complete = CompleteUtf8Prefix(pending_);
    std::string out = ToValidUtf8(std::string_view(pending_).substr(0, complete));
    pending_.erase(0, complete);
    return out;
  }
  if (token.is_byte) {
    pending_ += token.bytes;
    return "";
  }
  std::string out = TakeBytes();
  StripStart(&token.bytes);
  return out += token.bytes;
}

std::string Detokenizer::Flush() {
  std::string out = TakeBytes();
  first_ = true;
  stripped_ = 0;
  strip_done_ = false;
  return out;
}

std::string Detokenizer::TakeBytes() {
  std::string bytes = std::exchange(pending_, "");
  if (tokenizer_->decoder_.kind == DecoderSpec::Kind::kByteLevel) return ToValidUtf8(bytes);
  if (!IsValidUtf8(bytes)) {
    std::string replaced;
    for (size_t i = 0; i < bytes.size(); ++i) AppendUtf8(&replaced, kReplacement);
    bytes = std::move(replaced);
  }
  StripStart(&bytes);
  return bytes;
}

void Detokenizer::StripStart(std::string* text) {
  if (strip_done_ || text->empty()) return;
  size_t count = 0;
  while (count < text->size() && (*text)[count] == ' ' &&
         stripped_ < tokenizer_->decoder_.strip_spaces) {
    ++count;
    ++stripped_;
  }
  text->erase(0, count);
  strip_done_ = !text->empty();
}

}  // namespace forebay::text
