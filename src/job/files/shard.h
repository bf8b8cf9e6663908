// A part of a job's input that one machine does, where many share it without talking.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/status.h"

namespace forebay::job {

// Shard `index` of `count` has the lines index, index + count, ... of the input, counted from 1.
// Draws are keyed by the line in the whole input, so that the shards' results are those of one run.
struct InputShard {
  int64_t index = 1;
  int64_t count = 1;

  bool all() const { return count == 1; }
  // `line`: from 0.
  bool Has(int64_t line) const { return line % count == index - 1; }
};

// "3/8". Errors: kInvalidArgument.
base::Result<InputShard> ParseShard(std::string_view text);

}  // namespace forebay::job
