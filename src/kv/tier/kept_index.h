// The index of a kept file (docs/formats/kv-file.md): an identity, which tells a job whether the
// file's bytes equal what it would compute, and a record for each part of a written block.
//
// A record is appended after its part was written. The last record of a part counts. A torn or
// damaged record counts for nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "kv/book/prefix_index.h"

namespace forebay::kv {

// Whose blocks are of use: where `of` is the same. `name` is for messages.
struct KeptIdentity {
  std::string of, name;
};

// A KV group's part of a block.
struct KeptRecord {
  BlockId below = 0;
  int32_t group = 0;
  PrefixKey key;  // zeros: what was there is written over
  uint64_t checksum = 0;

  friend bool operator==(const KeptRecord&, const KeptRecord&) = default;
};

// Bytes of an index: its head, then records.
std::string KeptHead(const KeptIdentity& identity);
std::string KeptLine(const KeptRecord& record);

class KeptReader {
 public:
  // `bytes` outlives it; `file` is what errors name. An index whose head a crash has torn says
  // nothing: it has no identity and no records. kKvFileInvalid: it is a file of something else.
  static base::Result<KeptReader> Open(std::string_view bytes, std::string_view file);

  bool torn() const { return identity_.of.empty(); }
  const KeptIdentity& identity() const { return identity_; }
  // The next record that stands whole; nothing: there are no more.
  std::optional<KeptRecord> Next();

 private:
  KeptIdentity identity_;
  std::string_view rest_;
};

}  // namespace forebay::kv
