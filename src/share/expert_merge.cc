#include "share/expert_merge.h"

#include <algorithm>

#include "device/copy.h"

namespace forebay::share {

void ExpertMerge::Plan(size_t index, const Runs& runs, std::byte* buffer) {
  stretches_.resize(std::max(stretches_.size(), index + 1));
  std::vector<Stretch>& stretches = stretches_[index];
  for (const auto& [weight, place] : runs) {
    const std::byte* const from = weight->runs[place.expert];
    const bool follows =
        !stretches.empty() && stretches.back().from + stretches.back().bytes == from;
    if (!follows) stretches.push_back({buffer, from, 0});
    stretches.back().bytes += place.bytes;
    weights::SetRun(*weight, place, buffer);
    buffer += place.bytes;
  }
}

void ExpertMerge::Enqueue(size_t index, device::Stream& stream) {
  if (index >= stretches_.size()) return;
  for (const Stretch& stretch : stretches_[index]) {
    stream.Enqueue(device::MakeCopy("merge_experts", stretch.to, stretch.from, stretch.bytes,
                                    device::CopyUse::kLater));
    bytes_ += stretch.bytes;
  }
}

}  // namespace forebay::share
