#include "kernels/cpu/attention_items.h"

#include <algorithm>
#include <bit>

#include "base/units.h"
#include "kernels/sets.h"

namespace forebay::kernels {
namespace {

// With fewer items of several KV heads than this, the last ones would leave workers idle for long.
constexpr int64_t kItemsPerWorker = 16;

// Walks all items in an order that every worker computes alike: by falling power of two of the KV tokens read, then by
// sequence, rows, heads.
class ItemWalk {
 public:
  ItemWalk(const AttentionArgs& args, int workers) : args_(args), group_(args.heads / args.layout.kv_heads) {
    const int32_t kv_heads = args.layout.kv_heads;
    head_step_ = std::min(group_, kMaxLines);
    row_step_ = kMaxLines / head_step_;
    items_per_unit_ = kv_heads * ((group_ + head_step_ - 1) / head_step_);
    const auto items = [&] { return int64_t{args.batch.num_sequences} * ((kv_heads + kv_step_ - 1) / kv_step_); };
    kv_step_ = std::min(row_step_, kv_heads);
    while (kv_step_ > 1 && items() < kItemsPerWorker * workers) kv_step_ = (kv_step_ + 1) / 2;
    for (int32_t s = 0; s < args.batch.num_sequences; ++s) {
      for (int32_t row = 0; row < args.batch.sequences[s].num_rows; row += row_step_) classes_ |= CostClass(s, row);
    }
    class_ = std::bit_floor(classes_);
    if (class_ != 0 && CostClass() != class_) NextUnit();
  }

  // Item number `ticket`; tickets only grow. False: there are no more.
  bool Seek(int64_t ticket, AttentionItem& item) {
    for (; class_ != 0 && ticket >= unit_ticket_ + ItemsOfUnit(); NextUnit()) unit_ticket_ += ItemsOfUnit();
    if (class_ == 0) return false;
    const StepBatch& batch = args_.batch;
    const SequenceRows& sequence = batch.sequences[sequence_];
    const int32_t index = static_cast<int32_t>(ticket - unit_ticket_);
    item.blocks = batch.block_tables + sequence.table_row * batch.table_stride;
    item.row = sequence.first_row + row_;
    item.num_rows = RowsOfUnit();
    item.position = sequence.first_position + row_;
    if (ManyKvHeads()) {
      item.kv_head = index * kv_step_;
      item.num_kv_heads = std::min(kv_step_, args_.layout.kv_heads - item.kv_head);
      item.head = item.kv_head * group_;
      item.num_heads = item.num_kv_heads * group_;
    } else {
      const int32_t steps = items_per_unit_ / args_.layout.kv_heads, offset = index % steps * head_step_;
      item.kv_head = index / steps;
      item.num_kv_heads = 1;
      item.head = item.kv_head * group_ + offset;
      item.num_heads = std::min(head_step_, group_ - offset);
    }
    return true;
  }

 private:
  uint32_t CostClass(int32_t s, int32_t row) const {
    const SequenceRows& sequence = args_.batch.sequences[s];
    const int64_t rows = std::min(row_step_, sequence.num_rows - row);
    int64_t context = sequence.first_position + row + rows;
    if (args_.sliding_window > 0) context = std::min<int64_t>(context, args_.sliding_window + rows);
    // A row adds about an eighth of what reading the block costs.
    return std::bit_floor(static_cast<uint32_t>(context * (8 + rows) / 8));
  }
  uint32_t CostClass() const {
    if (args_.batch.sequences[sequence_].num_rows <= row_) return 0;
    return CostClass(sequence_, row_);
  }
  int32_t RowsOfUnit() const { return std::min(row_step_, args_.batch.sequences[sequence_].num_rows - row_); }
  bool ManyKvHeads() const { return kv_step_ > 1 && RowsOfUnit() == 1; }
  int64_t ItemsOfUnit() const {
    return ManyKvHeads() ? (args_.layout.kv_heads + kv_step_ - 1) / kv_step_ : items_per_unit_;
  }
  // The next unit of this class, else the first of the next lower class that has any.
  void NextUnit() {
    do {
      row_ += row_step_;
      if (row_ >= args_.batch.sequences[sequence_].num_rows) {
        row_ = 0;
        if (++sequence_ == args_.batch.num_sequences) {
          sequence_ = 0;
          class_ = std::bit_floor(classes_ & (class_ - 1));
        }
      }
    } while (class_ != 0 && CostClass() != class_);
  }

  const AttentionArgs& args_;
  const int32_t group_;
  int32_t head_step_, row_step_;
  int32_t kv_step_;         // KV heads of an item of one row
  int32_t items_per_unit_;  // where an item has one KV head
  uint32_t classes_ = 0;  // one bit a class that has units
  uint32_t class_ = 0;
  int32_t sequence_ = 0, row_ = 0;
  int64_t unit_ticket_ = 0;
};

}  // namespace

void RunAttention(const AttentionArgs& args, const device::WorkerContext& context, AttendItemFn attend) {
  ItemWalk walk(args, context.num_workers);
  const auto take = [&](AttentionItem& item) {
    return walk.Seek(context.ticket->fetch_add(1, std::memory_order_relaxed), item);
  };
  AttentionItem items[2];
  int current = 0;
  for (bool more = take(items[0]); more; current ^= 1) {
    more = take(items[current ^ 1]);
    attend(args, items[current], more ? &items[current ^ 1] : nullptr, context.scratch);
  }
}

uint64_t AttentionScratch(const KvLayout& layout, int32_t heads) {
  // Per line: q, scores, probabilities, 16 sum lanes, values and merged values, a few scalars; and a padded block of V.
  const uint64_t columns = base::RoundUp(static_cast<uint64_t>(layout.head_dim), kPanel);
  const uint64_t line = columns * 4 * 3 + kRunTokens * 4 * 2 + 16 * 4 + 64;
  return kMaxLines * line + (kRunTokens + 2) * columns * 4 + 4096;
}

}  // namespace forebay::kernels
