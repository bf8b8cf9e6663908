#include "cost/roofline.h"

namespace forebay::cost {

double SentBytes(Collective collective, double bytes, double ranks) {
  return bytes * (collective == Collective::kAllReduce ? 2 : 1) * (ranks - 1) / ranks;
}

Roofline RooflineAt(TableOp op, NumberFormat format, bool by_weights, const Point& point,
                    double head_dim, const DeviceProfile& device) {
  const auto& [a, b, c] = point;
  const double element = BytesPerElement(format);
  switch (op) {
    case TableOp::kLinear:
    case TableOp::kLinearLeaves: {
      const double weights = by_weights ? b : b * c;
      return RooflineOf(2 * a * weights, weights * element, format, device);
    }
    case TableOp::kExperts: return RooflineOf(2 * a * c, c * element, format, device);
    case TableOp::kDecodeAttention:
    case TableOp::kDecodeShared:
      return RooflineOf(4 * head_dim * a * b * c, 2 * head_dim * element * a * b,
                        NumberFormat::kBF16, device);
    case TableOp::kPrefillAttention:  // half of the square is masked
      return RooflineOf(2 * head_dim * a * b * b, 0, NumberFormat::kBF16, device);
    case TableOp::kAllReduce:
      return {0, SentBytes(Collective::kAllReduce, a, b) / device.link_bytes_per_s};
    case TableOp::kAllGather:
      return {0, SentBytes(Collective::kAllGather, a, b) / device.link_bytes_per_s};
    case TableOp::kReduceScatter:
      return {0, SentBytes(Collective::kReduceScatter, a, b) / device.link_bytes_per_s};
    case TableOp::kAllToAll:
      return {0, SentBytes(Collective::kAllToAll, a, b) / device.link_bytes_per_s};
    case TableOp::kRopeKv:
    case TableOp::kRopeKvDecode:
      return {0, 2 * element * a * b * (c + 2) / device.memory_bytes_per_s};
    case TableOp::kNorm:
    case TableOp::kEmbed:
    case TableOp::kArgmax:
    // read and written once
    case TableOp::kSample: return {0, 2 * element * a * b / device.memory_bytes_per_s};
    // Each state is read and written.
    case TableOp::kRecurrence:
      return RooflineOf(kRecurrenceFlops * a * b, 2 * element * b, format, device);
    // Between GPUs nobody measures them: theirs are over the link to the host.
    case TableOp::kCopy:
      return {0, a * b /
                     (device.kind == DeviceKind::kCpu ? device.link_bytes_per_s
                                                      : device.host_bytes_per_s)};
  }
  return {};
}

}  // namespace forebay::cost
