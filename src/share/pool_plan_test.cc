// Plans of pools whose layers differ.
#include "share/pool_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/blocks/dense_ffn.h"
#include "model/builtin_configs.h"
#include "share/testing/small_decoders.h"

namespace forebay::share {
namespace {

using model::PlannedMatrix;
using testing::ElementsAre;
using weights::TensorKind;

// Gives the layer's feed-forward block half as many panels.
void Narrow(model::LayerPlan* layer) {
  for (PlannedMatrix& matrix : layer->matrices) {
    if (matrix.role != model::kGateUp) continue;
    weights::PanelTable table = *matrix.plan.table;
    table.panels.resize(table.panels.size() / 2);
    matrix.plan.table = std::make_shared<const weights::PanelTable>(std::move(table));
  }
}

uint64_t FfnBytes(const model::LayerPlan& layer) {
  return layer.matrix(model::kGateUp).TileBytes() + layer.matrix(model::kDown).TileBytes();
}

TEST(PoolPlan, LayersMayDiffer) {
  model::DecoderPlan decoder = SmallDecoder(6);
  for (const size_t layer : {1, 3}) Narrow(&decoder.layers[layer]);
  decoder.layers[0].matrices.front().plan.num_experts = 4;  // no layer for a dense placement
  const auto plans =
      PlanPools({.placement = {&weights::kStriped}, .layers = 5}, 2, decoder).value();
  const weights::PoolBook& book = *plans[0].book;
  EXPECT_THAT(book.group().pool_index, ElementsAre(-1, 0, 1, 2, 3, 4));
  const uint64_t wide = FfnBytes(decoder.layers[2]), narrow = FfnBytes(decoder.layers[1]);
  EXPECT_LT(narrow, wide);
  for (const auto& [layer, bytes] : {std::pair{1, narrow}, {2, wide}, {3, narrow}, {5, wide}})
    EXPECT_EQ(book.group().layer(layer).bytes(), bytes) << layer;
  EXPECT_EQ(plans[0].pool_bytes + plans[1].pool_bytes, 3 * wide + 2 * narrow);
  EXPECT_EQ(book.StepBytes(0), plans[1].pool_bytes);
  EXPECT_EQ(PooledBytes(plans[0], decoder), 3 * wide + 2 * narrow);

  const uint64_t all = decoder.bytes(64);
  MarkPooled(plans[0], &decoder);
  EXPECT_EQ(all - decoder.bytes(64), 3 * wide + 2 * narrow);
  EXPECT_FALSE(std::ranges::any_of(decoder.layers[0].matrices, &PlannedMatrix::pooled));
}

TEST(PoolPlan, ExpertsAndDenseLayersLieInOnePool) {
  model::DecoderPlan decoder = SmallMixture({0, 1, 1, 1}, 5);
  EXPECT_EQ(decoder.layers[1].matrices.size(), 5u);  // two of attention, the router, two of experts
  const auto plans =
      PlanPools(
          {.placement = {&weights::kStriped}, .experts = {&weights::kByExpert, 3}, .layers = 1}, 2,
          decoder)
          .value();
  const weights::PoolBook& book = *plans[1].book;
  EXPECT_THAT(book.group().pool_index, ElementsAre(0, 1, 2, 3));
  const weights::LayerRuns& layer = book.group().layer(2);
  EXPECT_EQ(layer.tensors, TensorKind::kExperts);
  EXPECT_EQ(layer.num_leaves, 5);
  ASSERT_EQ(layer.runs.size(), 10u);
  const uint64_t expert = layer.runs[0].bytes + layer.runs[5].bytes;
  EXPECT_EQ(layer.bytes(), 5 * expert);
  for (const int rank : {0, 1}) {
    EXPECT_EQ(plans[rank].pool_bytes, FfnBytes(decoder.layers[0]) / 2 + 3 * 3 * expert);
    EXPECT_EQ(book.StepBytes(rank), FfnBytes(decoder.layers[0]) / 2 + 3 * 2 * expert);
  }
  const uint64_t all = decoder.bytes(64);
  MarkPooled(plans[0], &decoder);
  EXPECT_EQ(all - decoder.bytes(64), FfnBytes(decoder.layers[0]) + 3 * 5 * expert);
}

TEST(PoolPlan, ExpertsThatAreReplicatedAreNotPooled) {
  const auto plans =
      PlanPools({.placement = {&weights::kStriped}, .layers = 1}, 2, SmallMixture({0, 1, 1}, 4))
          .value();
  EXPECT_THAT(plans[0].book->group().pool_index, ElementsAre(0, -1, -1));
}

// What is placed is an expert's matrix: DeepSeek-R1's experts have 45,056 panels a layer, the book
// has two runs of each.
TEST(PoolPlan, ExpertsAreTheUnitAndNotTheirPanels) {
  const model::ModelConfig config = *model::LoadBuiltinConfig("DeepSeek-R1-NVFP4");
  const model::DecoderPlan decoder = model::PlanDecoder(config, tensor::DType::kBF16);
  const auto plans = PlanPools({.experts = {&weights::kByExpert}}, 4, decoder).value();
  const weights::PoolBook& book = *plans[1].book;
  EXPECT_EQ(book.group().pool_index[2], -1);
  const weights::LayerRuns& layer = book.group().layer(3);
  EXPECT_EQ(layer.num_leaves, 256);
  EXPECT_EQ(layer.runs.size(), 2 * 256u);
  EXPECT_EQ(book.Pulls(1, 3, 0).size(), 2 * 3u);  // a matrix and peer each
  // 192 of 24.77 MB, whatever the batch.
  EXPECT_NEAR(static_cast<double>(book.PullBytes(1, 3, 0)), 4.756e9, 1e6);
}

TEST(PoolPlan, MoreLayersThanHaveNoExpertsAreRefused) {
  const base::Status status =
      PlanPools({.placement = {&weights::kStriped}, .layers = 2}, 2, SmallMixture({0, 1}, 4))
          .status();
  EXPECT_EQ(status.code(), base::kInvalidArgument);
  EXPECT_THAT(status.message(), testing::HasSubstr("1 of 2 layers have dense matrices to pool"));
}

}  // namespace
}  // namespace forebay::share
