#include "model/ulysses.h"

#include <algorithm>

namespace forebay::model {

UlyssesPlan::UlyssesPlan(const Shard& shard, int64_t head_dim, tensor::DType dtype, int64_t rows,
                         int index)
    : shard_(shard),
      head_bytes_(tensor::BytesOf(dtype, static_cast<uint64_t>(head_dim))),
      all_rows_(rows),
      own_rows_(RowsOf(rows, shard.mode, index)) {
  const BlockHeads& own = shard.run_heads[static_cast<size_t>(index)];
  kv_row_bytes_ = 2 * static_cast<uint64_t>(own.kv_heads.size()) * head_bytes_;
  uint64_t before = 0;  // bytes of a row that earlier readers take
  for (int i = 0; i < index; ++i) before += RowBytes(shard.run_heads[static_cast<size_t>(i)]);
  for (int i = 0; i < shard.mode.sp; ++i) {
    const Part theirs = RowsOf(rows, shard.mode, i);
    forth_.push_back({.row = theirs.begin,
                      .rows = theirs.size(),
                      .bytes = static_cast<uint64_t>(own.heads.size()) * head_bytes_,
                      .from = static_cast<uint64_t>(theirs.size()) * before});
    const Part& heads = shard.run_heads[static_cast<size_t>(i)].heads;
    const uint64_t bytes = static_cast<uint64_t>(heads.size()) * head_bytes_;
    back_.push_back({.rows = own_rows_.size(),
                     .offset = static_cast<uint64_t>(heads.begin - shard.heads.begin) * head_bytes_,
                     .bytes = bytes,
                     .from = static_cast<uint64_t>(own_rows_.begin) * bytes});
  }
}

uint64_t UlyssesPlan::RowBytes(const BlockHeads& reader) const {
  return static_cast<uint64_t>(reader.heads.size() + 2 * reader.kv_heads.size()) * head_bytes_;
}

uint64_t UlyssesPlan::StagingOf(int reader) const {
  uint64_t bytes = 0;
  for (int i = 0; i < reader; ++i) bytes += RowBytes(shard_.run_heads[static_cast<size_t>(i)]);
  return static_cast<uint64_t>(own_rows_.size()) * bytes;
}

uint64_t UlyssesPlan::back_bytes() const {
  return static_cast<uint64_t>(all_rows_ * shard_.own_heads.size()) * head_bytes_;
}

uint64_t UlyssesPartBytes(const Shard& shard, int64_t head_dim, tensor::DType dtype, int64_t rows) {
  const UlyssesPlan plan(shard, head_dim, dtype, rows, 0);  // who has most rows
  return std::max(plan.forth_bytes(), plan.back_bytes());
}

}  // namespace forebay::model
