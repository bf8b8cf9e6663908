#include "kv/tier/kept_index.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "base/hash.h"
#include "kv/tier/block_file.h"

namespace forebay::kv {
namespace {

constexpr std::string_view kMagic = "FBKVIDX2";
// An identity names a model and a few types.
constexpr uint32_t kMostIdentity = 4096;
constexpr size_t kRecordBytes = 40;

template <typename T>
void Append(T value, std::string* bytes) {
  static_assert(std::is_integral_v<T>);
  bytes->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

template <typename T>
T Take(std::string_view* bytes) {
  T value;
  std::memcpy(&value, bytes->data(), sizeof(value));
  bytes->remove_prefix(sizeof(value));
  return value;
}

}  // namespace

std::string KeptHead(const KeptIdentity& identity) {
  std::string head(kMagic);
  const std::string text = identity.of + '\n' + identity.name;
  Append(static_cast<uint32_t>(text.size()), &head);
  head += text;
  Append(base::HashBytes(text), &head);
  return head;
}

std::string KeptLine(const KeptRecord& record) {
  std::string line;
  Append(record.below, &line);
  Append(record.group, &line);
  Append(record.key.low, &line);
  Append(record.key.high, &line);
  Append(record.checksum, &line);
  Append(base::HashBytes(line), &line);
  return line;
}

base::Result<KeptReader> KeptReader::Open(std::string_view bytes, std::string_view file) {
  // Cut within the magic, or never written: a crash leaves NULs.
  const std::string_view begin = bytes.substr(0, kMagic.size());
  if (kMagic.starts_with(begin) ? begin.size() < kMagic.size()
                                : begin.find_first_not_of('\0') == std::string_view::npos)
    return KeptReader();
  if (begin != kMagic) {
    return base::Status(
        kKvFileInvalid,
        fmt::format("{}: it does not begin with {}; expected the index of a kept KV "
                    "file, or a new --kv-file",
                    file, kMagic));
  }
  bytes.remove_prefix(kMagic.size());
  if (bytes.size() < sizeof(uint32_t)) return KeptReader();
  const auto length = Take<uint32_t>(&bytes);
  if (length > kMostIdentity || bytes.size() < length + sizeof(uint64_t)) return KeptReader();
  const std::string_view text = bytes.substr(0, length);
  bytes.remove_prefix(length);
  if (Take<uint64_t>(&bytes) != base::HashBytes(text)) return KeptReader();
  KeptReader reader;
  const size_t end = std::min(text.find('\n'), text.size());
  reader.identity_.of = text.substr(0, end);
  reader.identity_.name = text.substr(std::min(end + 1, text.size()));
  if (reader.identity_.of.empty()) return KeptReader();
  reader.rest_ = bytes;
  return reader;
}

std::optional<KeptRecord> KeptReader::Next() {
  while (rest_.size() >= kRecordBytes) {
    std::string_view line = rest_.substr(0, kRecordBytes);
    rest_.remove_prefix(kRecordBytes);
    const uint64_t hash = base::HashBytes(line.substr(0, kRecordBytes - sizeof(uint64_t)));
    KeptRecord record{.below = Take<BlockId>(&line), .group = Take<int32_t>(&line)};
    record.key.low = Take<uint64_t>(&line);
    record.key.high = Take<uint64_t>(&line);
    record.checksum = Take<uint64_t>(&line);
    if (Take<uint64_t>(&line) == hash) return record;
  }
  return {};
}

}  // namespace forebay::kv
