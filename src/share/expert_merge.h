// A layer's experts, held and pulled, copied into one buffer before they are computed with: the
// form that a grouped product needs which takes no table of runs. Here to be measured.
#pragma once

#include <atomic>
#include <span>
#include <utility>
#include <vector>

#include "device/device.h"
#include "model/decoder_weights.h"

namespace forebay::share {

class ExpertMerge {
 public:
  // The runs of a layer's experts in their order.
  using Runs = std::vector<std::pair<const weights::PlacedWeight*, weights::RunPlace>>;

  // The experts that `runs` are lie in `buffer` from here on, in their order, when Enqueue was
  // called with the same index; what lies together goes there together.
  void Plan(size_t index, const Runs& runs, std::byte* buffer);
  // Nothing where nothing was planned.
  void Enqueue(size_t index, device::Stream& stream);
  uint64_t bytes() const { return bytes_; }  // that were copied so far; from any thread

 private:
  struct Stretch {
    std::byte* to;
    const std::byte* from;
    uint64_t bytes;
  };

  std::vector<std::vector<Stretch>> stretches_;  // by index
  std::atomic<uint64_t> bytes_{0};
};

}  // namespace forebay::share
