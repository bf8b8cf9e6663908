#include "cost/model.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "cost/roofline.h"

namespace forebay::cost {
namespace {

constexpr double kRowsOfOneBlock = 95;
constexpr double kMostShare = 0.9;  // part of a resource that copies can take from kernels

TableOp TableOf(Collective collective) {
  return static_cast<TableOp>(static_cast<int>(TableOp::kAllReduce) + static_cast<int>(collective));
}

Bound BoundOf(const Roofline& roofline, double seconds, double floor) {
  if (seconds < 2 * floor) return Bound::kOverhead;
  return roofline.compute_seconds > roofline.memory_seconds ? Bound::kCompute : Bound::kMemory;
}

// The datasheet's roofline at the default utilisations.
PriceResult Default(const Roofline& roofline, double floor, const DeviceProfile& device) {
  const Roofline reached{roofline.compute_seconds / device.mfu,
                         roofline.memory_seconds / device.mbu};
  const double seconds = std::max(reached.seconds(), floor);
  return {seconds, How::kMiss, BoundOf(reached, seconds, floor)};
}

// The table's time at `wanted`. Outside the grid, for heads of another size than the table's and
// for another format, the nearest point's utilisation holds, but no kernel beats the fastest one.
PriceResult FromTable(const UtilisationTable& table, NumberFormat format, const Point& wanted,
                      double head_dim, double floor, const DeviceProfile& device) {
  const UtilisationTable::Found found = table.Lookup(wanted);
  const Roofline work = RooflineAt(table.op, format, table.by_weights, wanted, head_dim, device);
  double seconds = found.seconds;
  How how = found.how;
  if (format != table.format || (IsAttention(table.op) && head_dim != table.head_dim))
    how = How::kHeld;
  if (how == How::kHeld) {
    const Roofline held =
        RooflineAt(table.op, table.format, table.by_weights, found.point, table.head_dim, device);
    seconds = std::max(seconds * work.seconds() / held.seconds(), table.floor_seconds);
  }
  return {seconds, how, BoundOf(work, seconds, floor), table.mark};
}

// The same in the table's own format, of what has no heads.
PriceResult FromTable(const UtilisationTable& table, const Point& wanted, double floor,
                      const DeviceProfile& device) {
  return FromTable(table, table.format, wanted, 0, floor, device);
}

PriceResult LinearFromTable(const UtilisationTable& table, double rows, double n, double k,
                            const DeviceProfile& device) {
  const Point point = table.by_weights ? Point{rows, n * k, 1} : Point{rows, n, k};
  return FromTable(table, point, device.op_floor_s, device);
}

// A CPU's workers are dealt panels of columns: an odd panel costs as much as one each. Many rows
// are dealt in blocks of rows as well (kernels/cpu/linear_blocking.cc), which evens it out; they
// cost no less than fewer rows.
PriceResult PriceDealt(const UtilisationTable& table, double rows, double n, double k,
                       const DeviceProfile& device) {
  if (device.column_grain == 0) return LinearFromTable(table, rows, n, k, device);
  const double dealt = std::ceil(n / device.column_grain) * device.column_grain;
  PriceResult result = LinearFromTable(table, std::min(rows, kRowsOfOneBlock), dealt, k, device);
  if (rows > kRowsOfOneBlock) {
    const PriceResult many = LinearFromTable(table, rows, n, k, device);
    if (many.seconds > result.seconds) result = many;
  }
  return result;
}

// The table of the operation's weights, or of those that are nearest: stored weights cost what the
// measured form with about their bytes and their expander's work costs, else what the type costs
// that they are expanded to; int8, int4 and q8 of a CPU that was not measured with them are like
// bf16.
const UtilisationTable* FindWeights(TableOp table_op, const OpDesc& op,
                                    const DeviceProfile& device) {
  const bool is_cpu = device.kind == DeviceKind::kCpu;
  if (is_cpu && op.stored_bytes > 0 && op.weight_format == NumberFormat::kBF16) {
    // Q6_K and Q5_K lie between: their codes of two planes take as long as those of fp8.
    const NumberFormat form = op.stored_bytes < 0.7     ? NumberFormat::kInt4
                              : op.stored_bytes <= 1.04 ? NumberFormat::kFP8
                                                        : NumberFormat::kQ8;
    if (const UtilisationTable* const table = device.Find(table_op, form)) return table;
  }
  const UtilisationTable* const own = device.Find(table_op, op.weight_format);
  if (own != nullptr || !is_cpu) return own;
  const bool like_bf16 = op.weight_format == NumberFormat::kInt8 ||
                         op.weight_format == NumberFormat::kInt4 ||
                         op.weight_format == NumberFormat::kQ8;
  return like_bf16 ? device.Find(table_op, NumberFormat::kBF16) : nullptr;
}

// A price of weights of the format `priced` becomes that of the operation's: they are read in their
// own bytes, and multiplied at the rate of their arithmetic.
PriceResult WithOwnBytes(PriceResult result, const OpDesc& op, NumberFormat priced, double rows,
                         double weights, const DeviceProfile& device) {
  const double bytes = op.stored_bytes > 0 ? op.stored_bytes : BytesPerElement(op.weight_format);
  if (priced == op.weight_format && op.stored_bytes <= 0) return result;
  const Roofline stored = RooflineOf(2 * rows * weights, weights * bytes, op.weight_format, device);
  const double ratio =
      stored.seconds() /
      RooflineOf(2 * rows * weights, weights * BytesPerElement(priced), priced, device).seconds();
  result.seconds = std::max(result.seconds * ratio, device.op_floor_s);
  result.how = std::max(result.how, How::kHeld);
  result.bound = BoundOf(stored, result.seconds, device.op_floor_s);
  return result;
}

PriceResult PriceLinear(const OpDesc& op, const DeviceProfile& device, bool calibrated) {
  const double rows = static_cast<double>(op.rows);
  const double n = static_cast<double>(op.columns);
  const double k = static_cast<double>(op.depth);
  const UtilisationTable* const whole =
      calibrated ? FindWeights(TableOp::kLinear, op, device) : nullptr;
  const UtilisationTable* const leaves =
      calibrated && op.leaves > 1 ? FindWeights(TableOp::kLinearLeaves, op, device) : nullptr;
  const UtilisationTable* const table = leaves != nullptr ? leaves : whole;
  if (table != nullptr && n > 0 && k > 0) {
    PriceResult result = PriceDealt(*table, rows, n, k, device);
    // what K in one leaf costs
    if (op.leaves > 1 && leaves == nullptr) result.how = std::max(result.how, How::kHeld);
    return WithOwnBytes(result, op, table->format, rows, n * k, device);
  }
  const double bytes = n * k * BytesPerElement(op.weight_format);
  return WithOwnBytes(Default(RooflineOf(2 * rows * n * k, bytes, op.weight_format, device),
                              device.op_floor_s, device),
                      op, op.weight_format, rows, n * k, device);
}

// A table's time is an expert's share, which has no floor of its own as whole kernels do
// (FromTable). Without a table a CPU runs a dense layer after another, each of the mean rows, and
// an accelerator all experts at once.
PriceResult PriceExperts(const OpDesc& op, const DeviceProfile& device, bool calibrated) {
  const double experts = static_cast<double>(op.experts), n = static_cast<double>(op.columns),
               k = static_cast<double>(op.depth);
  if (op.experts <= 0) return Default({}, device.op_floor_s, device);
  const auto rows = static_cast<double>(op.rows);
  if (const UtilisationTable* const table =
          calibrated ? FindWeights(TableOp::kExperts, op, device) : nullptr) {
    const double skew = static_cast<double>(op.busiest_rows) * experts / rows;
    const Point wanted{rows / experts, std::max(1.0, skew), n * k};
    const UtilisationTable::Found found = table->Lookup(wanted);
    const auto roofline = [&](const Point& point) {
      return RooflineAt(TableOp::kExperts, table->format, false, point, 0, device);
    };
    const Roofline work = roofline(wanted);
    const double utilisation = roofline(found.point).seconds() / found.seconds;
    const double seconds = std::max(experts * work.seconds() / utilisation, device.op_floor_s);
    return WithOwnBytes(
        {seconds, found.how, BoundOf(work, seconds, device.op_floor_s), table->mark}, op,
        table->format, rows / experts, experts * n * k, device);
  }
  if (device.kind == DeviceKind::kCpu) {
    OpDesc dense = op;
    dense.rows = (op.rows + op.experts - 1) / op.experts;
    PriceResult result = PriceLinear(dense, device, calibrated);
    result.seconds *= experts;
    result.how = std::max(result.how, How::kHeld);
    return result;
  }
  const double bytes = experts * n * k * BytesPerElement(op.weight_format);
  return WithOwnBytes(Default(RooflineOf(2 * rows * n * k, bytes, op.weight_format, device),
                              device.op_floor_s, device),
                      op, op.weight_format, rows / experts, experts * n * k, device);
}

// Elements of a value, which may be narrower than its key.
double ValueDim(const OpDesc& op) {
  return op.columns > 0 ? static_cast<double>(op.columns) / op.heads : op.head_dim;
}

// The table of attention over the operation's cache; a CPU that was not measured with codes has
// that of bf16.
const UtilisationTable* FindAttention(TableOp table_op, const OpDesc& op, double head_dim,
                                      const DeviceProfile& device) {
  const UtilisationTable* const own = device.Find(table_op, op.kv_format, head_dim);
  const bool codes = BytesPerElement(op.kv_format) == 1;
  if (own != nullptr || device.kind != DeviceKind::kCpu || !codes) return own;
  return device.Find(table_op, NumberFormat::kBF16, head_dim);
}

// Contexts that sequences share come from memory once. Latents, whose values lie in their keys, all
// heads attend to at once: no table is of such kernels.
PriceResult PriceDecode(const OpDesc& op, const DeviceProfile& device, bool calibrated) {
  const double sequences = static_cast<double>(op.rows - op.prefill_sequences);
  const double context = static_cast<double>(op.depth - op.prefill_context);
  const double head_dim = op.head_dim, value_dim = ValueDim(op);
  const bool latents = op.kv_heads == 1 && value_dim < head_dim;
  const UtilisationTable* const table =
      calibrated && !latents ? FindAttention(TableOp::kDecodeAttention, op, head_dim, device)
                             : nullptr;
  if (table != nullptr) {
    const Point point{sequences * op.kv_heads, context / sequences, double(op.heads) / op.kv_heads};
    PriceResult result =
        FromTable(*table, op.kv_format, point, head_dim, device.decode_floor_s, device);
    if (const UtilisationTable* shared =
            FindAttention(TableOp::kDecodeShared, op, head_dim, device);
        shared && op.repeated_context > 0) {
      const PriceResult again =
          FromTable(*shared, op.kv_format, point, head_dim, device.decode_floor_s, device);
      const double part = static_cast<double>(op.repeated_context) / context;
      result.seconds += part * (std::min(again.seconds, result.seconds) - result.seconds);
    }
    return result;
  }
  const double width = latents ? head_dim : head_dim + value_dim;
  const double bytes = width * op.kv_heads * BytesPerElement(op.kv_format) * context;
  return Default(RooflineOf(2 * (head_dim + value_dim) * op.heads * context, bytes,
                            NumberFormat::kBF16, device),
                 device.decode_floor_s, device);
}

// A chunk that sees a longer context is taken as a whole prompt of equal work: tokens^2 / 2 =
// context of all its rows. Arithmetic alone counts, so keys and values of unlike widths are heads
// of their mean.
PriceResult PricePrefill(const OpDesc& op, const DeviceProfile& device, bool calibrated) {
  const double sequences = static_cast<double>(op.prefill_sequences);
  const double context = static_cast<double>(op.prefill_context);
  const double head_dim = (op.head_dim + ValueDim(op)) / 2;
  if (const UtilisationTable* table =
          calibrated ? FindAttention(TableOp::kPrefillAttention, op, head_dim, device) : nullptr) {
    const Point point{sequences * op.heads, std::sqrt(2 * context / sequences),
                      double(op.heads) / op.kv_heads};
    return FromTable(*table, op.kv_format, point, head_dim, device.op_floor_s, device);
  }
  return Default(RooflineOf(4 * head_dim * op.heads * context, 0, NumberFormat::kBF16, device),
                 device.op_floor_s, device);
}

PriceResult PriceAttention(const OpDesc& op, const DeviceProfile& device, bool calibrated) {
  if (op.heads <= 0 || op.kv_heads <= 0 || op.head_dim <= 0) {
    const double bytes = op.read_bytes + op.write_bytes;
    return Default(RooflineOf(op.flops, bytes, NumberFormat::kBF16, device), device.decode_floor_s,
                   device);
  }
  if (op.rows <= 0) return Default({}, device.op_floor_s, device);
  const bool prefill = op.prefill_sequences > 0;
  const bool decode = op.rows > op.prefill_sequences;
  if (!prefill) return PriceDecode(op, device, calibrated);
  PriceResult result = PricePrefill(op, device, calibrated);
  if (decode) {
    const PriceResult rest = PriceDecode(op, device, calibrated);
    if (rest.seconds > result.seconds) result.bound = rest.bound, result.mark = rest.mark;
    result.seconds += rest.seconds;
    result.how = std::max(result.how, rest.how);
  }
  return result;
}

PriceResult PriceCopy(const OpDesc& op, const DeviceProfile& device, bool calibrated) {
  const UtilisationTable* table =
      calibrated ? device.Find(TableOp::kCopy, NumberFormat::kBF16) : nullptr;
  const double sharers = std::max(op.sharers, 1);
  // Between the ranks of a CPU every copy goes through the one memory; a GPU's table is of copies
  // between it and its host.
  if (table != nullptr && op.read_bytes > 0 &&
      (device.kind == DeviceKind::kCpu || op.link == Link::kHost)) {
    return FromTable(*table, {op.read_bytes, sharers, 1}, device.link_latency_s, device);
  }
  if (op.link == Link::kLocal) {
    return Default({0, (op.read_bytes + op.write_bytes) / device.memory_bytes_per_s},
                   device.op_floor_s, device);
  }
  const double rate = LinkRate(op.link, device) / sharers;
  const double seconds = device.link_latency_s + op.read_bytes / rate;
  return {seconds, How::kMiss,
          seconds < 2 * device.link_latency_s ? Bound::kOverhead : Bound::kMemory};
}

PriceResult PriceFile(const OpDesc& op, const DeviceProfile& device) {
  const double seconds =
      (op.read_bytes / DiskReadRate(device) + op.write_bytes / DiskWriteRate(device)) *
      std::max(op.sharers, 1);
  return {seconds, How::kMiss, Bound::kOverhead};
}

PriceResult PriceCollective(const OpDesc& op, const DeviceProfile& device, bool calibrated) {
  if (op.ranks <= 1) return {0, How::kExact, Bound::kOverhead};
  const TableOp kind = TableOf(op.collective);
  const UtilisationTable* table = calibrated ? device.Find(kind, NumberFormat::kBF16) : nullptr;
  if (table != nullptr && op.read_bytes > 0) {
    return FromTable(*table, {op.read_bytes, double(op.ranks), 1}, table->floor_seconds, device);
  }
  OpDesc copy = op;
  copy.link = Link::kPeer;
  // In one meeting each rank reads the buffers of all others.
  copy.read_bytes = op.collective == Collective::kAllReduce
                        ? op.read_bytes * (op.ranks - 1)
                        : SentBytes(op.collective, op.read_bytes, op.ranks);
  return PriceCopy(copy, device, false);
}

// Everything that streams rows through memory. Descriptions that leave activations out get them
// read and written once.
PriceResult PriceStreaming(const OpDesc& op, const DeviceProfile& device) {
  const double element = device.kind == DeviceKind::kCpu ? 4 : 2;
  const double activations =
      2 * element * static_cast<double>(op.rows) * static_cast<double>(op.columns);
  const double bytes = std::max(op.read_bytes + op.write_bytes, activations);
  const double flop_seconds =
      op.flops / device.Peak(device.f32_flops > 0 ? NumberFormat::kF32 : NumberFormat::kBF16);
  return Default({flop_seconds, bytes / device.memory_bytes_per_s}, device.op_floor_s, device);
}

PriceResult PriceRows(TableOp kind, double rows, NumberFormat format, const OpDesc& op,
                      const DeviceProfile& device) {
  const UtilisationTable* table = op.columns > 0 ? device.Find(kind, format) : nullptr;
  if (table == nullptr) return PriceStreaming(op, device);
  return FromTable(*table, {rows, double(op.columns), 1}, device.op_floor_s, device);
}

PriceResult PriceRecurrence(const OpDesc& op, const DeviceProfile& device) {
  const UtilisationTable* const table = device.Find(TableOp::kRecurrence, NumberFormat::kF32);
  const double elements = op.read_bytes / BytesPerElement(NumberFormat::kF32);
  if (table == nullptr || elements == 0) return PriceStreaming(op, device);
  return FromTable(*table, {op.flops / (kRecurrenceFlops * elements), elements, 1},
                   device.op_floor_s, device);
}

// Logits are fp32. Rows that draw cost more than rows that take the greatest.
PriceResult PriceSample(const OpDesc& op, const DeviceProfile& device) {
  const double drawn = static_cast<double>(op.drawn_rows),
               others = static_cast<double>(op.rows) - drawn;
  if (drawn == 0) return PriceRows(TableOp::kArgmax, others, NumberFormat::kF32, op, device);
  PriceResult result = PriceRows(TableOp::kSample, drawn, NumberFormat::kF32, op, device);
  if (others > 0 && result.how != How::kMiss) {
    const PriceResult rest = PriceRows(TableOp::kArgmax, others, NumberFormat::kF32, op, device);
    result.seconds += rest.seconds;
    result.how = std::max(result.how, rest.how);
  }
  return result;
}

// Rows of one prompt share the cache lines that they write, rows of different sequences do not.
PriceResult PriceRope(const OpDesc& op, const DeviceProfile& device) {
  const UtilisationTable* prompts = device.Find(TableOp::kRopeKv, op.weight_format);
  const UtilisationTable* decoding = device.Find(TableOp::kRopeKvDecode, op.weight_format);
  if (prompts == nullptr || decoding == nullptr || op.kv_heads <= 0)
    return PriceStreaming(op, device);
  const double columns = double(op.kv_heads) * op.head_dim, group = double(op.heads) / op.kv_heads;
  const double prefill = static_cast<double>(op.prefill_rows),
               decode = static_cast<double>(op.rows) - prefill;
  PriceResult result{0, How::kExact, Bound::kOverhead};
  for (const auto& [table, rows] : {std::pair(prompts, prefill), std::pair(decoding, decode)}) {
    if (rows <= 0) continue;
    const PriceResult part = FromTable(*table, {rows, columns, group}, device.op_floor_s, device);
    result = {result.seconds + part.seconds, std::max(result.how, part.how), part.bound, part.mark};
  }
  return result;
}

PriceResult PriceKernel(const OpDesc& op, const DeviceProfile& device, bool calibrated) {
  const double rows = static_cast<double>(op.rows);
  switch (op.kind) {
    case OpKind::kLinear: return PriceLinear(op, device, calibrated);
    case OpKind::kAttention: return PriceAttention(op, device, calibrated);
    case OpKind::kExperts: return PriceExperts(op, device, calibrated);
    case OpKind::kCopy: return PriceCopy(op, device, calibrated);
    case OpKind::kFile: return PriceFile(op, device);
    case OpKind::kCollective: return PriceCollective(op, device, calibrated);
    default: break;
  }
  if (!calibrated || op.rows <= 0) return PriceStreaming(op, device);
  switch (op.kind) {
    case OpKind::kNorm: return PriceRows(TableOp::kNorm, rows, op.weight_format, op, device);
    case OpKind::kRopeKv: return PriceRope(op, device);
    case OpKind::kEmbed: return PriceRows(TableOp::kEmbed, rows, op.weight_format, op, device);
    case OpKind::kSample: return PriceSample(op, device);
    case OpKind::kRecurrence: return PriceRecurrence(op, device);
    default: return PriceStreaming(op, device);
  }
}

}  // namespace

PriceResult Price(const OpDesc& op, const DeviceProfile& device, Calibration mode) {
  PriceResult result = PriceKernel(op, device, mode == Calibration::kCalibrated);
  result.seconds += device.launch_s;
  return result;
}

double LinkRate(Link link, const DeviceProfile& device) {
  const double host =
      device.host_bytes_per_s > 0 ? device.host_bytes_per_s : device.memory_bytes_per_s;
  return (link == Link::kPeer && device.link_bytes_per_s > 0 ? device.link_bytes_per_s : host) *
         device.link_efficiency;
}

double PullRate(const DeviceProfile& device) {
  return device.kind == DeviceKind::kCpu ? device.copy_bytes_per_core_s
                                         : LinkRate(Link::kPeer, device);
}

double HostRate(const DeviceProfile& device) {
  return device.kind == DeviceKind::kCpu ? device.copy_bytes_per_core_s
                                         : LinkRate(Link::kHost, device);
}

bool PeersBehindHost(const DeviceProfile& device) {
  return device.kind == DeviceKind::kGpu && device.link_bytes_per_s <= 0;
}

double DiskReadRate(const DeviceProfile& device) {
  return device.disk_read_bytes_per_s > 0 ? device.disk_read_bytes_per_s : kUsualDiskRate;
}

double DiskWriteRate(const DeviceProfile& device) {
  return device.disk_write_bytes_per_s > 0 ? device.disk_write_bytes_per_s : kUsualDiskRate;
}

Work WorkOf(const OpDesc& op, const DeviceProfile& device, Calibration mode) {
  const PriceResult price = Price(op, device, mode);
  Work work{.seconds = price.seconds};
  if (price.bound == Bound::kCompute) {
    work.compute_seconds = price.seconds;
  } else {
    work.memory_seconds =
        std::min(price.seconds, (op.read_bytes + op.write_bytes) / device.memory_bytes_per_s);
  }
  const Mark numbers = NumbersMark(device);
  work.origins.Add(price.how == How::kMiss ? numbers : price.mark, price.seconds);
  const double host = op.kind == OpKind::kEmbed ? device.step_overhead_s
                      : op.kind == OpKind::kSample
                          ? device.sequence_overhead_s * static_cast<double>(op.rows)
                          : 0;
  work.seconds += host;
  work.origins.Add(numbers, host);
  return work;
}

Contention ContentionOf(const DeviceProfile& device, double cores) {
  const bool cpu = device.kind == DeviceKind::kCpu;
  return {.memory_bytes_per_s = device.memory_bytes_per_s,
          .link_bytes_per_s = PullRate(device),
          .frequency_loss = device.frequency_loss,
          .core_bytes_per_s = cpu ? device.copy_bytes_per_core_s * cores : 0,
          .machine_bytes_per_s = cpu ? device.machine_bytes_per_s : 0};
}

double Slowdown(const Work& work, const CopyLoad& load, const Contention& contention,
                double others) {
  if (work.seconds <= 0 || load.in + load.out + others <= 0) return 1;
  const double taken =
      std::max(std::min((load.in + load.out) / contention.memory_bytes_per_s, kMostShare), others);
  const double link = std::min(std::max(load.in, load.out) / contention.link_bytes_per_s, 1.0);
  const double lost = work.memory_seconds * taken / (1 - taken) +
                      work.compute_seconds * contention.frequency_loss * link;
  double factor = 1 + lost / work.seconds;
  // The puller's cores copy.
  if (contention.core_bytes_per_s > 0)
    factor /= 1 - std::min(load.in / contention.core_bytes_per_s, kMostShare);
  return factor;
}

}  // namespace forebay::cost
