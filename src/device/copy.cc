#include "device/copy.h"

#include <emmintrin.h>

#include <algorithm>
#include <cstring>

#include "base/units.h"
#include "device/cuda/copy_params.h"
#include "device/cuda/launch_context.h"

namespace forebay::device {
namespace {

constexpr size_t kLine = 64;

struct CopyArgs {
  std::byte* destination;
  const std::byte* source;
  uint64_t bytes;
  CopyUse use;
};

// In whole lines: each goes to memory at once.
void CopyPastCaches(std::byte* to, const std::byte* from, size_t bytes) {
  const size_t head = std::min(bytes, -reinterpret_cast<uintptr_t>(to) % kLine);
  const size_t end = head + (bytes - head) / kLine * kLine;
  std::memcpy(to, from, head);
  for (size_t at = head; at < end; at += sizeof(__m128i)) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + at),
                     _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + at)));
  }
  std::memcpy(to + end, from + end, bytes - end);
  _mm_sfence();
}

void Copy(const CopyArgs& args, const WorkerContext& context) {
  const Range part = StaticPart(context, static_cast<int64_t>(args.bytes), 4096);
  if (part.begin >= part.end) return;
  const auto bytes = static_cast<size_t>(part.end - part.begin);
  std::byte* const to = args.destination + part.begin;
  const std::byte* const from = args.source + part.begin;
  if (args.use == CopyUse::kSoon || bytes < kLeastPastCaches)
    std::memcpy(to, from, bytes);
  else
    CopyPastCaches(to, from, bytes);
}

void ListCopy(const void* raw, std::vector<CopiedRows>* copies) {
  const CopyArgs& args = *static_cast<const CopyArgs*>(raw);
  copies->push_back({args.destination, args.source, args.bytes});
}

void CopyItems(const ItemCopy& args, const WorkerContext& context) {
  for (int64_t item = 0; item < args.num_items; ++item) {
    if (args.offsets[item] == args.offsets[item + 1]) continue;
    const uint64_t at = static_cast<uint64_t>(item) * args.item_bytes;
    Copy({args.destination + at, args.source + at, args.item_bytes, CopyUse::kLater}, context);
  }
}

void LaunchItems(const void* raw, const LaunchContext& context) {
  const ItemCopy& args = *static_cast<const ItemCopy*>(raw);
  const CopyItemsParams params{.to = args.destination,
                               .from = args.source,
                               .item_bytes = args.item_bytes,
                               .offsets = context.OnDevice(args.offsets)};
  const uint64_t pieces = base::CeilDiv(args.item_bytes, kCopyPieceBytes);
  context.Launch("pair_copy_items",
                 {.blocks = {static_cast<int>(args.num_items), static_cast<int>(pieces), 1},
                  .threads = kCopyThreads},
                 params);
}

void CompleteItems(const void* raw, cost::OpDesc* desc) {
  const ItemCopy& args = *static_cast<const ItemCopy*>(raw);
  int64_t copied = 0;
  for (int64_t item = 0; item < args.num_items; ++item)
    copied += args.offsets[item] < args.offsets[item + 1];
  desc->read_bytes = desc->write_bytes =
      static_cast<double>(copied) * static_cast<double>(args.item_bytes);
}

void OffsetReads(const void* raw, std::vector<Access>* reads) {
  const ItemCopy& args = *static_cast<const ItemCopy*>(raw);
  reads->push_back(
      {args.offsets, static_cast<uint64_t>(args.num_items + 1) * sizeof(*args.offsets), false});
}

static_assert(kMostParts == kMostGatheredParts);

void CopyParts(const PartsCopy& args, const WorkerContext& context) {
  for (int i = 0; i < args.num_parts; ++i) {
    const Range all = args.RowsOf(i);
    const Range part = StaticPart(context, all.end - all.begin);
    const auto at = static_cast<uint64_t>(all.begin + part.begin) * args.row_bytes;
    if (part.end > part.begin) {
      std::memcpy(args.destination + at, args.parts[i] + at,
                  static_cast<uint64_t>(part.end - part.begin) * args.row_bytes);
    }
  }
}

void LaunchParts(const void* raw, const LaunchContext& context) {
  const PartsCopy& args = *static_cast<const PartsCopy*>(raw);
  GatherRowsParams params{.to = args.destination,
                          .parts = {},
                          .borders = {},
                          .num_parts = args.num_parts,
                          .offsets = context.OnDevice(args.offsets),
                          .row_bytes = args.row_bytes};
  std::copy_n(args.parts, args.num_parts, params.parts);
  std::copy_n(args.borders, args.num_parts + 1, params.borders);
  context.Launch("pair_gather_rows",
                 {.blocks = {static_cast<int>(args.most_rows), 1, 1}, .threads = kCopyThreads},
                 params);
}

void CompleteParts(const void* raw, cost::OpDesc* desc) {
  const PartsCopy& args = *static_cast<const PartsCopy*>(raw);
  const auto rows = static_cast<double>(args.offsets[args.borders[args.num_parts]] -
                                        args.offsets[args.borders[0]]);
  desc->read_bytes = desc->write_bytes = rows * static_cast<double>(args.row_bytes);
}

void PartReads(const void* raw, std::vector<Access>* reads) {
  const PartsCopy& args = *static_cast<const PartsCopy*>(raw);
  for (int i = 0; i < args.num_parts; ++i) {
    const Range rows = args.RowsOf(i);
    if (rows.begin == rows.end) continue;
    reads->push_back({args.parts[i] + static_cast<uint64_t>(rows.begin) * args.row_bytes,
                      static_cast<uint64_t>(rows.end - rows.begin) * args.row_bytes, false});
  }
}

}  // namespace

Operation MakePartsCopy(const cost::OpDesc& desc, const PartsCopy& copy) {
  Operation operation = MakeOperation<&CopyParts>(desc, copy);
  operation.complete = CompleteParts;
  operation.further_accesses = PartReads;
  operation.launch = LaunchParts;
  const auto borders = static_cast<uint64_t>(copy.borders[copy.num_parts] + 1);
  return operation.Reads(copy.offsets, borders * sizeof(*copy.offsets))
      .Writes(copy.destination, static_cast<uint64_t>(copy.most_rows) * copy.row_bytes);
}

Operation MakeItemCopy(const char* label, const ItemCopy& copy) {
  const uint64_t bytes = static_cast<uint64_t>(copy.num_items) * copy.item_bytes;
  Operation operation =
      MakeOperation<&CopyItems>({.kind = cost::OpKind::kCopy, .label = label}, copy)
          .Reads(copy.source, bytes)
          .Writes(copy.destination, bytes);
  operation.complete = CompleteItems;
  operation.launch = LaunchItems;
  operation.further_accesses = OffsetReads;
  return operation;
}

Operation MakeCopy(const char* label, void* destination, const void* source, uint64_t bytes,
                   CopyUse use) {
  const cost::OpDesc desc{.kind = cost::OpKind::kCopy,
                          .label = label,
                          .read_bytes = static_cast<double>(bytes),
                          .write_bytes = static_cast<double>(bytes)};
  const CopyArgs args{static_cast<std::byte*>(destination), static_cast<const std::byte*>(source),
                      bytes, use};
  Operation operation =
      MakeOperation<&Copy>(desc, args).Reads(source, bytes).Writes(destination, bytes);
  operation.copies = ListCopy;
  return operation;
}

}  // namespace forebay::device
