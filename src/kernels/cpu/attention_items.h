// How attention is cut among workers: an item is some consecutive rows of one sequence and the query heads of one KV
// head. Compiled once, for every instruction set.
#pragma once

#include "kernels/attention.h"

namespace forebay::kernels {

// Rows x query heads of an item at most: what one visit to a KV block serves.
inline constexpr int kMaxLines = 32;

struct AttentionItem {
  const uint32_t* blocks;  // the sequence's block table
  int64_t row;             // first row of the step
  int32_t num_rows;
  int32_t position;        // of the first row
  int32_t kv_head;
  int32_t head, num_heads;  // query heads
};

using AttendItemFn = void (*)(const AttentionArgs& args, const AttentionItem& item, std::byte* scratch);

// Takes items by ticket, costly ones first, until none is left.
void RunAttention(const AttentionArgs& args, const device::WorkerContext& context, AttendItemFn attend);

}  // namespace forebay::kernels
