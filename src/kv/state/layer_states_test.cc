#include "kv/state/layer_states.h"

#include <gtest/gtest.h>

namespace forebay::kv {
namespace {

TEST(LayerStates, PlacesHoldTheLayersPartsApart) {
  const std::vector<StateSpec> layers = {{100, 256}, {}, {64, 300}};
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

}  // namespace
}  // namespace forebay::kv
