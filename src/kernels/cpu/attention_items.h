// How attention is cut among workers: an item is some consecutive rows of one sequence and the query heads of one KV
// head, or one row and some consecutive KV heads, whose part of a block lies in one piece. Compiled once, for every
// instruction set.
#pragma once

#include "kernels/attention.h"

namespace forebay::kernels {

// Rows x query heads of an item at most: what one visit to a KV block serves.
inline constexpr int kMaxLines = 32;
// KV blocks of a run: what is scored before its values are added.
inline constexpr int kRunBlocks = 4;
inline constexpr int kRunTokens = kRunBlocks * kBlockTokens;
// Columns of a panel of sums.
inline constexpr int64_t kPanel = 64;

struct AttentionItem {
  const uint32_t* blocks;  // the sequence's block table
  int64_t row;             // first row of the step
  int32_t num_rows;
  int32_t position;        // of the first row
  int32_t kv_head, num_kv_heads;  // several: all query heads of each
  int32_t head, num_heads;        // query heads
};

// `next` is the item after this one, or null: what is worth prefetching.
using AttendItemFn = void (*)(const AttentionArgs& args, const AttentionItem& item, const AttentionItem* next,
                              std::byte* scratch);

// Takes items by ticket, costly ones first, until none is left.
void RunAttention(const AttentionArgs& args, const device::WorkerContext& context, AttendItemFn attend);

}  // namespace forebay::kernels
