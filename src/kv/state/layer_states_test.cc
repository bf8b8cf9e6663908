#include "kv/state/layer_states.h"

#include <gtest/gtest.h>

namespace forebay::kv {
namespace {

TEST(LayerStates, PlacesHoldTheLayersPartsApart) {
  const std::vector<StateSpec> layers = {{100, 256, 1}, {}, {64, 300, 1}};
  EXPECT_EQ(PlaceBytes(layers), 128u + 256 + 64 + 320);
  std::vector<std::byte> region(2 * PlaceBytes(layers));
  const StateView view = CutStates(layers, region.data());
  ASSERT_EQ(view.layers.size(), 3u);
  const auto offset = [&](const float* at) {
    return reinterpret_cast<const std::byte*>(at) - region.data();
  };
  EXPECT_EQ(offset(view.layers[0].tails.Of(0)), 0);
  EXPECT_EQ(offset(view.layers[0].matrices.Of(0)), 128);
  EXPECT_EQ(offset(view.layers[2].tails.Of(0)), 384);
  EXPECT_EQ(offset(view.layers[2].matrices.Of(1)), 768 + 448);
}

TEST(LayerStates, PartsCoverAPlaceOnce) {
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{64}, uint64_t{1000}, uint64_t{65'536}}) {
    for (const int32_t parts : {1, 3, 16, 40}) {
      int64_t next = 0;
      for (int32_t i = 0; i < parts; ++i) {
        const base::Part part = PartOfPlace(bytes, parts, i);
        EXPECT_EQ(part.begin, next);
        EXPECT_LE(part.size(), PartOfPlace(bytes, parts, 0).size());
        next = part.end;
      }
      EXPECT_EQ(next, static_cast<int64_t>(bytes)) << parts;
    }
  }
}

// Of all heads, or of each half of them on its own.
TEST(LayerStates, DigestsOfPartsAddUp) {
  constexpr uint64_t kHead = 6000;
  const std::vector<StateSpec> whole = {{0, 4 * kHead, 4, 0}};
  std::vector<std::byte> region(PlaceBytes(whole));
  for (size_t i = 0; i < region.size(); ++i) region[i] = static_cast<std::byte>(i * 7 >> 3);
  const auto digest = [&](const std::vector<StateSpec>& layers, uint64_t from, int64_t positions) {
    return StateDigest(layers, CutStates(layers, region.data() + from), 5, 0, positions);
  };
  const uint64_t all = digest(whole, 0, 9);
  const std::vector<StateSpec> first = {{0, kHead, 1, 0}}, rest = {{0, 3 * kHead, 3, 1}};
  EXPECT_EQ(digest(first, 0, 9) + digest(rest, kHead, 9), all);
  EXPECT_NE(digest(whole, 0, 10), all);
  region[3 * kHead - 1] ^= std::byte{1};
  EXPECT_NE(digest(whole, 0, 9), all);
}

}  // namespace
}  // namespace forebay::kv
