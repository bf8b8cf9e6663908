// Any bytes as a device profile: refused with a code, or priced without a number that is none.
#include <cmath>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "cost/model.h"
#include "cost/profile_writer.h"

using namespace forebay;

namespace {

void CheckPrice(const cost::OpDesc& op, const cost::DeviceProfile& device) {
  for (const auto mode : {cost::Calibration::kCalibrated, cost::Calibration::kUncalibrated}) {
    const double seconds = cost::Price(op, device, mode).seconds;
    FB_CHECK(std::isfinite(seconds) && seconds >= 0, "{} costs {} s", cost::Name(op.kind), seconds);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const base::Result<cost::DeviceProfile> profile = cost::ParseProfile(text, "fuzz.json");
  if (!profile.ok()) {
    FB_CHECK(!profile.status().message().empty(), "an error without a message");
    return 0;
  }
  const cost::OpDesc attention{.kind = cost::OpKind::kAttention,
                               .rows = 5,
                               .depth = 3000,
                               .heads = 16,
                               .kv_heads = 4,
                               .head_dim = 64,
                               .prefill_sequences = 1,
                               .prefill_context = 2000};
  for (int kind = 0; kind < cost::kNumOpKinds; ++kind) {
    CheckPrice({.kind = static_cast<cost::OpKind>(kind),
                .rows = 7,
                .columns = 960,
                .depth = 576,
                .flops = 1e6,
                .read_bytes = 1e6,
                .drawn_rows = 3,
                .link = cost::Link::kPeer,
                .sharers = 2,
                .ranks = 4},
               *profile);
  }
  CheckPrice(attention, *profile);
  FB_CHECK(!cost::WriteProfile(*profile).empty(), "nothing was written");
  return 0;
}
