// Any bytes as the index of a kept KV file: refused with a code, or torn and without records, or
// each record is of bytes that stand there whole.
#include <cstdint>
#include <string>

#include "base/check.h"
#include "kv/tier/block_file.h"
#include "kv/tier/kept_index.h"

using namespace forebay;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  auto reader = kv::KeptReader::Open(bytes, "fuzz.index");
  if (!reader.ok()) {
    FB_CHECK(reader.status().code() == kv::kKvFileInvalid, "another code");
    FB_CHECK(!reader.status().message().empty(), "an error without a message");
    return 0;
  }
  if (reader->torn()) {
    FB_CHECK(!reader->Next(), "a record of a torn index");
    return 0;
  }
  FB_CHECK(bytes.starts_with(kv::KeptHead(reader->identity()).substr(0, 8)), "no head");
  while (const auto record = reader->Next())
    FB_CHECK(bytes.find(kv::KeptLine(*record)) != std::string::npos, "a record from nowhere");
  return 0;
}
