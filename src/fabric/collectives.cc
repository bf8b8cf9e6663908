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

uint64_t HalfBytes(const device::Region& staging) { return staging.bytes / 2 / kAlignment * kAlignment; }

struct GatherArgs {
  struct Source {
    const std::byte* part;
    GatherBlock block;
  };
  Source sources[Exchange::kMaxRanks];
  int num_sources;
  std::byte* out;
  uint64_t row_stride;
};

void Gather(const GatherArgs& args, const device::WorkerContext& context) {
  for (int i = 0; i < args.num_sources; ++i) {
    const auto& [part, block] = args.sources[i];
    const device::Range rows = device::StaticPart(context, block.rows);
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      std::memcpy(args.out + (block.row + row) * args.row_stride + block.offset, part + row * block.bytes, block.bytes);
    }
  }
}

}  // namespace

uint64_t Exchange::StagingBytes(uint64_t part_bytes) { return 2 * base::RoundUp(part_bytes, kAlignment); }

base::Result<Exchange> Exchange::Create(Fabric& fabric, const Communicator& communicator, const device::Region& staging,
                                        int channel) {
  const size_t ranks = communicator.ranks.size();
  if (ranks > kMaxRanks) {
    return base::Status(base::kInvalidArgument, fmt::format("{} ranks meet, at most {} can", ranks, kMaxRanks));
  }
  FB_CHECK(communicator.ranks[communicator.my_index] == fabric.rank(), "rank {} makes the exchange of rank {}",
           fabric.rank(), communicator.ranks[communicator.my_index]);
  Exchange exchange(fabric, communicator, channel);
  for (const int rank : communicator.ranks) {
    FB_ASSIGN_OR_RETURN(const device::Region* region, fabric.FindRegion(rank, staging.name));
    const uint64_t bytes = HalfBytes(*region);
    exchange.halves_.push_back({{region->data, region->data + bytes}, bytes});
  }
  return exchange;
}

void Exchange::Meet(device::Stream& stream) {
  ++meetings_;
  for (const int peer : communicator_.ranks) {
    if (peer != fabric_->rank()) fabric_->Post(stream, peer, channel_, meetings_);
  }
  for (const int peer : communicator_.ranks) {
    if (peer != fabric_->rank()) fabric_->Await(stream, peer, channel_, meetings_);
  }
}

void AllGather(device::Stream& stream, Exchange& exchange, const char* label, std::span<const GatherBlock> blocks,
               std::byte* out, uint64_t row_stride) {
  FB_CHECK(static_cast<int>(blocks.size()) == exchange.num_ranks(), "{}: {} blocks of {} ranks", label, blocks.size(),
           exchange.num_ranks());
  exchange.Meet(stream);
  GatherArgs args{.num_sources = 0, .out = out, .row_stride = row_stride};
  uint64_t gathered = 0, end = 0;
  for (size_t i = 0; i < blocks.size(); ++i) {
    const GatherBlock& block = blocks[i];
    const uint64_t bytes = static_cast<uint64_t>(block.rows) * block.bytes;
    if (bytes == 0) continue;
    args.sources[args.num_sources++] = {exchange.part(static_cast<int>(i)), block};
    gathered += bytes;
    end = std::max(end, (block.row + block.rows - 1) * row_stride + block.offset + block.bytes);
  }
  if (gathered == 0) return;
  const cost::OpDesc desc{.kind = cost::OpKind::kCollective,
                          .label = label,
                          .read_bytes = static_cast<double>(gathered),
                          .write_bytes = static_cast<double>(gathered),
                          .collective = cost::Collective::kAllGather,
                          .ranks = exchange.num_ranks()};
  device::Operation operation = device::MakeOperation<&Gather>(desc, args);
  for (int i = 0; i < args.num_sources; ++i) {
    const GatherBlock& block = args.sources[i].block;
    operation.Reads(args.sources[i].part, static_cast<uint64_t>(block.rows) * block.bytes);
  }
  stream.Enqueue(operation.Writes(out, end));
}

base::Result<Handover> Handover::Create(Fabric& fabric, int from, int to, std::string_view staging_name) {
  FB_CHECK(from != to && (fabric.rank() == from || fabric.rank() == to), "rank {} makes the handover from {} to {}",
           fabric.rank(), from, to);
  FB_ASSIGN_OR_RETURN(const device::Region* staging, fabric.FindRegion(from, staging_name));
  return Handover(fabric, from, to, *staging);
}

std::byte* Handover::Buffer(uint64_t bytes) const {
  const uint64_t half = HalfBytes(*staging_);
  FB_CHECK(bytes <= half, "a message of {} bytes from rank {} to rank {}, staging holds {}", bytes, from_, to_, half);
  return staging_->data + messages_ % 2 * half;
}

void Handover::Send(device::Stream& stream, const std::byte* source, uint64_t bytes) {
  ++messages_;
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
