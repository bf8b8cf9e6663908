#include "kernels/cpu/attention_items.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <span>

#include "base/units.h"
#include "kernels/sets.h"
#include "kernels/tile_attention.h"

namespace forebay::kernels {
namespace {

// With fewer items of equal cost than this, the last ones would leave workers idle for long.
constexpr int64_t kItemsPerWorker = 16;
// Bytes that are fetched ahead of an item that waits: what a second cache of 1 MiB keeps beside a
// prompt's KV.
constexpr int64_t kAheadBytes = 384 << 10;

}  // namespace

int32_t UnitCut::Pieces(const UnitShape& unit) const {
  return (unit.kv_heads + kv_step - 1) / kv_step * unit.head_steps;
}
int32_t UnitCut::Items(const UnitShape& unit) const { return Pieces(unit) * spans; }
int32_t UnitCut::Slots(const UnitShape& unit) const {
  return spans > 1 ? Pieces(unit) * unit.parts : 0;
}

UnitCut CutUnit(const UnitShape& unit, int64_t wanted, int64_t free_slots) {
  UnitCut cut{unit.most_kv_heads, 1};
  const auto halve = [&](int32_t most) {
    while (cut.kv_step > most && cut.Items(unit) < wanted) {
      const UnitCut half{(cut.kv_step + 1) / 2, cut.spans};
      // Items of a span leave their results in slots: without these a unit stays whole.
      if (half.Slots(unit) > free_slots) break;
      cut = half;
    }
  };
  halve(kRunBlocks);
  const int64_t pieces = cut.Pieces(unit);
  if (pieces < wanted && pieces * unit.parts <= free_slots) {
    cut.spans = static_cast<int32_t>(std::min<int64_t>(unit.parts, (wanted + pieces - 1) / pieces));
  }
  halve(1);
  return cut;
}

ItemWalk::ItemWalk(const AttentionArgs& args, int workers, int64_t num_slots, Units units,
                   Kind kind)
    : args_(args),
      units_(units),
      kind_(kind),
      num_slots_(num_slots),
      group_(args.heads / args.layout.kv_heads) {
  head_step_ = std::min(group_, kMaxLines);
  row_step_ = kMaxLines / head_step_;
  unit_.kv_heads = args.layout.kv_heads;
  unit_.head_steps = (group_ + head_step_ - 1) / head_step_;
  uint64_t total = 0;
  bool others = false;
  for (int32_t s = 0; s < args.batch.num_sequences; ++s) {
    const SequenceRows& sequence = args.batch.sequences[s];
    for (int32_t row = 0; row < sequence.num_rows; row += row_step_) {
      const uint32_t cost = Cost(sequence, row);
      total += cost;
      if (Wanted(sequence, row)) {
        // Units are taken by classes of cost, the dearest first, so that the last items are small.
        classes_ |= std::bit_floor(cost);
      } else {
        others = true;
      }
    }
  }
  items_per_cost_ = static_cast<double>(kItemsPerWorker * workers) /
                    static_cast<double>(std::max<uint64_t>(total, 1));
  class_ = std::bit_floor(classes_);
  if (class_ == 0) return;
  if (others) {
    num_slots_ /= 2;
    if (units_ == Units::kSeveralRows) first_slot_ = num_slots_;
  }
  row_ = -row_step_;
  NextUnit();
}

bool ItemWalk::Seek(int64_t ticket, AttentionItem& item) {
  while (class_ != 0 && ticket >= end_ticket_) NextUnit();
  if (class_ == 0) return false;
  const StepBatch& batch = args_.batch;
  const SequenceRows& sequence = batch.sequences[sequence_];
  item.blocks = batch.block_tables + sequence.table_row * batch.table_stride;
  item.row = sequence.first_row + row_;
  item.num_rows = RowsOf(sequence, row_);
  item.position = sequence.first_position + row_;
  item.last_position = sequence.last_position();
  const int32_t pieces = cut_.Pieces(unit_);
  const auto index = static_cast<int32_t>(ticket - first_ticket_);
  const int32_t span = index / pieces, piece = index % pieces;
  item.kv_head = piece / unit_.head_steps * cut_.kv_step;
  item.num_kv_heads = std::min(cut_.kv_step, unit_.kv_heads - item.kv_head);
  const int32_t offset = piece % unit_.head_steps * head_step_;
  item.head = item.kv_head * group_ + offset;
  item.num_heads =
      unit_.head_steps == 1 ? item.num_kv_heads * group_ : std::min(head_step_, group_ - offset);
  item.first_block = FirstBlock(sequence, row_);
  item.end_block = EndBlock(sequence, row_);
  item.slot = -1;
  if (cut_.spans == 1) return true;
  const int32_t first_part = item.first_block / kPartBlocks;
  item.slot = static_cast<int32_t>(first_slot_ + slots_ - cut_.Slots(unit_)) + piece * unit_.parts;
  if (kind_ == kMerges) return true;
  const auto begin = static_cast<int32_t>(int64_t{unit_.parts} * span / cut_.spans);
  const auto end = static_cast<int32_t>(int64_t{unit_.parts} * (span + 1) / cut_.spans);
  item.slot += begin;
  item.first_block = std::max(item.first_block, (first_part + begin) * kPartBlocks);
  item.end_block = std::min(item.end_block, (first_part + end) * kPartBlocks);
  return true;
}

int32_t ItemWalk::RowsOf(const SequenceRows& sequence, int32_t row) const {
  return std::min(row_step_, sequence.num_rows - row);
}

int32_t ItemWalk::FirstBlock(const SequenceRows& sequence, int32_t row) const {
  return args_.reach.First(sequence.first_position + row) / kBlockTokens;
}

int32_t ItemWalk::EndBlock(const SequenceRows& sequence, int32_t row) const {
  return LastSeen(sequence, row) / kBlockTokens + 1;
}

int32_t ItemWalk::LastSeen(const SequenceRows& sequence, int32_t row) const {
  return args_.reach.Last(sequence.first_position + row + RowsOf(sequence, row) - 1,
                          sequence.last_position());
}

uint32_t ItemWalk::Cost(const SequenceRows& sequence, int32_t row) const {
  const int64_t rows = RowsOf(sequence, row);
  const int32_t position = sequence.first_position + row;
  const int64_t context = LastSeen(sequence, row) + 1 - args_.reach.First(position);
  // A row adds about an eighth of what reading the block costs.
  return static_cast<uint32_t>(context * (8 + rows) / 8);
}

// The unit after this one in the order of sequences and rows, else the first one of the next lower
// class that has any.
void ItemWalk::NextUnit() {
  const std::span sequences(args_.batch.sequences, args_.batch.num_sequences);
  uint32_t cost;
  do {
    row_ += row_step_;
    while (row_ >= sequences[sequence_].num_rows) {
      row_ = 0;
      if (++sequence_ < args_.batch.num_sequences) continue;
      sequence_ = 0;
      class_ = std::bit_floor(classes_ & (class_ - 1));
      if (class_ == 0) return;
    }
    cost = Cost(sequences[sequence_], row_);
  } while (std::bit_floor(cost) != class_ || !Wanted(sequences[sequence_], row_));
  const SequenceRows& sequence = sequences[sequence_];
  unit_.most_kv_heads = RowsOf(sequence, row_) == 1 ? std::min(row_step_, unit_.kv_heads) : 1;
  unit_.parts =
      (EndBlock(sequence, row_) - 1) / kPartBlocks - FirstBlock(sequence, row_) / kPartBlocks + 1;
  cut_ = CutUnit(unit_, std::llround(cost * items_per_cost_), num_slots_ - slots_);
  slots_ += cut_.Slots(unit_);
  // Each worker walks all units by itself and comes to the same tickets, so that one counter is all
  // that they share.
  first_ticket_ = end_ticket_;
  end_ticket_ += kind_ == kItems ? cut_.Items(unit_) : cut_.spans > 1 ? cut_.Pieces(unit_) : 0;
}

PartSlots::PartSlots(const AttentionArgs& args, const device::WorkerContext& context)
    : bytes_(kMaxLines *
             static_cast<int64_t>(
                 (base::RoundUp(static_cast<uint64_t>(args.layout.value_dim), kPanel) + 2) *
                 sizeof(float))),
      workers_(context.num_workers),
      stride_(static_cast<int64_t>(context.scratch_bytes)) {
  const auto own =
      static_cast<int64_t>(base::RoundUp(AttentionScratch(args.layout, args.heads), 64));
  each_ = std::max<int64_t>(0, (stride_ - own) / bytes_);
  first_ = context.scratch - context.worker * stride_ + own;
}

int64_t PartSlots::size() const { return each_ * workers_; }
std::byte* PartSlots::At(int64_t slot) const {
  return first_ + slot / each_ * stride_ + slot % each_ * bytes_;
}

KvAhead::KvAhead(const AttentionArgs& args, const AttentionItem* waiting) : item(waiting) {
  const KvLayout& layout = args.layout;
  // Pieces are read as those of the item that is attended to: all of one size, in whole panels.
  if (item == nullptr || layout.key_dim != layout.value_dim || layout.value_dim % kPanel != 0 ||
      layout.values_in_keys || layout.codes != KvCodes::kNone) {
    return;
  }
  block = item->first_block;
  const int64_t pieces = int64_t{item->end_block - block} * 2 * item->num_kv_heads;
  left = std::min(pieces, kAheadBytes * 2 / layout.HeadBytes());
}

namespace {

// The items of some units, as one worker takes them. The one that it has taken waits here.
class ItemLane {
 public:
  ItemLane(const AttentionArgs& args, const device::WorkerContext& context, int64_t num_slots,
           Units units)
      : walk_(args, context.num_workers, num_slots, units),
        tickets_(*context.ticket),
        shift_(units == Units::kOneRow ? 0 : 32) {
    Next();
  }

  const AttentionItem* waiting() const { return more_ ? &item_ : nullptr; }
  // REQUIRES: one waits.
  AttentionItem Take() {
    const AttentionItem item = item_;
    Next();
    return item;
  }
  int64_t slots() const { return walk_.slots(); }

 private:
  // Both lanes count their tickets in one number, a half each.
  void Next() {
    const auto tickets =
        static_cast<uint64_t>(tickets_.fetch_add(int64_t{1} << shift_, std::memory_order_relaxed));
    more_ = walk_.Seek(static_cast<uint32_t>(tickets >> shift_), item_);
  }

  ItemWalk walk_;
  std::atomic<int64_t>& tickets_;
  const int shift_;
  AttentionItem item_;
  bool more_;
};

}  // namespace

void RunAttention(const AttentionArgs& args, const device::WorkerContext& context,
                  const AttentionFns& functions) {
  const PartSlots slots(args, context);
  ItemLane single(args, context, slots.size(), Units::kOneRow);
  ItemLane several(args, context, slots.size(), Units::kSeveralRows);
  KvAhead ahead(args, single.waiting());
  while (single.waiting() != nullptr || several.waiting() != nullptr) {
    const bool fetch = several.waiting() && (!single.waiting() || ahead.left > 0);
    const AttentionItem item = (fetch ? several : single).Take();
    if (!fetch) ahead = KvAhead(args, single.waiting());
    const AttentionItem* const next = several.waiting() ? several.waiting() : single.waiting();
    functions.attend(args, item, next, ahead, slots, context.scratch);
  }
  if (single.slots() + several.slots() == 0) return;
  // Parts of a row are merged by whoever comes, so all must be there.
  context.Barrier();
  for (const Units units : {Units::kOneRow, Units::kSeveralRows}) {
    ItemWalk merges(args, context.num_workers, slots.size(), units, ItemWalk::kMerges);
    AttentionItem item;
    for (int64_t i = 0; merges.Seek(i, item); ++i) {
      functions.merge(args, item, slots, context.worker, context.num_workers, context.scratch);
    }
  }
}

namespace {

// What attention_inl.h cuts its scratch into.
uint64_t PairScratch(const KvLayout& layout) {
  // Per line: q, scores, probabilities, 16 sum lanes, values and merged values, a few scalars; and
  // a padded block of V.
  const uint64_t columns = base::RoundUp(static_cast<uint64_t>(layout.value_dim), kPanel);
  const uint64_t key_columns = base::RoundUp(static_cast<uint64_t>(layout.key_dim), kPanel);
  const uint64_t line = (key_columns + columns * 2) * 4 + kRunTokens * 4 * 2 + 16 * 4 + 64;
  // Keys of a run, where they are codes; their values take what is padded otherwise.
  const uint64_t keys = layout.codes == KvCodes::kNone ? 0 : kRunTokens * key_columns * 4;
  return kMaxLines * line + keys + (kRunTokens + 2) * columns * 4 + 4096;
}

// What amx/attention_loop.h does.
uint64_t TileScratch(const KvLayout& layout) {
  const uint64_t columns = base::RoundUp(static_cast<uint64_t>(layout.value_dim), kPanel);
  const uint64_t key_columns = base::RoundUp(static_cast<uint64_t>(layout.key_dim), kTileDepth);
  // Per line: q, scores, a part's probabilities, 32 lanes, values thrice, a few scalars; and copied
  // values of two chunks, and the ends of two blocks' keys.
  const uint64_t line =
      key_columns * 2 + kScoreStride * 4 + kPartTokens * 2 + 32 * 4 + columns * 3 * 4 + 64;
  return kMaxLines * line + 2 * kBlockTokens * (kChunkBlocks * kPanel + kTileDepth) * 2 + 4096;
}

}  // namespace

uint64_t AttentionScratch(const KvLayout& layout, int32_t heads) {
  const bool on_tiles = layout.dtype == tensor::DType::kBF16 && layout.codes == KvCodes::kNone;
  return std::max(PairScratch(layout), on_tiles ? TileScratch(layout) : 0);
}

}  // namespace forebay::kernels
