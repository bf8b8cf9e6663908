// The modes of a step of a replica's stage, over one KV cache. Pure.
//
// P = s x t ranks hold a block each: a run of whole leaves with its heads, FFN columns and chunks
// of the vocabulary, in logical order. Leaves are cut over tp first, then over sp inside, so block
// b = j s + i is that of the rank with tp index j and sp index i, rank i t + j of the stage. A mode
// s' x t' = P, t dividing t', computes linear layers over runs of s' blocks: block b has TP index
// b / s' and SP index b mod s'. Its groups are lists of ranks in the order of their blocks, and
// each KV head stays with its block: no mode moves or permutes anything.
//
//   s = 3, t = 2:   block     0 1 2 3 4 5        rank      0 1 2 3 4 5
//                   its rank  0 2 4 1 3 5        its block 0 3 1 4 2 5
#pragma once

#include <vector>

#include "base/part.h"

namespace forebay::model {

// Degrees of sequence and tensor parallelism: a layout's or a mode's.
struct Degrees {
  int sp = 1, tp = 1;

  int ranks() const { return sp * tp; }
  int TpIndex(int block) const { return block / sp; }
  int SpIndex(int block) const { return block % sp; }
  friend bool operator==(const Degrees&, const Degrees&) = default;
};

// Ranks of a stage and the blocks that they hold.
int RankOfBlock(const Degrees& layout, int block);
int BlockOfRank(const Degrees& layout, int rank);

// The part of `total` leaves or chunks that blocks [begin, end) have.
base::Part PartOfBlocks(int64_t total, const Degrees& layout, const base::Part& blocks);
// The blocks with whose weights those of TP index `index` compute.
base::Part BlocksOf(const Degrees& mode, int index);

// Whom the rank of `block` meets in `mode`, as ranks of the stage in the order of their blocks: its
// own is at SpIndex(block) and TpIndex(block).
std::vector<int> SpRanks(const Degrees& layout, const Degrees& mode, int block);
std::vector<int> TpRanks(const Degrees& layout, const Degrees& mode, int block);

// The rows, of `rows` wanted ones, whose tokens the rank of `block` draws.
inline base::Part DrawnRows(int64_t rows, const Degrees& layout, int block) {
  return base::EvenPart(rows, layout.ranks(), block);
}

// The rows of a step that SP index `index` has in its linear layers.
inline base::Part RowsOf(int64_t rows, const Degrees& mode, int index) {
  return base::EvenPart(rows, mode.sp, index);
}
// The most rows of any rank in a step of at most `rows`.
inline int64_t MostOwnRows(int64_t rows, const Degrees& mode) {
  return (rows + mode.sp - 1) / mode.sp;
}

}  // namespace forebay::model
