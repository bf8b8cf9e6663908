#include "kv/tier/file_store.h"

#include <algorithm>

#include "base/check.h"
#include "base/units.h"
#include "kv/tier/checksum.h"
#include "kv/tier/strip_copies.h"
#include "runtime/parallel_for.h"

namespace forebay::kv {

uint64_t FileBlockBytes(std::span<const KvGroup> groups, bool digests) {
  uint64_t sum = 0;
  for (const KvGroup& group : groups)
    sum += base::RoundUp(KvBlockBytes(std::span(&group, 1), digests), kFileAlignment);
  return sum;
}

FileStore::FileStore(const Cache& cache, int32_t num_blocks, const FileOptions& options)
    : cache_(cache),
      num_blocks_(num_blocks),
      options_(options),
      layer_bytes_(static_cast<uint64_t>(cache.view().groups[0].layout.LayerBytes())),
      num_layers_(options.streams ? static_cast<int64_t>(cache.strips()[0][0].bytes / layer_bytes_)
                                  : 0),
      block_(cache, kFileAlignment) {
  const size_t parts = static_cast<size_t>(num_blocks) * cache.num_kv_groups();
  checksums_.resize(parts);
  layer_checksums_.resize(static_cast<size_t>(num_blocks * num_layers_));
  written_.resize(parts);
}

base::Result<std::unique_ptr<FileStore>> FileStore::Create(device::Device& device,
                                                           const Cache& cache, int32_t num_blocks,
                                                           const FileOptions& options) {
  std::unique_ptr<FileStore> store(new FileStore(cache, num_blocks, options));
  const uint64_t staging =
      base::RoundUp(std::max(options.staging_bytes, store->block_.bytes), kFileAlignment);
  store->arena_ = device.NewHostArena(2 * staging);
  FB_ASSIGN_OR_RETURN(store->down_, store->arena_->Allocate("kv file, down", staging));
  FB_ASSIGN_OR_RETURN(store->up_, store->arena_->Allocate("kv file, up", staging));
  if (options.open) FB_RETURN_IF_ERROR(store->OpenFile());
  return store;
}

base::Status FileStore::OpenFile() {
  const auto open = [&] {
    return options_.open(options_.path, static_cast<uint64_t>(num_blocks_) * block_.bytes,
                         options_.keep ? FileLife::kKept : FileLife::kJob);
  };
  if (!options_.keep) {
    FB_ASSIGN_OR_RETURN(file_, open());
    return base::Status::Ok();
  }
  const auto groups = static_cast<int32_t>(cache_.num_kv_groups());
  FB_ASSIGN_OR_RETURN(index_, KeptFile::Open(options_.path, {options_.identity, options_.name},
                                             num_blocks_, groups, open));
  file_ = index_->TakeFile();
  for (const KeptRecord& record : index_->records()) {
    const size_t number = NumberOf({.group = record.group, .below = record.below});
    checksums_[number] = record.checksum;
    written_[number] = true;
    if (record.group == 0) kept_.push_back({.below = record.below, .key = record.key});
  }
  return base::Status::Ok();
}

uint64_t FileStore::UsedBytes(const TierMove& move) const {
  return StripBytes(cache_.strips()[static_cast<size_t>(move.group)]);
}

FileStore::Batch& FileStore::NewBatch(const device::Region& staging) {
  // Operations point to their batches, which stay until they are done.
  while (!batches_.empty() && batches_.front().done) batches_.pop_front();
  Batch& batch = batches_.emplace_back();
  batch.store = this;
  batch.staging = staging.data;
  return batch;
}

template <typename Move>
void FileStore::ForEachBatch(std::span<const TierMove> moves, const device::Region& staging,
                             const Move& move) {
  std::vector<TierMove> sorted(moves.begin(), moves.end());
  // In the order of the file neighbours become one request.
  std::ranges::sort(sorted, {}, [](const TierMove& m) { return std::pair(m.below, m.group); });
  for (size_t next = 0; next < sorted.size();) {
    Batch& batch = NewBatch(staging);
    for (; next < sorted.size(); ++next) {
      const TierMove& each = sorted[next];
      const uint64_t bytes = base::RoundUp(UsedBytes(each), kFileAlignment);
      if (batch.bytes + bytes > staging.bytes) break;
      batch.parts.push_back({.move = each,
                             .file = static_cast<uint64_t>(each.below) * block_.bytes +
                                     block_.offsets[static_cast<size_t>(each.group)],
                             .staged = batch.bytes,
                             .bytes = bytes});
      batch.bytes += bytes;
    }
    move(batch, next == sorted.size());
  }
}

void FileStore::Down(device::Stream& stream, std::span<const TierMove> moves,
                     device::DeviceEvent& stored) {
  Down(stream, moves, [&] { stream.Record(stored); });
}

void FileStore::Down(device::Stream& stream, std::span<const TierMove> moves,
                     const std::function<void()>& staged) {
  ForEachBatch(moves, *down_, [&](Batch& batch, bool last) {
    for (const StagedPart& part : batch.parts)
      EnqueueStaging(stream, part.move, batch.staging + part.staged);
    // Once all is staged the device's blocks may be written again; that it stands in the file
    // matters to readers of the file alone.
    if (last) staged();
    Enqueue(stream, batch, /*down=*/true, "kv_file_write");
  });
}

void FileStore::EnqueueStaging(device::Stream& stream, const TierMove& move, std::byte* staging) {
  if (move.from < 0) return EnqueueDown(stream, cache_, move, staging);
  device::Operation copy = device::MakeCopy(
      "kv_demote", staging, options_.near->PartAt(move.group, move.from), UsedBytes(move));
  copy.desc.link = cost::Link::kHost;
  stream.Enqueue(copy);
}

void FileStore::Up(device::Stream& stream, std::span<const TierMove> moves) {
  ForEachBatch(moves, *up_, [&](Batch& batch, bool /*last*/) {
    Enqueue(stream, batch, /*down=*/false, "kv_file_read");
    for (const StagedPart& part : batch.parts)
      EnqueueUp(stream, cache_, part.move, batch.staging + part.staged);
  });
}

void FileStore::UpLayer(device::Stream& stream, const LayerFetch& fetch) {
  FB_CHECK(fetch.layer < num_layers_, "layer {} of {} is streamed", fetch.layer, num_layers_);
  // Whole pages around each: they begin at the same place in the page.
  const uint64_t begin = static_cast<uint64_t>(fetch.layer) * layer_bytes_,
                 skew = begin % kFileAlignment,
                 bytes = base::RoundUp(skew + layer_bytes_, kFileAlignment);
  const auto at_once = static_cast<size_t>(up_->bytes / bytes);
  for (LayerFetch rest = fetch; !rest.blocks.empty();) {
    LayerFetch some = rest;
    some.blocks = rest.blocks.first(std::min(at_once, rest.blocks.size()));
    rest.blocks = rest.blocks.subspan(some.blocks.size());
    Batch& batch = NewBatch(*up_);
    for (const StreamedBlock& block : some.blocks) {
      batch.parts.push_back(
          {.move = {.below = block.below},
           .file = static_cast<uint64_t>(block.below) * block_.bytes + begin - skew,
           .staged = batch.bytes,
           .bytes = bytes,
           .layer = fetch.layer});
      batch.bytes += bytes;
    }
    Enqueue(stream, batch, /*down=*/false, fetch.label);
    EnqueueGather(stream, some, {.data = batch.staging + skew, .index_stride = bytes});
  }
}

void FileStore::Enqueue(device::Stream& stream, Batch& batch, bool down, const char* label) {
  (down ? bytes_written_ : bytes_read_) += batch.bytes;
  cost::OpDesc desc{.kind = cost::OpKind::kFile, .label = label, .sharers = options_.sharers};
  (down ? desc.write_bytes : desc.read_bytes) = static_cast<double>(batch.bytes);
  device::Operation operation = device::MakeOperation<&RunBatch>(desc, BatchArgs{&batch});
  operation.on_host = true;
  if (down) {
    operation.Reads(batch.staging, batch.bytes);
  } else {
    operation.Writes(batch.staging, batch.bytes);
  }
  stream.Enqueue(operation);
  // A simulated store prices its operations and runs none.
  if (!file_) batch.done = true;
}

void FileStore::RunBatch(const BatchArgs& args, const device::WorkerContext& context) {
  if (context.worker > 0) return;
  Batch& batch = *args.batch;
  FileStore& store = *batch.store;
  batch.staging == store.down_->data ? store.Write(batch) : store.Read(batch);
  batch.done = true;
}

template <typename Call>
std::vector<bool> FileStore::MoveAll(const Batch& batch, const Call& call,
                                     base::Status* first_error) {
  std::vector<Request> requests;
  for (const StagedPart& part : batch.parts) {
    for (uint64_t at = 0; at < part.bytes;) {
      const bool joins = !requests.empty() && requests.back().bytes < kRequestBytes &&
                         requests.back().file + requests.back().bytes == part.file + at;
      if (!joins) requests.push_back({.file = part.file + at, .staged = part.staged + at});
      const uint64_t more = std::min(part.bytes - at, kRequestBytes - requests.back().bytes);
      requests.back().bytes += more;
      at += more;
    }
  }
  const int threads = std::min(options_.threads, static_cast<int>(requests.size()));
  runtime::ParallelFor(threads, [&](runtime::Tickets& tickets) {
    for (int64_t i = tickets.Next(); i < std::ssize(requests); i = tickets.Next()) {
      Request& request = requests[static_cast<size_t>(i)];
      request.status = call(request.file, std::span(batch.staging + request.staged, request.bytes));
    }
  });
  std::vector<bool> moved;
  for (const StagedPart& part : batch.parts) {
    const uint64_t end = part.staged + part.bytes;
    moved.push_back(std::ranges::none_of(requests, [&](const Request& request) {
      return !request.status.ok() && request.staged < end &&
             part.staged < request.staged + request.bytes;
    }));
  }
  for (const Request& request : requests) {
    if (first_error->ok()) *first_error = request.status;
  }
  return moved;
}

void FileStore::Write(Batch& batch) {
  // Checksums are of what was to be written: a disk that keeps something else is found out by the
  // read.
  for (const StagedPart& part : batch.parts) {
    ChecksumAt(part.move, -1) = ChecksumOf(batch, part);
    for (int64_t layer = 0; layer < num_layers_ && part.move.group == 0; ++layer)
      ChecksumAt(part.move, layer) =
          LayerChecksum(batch.staging + part.staged + static_cast<uint64_t>(layer) * layer_bytes_);
  }
  base::Status error;
  {
    const std::lock_guard lock(lost_mutex_);
    // A file that failed once gets nothing more; what it has can still be read.
    error = lost_.closed;
  }
  std::vector<bool> moved(batch.parts.size());
  if (error.ok()) {
    moved = MoveAll(
        batch, [&](uint64_t at, std::span<std::byte> data) { return file_->Write(at, data); },
        &error);
  }
  for (size_t i = 0; i < moved.size(); ++i) {
    written_[NumberOf(batch.parts[i].move)] = moved[i];
    if (!moved[i]) Lose(batch.parts[i].move.below);
  }
  // The index comes after the data: a job that dies in between leaves a block that nobody asks for,
  // and no record of one that is not there.
  if (error.ok() && index_) error = AppendToIndex(batch, moved);
  if (error.ok()) return;
  const std::lock_guard lock(lost_mutex_);
  if (lost_.closed.ok()) lost_.closed = error;
}

void FileStore::Read(Batch& batch) {
  base::Status error;
  const std::vector<bool> moved = MoveAll(
      batch, [&](uint64_t at, std::span<std::byte> data) { return file_->Read(at, data); }, &error);
  for (size_t i = 0; i < moved.size(); ++i) {
    const StagedPart& part = batch.parts[i];
    const bool whole = moved[i] && written_[NumberOf(part.move)] &&
                       ChecksumAt(part.move, part.layer) == ChecksumOf(batch, part);
    if (!whole) Lose(part.move.below);
  }
}

uint64_t FileStore::ChecksumOf(const Batch& batch, const StagedPart& part) const {
  const std::byte* const staged = batch.staging + part.staged;
  if (part.layer < 0) return Checksum({staged, UsedBytes(part.move)});
  const uint64_t skew = static_cast<uint64_t>(part.layer) * layer_bytes_ % kFileAlignment;
  return LayerChecksum(staged + skew);
}

uint64_t FileStore::LayerChecksum(const std::byte* staged) const {
  return Checksum({staged, layer_bytes_});
}

base::Status FileStore::AppendToIndex(const Batch& batch, const std::vector<bool>& moved) {
  std::vector<KeptRecord> records;
  for (size_t i = 0; i < batch.parts.size(); ++i) {
    const TierMove& move = batch.parts[i].move;
    if (!moved[i]) continue;
    records.push_back({.below = move.below,
                       .group = move.group,
                       .key = move.key,
                       .checksum = checksums_[NumberOf(move)]});
  }
  return index_->Append(records);
}

void FileStore::Lose(BlockId block) {
  const std::lock_guard lock(lost_mutex_);
  if (std::ranges::count(lost_.blocks, block) == 0) lost_.blocks.push_back(block);
}

LostBlocks FileStore::TakeLost() {
  const std::lock_guard lock(lost_mutex_);
  return {.blocks = std::exchange(lost_.blocks, {}), .closed = lost_.closed};
}

}  // namespace forebay::kv
