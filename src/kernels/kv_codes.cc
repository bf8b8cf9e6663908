#include "kernels/kv_codes.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/check.h"
#include "kernels/digest.h"
#include "kernels/tile_form.h"

namespace forebay::kernels {
namespace {

constexpr float kMostE4M3 = 448, kLeastNormalE4M3 = 0x1p-6f;

uint8_t E4M3Of(float x) {
  if (std::isnan(x)) return 0x7F;
  const uint32_t sign = std::bit_cast<uint32_t>(x) >> 24 & 0x80;
  const float magnitude = std::min(std::abs(x), kMostE4M3);
  // Steps are 2^-3 of the power of two below, and those of 2^-6 for what is less.
  const float power =
      std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) & uint32_t{0x7F800000});
  const float step = std::max(power, kLeastNormalE4M3) / 8;
  const float rounded = std::nearbyint(magnitude / step) * step;
  // An exponent of 1 and no fraction is 2^-6; without an exponent the fraction counts steps of
  // 2^-9.
  const uint32_t code = rounded < kLeastNormalE4M3
                            ? static_cast<uint32_t>(rounded * 512)
                            : (std::bit_cast<uint32_t>(rounded) >> 20) - ((127 - 7) << 3);
  return static_cast<uint8_t>(sign | code);
}

}  // namespace

KvRow KvRowOf(KvCodes codes, const float* x, int n) {
  FB_CHECK(codes != KvCodes::kNone && n <= kMaxKeyDim, "{} elements of a KV head", n);
  KvRow row;
  if (codes == KvCodes::kFP8) {
    for (int j = 0; j < n; ++j) row.codes[j] = E4M3Of(x[j]);
    return row;
  }
  float most = 0;
  bool finite = true;
  for (int j = 0; j < n; ++j) {
    most = std::max(most, std::abs(x[j]));
    finite &= std::isfinite(x[j]);
  }
  row.scale = finite ? most / 127.0f : std::bit_cast<float>(uint32_t{0x7FC00000});
  if (row.scale == 0) row.scale = 1;
  for (int j = 0; j < n; ++j) {
    const float code = finite ? std::nearbyint(x[j] / row.scale) : 0;
    row.codes[j] = static_cast<uint8_t>(static_cast<int8_t>(code));
  }
  return row;
}

const float* KvValues(KvCodes codes) {
  struct Values {
    Values() {
      for (int code = 0; code < 256; ++code) {
        fp8[code] = E4M3Value(static_cast<uint8_t>(code));
        int8[code] = static_cast<float>(static_cast<int8_t>(code));
      }
    }
    float fp8[256], int8[256];
  };
  static const Values values;
  return codes == KvCodes::kFP8 ? values.fp8 : values.int8;
}

uint64_t KvRowHash(KvCodes codes, const uint8_t* row, float scale, int n, uint64_t key) {
  return DigestHash(row, n, codes == KvCodes::kInt8 ? DigestHash(&scale, sizeof(scale), key) : key);
}

}  // namespace forebay::kernels
