#include "job/files/shard.h"

#include <charconv>

namespace forebay::job {

base::Result<InputShard> ParseShard(std::string_view text) {
  InputShard shard;
  const char* const end = text.data() + text.size();
  const auto [slash, first] = std::from_chars(text.data(), end, shard.index);
  if (first == std::errc() && slash != end && *slash == '/') {
    const auto [rest, second] = std::from_chars(slash + 1, end, shard.count);
    if (second == std::errc() && rest == end && 1 <= shard.index && shard.index <= shard.count)
      return shard;
  }
  return base::Status(
      base::kInvalidArgument,
      fmt::format("--shard is \"{}\"; expected I/N with 1 <= I <= N, as 3/8", text));
}

}  // namespace forebay::job
