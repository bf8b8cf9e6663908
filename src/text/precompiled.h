// sentencepiece's compiled normalization: a double array that maps pieces of text to others.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace forebay::text {

// Immutable.
class PrecompiledMap {
 public:
  // `map`: the size of the double array in bytes (little-endian, 32 bits), its units of 32 bits,
  // then texts that each end in a zero. kTokenizerInvalid: it is torn.
  static base::Result<PrecompiledMap> Parse(std::string_view map);

  // The text for the shortest piece in the map that begins `text`; nothing: there is none.
  std::optional<std::string_view> Find(std::string_view text) const;

 private:
  std::vector<uint32_t> units_;
  std::string texts_;
};

// Bytes of a base64 text; nothing: it is none.
std::optional<std::string> DecodeBase64(std::string_view text);

}  // namespace forebay::text
