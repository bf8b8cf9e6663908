#include "kernels/draw.h"

#include "base/check.h"
#include "kernels/kernel_set.h"

namespace forebay::kernels {
namespace {

// Enqueues `run` over `count` ascending rows of logits that `rows` name, each with a result.
// `drawn`: how many are priced as draws of weights.
template <typename Args, typename Run, typename Row, typename Result>
void Enqueue(device::Stream& stream, Run run, const char* label, const Args& args, const Row* rows,
             int32_t count, Result* results, int32_t drawn) {
  if (count == 0) return;
  FB_CHECK(args.vocab > 0 && args.stride >= args.vocab, "{}: stride {} of rows of {}", label,
           args.stride, args.vocab);
  const cost::OpDesc desc{.kind = cost::OpKind::kSample,
                          .label = label,
                          .rows = count,
                          .columns = args.vocab,
                          .read_bytes = static_cast<double>(count) * args.vocab * 4,
                          .drawn_rows = drawn};
  device::Operation operation = device::MakeOperation(desc, args, run);
  const int64_t first = rows[0].row - args.first_row, last = rows[count - 1].row - args.first_row;
  operation.Reads(args.logits + first * args.stride,
                  static_cast<uint64_t>((last - first) * args.stride + args.vocab) * 4);
  operation.Reads(rows, static_cast<uint64_t>(count) * sizeof(*rows));
  operation.Writes(results, static_cast<uint64_t>(count) * sizeof(*results));
  stream.Enqueue(operation);
}

}  // namespace

void DrawRows(device::Stream& stream, const KernelSet& kernels, const DrawRowsArgs& args) {
  Enqueue(stream, kernels.draw_rows, "draw", args, args.draws, args.num_draws, args.drawn,
          args.weighed_draws);
}

void LikelyRows(device::Stream& stream, const KernelSet& kernels, const LikelyRowsArgs& args) {
  Enqueue(stream, kernels.likely_rows, "likely", args, args.rows, args.num_rows, args.heads,
          args.num_rows);
}

}  // namespace forebay::kernels
