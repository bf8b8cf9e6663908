// What a step does to the cache, for tests of what moves blocks beside it.
#pragma once

#include <cstring>

#include "kv/cache.h"

namespace forebay::kv {

struct WriteBlockArgs {
  std::byte* data;
  uint64_t bytes;
  int value;
};
inline void WriteBlock(const WriteBlockArgs& args, const device::WorkerContext& context) {
  const device::Range part = device::StaticPart(context, static_cast<int64_t>(args.bytes));
  std::memset(args.data + part.begin, args.value, static_cast<size_t>(part.end - part.begin));
}

// Writes the first strip of a block of the first group, as rope does.
inline void EnqueueWrite(device::Device& device, const Cache& cache, BlockId block, int value) {
  const Cache::Strip& strip = cache.strips()[0][0];
  std::byte* const data = strip.Of(block);
  device::Operation operation =
      device::MakeOperation<&WriteBlock>({.kind = cost::OpKind::kRopeKv, .label = "rope_kv"},
                                         WriteBlockArgs{data, strip.bytes, value});
  operation.Writes(data, strip.bytes);
  device.compute().Enqueue(operation);
}

}  // namespace forebay::kv
