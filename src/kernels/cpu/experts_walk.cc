#include "kernels/cpu/experts_walk.h"

#include <algorithm>

#include "base/check.h"
#include "base/units.h"
#include "kernels/cpu/linear_blocking.h"

namespace forebay::kernels {
namespace {

// So many rows are multiplied while their weights are read: 256 B a pair of K at 20 GB/s against
// 128 flop a row at 250 GFLOP/s (one Zen 4 core).
constexpr int64_t kStreamedRows = 24;
constexpr int64_t kTickets = 64;  // a worker, were all of the price dealt by tickets

}  // namespace

ExpertWalk::ExpertWalk(const ExpertsArgs& args, const device::WorkerContext& context,
                       int64_t block_rows)
    : args_(args), context_(context), block_rows_(block_rows) {
  const uint64_t needed = ExpertsScratch(args.weight.dtype, args.max_rows, args.weight.k,
                                         args.weight.num_panels, args.weight.has_stored_tiles());
  FB_CHECK(context.scratch_bytes >= needed, "experts need {} bytes of scratch, a worker has {}",
           needed, context.scratch_bytes);
  std::byte* const own = context.scratch + kSumsBytes;
  tiles_ = reinterpret_cast<const std::byte**>(own);
  packed_ =
      own + base::RoundUp(static_cast<uint64_t>(args.weight.num_panels) * sizeof(*tiles_), 64);
  const int64_t workers = context.num_workers;
  expert_ = -1;
  for (NextBlock(); expert_ < args_.num_experts; NextBlock())
    total_ += RowPrice() * args_.weight.num_panels;
  grain_ = std::max<int64_t>(1, total_ / (kTickets * workers));
  open_ = workers == 1 ? total_ : total_ - total_ / 8;
  expert_ = -1;
  block_begin_ = 0;
  NextBlock();
}

int64_t ExpertWalk::NumBlocks() const { return DivideUp(args_.RowsOf(expert_), block_rows_); }

int64_t ExpertWalk::RowPrice() const { return std::max<int64_t>(rows_, kStreamedRows); }

// The next block that has rows; at the end expert_ is num_experts.
void ExpertWalk::NextBlock() {
  if (expert_ < 0 || ++block_ >= NumBlocks()) {
    block_ = 0;
    do {
      ++expert_;
    } while (expert_ < args_.num_experts && NumBlocks() == 0);
    if (expert_ == args_.num_experts) return;
  }
  const int64_t rows = args_.RowsOf(expert_);
  const int64_t first = rows * block_ / NumBlocks(), last = rows * (block_ + 1) / NumBlocks();
  first_row_ = static_cast<int32_t>(args_.FirstRow(expert_) + first);
  rows_ = static_cast<int32_t>(last - first);
}

bool ExpertWalk::TakeInterval() {
  if (!dealt_) {
    dealt_ = true;
    begin_ = open_ * context_.worker / context_.num_workers;
    end_ = open_ * (context_.worker + 1) / context_.num_workers;
    return true;
  }
  if (open_ == total_) return false;
  begin_ = open_ + context_.ticket->fetch_add(1) * grain_;
  end_ = std::min(total_, begin_ + grain_);
  return begin_ < total_;
}

bool ExpertWalk::Next(ExpertPiece* piece) {
  const int64_t panels = args_.weight.num_panels;
  for (;;) {
    while (begin_ >= end_) {
      if (!TakeInterval()) return false;
    }
    while (block_begin_ + RowPrice() * panels <= begin_) {
      block_begin_ += RowPrice() * panels;
      NextBlock();
    }
    // Units of the block, of which those that begin in the interval are this worker's.
    const int64_t price = RowPrice() * panels;
    const int64_t unit_panels = price <= grain_ ? panels : 1;
    const int64_t unit_price = RowPrice() * unit_panels;
    const int64_t first = DivideUp(std::max<int64_t>(begin_ - block_begin_, 0), unit_price);
    const int64_t last = std::min(DivideUp(end_ - block_begin_, unit_price), panels / unit_panels);
    begin_ = std::min(block_begin_ + price, end_);
    if (first >= last) continue;
    piece->first_panel = first * unit_panels;
    piece->last_panel = last * unit_panels;
    piece->same_rows = packed_row_ == first_row_;
    packed_row_ = first_row_;
    Fill(piece);
    return true;
  }
}

void ExpertWalk::Fill(ExpertPiece* piece) const {
  for (int32_t panel = 0; panel < args_.weight.num_panels; ++panel)
    tiles_[panel] = args_.Tile(expert_, panel);
  const int64_t row = first_row_ - args_.FirstRow(expert_);  // within the expert's
  const auto element = static_cast<int64_t>(tensor::SizeOf(args_.weight.dtype));
  LinearArgs& layer = piece->layer;
  layer.weight = args_.weight;
  layer.weight.tiles = tiles_;
  layer.weight.bias = args_.Bias(expert_);
  layer.x = args_.x;
  if (args_.x_rows == nullptr) {
    layer.x += (args_.FirstX(expert_) + row * args_.x_stride) * element;
  } else {
    layer.x_rows = args_.x_rows + first_row_;
  }
  layer.x_stride = args_.x_stride;
  if (args_.codes != nullptr) {
    layer.x = args_.codes;
    layer.x_stride = CodedRowBytes(args_.weight.k);
    layer.coded_x = true;
  }
  layer.y = args_.y + (args_.FirstY(expert_) + row * args_.y_stride) * element;
  layer.y_stride = args_.y_stride;
  layer.rows = rows_;
  layer.output = args_.output;
  layer.leaf_begin = 0;
  layer.leaf_end = 1;
  layer.workspace = packed_;
}

}  // namespace forebay::kernels
