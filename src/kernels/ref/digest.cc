#include "kernels/digest.h"

#include "kernels/norm.h"
#include "kernels/sets.h"

namespace forebay::kernels::ref {

void LogitsDigest(const LogitsDigestArgs& args, const device::WorkerContext& context) {
  const device::Range rows = StaticPart(context, args.num_rows);
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const float* logits = args.logits + row * args.stride;
    uint64_t digest = 0;
    for (int32_t begin = 0; begin < args.vocab; begin += kDigestChunk) {
      const int64_t entries = args.vocab - begin < kDigestChunk ? args.vocab - begin : kDigestChunk;
      digest += DigestHash(logits + begin, entries * 4,
                           LogitsDigestKey(args.positions[row], begin / kDigestChunk));
    }
    args.digests[row] = digest;
  }
}

}  // namespace forebay::kernels::ref
