#include "kernels/draw.h"

#include "base/check.h"
#include "kernels/kernel_set.h"

namespace forebay::kernels {

void DrawRows(device::Stream& stream, const KernelSet& kernels, const DrawRowsArgs& args) {
  if (args.num_rows == 0) return;
  FB_CHECK(args.vocab > 0 && args.stride >= args.vocab, "draws: stride {} of rows of {}",
           args.stride, args.vocab);
  const auto rows = static_cast<uint64_t>(args.num_rows);
  const uint64_t bytes =
      ((rows - 1) * static_cast<uint64_t>(args.stride) + static_cast<uint64_t>(args.vocab)) * 4;
  const cost::OpDesc desc{.kind = cost::OpKind::kSample,
                          .label = "draw",
                          .rows = args.num_rows,
                          .columns = args.vocab,
                          .read_bytes = static_cast<double>(rows) * args.vocab * 4,
                          .drawn_rows = args.weighed_rows};
  device::Operation operation = device::MakeOperation(desc, args, kernels.draw_rows);
  operation.Reads(args.logits, bytes).Reads(args.rows, rows * sizeof(*args.rows));
  operation.Writes(args.drawn, rows * sizeof(*args.drawn));
  stream.Enqueue(operation);
}

}  // namespace forebay::kernels
