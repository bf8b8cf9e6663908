#include "fabric/shared/shared_group.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <utility>

#include "base/check.h"
#include "base/units.h"
#include "device/cpu/counter.h"
#include "fabric/local/local_fabric.h"

namespace forebay::fabric {
namespace {

constexpr int kMaxRegions = 16;  // that a rank publishes
// A sleep of this length costs about ten times a wake-up; who waits spins first.
constexpr runtime::TimeNs kLookEvery = 50'000;

struct SharedRegion {
  char name[40];
  int32_t id;
  uint64_t offset, bytes;
};

struct SharedRank {
  std::atomic<uint32_t> joined, num_regions;
  SharedRegion regions[kMaxRegions];
};

// The directory's file; zero at first.
struct SharedPages {
  SharedRank ranks[kMaxSharedRanks];
  std::atomic<uint64_t> counters[kMaxSharedRanks][kMaxSharedRanks][kNumChannels];
  // 0: nobody aborted; 1: somebody writes why; 2: it is written.
  std::atomic<uint32_t> aborted;
  char why[400];
};
static_assert(std::atomic<uint64_t>::is_always_lock_free &&
              std::atomic<uint32_t>::is_always_lock_free);

void CopyText(std::string_view text, char* to, size_t capacity) {
  to[text.copy(to, capacity - 1)] = 0;
}

class SharedDirectory;

class SharedCounter final : public device::CpuCounter {
 public:
  SharedCounter(SharedDirectory& directory, int from, std::string name,
                std::atomic<uint64_t>& value)
      : directory_(directory), from_(from), name_(std::move(name)), value_(value) {}
  void Abort(const base::Status& why) override;
  void Post(uint64_t value) override { value_.store(value); }
  base::Status WaitFor(uint64_t value, runtime::TimeNs spin) override;
  const char* name() const override { return name_.c_str(); }

 private:
  SharedDirectory& directory_;
  const int from_;
  const std::string name_;
  std::atomic<uint64_t>& value_;
};

class SharedDirectory final : public Directory {
 public:
  SharedDirectory(runtime::Runtime& runtime, const SharedGroup& group, int rank, SharedPages* pages)
      : runtime_(runtime), group_(group), rank_(rank), pages_(pages) {
    for (int from = 0; from < num_ranks(); ++from) {
      for (int to = 0; to < num_ranks(); ++to) {
        for (int channel = 0; channel < kNumChannels; ++channel) {
          counters_.push_back(std::make_unique<SharedCounter>(
              *this, from, CounterName(from, to, channel), pages_->counters[from][to][channel]));
          counters_.back()->set_cause(CauseOf(channel));
        }
      }
    }
  }
  ~SharedDirectory() override {
    for (const auto& [key, region] : mapped_) munmap(region->data, region->bytes);
    munmap(pages_, sizeof(SharedPages));
  }

  int num_ranks() const { return static_cast<int>(group_.memory.size()); }
  runtime::Runtime& runtime() { return runtime_; }

  base::Status Join(runtime::TimeNs timeout) {
    // The kernel lets go of the lock when the process ends, however it does.
    struct flock lock = LockOf(rank_);
    if (fcntl(group_.directory, F_SETLK, &lock) != 0) {
      return {base::kInvalidArgument, fmt::format("rank {} is a process already", rank_)};
    }
    pages_->ranks[rank_].joined.store(1);
    const runtime::TimeNs start = runtime_.Now();
    for (int rank = 0; rank < num_ranks(); ++rank) {
      while (pages_->ranks[rank].joined.load() == 0) {
        if (runtime_.Now() - start > timeout) {
          return {kFabricFailed,
                  fmt::format("rank {} of {} did not join the group within {}", rank, num_ranks(),
                              base::FormatDuration(runtime::SecondsOf(timeout)))};
        }
        runtime_.Sleep(kLookEvery);
      }
    }
    return base::Status::Ok();
  }

  // Whether the process that is the rank lives. REQUIRES: all have joined.
  base::Status CheckAlive(int rank) const {
    if (rank == rank_) return base::Status::Ok();
    struct flock lock = LockOf(rank);
    if (fcntl(group_.directory, F_GETLK, &lock) != 0 || lock.l_type != F_UNLCK)
      return base::Status::Ok();
    return {kFabricFailed,
            fmt::format("rank {} of {} is gone: its process has ended", rank, num_ranks())};
  }

  device::Counter& counter(int from, int to, int channel) override {
    FB_CHECK(0 <= from && from < num_ranks() && 0 <= to && to < num_ranks() && 0 <= channel &&
                 channel < kNumChannels,
             "no counter from rank {} to rank {}, channel {}, among {} ranks", from, to, channel,
             num_ranks());
    return *counters_[static_cast<size_t>((from * num_ranks() + to) * kNumChannels + channel)];
  }

  base::Status Publish(int, const device::Region& region) override {
    SharedRank& shared = pages_->ranks[rank_];
    const uint32_t index = shared.num_regions.load();
    if (region.shared_offset < 0 || index == kMaxRegions) {
      return {base::kInvalidArgument,
              fmt::format("rank {} publishes region '{}', its {}th of at most {}, at offset {} of "
                          "its shared memory",
                          rank_, region.name, index + 1, kMaxRegions, region.shared_offset)};
    }
    SharedRegion& entry = shared.regions[index];
    CopyText(region.name, entry.name, sizeof(entry.name));
    entry.id = region.id;
    entry.offset = static_cast<uint64_t>(region.shared_offset);
    entry.bytes = region.bytes;
    // Who sees the number sees a whole entry.
    shared.num_regions.store(index + 1);
    return base::Status::Ok();
  }

  const device::Region* Find(int rank, int id) override {
    return FindWhere(rank, [&](const SharedRegion& entry) { return entry.id == id; });
  }
  const device::Region* Find(int rank, std::string_view name) override {
    return FindWhere(rank, [&](const SharedRegion& entry) { return name == entry.name; });
  }

  void Abort(const base::Status& why) override {
    uint32_t nobody = 0;
    if (!pages_->aborted.compare_exchange_strong(nobody, 1)) return;
    CopyText(why.message(), pages_->why, sizeof(pages_->why));
    pages_->aborted.store(2);
  }

  base::Status status() const override {
    if (pages_->aborted.load() != 2) return base::Status::Ok();
    return {kFabricFailed, pages_->why};
  }

 private:
  static struct flock LockOf(int rank) {
    struct flock lock = {};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    lock.l_start = rank;
    lock.l_len = 1;
    return lock;
  }

  template <typename Is>
  const device::Region* FindWhere(int rank, Is is) {
    const SharedRank& shared = pages_->ranks[rank];
    const SharedRegion* const end = shared.regions + shared.num_regions.load();
    const SharedRegion* const entry = std::find_if(shared.regions, end, is);
    return entry == end ? nullptr : Map(rank, *entry);
  }

  // Peers' memory is read, never written.
  const device::Region* Map(int rank, const SharedRegion& entry) {
    const std::lock_guard lock(mutex_);
    std::unique_ptr<device::Region>& region = mapped_[{rank, entry.id}];
    if (region) return region.get();
    void* const data =
        mmap(nullptr, entry.bytes, PROT_READ, MAP_SHARED, group_.memory[static_cast<size_t>(rank)],
             static_cast<off_t>(entry.offset));
    if (data == MAP_FAILED) return nullptr;
    region = std::make_unique<device::Region>(
        device::Region{rank, entry.id, entry.name, static_cast<std::byte*>(data), entry.bytes,
                       static_cast<int64_t>(entry.offset)});
    return region.get();
  }

  runtime::Runtime& runtime_;
  const SharedGroup group_;
  const int rank_;
  SharedPages* const pages_;
  std::vector<std::unique_ptr<SharedCounter>> counters_;
  std::mutex mutex_;
  std::map<std::pair<int, int>, std::unique_ptr<device::Region>> mapped_;  // guarded by mutex_
};

void SharedCounter::Abort(const base::Status& why) { directory_.Abort(why); }

base::Status SharedCounter::WaitFor(uint64_t value, runtime::TimeNs spin) {
  const auto passes = [&] { return value_.load() >= value || !directory_.status().ok(); };
  while (!device::SpinUntil(directory_.runtime(), spin, passes)) {
    const base::Status alive = directory_.CheckAlive(from_);
    // What it posted at last may have come meanwhile.
    if (!alive.ok() && !passes()) directory_.Abort(alive);
    directory_.runtime().Sleep(kLookEvery);
  }
  return directory_.status();
}

}  // namespace

base::Result<SharedGroup> CreateSharedGroup(int num_ranks) {
  if (num_ranks < 1 || num_ranks > kMaxSharedRanks) {
    return base::Status(
        base::kInvalidArgument,
        fmt::format("a group of {} processes; expected 1 to {}", num_ranks, kMaxSharedRanks));
  }
  SharedGroup group{.directory = memfd_create("forebay directory", 0)};
  bool made = group.directory >= 0 && ftruncate(group.directory, sizeof(SharedPages)) == 0;
  for (int rank = 0; rank < num_ranks; ++rank) {
    group.memory.push_back(memfd_create("forebay arena", 0));
    made = made && group.memory.back() >= 0;
  }
  if (made) return group;
  return base::Status(base::kOutOfMemory,
                      fmt::format("no memory files for {} ranks: {}", num_ranks, strerror(errno)));
}

base::Result<std::unique_ptr<Fabric>> JoinSharedGroup(runtime::Runtime& runtime,
                                                      const SharedGroup& group, int rank,
                                                      runtime::TimeNs timeout) {
  void* const pages =
      mmap(nullptr, sizeof(SharedPages), PROT_READ | PROT_WRITE, MAP_SHARED, group.directory, 0);
  if (pages == MAP_FAILED) {
    return base::Status(
        base::kOutOfMemory,
        fmt::format("rank {} cannot map the group's directory: {}", rank, strerror(errno)));
  }
  const auto directory =
      std::make_shared<SharedDirectory>(runtime, group, rank, static_cast<SharedPages*>(pages));
  FB_RETURN_IF_ERROR(directory->Join(timeout));
  return CreateFabric(rank, directory->num_ranks(), directory);
}

}  // namespace forebay::fabric
