// What LDTILECFG takes; unnamed, as all that is compiled with flags of its own (simd.h).
#pragma once

#include <cstdint>

namespace forebay::kernels {
namespace {

// Eight tiles of rows of 64 bytes: 0 to 4 have `x_rows` rows, 5 to 7 have 16.
struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};

  __attribute__((always_inline)) explicit TileConfig(int x_rows) {
    for (int tile = 0; tile < 8; ++tile) {
      row_bytes[tile] = 64;
      rows[tile] = static_cast<uint8_t>(tile < 5 ? x_rows : 16);
    }
  }
};
static_assert(sizeof(TileConfig) == 64);

}  // namespace
}  // namespace forebay::kernels
