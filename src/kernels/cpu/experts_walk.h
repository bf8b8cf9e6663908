// How the CPU sets deal the experts' rows to workers: pieces of (expert, block of rows, panels),
// each a dense layer. Blocks are ordered by expert and row. A block's price is its panels times its
// rows; few rows count as the rows that take as long as reading the weights. Workers get equal
// consecutive parts of the first seven eighths of the price, and take the rest by ticket. A cheap
// block is never cut, since each worker of a part packs its rows.
#pragma once

#include "kernels/experts.h"

namespace forebay::kernels {

struct ExpertPiece {
  // one block of an expert's rows; its workspace lies in the worker's scratch
  LinearArgs layer;
  int64_t first_panel = 0, last_panel = 0;
  bool same_rows = false;  // the block of the piece before: its rows are packed
};

// One worker's way through its pieces.
class ExpertWalk {
 public:
  // Blocks have at most `block_rows` rows. REQUIRES: block_rows <= kMaxBlockRows.
  ExpertWalk(const ExpertsArgs& args, const device::WorkerContext& context, int64_t block_rows);
  // False: there is no more.
  bool Next(ExpertPiece* piece);

 private:
  bool TakeInterval();
  void NextBlock();
  int64_t NumBlocks() const;
  int64_t RowPrice() const;  // the price of a panel of the block
  void Fill(ExpertPiece* piece) const;

  const ExpertsArgs& args_;
  const device::WorkerContext& context_;
  const int64_t block_rows_;
  const std::byte** tiles_;  // tiles of the latest piece's expert
  std::byte* packed_;
  int64_t grain_ = 1, open_ = 0, total_ = 0;  // prices: of a ticket, before the open part, of all
  int64_t begin_ = 0, end_ = 0;               // the rest of the interval
  bool dealt_ = false;                        // the worker's own part was taken
  // The block that begins at price block_begin_.
  int32_t expert_ = 0;
  int64_t block_ = 0, block_begin_ = 0;
  int32_t first_row_ = 0, rows_ = 0;
  int32_t packed_row_ = -1;  // the first row of the latest piece's block
};

}  // namespace forebay::kernels
