#include "model/decoder_weights.h"

#include <gtest/gtest.h>

#include <set>

#include "model/builtin_configs.h"

namespace forebay::model {
namespace {

using tensor::DType;

// The tables of the layers' matrices that differ, and how many matrices there are.
std::pair<size_t, size_t> TablesOf(const DecoderPlan& plan) {
  std::set<const weights::PanelTable*> tables;
  size_t matrices = 0;
  for (const LayerPlan& layer : plan.layers) {
    for (const PlannedMatrix& matrix : layer.matrices) tables.insert(matrix.plan.table.get());
    matrices += layer.matrices.size();
  }
  return {tables.size(), matrices};
}

TEST(DecoderPlan, LayersThatAreCutAlikeHaveOneTableOfPanels) {
  const DecoderPlan dense = PlanDecoder(*LoadBuiltinConfig("Llama-3-8B"), DType::kBF16);
  // The outputs of attention and of the block are as many: one table is of both.
  EXPECT_EQ(TablesOf(dense), std::pair(size_t{3}, size_t{4 * 32}));
  EXPECT_EQ(dense.layers[0].matrices[0].plan.table, dense.layers[31].matrices[0].plan.table);
  EXPECT_NE(dense.layers[0].matrices[0].plan.tensors, dense.layers[31].matrices[0].plan.tensors);
  // Three dense layers, then experts beside a shared one.
  const DecoderPlan experts = PlanDecoder(*LoadBuiltinConfig("DeepSeek-R1"), DType::kBF16);
  EXPECT_EQ(experts.layers[3].matrices.back().plan.table,
            experts.layers[60].matrices.back().plan.table);
  EXPECT_LT(TablesOf(experts).first, 20u);
}

TEST(DecoderPlans, EachIsMadeOnce) {
  const ModelConfig config = *LoadBuiltinConfig("Llama-3-8B");
  DecoderPlans plans;
  const auto of = [&](const ReplicaCut& cut, const Degrees& mode) {
    return plans.Of(config, DType::kBF16, cut, mode);
  };
  const ReplicaCut cut{.tp = 2, .sp = 2};
  const auto own = of(cut, cut.degrees());
  EXPECT_EQ(own, of(cut, cut.degrees()));
  std::set all = {own, of(cut, {1, 4})};
  ReplicaCut other = cut;
  other.tp_rank = 1;
  all.insert(of(other, cut.degrees()));
  other = cut;
  other.sp_rank = 1;
  all.insert(of(other, cut.degrees()));
  other = cut;
  other.two_step_kv = true;
  all.insert(of(other, cut.degrees()));
  all.insert(of({.tp = 2, .pp = 2}, {1, 2}));
  all.insert(of({.tp = 2, .pp = 2, .stage = 1}, {1, 2}));
  EXPECT_EQ(all.size(), 7u);
  for (const auto& plan : all) {
    const DecoderPlan alone = PlanDecoder(config, DType::kBF16, plan->shard.cut, plan->shard.mode);
    EXPECT_EQ(plan->bytes(64), alone.bytes(64));
    EXPECT_EQ(plan->shard.vocab, alone.shard.vocab);
    EXPECT_EQ(*plan->layers[0].matrices[0].plan.table, *alone.layers[0].matrices[0].plan.table);
  }
}

}  // namespace
}  // namespace forebay::model
