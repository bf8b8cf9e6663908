// Who reads what where a step's rows are cut over ranks (DeepSpeed-Ulysses, arXiv 2309.14509):
// linear layers see a rank's own rows and the heads of all, attention sees all rows and a rank's
// own heads. Pure: lists of blocks in staging, for fabric::AllToAll.
//
//   rank i's staging, forth:  for each reader r:  [rows of i, heads of r] q, [rows of i, 2, KV
//   heads
//                             of r] k and v
//   back:                     [rows, heads of i]: of consecutive rows each reader takes its own
#pragma once

#include <span>
#include <vector>

#include "fabric/collectives.h"
#include "model/shard.h"
#include "tensor/dtype.h"

namespace forebay::model {

// A step of `rows` rows, seen by SP index `index` of a shard's mode.
class UlyssesPlan {
 public:
  UlyssesPlan(const Shard& shard, int64_t head_dim, tensor::DType dtype, int64_t rows, int index);

  // Where what `reader` takes begins in this rank's staging, and how many bytes all take.
  uint64_t StagingOf(int reader) const;
  uint64_t forth_bytes() const { return StagingOf(static_cast<int>(forth_.size())); }
  uint64_t back_bytes() const;
  // What this rank takes: q, its k and v behind it; then attention's output of its own rows.
  std::span<const fabric::GatherBlock> forth() const { return forth_; }
  uint64_t kv_row_bytes() const { return kv_row_bytes_; }
  std::span<const fabric::GatherBlock> back() const { return back_; }

 private:
  // Of a row for this reader.
  uint64_t RowBytes(const BlockHeads& reader) const;

  const Shard& shard_;
  const uint64_t head_bytes_;
  const int64_t all_rows_;
  const Part own_rows_;
  uint64_t kv_row_bytes_ = 0;
  std::vector<fabric::GatherBlock> forth_, back_;
};

// The most that a rank's staging gets, in steps of at most `rows` rows.
uint64_t UlyssesPartBytes(const Shard& shard, int64_t head_dim, tensor::DType dtype, int64_t rows);

}  // namespace forebay::model
