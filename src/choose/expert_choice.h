// How many experts of a layer each rank holds where the user leaves it open (expert-size=auto):
// more are redundancy, for which fewer bytes are pulled and fewer rows leave their rank, and take
// memory from the KV cache, and so from the batch. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "choose/pool_choice.h"

namespace forebay::choose {

struct ExpertTrial : Throughput {
  int64_t size = 0;
};

struct ExpertChoice {
  std::vector<ExpertTrial> trials;  // ascending sizes: from the least to the most
  int64_t size = 0;                 // the chosen one

  const ExpertTrial& chosen() const;
};

// Maximises what ChoosePoolLayers does: the largest size within a fraction of a percent of the
// best, so that memory which the batch does not need is redundancy. The least where nothing fits.
// The best of these sizes (ascending; at least one). Of more than 16 some are tried, then all
// between the best one's neighbours, then all up to the next that is not as good. question.memory
// takes a size.
ExpertChoice ChooseExpertSize(std::span<const int64_t> sizes, const PoolQuestion& question);

}  // namespace forebay::choose
