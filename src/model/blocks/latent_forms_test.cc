#include "model/blocks/latent_forms.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "kv/book/block_tokens.h"

namespace forebay::model {
namespace {

using kernels::LatentForms;
using kernels::SequenceRows;

constexpr int64_t kStride = 8;

// Owns what LatentForms point to.
struct Forms {
  Forms() {
    forms.prompts = prompts.data();
    forms.answers = answers.data();
    forms.rounds = rounds.data();
    forms.answer_rows = answer_rows.data();
    forms.blocks = blocks.data();
    forms.places = places.data();
  }
  void Plan(int64_t workspace) {
    PlanRounds(tables.data(), kStride, workspace, &forms);
    // Whoever reads a block finds it where its round has put it.
    int64_t first_block = 0;
    int32_t sequence = 0;
    for (int32_t r = 0; r < forms.num_rounds; ++r) {
      EXPECT_LE(rounds[r].num_blocks, workspace);
      for (int32_t i = 0; i < rounds[r].num_sequences; ++i, ++sequence) {
        const SequenceRows& rows = prompts[sequence];
        for (int64_t b = 0; b * 32 < rows.first_position + rows.num_rows; ++b) {
          const int64_t at = rows.table_row * kStride + b;
          EXPECT_LT(places[at], static_cast<uint32_t>(rounds[r].num_blocks));
          EXPECT_EQ(blocks[first_block + places[at]], tables[at]) << sequence << ", block " << b;
        }
      }
      first_block += rounds[r].num_blocks;
    }
    EXPECT_EQ(sequence, forms.num_prompts);
  }

  LatentForms forms;
  std::vector<SequenceRows> prompts = std::vector<SequenceRows>(4), answers = prompts;
  std::vector<LatentForms::Round> rounds = std::vector<LatentForms::Round>(4);
  std::vector<LatentForms::Rows> answer_rows = std::vector<LatentForms::Rows>(4);
  std::vector<uint32_t> blocks = std::vector<uint32_t>(32), places = blocks;
  // Sequences 0 and 2 share two blocks.
  std::vector<uint32_t> tables = {10, 11, 12, 13, 0, 0, 0, 0, 20, 21, 0, 0, 0, 0, 0, 0,
                                  10, 11, 30, 0,  0, 0, 0, 0, 40, 0,  0, 0, 0, 0, 0, 0};
};

TEST(LatentFormsTest, ARowsFormFollowsFromItsPosition) {
  Forms all;
  AddForms({0, 10, 30, 0}, 10, &all.forms);   // of a prompt
  AddForms({10, 1, 50, 1}, 0, &all.forms);    // generated
  AddForms({11, 20, 5, 3}, 0, &all.forms);    // generated, computed again
  AddForms({31, 40, 60, 2}, 12, &all.forms);  // a prompt's end and what came behind
  ASSERT_EQ(all.forms.num_prompts, 2);
  EXPECT_EQ(all.prompts[1].first_row, 31);
  EXPECT_EQ(all.prompts[1].num_rows, 12);
  ASSERT_EQ(all.forms.num_answers, 3);
  EXPECT_EQ(all.answers[2].first_row, 43);
  EXPECT_EQ(all.answers[2].num_rows, 28);
  EXPECT_EQ(all.answers[2].first_position, 72);
  EXPECT_EQ(all.answers[2].table_row, 2);
  ASSERT_EQ(all.forms.num_answer_rows, 2);
  EXPECT_EQ(all.answer_rows[0].begin, 10);
  EXPECT_EQ(all.answer_rows[0].end, 31);
  EXPECT_EQ(all.answer_rows[1].begin, 43);
  EXPECT_EQ(all.forms.answer_context.decode_rows, 1);
  EXPECT_EQ(all.forms.answer_context.prefill_rows, 48);
}

TEST(LatentFormsTest, ABlockIsExpandedOnceAndSequencesTakeTurns) {
  for (const auto& [workspace, rounds] : {std::pair{8, 1}, {7, 2}, {6, 2}, {5, 3}, {4, 3}}) {
    Forms all;
    AddForms({0, 28, 100, 0}, 28, &all.forms);  // 4 blocks
    AddForms({28, 60, 0, 1}, 60, &all.forms);   // 2
    AddForms({88, 20, 70, 2}, 20, &all.forms);  // 3, of which 2 are sequence 0's
    AddForms({108, 1, 0, 3}, 1, &all.forms);    // 1
    all.Plan(workspace);
    EXPECT_EQ(all.forms.num_rounds, rounds) << workspace;
    if (workspace == 8) {
      EXPECT_EQ(all.rounds[0].num_blocks, 8);
    }
  }
}

// In DeepSeek-R1's widths a position's K and V take 640 bytes a head in bf16, and 512 more where
// they come out of the linear layers, 4,096 positions at most.
TEST(LatentFormsTest, HeadsOfAPassFollowFromTheirMemory) {
  ModelConfig config;
  config.num_heads = 128;
  config.mla = MlaConfig{
      .kv_lora_rank = 512, .qk_nope_head_dim = 128, .qk_rope_head_dim = 64, .v_head_dim = 128};
  constexpr uint64_t kMib = 1 << 20, kAll = ~uint64_t{0};
  struct Row {
    int64_t positions;
    uint64_t bytes;
    int64_t heads;
  };
  for (const auto& [positions, bytes, heads] : {Row{163840, kAll, 128},
                                                {163840, uint64_t{12} << 30, 64},
                                                {163840, 512 * kMib, 5},
                                                {163840, 102 * kMib, 1},
                                                {163840, 0, 1},
                                                {32768, 512 * kMib, 22},
                                                {2048, 512 * kMib, 128},
                                                {0, 512 * kMib, 128},
                                                {32, 1152 * 32 * 127, 64},
                                                {32, 1152 * 32 * 128, 128}}) {
    const int64_t found =
        HeadsOfPass(config, config.num_heads, tensor::DType::kBF16, positions / 32, bytes);
    EXPECT_EQ(found, heads) << positions << " positions in " << bytes;
    if (positions == 0) continue;
    const uint64_t head = std::min<uint64_t>(positions, 4096) * 512 + positions * 640;
    const uint64_t planned =
        PassBytes(config, config.num_heads, tensor::DType::kBF16, positions / 32, bytes);
    EXPECT_LE(found * head, planned);
    EXPECT_LE(planned, std::max({bytes, head}));
    EXPECT_LE(planned, 128 * head);
    // The plan of the longest context holds every shorter one.
    EXPECT_GE(PassBytes(config, config.num_heads, tensor::DType::kBF16, 163840 / 32, bytes),
              planned);
  }
  EXPECT_EQ(PassBytes(config, config.num_heads, tensor::DType::kBF16, 163840 / 32, kAll),
            128 * (163840ull * 640 + 4096 * 512));
  EXPECT_EQ(HeadsOfPass(config, config.num_heads, tensor::DType::kF32, 163840 / 32, 512 * kMib), 2);
}

TEST(LatentFormsTest, ShapesOfAPrice) {
  kernels::ContextSums sums;
  sums.Add(0, 64);
  sums.Add(32, 64);
  for (int i = 0; i < 3; ++i) sums.Add(100, 1);
  const FormShapes shapes(sums);
  EXPECT_EQ(shapes.round.num_blocks, 2 * 3);  // 2 and 3, taken as equal
  EXPECT_EQ(shapes.answers.begin, 128);
  EXPECT_EQ(shapes.answers.end, 131);
  EXPECT_EQ(shapes.forms.answer_context.context(), 303);
  EXPECT_EQ(shapes.round.context.context(), sums.prefill_context);
  EXPECT_EQ(FormShapes({.decode_rows = 2, .decode_context = 9}).forms.num_rounds, 0);
}

}  // namespace
}  // namespace forebay::model
