// Bytes as the tokenizer metadata of a GGUF file: the first one is flags, the rest lines, which
// serve as tokens and, up to a blank line, as merges.
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "text/gguf_tokenizer.h"
#include "text/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace forebay::text;
  if (size < 2) return 0;
  const uint8_t flags = data[0];
  std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  std::vector<std::string_view> merges, tokens;
  std::vector<int64_t> types;
  std::vector<double> scores;
  bool in_merges = true;
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    if (line.empty()) {
      in_merges = false;
    } else if (in_merges) {
      merges.push_back(line);
    } else {
      tokens.push_back(line.substr(1));
      types.push_back(line[0] % 8);
      scores.push_back(static_cast<double>(line[0] / 8) / static_cast<double>(flags % 3));
    }
  }
  GgufTokenizer gguf;
  gguf.model = (flags & 1) != 0 ? "llama" : "gpt2";
  constexpr size_t kQuick = 12;  // names whose expressions are matched by hand-written code
  gguf.pre = GgufPreNames()[(flags >> 1) % kQuick];
  gguf.merges = merges;
  gguf.tokens = tokens;
  if ((flags & 16) == 0) gguf.token_types = types;
  gguf.scores = scores;
  gguf.bos_token_id = flags >> 5;
  gguf.unknown_token_id = 0;
  if ((flags & 8) == 0) gguf.eot_token_id = flags >> 6;
  auto spec = SpecFromGguf(gguf);
  if (!spec.ok()) return 0;
  auto made = Tokenizer::FromSpec(std::move(*spec));
  if (!made.ok()) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data), std::min<size_t>(size, 200));
  const auto ids = (*made)->Encode(text);
  for (const int32_t id : ids) FB_CHECK(id >= 0 && id < (*made)->vocab_size(), "the id {}", id);
  (*made)->Decode(ids, true);
  return 0;
}
