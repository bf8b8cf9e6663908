// Blocks below in a file, read and written past the page cache.
//
//   file: block 0, block 1, ...; a block: the part of the first KV group, of the second, ..., or
//   that of a state; a part: its strips (kv/cache.h), filled up to a multiple of kFileAlignment
//
//   down: the device's blocks -> staging | *stored* | staging -> file
//   up:   file -> staging, checksums     | staging -> the device's blocks, or a window's slot
//
// Staging is host memory, one piece for each way. The step waits for the copy into it and not for
// the disk. Parts adjacent in the file are adjacent there too, and move in requests of
// kRequestBytes, which a few threads share.
//
// Each part has a checksum in memory, and so has each of its layers if layers are streamed. A part
// that cannot be written or read, or reads back differently, is lost; the device does not fault.
// The first failed write closes the file for writing.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "kv/cache.h"
#include "kv/tier/host_store.h"
#include "kv/tier/kept_file.h"
#include "kv/tier/store.h"

namespace forebay::kv {

inline constexpr uint64_t kRequestBytes = 2 << 20;

struct FileOptions {
  std::string path;            // empty: there is no file
  uint64_t staging_bytes = 0;  // for each way
  bool keep = false;           // the file and its index, path + ".index", outlive the job
  std::string identity;        // kept: what must be the same for its blocks to be of use
  std::string name;            // and model, for messages
  int threads = 2;             // one reads .7 GB/s where two read 1.0 (virtio disk, 2 Zen 4 cores)
  int sharers = 1;             // ranks whose files lie on the same disk
  bool streams = false;        // layers of blocks are asked for, which then have checksums
  const HostStore* near = nullptr;  // where blocks lie that come from below; outlives the store
  // Null: there is no file, as under devices that know shapes alone, and operations are only
  // priced.
  std::function<base::Result<std::unique_ptr<BlockFile>>(const std::string&, uint64_t, FileLife)>
      open = OpenBlockFile;
};

// Bytes of a block in a file.
uint64_t FileBlockBytes(std::span<const KvGroup> groups, bool digests);

class FileStore final : public Store {
 public:
  // `cache` outlives it. The device must not run anything any more when the store is destroyed.
  // Errors: those of OpenBlockFile; kKvFileMismatch, with both identities; kOutOfMemory.
  static base::Result<std::unique_ptr<FileStore>> Create(device::Device& device, const Cache& cache,
                                                         int32_t num_blocks,
                                                         const FileOptions& options);

  void Down(device::Stream& stream, std::span<const TierMove> moves,
            device::DeviceEvent& stored) override;
  // Calls staged() after the last move was copied to staging, before the last ones are written.
  // REQUIRES: `moves` is not empty.
  void Down(device::Stream& stream, std::span<const TierMove> moves,
            const std::function<void()>& staged);
  void Up(device::Stream& stream, std::span<const TierMove> moves) override;
  void UpLayer(device::Stream& stream, const LayerFetch& fetch) override;
  uint64_t block_bytes() const override { return block_.bytes; }
  bool can_lose() const override { return true; }
  LostBlocks TakeLost() override;
  std::span<const KeptBlock> kept() const override { return kept_; }
  uint64_t bytes_written() const override { return bytes_written_; }
  uint64_t bytes_read() const override { return bytes_read_; }

 private:
  // A part on its way, or a layer of it, and where that lies in the file and in staging.
  struct StagedPart {
    TierMove move;
    uint64_t file = 0, staged = 0, bytes = 0;
    int64_t layer = -1;  // -1: all of the part
  };
  // What one operation reads or writes; appended to batches_.
  struct Batch {
    FileStore* store = nullptr;
    std::byte* staging = nullptr;
    std::vector<StagedPart> parts;
    uint64_t bytes = 0;
    std::atomic<bool> done = false;
  };
  struct BatchArgs {
    Batch* batch;
  };
  Batch& NewBatch(const device::Region& staging);
  static void RunBatch(const BatchArgs& args, const device::WorkerContext& context);
  // A piece of a batch that lies in one piece in the file.
  struct Request {
    uint64_t file, staged, bytes;
    base::Status status;
  };

  FileStore(const Cache& cache, int32_t num_blocks, const FileOptions& options);
  base::Status OpenFile();
  // Calls move(batch, whether it is the last) of batches that fit into staging.
  template <typename Move>
  void ForEachBatch(std::span<const TierMove> moves, const device::Region& staging,
                    const Move& move);
  void EnqueueStaging(device::Stream& stream, const TierMove& move, std::byte* staging);
  void Enqueue(device::Stream& stream, Batch& batch, bool down, const char* label);
  void Write(Batch& batch);
  void Read(Batch& batch);
  // Reads or writes all of the batch; by its parts, whether they moved.
  template <typename Call>
  std::vector<bool> MoveAll(const Batch& batch, const Call& call, base::Status* first_error);
  void Lose(BlockId block);
  // The checksum of the staged part, or of its layer if it is one; and of a layer there.
  uint64_t ChecksumOf(const Batch& batch, const StagedPart& part) const;
  uint64_t LayerChecksum(const std::byte* staged) const;
  // The checksum that was kept when the part was written.
  uint64_t& ChecksumAt(const TierMove& move, int64_t layer) {
    return layer < 0 ? checksums_[NumberOf(move)]
                     : layer_checksums_[static_cast<size_t>(move.below * num_layers_ + layer)];
  }
  base::Status AppendToIndex(const Batch& batch, const std::vector<bool>& moved);
  // What is known of a part; a block has one of a state where its first KV group's would lie.
  size_t NumberOf(const TierMove& move) const {
    const auto group = static_cast<size_t>(move.group);
    return static_cast<size_t>(move.below) * cache_.num_kv_groups() +
           (group < cache_.num_kv_groups() ? group : 0);
  }
  uint64_t UsedBytes(const TierMove& move) const;  // in its part

  const Cache& cache_;
  const int32_t num_blocks_;
  const FileOptions options_;
  const uint64_t layer_bytes_;  // of the first KV group
  const int64_t num_layers_;    // its layers, where they are streamed; else 0
  const BlockBelow block_;
  std::unique_ptr<device::Arena> arena_;
  const device::Region *down_ = nullptr, *up_ = nullptr;
  std::unique_ptr<BlockFile> file_;  // null: there are no data
  std::unique_ptr<KeptFile> index_;  // null: it is not kept
  std::vector<KeptBlock> kept_;
  // What each part should be, where it was written. The streams' tasks take turns at it.
  std::vector<uint64_t> checksums_, layer_checksums_;
  std::vector<uint8_t> written_;
  std::deque<Batch> batches_;  // in the order of their streams, as long as they may run
  std::atomic<uint64_t> bytes_written_{0}, bytes_read_{0};
  std::mutex lost_mutex_;
  LostBlocks lost_;
};

}  // namespace forebay::kv
