// Token ids to text, as they come.
#pragma once

#include <cstdint>
#include <string>

#include "text/tokenizer.h"

namespace forebay::text {

// The text of one growing sequence. What Append and Flush return, joined, is Tokenizer::Decode of
// all ids. One thread at a time. The tokenizer must outlive it.
class Detokenizer {
 public:
  Detokenizer(const Tokenizer& tokenizer, bool skip_special)
      : tokenizer_(&tokenizer), skip_special_(skip_special) {}

  // The text that `id` completes: whole characters, perhaps none. A run of byte tokens ("<0x0A>")
  // is held until it ends, since one bad byte spoils all of it, as in the reference.
  std::string Append(int32_t id);
  // The rest, with U+FFFD for what is incomplete. The next Append begins a new text.
  std::string Flush();

 private:
  std::string TakeBytes();
  void StripStart(std::string* text);

  const Tokenizer* tokenizer_;
  bool skip_special_;
  bool first_ = true;        // no token yet
  uint32_t stripped_ = 0;    // spaces that went from the start
  bool strip_done_ = false;  // something else than a space was seen
  std::string pending_;      // an incomplete character, or a run of byte tokens
};

}  // namespace forebay::text
