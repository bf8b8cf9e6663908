// The form of each row of a step in latent attention, and the rounds of prompts.
#pragma once

#include "kernels/kv_layout.h"
#include "kernels/step_batch.h"
#include "model/config.h"

namespace forebay::model {

// Blocks whose K and V the workspace holds at once: any one context, and any step of whole prompts
// but for what their last blocks leave open. 0: the model has one form.
int64_t ExpandedBlocks(const ModelConfig& config, int64_t rows, int64_t max_model_len);

// Blocks of one go of the linear layers: 4,096 rows, beyond which they gain nothing.
inline constexpr int64_t kPieceBlocks = 4096 / kernels::kBlockTokens;
// Of a rank's `heads`, those whose K and V of `blocks` blocks are expanded at once: as many as fit
// `bytes`, at least one. Each pass has as many; the last may have fewer.
int64_t HeadsOfPass(const ModelConfig& config, int64_t heads, tensor::DType dtype, int64_t blocks,
                    uint64_t bytes);
// Bytes of such a pass of at most `blocks` blocks: the linear layers' output and attention's
// input.
uint64_t PassBytes(const ModelConfig& config, int64_t heads, tensor::DType dtype, int64_t blocks,
                   uint64_t bytes);

// Rows of a prompt that a step takes at least. Beside what they attend to, rows expand all that
// lies before them: in DeepSeek-V3's widths 2 x 512 x 256 flops a position and head, a chunk of C
// rows 640 C, so that 512 rows pay 80 % more.
inline constexpr int32_t kLeastChunk = 512;

// `rows` of one sequence; the first `prompt_rows` belong to its prompt.
void AddForms(const kernels::SequenceRows& rows, int32_t prompt_rows, kernels::LatentForms* forms);

// The rounds of the prompts of `forms` by the block tables, for a workspace of
// `workspace_blocks`: a sequence joins the last round if its missing blocks fit. REQUIRES: each
// sequence alone fits.
void PlanRounds(const uint32_t* tables, int64_t table_stride, int64_t workspace_blocks,
                kernels::LatentForms* forms);

// Forms with shapes alone, for the price of a step that is known by its sums.
struct FormShapes {
  explicit FormShapes(const kernels::ContextSums& sums);
  FormShapes(const FormShapes&) = delete;
  FormShapes& operator=(const FormShapes&) = delete;

  kernels::LatentForms::Round round{};
  kernels::LatentForms::Rows answers{};
  kernels::LatentForms forms;
};

}  // namespace forebay::model
