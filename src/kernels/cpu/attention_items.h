// How attention is cut among workers. A unit is some consecutive rows of one sequence. An item is a
// unit's query heads of one KV head, or one row and some consecutive KV heads, whose share of a
// block is contiguous. It covers all parts that the unit sees, or a span of them if there would be
// too few items. Results of spans wait in slots, one per part, until all items are done; then parts
// are merged. Compiled once, for every instruction set.
#pragma once

#include "kernels/attention.h"

namespace forebay::kernels {

// Rows x query heads of an item at most: what one visit to a KV block serves.
inline constexpr int kMaxLines = 32;
// KV blocks of a run: scored together before their values are added.
inline constexpr int kRunBlocks = 4;
inline constexpr int kRunTokens = kRunBlocks * kBlockTokens;
inline constexpr int kPartBlocks = kPartTokens / kBlockTokens;
// Columns of a panel of sums.
inline constexpr int64_t kPanel = 64;

struct AttentionItem {
  const uint32_t* blocks;  // the sequence's block table
  int64_t row;             // first row of the step
  int32_t num_rows;
  int32_t position;                // the first row's
  int32_t last_position;           // the sequence's, as far as this step has it
  int32_t kv_head, num_kv_heads;   // several: all query heads of each
  int32_t head, num_heads;         // query heads
  int32_t first_block, end_block;  // half-open, as far as the rows see
  // The slot of the first part here, the others follow; -1: the item has all parts.
  int32_t slot;
};

// What decides how a unit is cut into items.
struct UnitShape {
  int32_t kv_heads;
  int32_t most_kv_heads;  // that an item may take
  int32_t head_steps;     // items for the query heads of one KV head
  int32_t parts;
};
struct UnitCut {
  int32_t kv_step = 1;  // KV heads of an item
  int32_t spans = 1;    // spans of parts

  int32_t Pieces(const UnitShape& unit) const;
  int32_t Items(const UnitShape& unit) const;
  int32_t Slots(const UnitShape& unit) const;
};
// At least `wanted` items where parts, heads and free slots allow it. Fewer KV heads an item first,
// as long as they are read in long pieces of memory, then spans of parts, then single KV heads.
UnitCut CutUnit(const UnitShape& unit, int64_t wanted, int64_t free_slots);

// Units of one row wait for memory, which they read once; units of several rows for arithmetic.
enum class Units { kOneRow, kSeveralRows };

// Walks all items of such units in an order that every worker computes alike: by falling power of
// two of the KV tokens that a unit reads, then by sequence, rows, spans, heads.
class ItemWalk {
 public:
  // kMerges: for a cut unit, the items that merge its parts; each has all parts and a
  // slot.
  enum Kind { kItems, kMerges };
  // `num_slots`: of a step; where it has units of both kinds, each has half of them.
  ItemWalk(const AttentionArgs& args, int workers, int64_t num_slots, Units units,
           Kind kind = kItems);

  // Item number `ticket`; tickets only grow. False: there are no more.
  bool Seek(int64_t ticket, AttentionItem& item);
  // Slots of the units walked so far.
  int64_t slots() const { return slots_; }

 private:
  bool Wanted(const SequenceRows& sequence, int32_t row) const {
    return (RowsOf(sequence, row) == 1) == (units_ == Units::kOneRow);
  }
  int32_t RowsOf(const SequenceRows& sequence, int32_t row) const;
  int32_t FirstBlock(const SequenceRows& sequence, int32_t row) const;
  int32_t EndBlock(const SequenceRows& sequence, int32_t row) const;
  // The last position that the unit which begins with the row sees.
  int32_t LastSeen(const SequenceRows& sequence, int32_t row) const;
  uint32_t Cost(const SequenceRows& sequence, int32_t row) const;
  void NextUnit();

  const AttentionArgs& args_;
  const Units units_;
  const Kind kind_;
  int64_t first_slot_ = 0, num_slots_;
  const int32_t group_;  // query heads of a KV head
  int32_t head_step_, row_step_;
  double items_per_cost_;  // wanted
  uint32_t classes_ = 0;   // one bit a class that has units
  uint32_t class_ = 0;     // 0: the end
  int32_t sequence_ = 0, row_ = 0;
  UnitShape unit_;
  UnitCut cut_;
  int64_t first_ticket_ = 0, end_ticket_ = 0;  // the unit's items
  int64_t slots_ = 0;
};

// Results of parts wait here, after attention's own part of each worker's scratch. A slot holds
// sums of kMaxLines lines, their maxima, their totals.
class PartSlots {
 public:
  PartSlots(const AttentionArgs& args, const device::WorkerContext& context);
  int64_t size() const;
  std::byte* At(int64_t slot) const;

 private:
  int64_t bytes_, each_, workers_, stride_;
  std::byte* first_;
};

// KV of an item that waits, in pieces of a KV head's K or V in a block, as they lie in memory:
// brought into the second cache while items are attended to that wait for arithmetic.
struct KvAhead {
  const AttentionItem* item = nullptr;
  int32_t block = 0, piece = 0;  // the next one
  int64_t left = 0;              // pieces

  KvAhead() = default;
  // The item's first pieces, as many as stay in the cache beside the data read meanwhile.
  KvAhead(const AttentionArgs& args, const AttentionItem* waiting);
};

struct AttentionFns {
  // `next` is the item after this one, or null. Its data and those `ahead` are worth prefetching.
  void (*attend)(const AttentionArgs& args, const AttentionItem& item, const AttentionItem* next,
                 KvAhead& ahead, const PartSlots& slots, std::byte* scratch);
  // Merges the parts of a cut unit for one of `workers` shares of its lines.
  void (*merge)(const AttentionArgs& args, const AttentionItem& item, const PartSlots& slots,
                int worker, int workers, std::byte* scratch);
};

// Takes items by ticket, costly ones first, until none is left; then merges what was cut. While
// there are both kinds of units, a worker attends to several rows until the KV of the one row that
// it has taken too is in its cache.
void RunAttention(const AttentionArgs& args, const device::WorkerContext& context,
                  const AttentionFns& functions);

}  // namespace forebay::kernels
