#include "model/latent_forms.h"

#include <gtest/gtest.h>

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
