#include "model/ulysses.h"

#include <algorithm>

namespace forebay::model {

int KvCopies(const KvCut& kv) {
  const std::vector<BlockHeads>& run = kv.run_heads;
  const auto starts_head = [&](size_t i) {
    return i == 0 || run[i].kv_heads.begin != run[i - 1].kv_heads.begin;
  };
  size_t copies = 1;
  while (copies < run.size() && !starts_head(copies)) ++copies;
  if (run.size() % copies != 0) return 1;
  for (size_t i = 0; i < run.size(); ++i) {
    if (starts_head(i) != (i % copies == 0)) return 1;
  }
  return static_cast<int>(copies);
}

UlyssesPlan::UlyssesPlan(const Shard& shard, const KvCut& kv, int64_t head_dim, tensor::DType dtype,
                         int64_t rows, int index)
    : shard_(shard),
      kv_(kv),
      index_(index),
      copies_(shard.cut.two_step_kv ? KvCopies(kv) : 1),
      head_bytes_(tensor::BytesOf(dtype, static_cast<uint64_t>(head_dim))),
      all_rows_(rows),
      own_rows_(RowsOf(rows, shard.mode, index)) {
  const BlockHeads& own = kv.run_heads[static_cast<size_t>(index)];
  kv_row_bytes_ = 2 * static_cast<uint64_t>(own.kv_heads.size()) * head_bytes_;
  for (int i = 0; i < shard.mode.sp; ++i) {
    const Part theirs = RowsOf(rows, shard.mode, i);
    forth_.push_back({.row = theirs.begin,
                      .rows = theirs.size(),
                      .bytes = QueryBytes(index),
                      .from = static_cast<uint64_t>(theirs.size()) * BytesBefore(i, index)});
    const Part& heads = kv.run_heads[static_cast<size_t>(i)].heads;
    const uint64_t bytes = static_cast<uint64_t>(heads.size()) * head_bytes_;
    back_.push_back({.rows = own_rows_.size(),
                     .offset = static_cast<uint64_t>(heads.begin - shard.heads.begin) * head_bytes_,
                     .bytes = bytes,
                     .from = static_cast<uint64_t>(own_rows_.begin) * bytes});
  }
  if (two_step()) PlanTwoSteps(rows);
}

void UlyssesPlan::PlanTwoSteps(int64_t rows) {
  const int first = index_ / copies_ * copies_;  // of the neighbours that hold its KV head
  std::vector<int64_t> of_class(static_cast<size_t>(copies_));  // rows so far
  for (int i = 0; i < shard_.mode.sp; ++i) {
    const Part theirs = RowsOf(rows, shard_.mode, i);
    const fabric::GatherBlock& q = forth_[static_cast<size_t>(i)];
    int64_t& before = of_class[static_cast<size_t>(i % copies_)];
    kv_class_.push_back({.row = before,
                         .rows = SendsKv(i) ? theirs.size() : 0,
                         .bytes = kv_row_bytes_,
                         .from = q.from + static_cast<uint64_t>(q.rows) * q.bytes});
    kv_all_.push_back({.row = theirs.begin,
                       .rows = theirs.size(),
                       .bytes = kv_row_bytes_,
                       .from = static_cast<uint64_t>(before) * kv_row_bytes_,
                       .holder = first + i % copies_});
    before += theirs.size();
  }
  class_rows_ = of_class[static_cast<size_t>(index_ % copies_)];
}

uint64_t UlyssesPlan::QueryBytes(int reader) const {
  return static_cast<uint64_t>(kv_.run_heads[static_cast<size_t>(reader)].heads.size()) *
         head_bytes_;
}

uint64_t UlyssesPlan::RowBytes(int sender, int reader) const {
  if (!SameClass(sender, reader)) return QueryBytes(reader);
  const Part& kv_heads = kv_.run_heads[static_cast<size_t>(reader)].kv_heads;
  return QueryBytes(reader) + 2 * static_cast<uint64_t>(kv_heads.size()) * head_bytes_;
}

uint64_t UlyssesPlan::BytesBefore(int sender, int reader) const {
  uint64_t bytes = 0;
  for (int i = 0; i < reader; ++i) bytes += RowBytes(sender, i);
  return bytes;
}

uint64_t UlyssesPlan::StagingOf(int reader) const {
  return static_cast<uint64_t>(own_rows_.size()) * BytesBefore(index_, reader);
}

uint64_t UlyssesPlan::back_bytes() const {
  return static_cast<uint64_t>(all_rows_ * shard_.own_heads.size()) * head_bytes_;
}

uint64_t UlyssesPartBytes(const ModelConfig& config, const Shard& shard, tensor::DType dtype,
                          int64_t rows) {
  uint64_t most = 0;
  const auto add = [&](const KvCut& kv, int64_t head_dim) {
    const UlyssesPlan plan(shard, kv, head_dim, dtype, rows, 0);  // who has most rows
    most = std::max({most, plan.forth_bytes(), plan.back_bytes(), plan.kv_class_bytes()});
  };
  add(shard, config.head_dim);
  if (config.full_heads) add(*shard.full_kv, config.full_heads->head_dim);
  return most;
}

}  // namespace forebay::model
