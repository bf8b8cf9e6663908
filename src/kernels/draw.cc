#include "kernels/draw.h"

#include "base/check.h"
#include "kernels/kernel_set.h"

namespace forebay::kernels {

void DrawRows(device::Stream& stream, const KernelSet& kernels, const DrawRowsArgs& args) {
  if (args.num_draws == 0) return;
  FB_CHECK(args.vocab > 0 && args.stride >= args.vocab, "draws: stride {} of rows of {}",
           args.stride, args.vocab);
  const auto draws = static_cast<uint64_t>(args.num_draws);
  const cost::OpDesc desc{.kind = cost::OpKind::kSample,
                          .label = "draw",
                          .rows = args.num_draws,
                          .columns = args.vocab,
                          .read_bytes = static_cast<double>(draws) * args.vocab * 4,
                          .drawn_rows = args.weighed_draws};
  device::Operation operation = device::MakeOperation(desc, args, kernels.draw_rows);
  const int64_t first = args.draws[0].row - args.first_row,
                last = args.draws[args.num_draws - 1].row - args.first_row;
  operation.Reads(args.logits + first * args.stride,
                  static_cast<uint64_t>((last - first) * args.stride + args.vocab) * 4);
  operation.Reads(args.draws, draws * sizeof(*args.draws));
  operation.Writes(args.drawn, draws * sizeof(*args.drawn));
  stream.Enqueue(operation);
}

void LikelyRows(device::Stream& stream, const KernelSet& kernels, const LikelyRowsArgs& args) {
  if (args.num_rows == 0) return;
  FB_CHECK(args.vocab > 0 && args.stride >= args.vocab, "likely: stride {} of rows of {}",
           args.stride, args.vocab);
  const auto rows = static_cast<uint64_t>(args.num_rows);
  const cost::OpDesc desc{.kind = cost::OpKind::kSample,
                          .label = "likely",
                          .rows = args.num_rows,
                          .columns = args.vocab,
                          .read_bytes = static_cast<double>(rows) * args.vocab * 4,
                          .drawn_rows = args.num_rows};
  device::Operation operation = device::MakeOperation(desc, args, kernels.likely_rows);
  const int64_t first = args.rows[0].row - args.first_row,
                last = args.rows[args.num_rows - 1].row - args.first_row;
  operation.Reads(args.logits + first * args.stride,
                  static_cast<uint64_t>((last - first) * args.stride + args.vocab) * 4);
  operation.Reads(args.rows, rows * sizeof(*args.rows));
  operation.Writes(args.heads, rows * sizeof(*args.heads));
  stream.Enqueue(operation);
}

}  // namespace forebay::kernels
