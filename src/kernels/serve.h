// A rank computes its experts with the rows of others: which rows it gets, in which order experts
// take them, and how what they give finds home. Rows are numbered through all ranks, each rank's
// behind the last one's.
//
//   owner: GroupServed -> offsets, source, positions; GatherServed from each rank; Experts
//   home:  ReturnServed from each owner -> a row for each slot; CombineRows
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <span>

#include "device/device.h"
#include "kernels/route.h"

namespace forebay::kernels {

inline constexpr int kMaxServed = 64;  // members
using HolderMask = uint64_t;           // a bit a member

// Members compute. Where experts are in parts (tp), rank r's rows are at hand for the members r,
// num_ranks + r, 2 num_ranks + r, ..., one a part; else rank r is member r.
//
// owners [num_ranks, num_experts]: which member computes an expert for whom. The rank's own of the
// expert's part does if it holds the expert; else of the holders (holders [num_experts], all of
// one part) that with the fewest rows so far, of those with as many the nearest,
// then the lowest. counts [num_ranks, num_experts] are the rows of each rank that go to an expert;
// where there is no choice they count first, then experts ascend, and ranks of an expert. null:
// there are none, and the nearest holder has them.
void ChooseOwners(std::span<const HolderMask> holders, int num_ranks, const int32_t* counts,
                  uint8_t* owners);

// Who computes an expert for whom: owners[rank * num_experts + expert].
struct ServedRanks {
  int32_t num_ranks = 0, me = 0;
  int32_t member = 0;  // that `me` is
  int32_t num_experts = 0, experts_per_token = 0;
  // All three outlive the operations that take them.
  const int32_t* first_row = nullptr;  // [num_ranks + 1]
  const uint64_t* step = nullptr;      // [num_ranks], for a RoutingSource
  const uint8_t* owners = nullptr;

  int32_t rows(int rank) const { return first_row[rank + 1] - first_row[rank]; }
};

// The grouped order of the slots that `member` computes, as GroupRows has that of all.
struct GroupServedArgs {
  ServedRanks ranks;
  // Where experts have several holders ChooseOwners is asked first, and what it says written to
  // `owners`, which are those of `ranks`. null: those stand.
  const HolderMask* holders = nullptr;
  uint8_t* owners = nullptr;
  int32_t* counts = nullptr;            // [num_ranks, num_experts], on the way
  int32_t* experts = nullptr;           // [all rows, experts_per_token]; undefined behind it
  int32_t* offsets = nullptr;           // [num_experts + 1], control memory
  int32_t* source = nullptr;            // [all slots]: the row
  int32_t* positions = nullptr;         // [all rows, experts_per_token]; -1: another one's
  RoutingCounters* counters = nullptr;  // null: nobody counts
  // Instead of data; draw.rank is that of rank 0, of draw.step and draw.rows each rank has its own.
  const RoutingSource* routing = nullptr;
  RoutingSource::Draw draw;
};
void GroupServed(device::Stream& stream, const GroupServedArgs& args);

// What has moved between two ranks, counted when it moves.
struct ServedCounters {
  std::atomic<int64_t> rows_sent{0}, rows_returned{0}, bytes{0};
};

// Without data: what one rank's routing sends to a member.
struct ServedCount {
  int64_t slots = 0;  // that it computes
  int64_t rows = 0;   // different rows among them, as if experts were chosen independently
};
// [owner] of the rows of `rank`; counts as in ChooseOwners.
using ServedCounts = std::array<ServedCount, kMaxServed>;
ServedCounts CountServed(const ServedRanks& ranks, int rank, const int32_t* counts);
// The counts that a law draws; `draw` as in GroupServedArgs.
void DrawServed(const ServedRanks& ranks, const RoutingSource& routing,
                const RoutingSource::Draw& draw, std::span<int32_t> counts);

// The rows of one rank that `member` needs, each once: to[row] = from[row], where they have the
// same number among the rank's rows.
struct GatherServedArgs {
  ServedRanks ranks;
  int32_t rank = 0;
  const int32_t* experts = nullptr;  // those of the rank's rows
  const std::byte* from = nullptr;   // [rows of the rank, row_bytes]
  std::byte* to = nullptr;
  uint64_t row_bytes = 0;
  ServedCounters* counters = nullptr;
  const ServedCount* count = nullptr;  // instead of data; read when it is enqueued
};
void GatherServed(device::Stream& stream, const GatherServedArgs& args);

// What the member `owner` has made of this rank's rows: to[row, slot] = from[positions[row, slot]],
// where it computed the slot.
struct ReturnServedArgs {
  ServedRanks ranks;
  int32_t owner = 0;
  const int32_t* experts = nullptr;    // [own rows, experts_per_token]
  const int32_t* positions = nullptr;  // the owner's, of own rows
  const std::byte* from = nullptr;     // the owner's rows in its grouped order
  std::byte* to = nullptr;             // [own rows, experts_per_token] rows
  uint64_t row_bytes = 0;
  ServedCounters* counters = nullptr;
  const ServedCount* count = nullptr;  // instead of data; read when it is enqueued
};
void ReturnServed(device::Stream& stream, const ReturnServedArgs& args);

}  // namespace forebay::kernels
