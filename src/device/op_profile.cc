#include <algorithm>
#include <string_view>

#include "device/device.h"

namespace forebay::device {

void AddCalls(const OpProfile& calls, std::vector<OpProfile>* profile) {
  // Labels are literals, but equal ones of two files may have two addresses.
  const auto same = [&](const OpProfile& entry) {
    return entry.kind == calls.kind && std::string_view(entry.label) == calls.label;
  };
  const auto entry = std::ranges::find_if(*profile, same);
  if (entry == profile->end()) {
    profile->push_back(calls);
    return;
  }
  entry->calls += calls.calls;
  entry->seconds += calls.seconds;
  entry->flops += calls.flops;
  entry->read_bytes += calls.read_bytes;
}

}  // namespace forebay::device
