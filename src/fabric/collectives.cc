#include "fabric/collectives.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/units.h"
#include "device/copy.h"

namespace forebay::fabric {
namespace {

constexpr uint64_t kAlignment = 64;
static_assert(Exchange::kMaxRanks == device::kMostParts);

uint64_t HalfBytes(const device::Region& staging) {
  return staging.bytes / 2 / kAlignment * kAlignment;
}

struct GatherArgs {
  struct Source {
    const std::byte* block;
    int32_t row, rows;
    uint64_t offset, bytes, stride;
  };
  Source sources[Exchange::kMaxRanks];
  int num_sources;
  std::byte* out;
  uint64_t row_stride;
  MatrixBehind behind;
};

void Gather(const GatherArgs& args, const device::WorkerContext& context) {
  const MatrixBehind& behind = args.behind;
  for (int i = 0; i < args.num_sources; ++i) {
    const GatherArgs::Source& source = args.sources[i];
    const std::byte* const second =
        source.block + static_cast<uint64_t>(source.rows) * source.bytes;
    const device::Range rows = device::StaticPart(context, source.rows);
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      std::memcpy(args.out + (source.row + row) * args.row_stride + source.offset,
                  source.block + row * source.stride, source.bytes);
      if (behind.row_bytes > 0) {
        std::memcpy(behind.out + (source.row + row) * behind.row_bytes,
                    second + row * behind.row_bytes, behind.row_bytes);
      }
    }
  }
}

void ListGather(const void* raw, std::vector<device::CopiedRows>* copies) {
  const GatherArgs& args = *static_cast<const GatherArgs*>(raw);
  const MatrixBehind& behind = args.behind;
  for (int i = 0; i < args.num_sources; ++i) {
    const GatherArgs::Source& source = args.sources[i];
    copies->push_back({.destination = args.out + source.row * args.row_stride + source.offset,
                       .source = source.block,
                       .row_bytes = source.bytes,
                       .rows = source.rows,
                       .destination_stride = args.row_stride,
                       .source_stride = source.stride});
    if (behind.row_bytes == 0) continue;
    copies->push_back({.destination = behind.out + source.row * behind.row_bytes,
                       .source = source.block + static_cast<uint64_t>(source.rows) * source.bytes,
                       .row_bytes = behind.row_bytes,
                       .rows = source.rows,
                       .destination_stride = behind.row_bytes,
                       .source_stride = behind.row_bytes});
  }
}

uint64_t BytesOf(const GatherBlock& block, const MatrixBehind& behind) {
  return static_cast<uint64_t>(block.rows) * (block.bytes + behind.row_bytes);
}

int HolderOf(std::span<const GatherBlock> blocks, size_t index) {
  return blocks[index].holder < 0 ? static_cast<int>(index) : blocks[index].holder;
}

// Copies `blocks` of the last meeting.
void GatherBlocks(device::Stream& stream, Exchange& exchange, const char* label,
                  cost::Collective collective, std::span<const GatherBlock> blocks, std::byte* out,
                  uint64_t row_stride, const MatrixBehind& behind) {
  FB_CHECK(static_cast<int>(blocks.size()) == exchange.num_ranks() &&
               exchange.num_ranks() <= Exchange::kMaxRanks,
           "{}: {} blocks of {} ranks", label, blocks.size(), exchange.num_ranks());
  GatherArgs args{.num_sources = 0, .out = out, .row_stride = row_stride, .behind = behind};
  uint64_t gathered = 0, end = 0;
  int64_t end_row = 0;
  for (size_t i = 0; i < blocks.size(); ++i) {
    const GatherBlock& block = blocks[i];
    const uint64_t bytes = BytesOf(block, behind);
    if (bytes == 0) continue;
    args.sources[args.num_sources++] = {exchange.part(HolderOf(blocks, i)) + block.from,
                                        static_cast<int32_t>(block.row),
                                        static_cast<int32_t>(block.rows),
                                        block.offset,
                                        block.bytes,
                                        block.stride == 0 ? block.bytes : block.stride};
    gathered += bytes;
    end = std::max(end, (block.row + block.rows - 1) * row_stride + block.offset + block.bytes);
    end_row = std::max(end_row, block.row + block.rows);
  }
  if (gathered == 0) return;
  const cost::OpDesc desc{.kind = cost::OpKind::kCollective,
                          .label = label,
                          .read_bytes = static_cast<double>(gathered),
                          .write_bytes = static_cast<double>(gathered),
                          .collective = collective,
                          .ranks = exchange.num_ranks()};
  device::Operation operation = device::MakeOperation<&Gather>(desc, args);
  operation.copies = ListGather;
  for (int i = 0; i < args.num_sources; ++i) {
    const GatherArgs::Source& source = args.sources[i];
    operation.Reads(source.block, static_cast<uint64_t>(source.rows - 1) * source.stride +
                                      source.bytes +
                                      static_cast<uint64_t>(source.rows) * behind.row_bytes);
  }
  if (behind.row_bytes > 0)
    operation.Writes(behind.out, static_cast<uint64_t>(end_row) * behind.row_bytes);
  stream.Enqueue(operation.Writes(out, end));
}

}  // namespace

uint64_t Exchange::StagingBytes(uint64_t part_bytes) {
  return 2 * base::RoundUp(part_bytes, kAlignment);
}

base::Result<Exchange> Exchange::Create(Fabric& fabric, const Communicator& communicator,
                                        const device::Region& staging, int channel) {
  const size_t ranks = communicator.ranks.size();
  if (ranks > kMostRanks) {
    return base::Status(base::kInvalidArgument,
                        fmt::format("{} ranks meet, at most {} can", ranks, kMostRanks));
  }
  FB_CHECK(communicator.ranks[communicator.my_index] == fabric.rank(),
           "rank {} makes the exchange of rank {}", fabric.rank(),
           communicator.ranks[communicator.my_index]);
  Exchange exchange(fabric, communicator, channel);
  for (const int rank : communicator.ranks) {
    FB_ASSIGN_OR_RETURN(const device::Region* region, fabric.FindRegion(rank, staging.name));
    const uint64_t bytes = HalfBytes(*region);
    exchange.halves_.push_back({{region->data, region->data + bytes}, bytes});
  }
  return exchange;
}

// All posts come before the first await: a stream that waited first would keep everybody waiting.
void Exchange::Post(device::Stream& stream) {
  ++meetings_;
  for (const int peer : communicator_.ranks) {
    if (peer != fabric_->rank()) fabric_->Post(stream, peer, channel_, meetings_);
  }
}

void Exchange::Await(device::Stream& stream) {
  for (const int peer : communicator_.ranks) {
    if (peer != fabric_->rank()) fabric_->Await(stream, peer, channel_, meetings_);
  }
}

void AllGather(device::Stream& stream, Exchange& exchange, const char* label,
               std::span<const GatherBlock> blocks, std::byte* out, uint64_t row_stride) {
  exchange.Meet(stream);
  GatherBlocks(stream, exchange, label, cost::Collective::kAllGather, blocks, out, row_stride, {});
}

void AllGather(device::Stream& stream, Exchange& exchange, const char* label,
               const RowsByOffset& rows, std::byte* out) {
  const uint64_t most = static_cast<uint64_t>(rows.most_rows) * rows.row_bytes;
  FB_CHECK(most <= exchange.part_bytes(), "{}: {} rows of {} bytes, staging holds {} bytes", label,
           rows.most_rows, rows.row_bytes, exchange.part_bytes());
  exchange.Meet(stream);
  device::PartsCopy copy{.destination = out,
                         .num_parts = exchange.num_ranks(),
                         .offsets = rows.offsets,
                         .most_rows = rows.most_rows,
                         .row_bytes = rows.row_bytes};
  for (int rank = 0; rank < copy.num_parts; ++rank) copy.parts[rank] = exchange.part(rank);
  std::copy_n(rows.borders, copy.num_parts + 1, copy.borders);
  // Offsets are written on the device: how many rows there are is known when the operation begins.
  stream.Enqueue(device::MakePartsCopy({.kind = cost::OpKind::kCollective,
                                        .label = label,
                                        .collective = cost::Collective::kAllGather,
                                        .ranks = copy.num_parts},
                                       copy));
}

void AllToAll(device::Stream& stream, Exchange& exchange, const char* label,
              std::span<const GatherBlock> blocks, std::byte* out, uint64_t row_stride,
              const MatrixBehind& behind) {
  exchange.Meet(stream);
  GatherBlocks(stream, exchange, label, cost::Collective::kAllToAll, blocks, out, row_stride,
               behind);
}

void TakeBlocks(device::Stream& stream, Exchange& exchange, const char* label,
                std::span<const GatherBlock> blocks, std::byte* out, uint64_t row_stride) {
  GatherBlocks(stream, exchange, label, cost::Collective::kAllToAll, blocks, out, row_stride, {});
}

uint64_t BytesFromOthers(const Exchange& exchange, std::span<const GatherBlock> blocks,
                         const MatrixBehind& behind) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (HolderOf(blocks, i) != exchange.my_index()) bytes += BytesOf(blocks[i], behind);
  }
  return bytes;
}

base::Result<Handover> Handover::Create(Fabric& fabric, int from, int to,
                                        std::string_view staging_name) {
  FB_CHECK(from != to && (fabric.rank() == from || fabric.rank() == to),
           "rank {} makes the handover from {} to {}", fabric.rank(), from, to);
  FB_ASSIGN_OR_RETURN(const device::Region* staging, fabric.FindRegion(from, staging_name));
  return Handover(fabric, from, to, *staging);
}

std::byte* Handover::Buffer(uint64_t bytes) const {
  const uint64_t half = HalfBytes(*staging_);
  FB_CHECK(bytes <= half, "a message of {} bytes from rank {} to rank {}, staging holds {}", bytes,
           from_, to_, half);
  return staging_->data + messages_ % 2 * half;
}

void Handover::Send(device::Stream& stream, const std::byte* source, uint64_t bytes) {
  ++messages_;
  // A message goes where the last but one lay, once that was taken.
  if (messages_ > 2) fabric_->Await(stream, to_, kTakenChannel, messages_ - 2);
  if (bytes > 0) stream.Enqueue(device::MakeCopy("send", Buffer(bytes), source, bytes));
  fabric_->Post(stream, to_, kStageChannel, messages_);
}

void Handover::Receive(device::Stream& stream, std::byte* destination, uint64_t bytes) {
  ++messages_;
  fabric_->Await(stream, from_, kStageChannel, messages_);
  if (bytes > 0) stream.Enqueue(device::MakeCopy("receive", destination, Buffer(bytes), bytes));
  fabric_->Post(stream, from_, kTakenChannel, messages_);
}

}  // namespace forebay::fabric
