// The exchanges of a step whose rows are cut over ranks (DeepSpeed-Ulysses, arXiv 2309.14509):
// linear layers see a rank's own rows and all heads, attention sees all rows and a rank's own
// heads. Pure: lists of blocks in staging, for fabric::AllToAll.
//
//   rank i's staging, forth:  for each reader r:  [rows of i, heads of r] q, [rows of i, 2, KV
//   heads
//                             of r] k and v
//   back:                     [rows, heads of i]: of consecutive rows each reader takes its own
//
// Where R neighbours hold the same KV head, each takes it from all; or, in two steps (Shift
// Parallelism, arXiv 2509.16495, Algorithm 1), rank i takes k and v of the rows of ranks i mod R,
// i mod R + R and so on alone, and then the other rows from its R - 1 neighbours. These lie there
// in the order of such classes, and are interleaved again by where the blocks go:
//
//   4 ranks, R = 2:   rows of rank   0 1 2 3       ranks 0, 2 have rows 0 2, ranks 1, 3 rows 1 3
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
  // `kv`: of the layers that it is for.
  UlyssesPlan(const Shard& shard, const KvCut& kv, int64_t head_dim, tensor::DType dtype,
              int64_t rows, int index);

  // Where what `reader` takes begins in this rank's staging, and how many bytes all take.
  uint64_t StagingOf(int reader) const;
  uint64_t forth_bytes() const { return StagingOf(static_cast<int>(forth_.size())); }
  uint64_t back_bytes() const;
  // This rank's reads: q, then its k and v; and attention's output of its own rows.
  std::span<const fabric::GatherBlock> forth() const { return forth_; }
  uint64_t kv_row_bytes() const { return kv_row_bytes_; }
  std::span<const fabric::GatherBlock> back() const { return back_; }
  // In two steps: forth() is q alone; k and v of its class's rows, and then of all.
  bool two_step() const { return copies_ > 1; }
  bool SendsKv(int reader) const { return SameClass(reader, index_); }
  std::span<const fabric::GatherBlock> kv_class() const { return kv_class_; }
  std::span<const fabric::GatherBlock> kv_all() const { return kv_all_; }
  uint64_t kv_class_bytes() const { return static_cast<uint64_t>(class_rows_) * kv_row_bytes_; }

 private:
  bool SameClass(int a, int b) const { return a % copies_ == b % copies_; }
  // Bytes that a row of `sender` takes to `reader`: its q, and its k and v.
  uint64_t QueryBytes(int reader) const;
  uint64_t RowBytes(int sender, int reader) const;
  // Bytes of a row of `sender` for all readers before `reader`.
  uint64_t BytesBefore(int sender, int reader) const;
  void PlanTwoSteps(int64_t rows);

  const Shard& shard_;
  const KvCut& kv_;
  const int index_;
  const int copies_;  // 1: in one step
  const uint64_t head_bytes_;
  const int64_t all_rows_;
  const Part own_rows_;
  uint64_t kv_row_bytes_ = 0;
  int64_t class_rows_ = 0;
  std::vector<fabric::GatherBlock> forth_, back_, kv_class_, kv_all_;
};

// The number of ranks, among those that cut rows with this one, that hold each KV head, if equal
// for all heads; else 1.
int KvCopies(const KvCut& kv);

// The most that a rank's staging gets, in steps of at most `rows` rows.
uint64_t UlyssesPartBytes(const ModelConfig& config, const Shard& shard, tensor::DType dtype,
                          int64_t rows);

}  // namespace forebay::model
