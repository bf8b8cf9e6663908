// What one token contributes to a text.
#pragma once

#include <string>
#include <string_view>

#include "text/tokenizer_spec.h"

namespace forebay::text {

struct DecodedToken {
  std::string bytes;
  bool is_byte = false;  // a byte token: with its neighbours it spells a character
};

// `token` as Vocabulary holds it. `first`: no token stands before it.
DecodedToken DecodeToken(const DecoderSpec& decoder, std::string_view token, bool first);

}  // namespace forebay::text
