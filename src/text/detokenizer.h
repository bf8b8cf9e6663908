// Token ids to text, as they come.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "text/tokenizer.h"

namespace forebay::text {

// The text of one growing sequence. What Append and Flush return, joined, is Tokenizer::Decode of
// all ids. One thread at a time. The tokenizer must outlive it.
class Detokenizer {
 public:
  Detokenizer(const Tokenizer& tokenizer, bool skip_special)
      : tokenizer_(&tokenizer), skip_special_(skip_special) {}

  // The text goes on from that of `prompt`, which is not told again. A character that the prompt
  // begins is the prompt's, and what is generated of it shows nowhere: U+FFFD stands for it in the
  // prompt's own text, and a text cannot take that back. REQUIRES: nothing was appended.
  void Follow(std::span<const int32_t> prompt);
  // The text that `id` completes: whole characters, perhaps none. A run of byte tokens ("<0x0A>")
  // is held until it ends, since one bad byte spoils all of it, as in the reference.
  std::string Append(int32_t id);
  // What a run of byte tokens is as text if nothing more of it comes; empty while that is none.
  std::string Held() const;
  // The rest, with U+FFFD for what is incomplete. The next Append begins a new text.
  std::string Flush();

 private:
  // False: it has no text.
  bool Shows(int32_t id) const;
  std::string TakeBytes();
  // The character that the prompt begins leaves the first bytes that are taken.
  void DropBegun(std::string* bytes);
  void StripStart(std::string* text);

  const Tokenizer* tokenizer_;
  bool skip_special_;
  bool first_ = true;        // no token yet
  uint32_t stripped_ = 0;    // spaces that went from the start
  bool strip_done_ = false;  // something else than a space was seen
  std::string pending_;      // an incomplete character, or a run of byte tokens
  bool begun_ = false;       // pending_ begins with the first bytes of a character of the prompt
};

}  // namespace forebay::text
