#include "text/detokenizer.h"

#include <utility>

#include "text/decode_token.h"
#include "text/unicode/unicode.h"

namespace forebay::text {

bool Detokenizer::Shows(int32_t id) const {
  const Tokenizer& t = *tokenizer_;
  return t.Has(id) && !t.tokens_[id].empty() && !(skip_special_ && t.special_[id]);
}

void Detokenizer::Follow(std::span<const int32_t> prompt) {
  // What is incomplete at its end has three bytes at most, and so as many tokens.
  size_t begin = prompt.size();
  for (int shown = 0; begin > 0 && shown < 3;) shown += Shows(prompt[--begin]);
  first_ = begin == 0;
  for (const int32_t id : prompt.subspan(begin)) Append(id);
  std::string whole = pending_.substr(0, CompleteUtf8Prefix(pending_));
  pending_.erase(0, whole.size());
  begun_ = !pending_.empty();
  StripStart(&whole);
  strip_done_ |= begin > 0 || begun_;
}

std::string Detokenizer::Append(int32_t id) {
  if (!Shows(id)) return "";
  const Tokenizer& t = *tokenizer_;
  DecodedToken token = DecodeToken(t.decoder_, t.tokens_[id], std::exchange(first_, false));
  if (t.decoder_.kind == DecoderSpec::Kind::kByteLevel) {
    pending_ += token.bytes;
    std::string out = pending_.substr(0, CompleteUtf8Prefix(pending_));
    pending_.erase(0, out.size());
    DropBegun(&out);
    return ToValidUtf8(out);
  }
  if (token.is_byte) {
    pending_ += token.bytes;
    return "";
  }
  std::string out = TakeBytes();
  StripStart(&token.bytes);
  return out += token.bytes;
}

std::string Detokenizer::Held() const {
  // An incomplete character of bytes that come one by one is never valid.
  if (pending_.empty() || !IsValidUtf8(pending_)) return "";
  return Detokenizer(*this).TakeBytes();
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
  DropBegun(&bytes);
  if (tokenizer_->decoder_.kind == DecoderSpec::Kind::kByteLevel) return ToValidUtf8(bytes);
  if (!IsValidUtf8(bytes)) {
    std::string replaced;
    for (size_t i = 0; i < bytes.size(); ++i) AppendUtf8(&replaced, kReplacement);
    bytes = std::move(replaced);
  }
  StripStart(&bytes);
  return bytes;
}

void Detokenizer::DropBegun(std::string* bytes) {
  if (bytes->empty() || !std::exchange(begun_, false)) return;
  size_t end = 0;
  DecodeUtf8(*bytes, &end);
  bytes->erase(0, end);
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
