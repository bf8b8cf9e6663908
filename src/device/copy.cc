#include "device/copy.h"

#include <cstring>

namespace forebay::device {
namespace {

struct CopyArgs {
  std::byte* destination;
  const std::byte* source;
  uint64_t bytes;
};

void Copy(const CopyArgs& args, const WorkerContext& context) {
  const Range part = StaticPart(context, static_cast<int64_t>(args.bytes), 4096);
  if (part.begin < part.end) {
    std::memcpy(args.destination + part.begin, args.source + part.begin, part.end - part.begin);
  }
}

}  // namespace

Operation MakeCopy(const char* label, void* destination, const void* source, uint64_t bytes) {
  const cost::OpDesc desc{.kind = cost::OpKind::kCopy,
                          .label = label,
                          .read_bytes = static_cast<double>(bytes),
                          .write_bytes = static_cast<double>(bytes)};
  const CopyArgs args{static_cast<std::byte*>(destination), static_cast<const std::byte*>(source),
                      bytes};
  return MakeOperation<&Copy>(desc, args).Reads(source, bytes).Writes(destination, bytes);
}

}  // namespace forebay::device
