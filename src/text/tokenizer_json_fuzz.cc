// Bytes as tokenizer.json, and what comes of it as a tokenizer; and as the files beside it.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "text/tokenizer.h"
#include "text/tokenizer_config.h"
#include "text/tokenizer_json.h"

using forebay::text::Tokenizer;
using forebay::text::TokenizerSpec;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  TokenizerSpec fixed;
  fixed.tokens = {"<s>", "a"};
  (void)forebay::text::ApplyTokenizerTexts({.config = bytes}, &fixed);
  (void)forebay::text::ApplyTokenizerTexts({.special_tokens_map = bytes, .added_tokens = bytes},
                                           &fixed);

  auto spec = forebay::text::ParseTokenizerJson(bytes);
  if (!spec.ok()) return 0;
  auto made = Tokenizer::FromSpec(std::move(*spec));
  if (!made.ok()) return 0;
  const Tokenizer& tokenizer = **made;
  for (const std::string_view text :
       {std::string_view("Hello, 1234 w\xC3\xB6rld's <s>\n\n  "), bytes.substr(0, 64)}) {
    for (const bool trusted : {true, false}) {
      const auto ids =
          tokenizer.Encode(text, {.add_special_tokens = true, .parse_special = trusted});
      for (const int32_t id : ids)
        FB_CHECK(id >= 0 && id < tokenizer.vocab_size(), "the id {}", id);
      tokenizer.Decode(ids, trusted);
    }
  }
  for (int32_t id = -1; id <= 300; ++id) tokenizer.TokenText(id);
  return 0;
}
