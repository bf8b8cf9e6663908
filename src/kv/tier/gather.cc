#include "kv/tier/gather.h"

#include <cstring>
#include <vector>

namespace forebay::kv {
namespace {

struct GatherArgs {
  const StreamedBlock* blocks;  // [count]
  int64_t count;
  PartsBelow parts;
  std::byte* slot;
  uint64_t part_bytes;

  const std::byte* From(int64_t i) const {
    return parts.data + static_cast<uint64_t>(blocks[i].below) * parts.below_stride +
           static_cast<uint64_t>(i) * parts.index_stride;
  }
  std::byte* To(int64_t i) const {
    return slot + static_cast<uint64_t>(blocks[i].place) * part_bytes;
  }
};

void Gather(const GatherArgs& args, const device::WorkerContext& context) {
  const device::Range part = device::StaticPart(context, args.count);
  for (int64_t i = part.begin; i < part.end; ++i)
    std::memcpy(args.To(i), args.From(i), args.part_bytes);
}

void GatherAccesses(const void* raw, std::vector<device::Access>* accesses) {
  const GatherArgs& args = *static_cast<const GatherArgs*>(raw);
  for (int64_t i = 0; i < args.count; ++i) {
    accesses->push_back({args.From(i), args.part_bytes, false});
    accesses->push_back({args.To(i), args.part_bytes, true});
  }
}

void ListGather(const void* raw, std::vector<device::CopiedRows>* copies) {
  const GatherArgs& args = *static_cast<const GatherArgs*>(raw);
  for (int64_t i = 0; i < args.count; ++i)
    copies->push_back({args.To(i), args.From(i), args.part_bytes});
}

}  // namespace

void EnqueueGather(device::Stream& stream, const LayerFetch& fetch, const PartsBelow& parts) {
  const GatherArgs args{.blocks = fetch.blocks.data(),
                        .count = std::ssize(fetch.blocks),
                        .parts = parts,
                        .slot = fetch.slot,
                        .part_bytes = fetch.part_bytes};
  const uint64_t bytes = fetch.blocks.size() * fetch.part_bytes;
  const cost::OpDesc desc{.kind = cost::OpKind::kCopy,
                          .label = fetch.label,
                          .read_bytes = static_cast<double>(bytes),
                          .write_bytes = static_cast<double>(bytes)};
  device::Operation operation = device::MakeOperation<&Gather>(desc, args);
  // As many bytes as are copied: places between these may be nobody's.
  operation.Reads(args.From(0), fetch.part_bytes).Writes(args.To(0), bytes);
  operation.further_accesses = GatherAccesses;
  operation.copies = ListGather;
  stream.Enqueue(operation);
}

}  // namespace forebay::kv
