#include "price/stream_price.h"

#include <algorithm>

#include "cost/copy_forms.h"
#include "kv/tier/window.h"

namespace forebay::price {
namespace {

// Seconds a byte that the disk takes before the link; none where memory has what is streamed.
double DiskSeconds(const cost::DeviceProfile& profile, const kv::TierBlocks& below, int ranks) {
  if (below.in_memory > 0 || below.in_file == 0) return 0;
  return ranks / cost::DiskReadRate(profile);
}

}  // namespace

double StreamRate(const cost::DeviceProfile& profile, const kv::TierBlocks& below, int ranks) {
  const double link = cost::HostRate(profile), disk = DiskSeconds(profile, below, ranks);
  return disk > 0 ? 1 / (1 / link + disk) : link;
}

kv::OffloadCosts StreamingCosts(const StepPricer& pricer, const layout::MachinePlan& machine,
                                const layout::MemoryPlan& memory, double held_blocks,
                                double streamed_blocks, const cost::Work& alone,
                                const StepPulls& pulls) {
  const cost::DeviceProfile& profile = pricer.profile();
  const kv::KvGroup& group = memory.kv_groups[0];
  const double part = static_cast<double>(group.layout.LayerBytes()),
               rate = StreamRate(profile, memory.tier_blocks, machine.spec.count);
  const auto layers = static_cast<double>(group.layers.size());
  const StepPulls copies{
      .bytes = static_cast<uint64_t>(streamed_blocks * part * layers) + pulls.bytes,
      .bytes_per_s = rate,
      .contention = cost::ContentionOf(profile, machine.workers)};
  const double pull_seconds = pulls.bytes > 0 ? pulls.seconds() : 0,
               // A layer's copies wait for a layer's share of the pulls.
      ahead = cost::PeersBehindHost(profile) ? pull_seconds / layers : 0;
  return {.num_layers = std::ssize(group.layers),
          .layer_seconds = std::max(SecondsBeside(alone, copies), pull_seconds) / layers,
          .layer_bytes = held_blocks * part,
          .up = [form = cost::HostCopies(profile), ahead,
                 disk = DiskSeconds(profile, memory.tier_blocks, machine.spec.count)](
                    double bytes) { return bytes > 0 ? ahead + form(bytes) + disk * bytes : 0.0; }};
}

kv::OffloadPlan PriceStreaming(const StepPricer& pricer, const layout::MachinePlan& machine,
                               const layout::MemoryPlan& memory, double held_blocks,
                               const cost::Work& alone, const StepPulls& pulls) {
  const double streamed = std::clamp(held_blocks - static_cast<double>(memory.num_blocks), 0.0,
                                     static_cast<double>(memory.streamed_blocks)),
               part = static_cast<double>(memory.kv_groups[0].layout.LayerBytes());
  return kv::JudgeOffload(
      StreamingCosts(pricer, machine, memory, held_blocks, streamed, alone, pulls),
      {.slots = kv::kWindowSlots, .streamed_bytes = streamed * part});
}

}  // namespace forebay::price
