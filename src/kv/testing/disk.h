// A file below without a disk, for tests of what uses one.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "kv/tier/block_file.h"
#include "kv/tier/file_store.h"

namespace forebay::kv {

// A disk that does as told.
struct Disk {
  std::vector<std::byte> bytes;
  std::mutex mutex;
  int64_t writes_left = INT64_MAX;  // then they fail
  std::vector<uint64_t> unreadable;
  std::vector<uint64_t> request_bytes;
};
class FakeFile final : public BlockFile {
 public:
  explicit FakeFile(Disk& disk) : disk_(disk) {}
  base::Status Write(uint64_t offset, std::span<const std::byte> data) override {
    const std::lock_guard lock(disk_.mutex);
    EXPECT_EQ((offset | data.size()) % kFileAlignment, 0u);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(data.data()) % kFileAlignment, 0u);
    if (disk_.writes_left-- <= 0) return {kKvFileIo, "no space left on device"};
    disk_.request_bytes.push_back(data.size());
    std::memcpy(disk_.bytes.data() + offset, data.data(), data.size());
    return {};
  }
  base::Status Read(uint64_t offset, std::span<std::byte> data) override {
    const std::lock_guard lock(disk_.mutex);
    for (const uint64_t at : disk_.unreadable) {
      if (offset <= at && at < offset + data.size()) return {kKvFileIo, "input/output error"};
    }
    std::memcpy(data.data(), disk_.bytes.data() + offset, data.size());
    return {};
  }

 private:
  Disk& disk_;
};

inline auto OpenOn(Disk& disk) {
  return [&disk](const std::string&, uint64_t bytes, FileLife) {
    disk.bytes.resize(bytes);
    return base::Result<std::unique_ptr<BlockFile>>(std::make_unique<FakeFile>(disk));
  };
}

}  // namespace forebay::kv
