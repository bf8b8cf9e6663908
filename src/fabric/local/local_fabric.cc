#include "fabric/local/local_fabric.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <utility>

#include "base/check.h"
#include "base/rng.h"
#include "device/copy.h"
#include "fabric/collectives.h"

namespace forebay::fabric {
namespace {

// The directory of ranks that are tasks of one process: regions by (rank, region id), counters.
class TaskDirectory final : public Directory {
 public:
  TaskDirectory(int num_ranks, const CounterFactory& new_counter) : num_ranks_(num_ranks) {
    if (!new_counter) return;
    for (int from = 0; from < num_ranks; ++from) {
      for (int to = 0; to < num_ranks; ++to) {
        for (int channel = 0; channel < kNumChannels; ++channel) {
          counters_.push_back(new_counter(CounterName(from, to, channel)));
          counters_.back()->set_cause(CauseOf(channel));
        }
      }
    }
  }

  device::Counter& counter(int from, int to, int channel) override {
    FB_CHECK(0 <= from && from < num_ranks_ && 0 <= to && to < num_ranks_ && 0 <= channel &&
                 channel < kNumChannels && !counters_.empty(),
             "no counter from rank {} to rank {}, channel {}, among {} ranks", from, to, channel,
             num_ranks_);
    return *counters_[(from * num_ranks_ + to) * kNumChannels + channel];
  }

  void Abort(const base::Status& why) override {
    {
      const std::lock_guard lock(mutex_);
      if (status_.ok()) status_ = why;
    }
    for (const auto& counter : counters_) counter->Abort(status());
  }

  base::Status status() const override {
    const std::lock_guard lock(mutex_);
    return status_;
  }

  base::Status Publish(int rank, const device::Region& region) override {
    const std::lock_guard lock(mutex_);
    const auto [entry, added] = regions_.try_emplace({rank, region.id}, &region);
    if (added || entry->second == &region) return base::Status::Ok();
    return {base::kInvalidArgument, fmt::format("rank {} publishes two regions {}: '{}' and '{}'",
                                                rank, region.id, entry->second->name, region.name)};
  }

  const device::Region* Find(int rank, int id) override {
    const std::lock_guard lock(mutex_);
    const auto entry = regions_.find({rank, id});
    return entry == regions_.end() ? nullptr : entry->second;
  }

  const device::Region* Find(int rank, std::string_view name) override {
    const std::lock_guard lock(mutex_);
    for (const auto& [key, region] : regions_) {
      if (key.first == rank && region->name == name) return region;
    }
    return nullptr;
  }

 private:
  const int num_ranks_;
  std::vector<std::unique_ptr<device::Counter>> counters_;
  mutable std::mutex mutex_;
  std::map<std::pair<int, int>, const device::Region*> regions_;  // guarded by mutex_
  base::Status status_;                                           // guarded by mutex_
};

// A span, and how far it is cut into slices.
struct Cut {
  const CopySpan* span;
  const std::byte* source;
  uint64_t done = 0;
};

// Bytes of the slice that is cut from `span` next: items stay whole.
uint64_t SliceBytes(const CopySpan& span, uint64_t slice_bytes) {
  const uint64_t item = span.bytes / static_cast<uint64_t>(span.num_items);
  return span.num_items == 1 ? slice_bytes : std::max<uint64_t>(1, slice_bytes / item) * item;
}

// Each list gives one slice in its turn, until all are empty.
std::vector<PreparedPull::Slice> InTurns(std::vector<std::vector<Cut>>& turns, uint64_t slice_bytes,
                                         int own_rank) {
  std::vector<PreparedPull::Slice> slices;
  std::vector<size_t> next(turns.size(), 0);
  for (bool more = true; more;) {
    more = false;
    for (size_t turn = 0; turn < turns.size(); ++turn) {
      if (next[turn] == turns[turn].size()) continue;
      Cut& cut = turns[turn][next[turn]];
      const CopySpan& span = *cut.span;
      const uint64_t bytes = std::min(SliceBytes(span, slice_bytes), span.bytes - cut.done);
      const uint64_t item =
          std::max<uint64_t>(1, span.bytes / static_cast<uint64_t>(span.num_items));
      slices.push_back({.source = cut.source + cut.done,
                        .destination = span.destination + cut.done,
                        .bytes = bytes,
                        .part = span.part,
                        .first_item = span.first_item + static_cast<int>(cut.done / item),
                        .num_items = static_cast<int>((bytes + item - 1) / item),
                        .remote = span.rank != own_rank});
      cut.done += bytes;
      if (cut.done == span.bytes) ++next[turn];
      more = true;
    }
  }
  return slices;
}

class LocalFabric final : public Fabric {
 public:
  LocalFabric(int rank, int num_ranks, std::shared_ptr<Directory> directory)
      : rank_(rank), num_ranks_(num_ranks), directory_(std::move(directory)) {}

  using Fabric::Pull;
  int rank() const override { return rank_; }
  int num_ranks() const override { return num_ranks_; }
  uint64_t bytes_pulled() const override { return bytes_pulled_; }

  base::Status Publish(const device::Region& region) override {
    return directory_->Publish(rank_, region);
  }

  base::Result<const device::Region*> FindRegion(int rank, std::string_view name) const override {
    const device::Region* const region = directory_->Find(rank, name);
    if (region != nullptr) return region;
    return base::Status(
        kUnknownRegion,
        fmt::format("rank {} looks for region '{}' of rank {}, which was not published", rank_,
                    name, rank));
  }

  void Post(device::Stream& stream, int peer, int channel, uint64_t value) override {
    stream.Post(directory_->counter(rank_, peer, channel), value);
  }
  void Await(device::Stream& stream, int peer, int channel, uint64_t value) override {
    stream.Await(directory_->counter(peer, rank_, channel), value);
  }
  void Abort(const base::Status& why) override { directory_->Abort(why); }
  base::Status status() const override { return directory_->status(); }

  base::Result<PreparedPull> Prepare(const CopyPlan& plan) const override {
    FB_CHECK(plan.slice_bytes > 0, "slices of no bytes");
    const std::vector<size_t> places = PlacesOf(plan);
    std::vector<std::vector<Cut>> turns(static_cast<size_t>(num_ranks_));
    PreparedPull pull{.requests_in_flight = plan.requests_in_flight};
    for (const CopySpan& span : plan.spans) {
      FB_ASSIGN_OR_RETURN(const std::byte* source, Resolve(span));
      turns[places[static_cast<size_t>(span.rank)]].push_back({&span, source});
      pull.num_parts = std::max(pull.num_parts, span.part + 1);
    }
    // One list in place of many: nothing of a peer's before all of the last one's.
    if (plan.order == PeerOrder::kSerial || plan.order == PeerOrder::kRandom) {
      for (size_t peer = 1; peer < turns.size(); ++peer) {
        turns[0].insert(turns[0].end(), turns[peer].begin(), turns[peer].end());
        turns[peer].clear();
      }
    }
    pull.slices = InTurns(turns, plan.slice_bytes, rank_);
    // From the back: a part is there with its last slice.
    std::vector<bool> ended(static_cast<size_t>(pull.num_parts), false);
    for (auto slice = pull.slices.rbegin(); slice != pull.slices.rend(); ++slice) {
      slice->ends_part = !ended[slice->part];
      ended[slice->part] = true;
    }
    return pull;
  }

  void Pull(device::Stream& stream, const PreparedPull& pull, const int32_t* wanted,
            std::span<device::DeviceEvent* const> part_events) override {
    uint64_t remote_bytes = 0;
    for (const PreparedPull::Slice& slice : pull.slices) {
      const auto part = static_cast<size_t>(slice.part);
      if (wanted != nullptr && slice.bytes > 0) {
        stream.Enqueue(device::MakeItemCopy(
            "pull_wanted", {.destination = slice.destination,
                            .source = slice.source,
                            .item_bytes = slice.bytes / static_cast<uint64_t>(slice.num_items),
                            .num_items = slice.num_items,
                            .offsets = wanted + slice.first_item}));
      } else if (slice.bytes > 0) {
        stream.Enqueue(device::MakeCopy("pull", slice.destination, slice.source, slice.bytes,
                                        device::CopyUse::kLater));
      }
      // How much comes of what is wanted is known on the device, where operations count it.
      if (slice.remote && wanted == nullptr) remote_bytes += slice.bytes;
      if (slice.ends_part && part < part_events.size() && part_events[part] != nullptr)
        stream.Record(*part_events[part]);
    }
    bytes_pulled_ += remote_bytes;
  }

 private:
  base::Result<const std::byte*> Resolve(const CopySpan& span) const {
    const device::Region* const region = directory_->Find(span.rank, span.region);
    if (region == nullptr) {
      return base::Status(
          kUnknownRegion,
          fmt::format("rank {} pulls {} bytes at offset {} of region {} of rank {}, "
                      "which was not published",
                      rank_, span.bytes, span.offset, span.region, span.rank));
    }
    if (span.offset > region->bytes || span.bytes > region->bytes - span.offset) {
      return base::Status(
          kOutOfRange,
          fmt::format("rank {} pulls {} bytes at offset {} of region {} ('{}') of rank "
                      "{}, which has {} bytes",
                      rank_, span.bytes, span.offset, span.region, region->name, span.rank,
                      region->bytes));
    }
    return region->data + span.offset;
  }

  // [ranks]: whose turn comes when; as they are listed all have the first.
  std::vector<size_t> PlacesOf(const CopyPlan& plan) const {
    const auto ranks = static_cast<size_t>(num_ranks_), own = static_cast<size_t>(rank_);
    std::vector<size_t> places(ranks, 0);
    if (plan.order == PeerOrder::kAsListed) return places;
    base::Rng rng(plan.seed);
    for (size_t peer = 0; peer < ranks; ++peer) {
      // Rotated, the next rank comes first and the own one last: ranks that begin together read
      // from different peers.
      places[peer] = plan.order == PeerOrder::kRotated ? (peer + ranks - own - 1) % ranks : peer;
      if (plan.order == PeerOrder::kRandom) std::swap(places[peer], places[rng.Below(peer + 1)]);
    }
    return places;
  }

  const int rank_, num_ranks_;
  const std::shared_ptr<Directory> directory_;
  std::atomic<uint64_t> bytes_pulled_{0};  // read by any thread
};

}  // namespace

std::string CounterName(int from, int to, int channel) {
  return fmt::format("rank {} for rank {}, channel {}", from, to, channel);
}

WaitCause CauseOf(int channel) {
  return channel == kTakenChannel ? WaitCause::kStaging : WaitCause::kPeer;
}

std::unique_ptr<Fabric> CreateFabric(int rank, int num_ranks,
                                     std::shared_ptr<Directory> directory) {
  return std::make_unique<LocalFabric>(rank, num_ranks, std::move(directory));
}

std::vector<std::unique_ptr<Fabric>> CreateInProcessFabric(int num_ranks,
                                                           const CounterFactory& new_counter) {
  const auto directory = std::make_shared<TaskDirectory>(num_ranks, new_counter);
  std::vector<std::unique_ptr<Fabric>> fabrics;
  for (int rank = 0; rank < num_ranks; ++rank) {
    fabrics.push_back(CreateFabric(rank, num_ranks, directory));
  }
  return fabrics;
}

std::vector<std::unique_ptr<Fabric>> CreatePullFabric(int num_ranks) {
  return CreateInProcessFabric(num_ranks, {});
}

std::vector<std::unique_ptr<Fabric>> CreateLocalFabric(runtime::Runtime& runtime, int num_ranks) {
  return CreateInProcessFabric(num_ranks, [&](std::string name) {
    return device::CreateCpuCounter(runtime, std::move(name));
  });
}

}  // namespace forebay::fabric
