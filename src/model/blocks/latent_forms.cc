#include "model/blocks/latent_forms.h"

#include <algorithm>
#include <unordered_map>

#include "base/check.h"
#include "base/units.h"
#include "model/kv_groups.h"

namespace forebay::model {
namespace {

using kernels::LatentForms;
using kernels::SequenceRows;
using kv::kBlockTokens;

// K and V of a head: a piece's rows, and all blocks.
uint64_t HeadBytes(const ModelConfig& config, tensor::DType dtype, int64_t blocks) {
  const int64_t rows = std::min(blocks, kPieceBlocks) * kBlockTokens,
                width = config.mla->qk_nope_head_dim + config.mla->v_head_dim;
  return tensor::BytesOf(dtype, static_cast<uint64_t>(rows * width)) +
         static_cast<uint64_t>(blocks * ExpandedLayoutOf(config, dtype, 1).LayerBytes());
}

}  // namespace

int64_t ExpandedBlocks(const ModelConfig& config, int64_t rows, int64_t max_model_len) {
  if (!config.expands_prompts()) return 0;
  return base::CeilDiv(std::max(rows, max_model_len), int64_t{kBlockTokens});
}

int64_t HeadsOfPass(const ModelConfig& config, int64_t heads, tensor::DType dtype, int64_t blocks,
                    uint64_t bytes) {
  const auto all = static_cast<uint64_t>(heads);
  const uint64_t most =
      std::clamp<uint64_t>(bytes / HeadBytes(config, dtype, std::max<int64_t>(1, blocks)), 1, all);
  return static_cast<int64_t>(base::CeilDiv(all, base::CeilDiv(all, most)));
}

uint64_t PassBytes(const ModelConfig& config, int64_t heads, tensor::DType dtype, int64_t blocks,
                   uint64_t bytes) {
  const uint64_t head = HeadBytes(config, dtype, blocks);
  return std::min(static_cast<uint64_t>(heads) * head, std::max(bytes, head));
}

void AddForms(const SequenceRows& rows, int32_t prompt_rows, LatentForms* forms) {
  if (prompt_rows > 0) {
    forms->prompts[forms->num_prompts++] = {rows.first_row, prompt_rows, rows.first_position,
                                            rows.table_row};
  }
  if (prompt_rows == rows.num_rows) return;
  const SequenceRows answer{rows.first_row + prompt_rows, rows.num_rows - prompt_rows,
                            rows.first_position + prompt_rows, rows.table_row};
  forms->answers[forms->num_answers++] = answer;
  forms->answer_context.Add(answer.first_position, answer.num_rows);
  const int32_t begin = answer.first_row, end = begin + answer.num_rows;
  const int32_t last = forms->num_answer_rows - 1;
  if (last >= 0 && forms->answer_rows[last].end == begin) {
    forms->answer_rows[last].end = end;
  } else {
    forms->answer_rows[forms->num_answer_rows++] = {begin, end};
  }
}

void PlanRounds(const uint32_t* tables, int64_t table_stride, int64_t workspace_blocks,
                LatentForms* forms) {
  std::unordered_map<uint32_t, uint32_t> places;  // of the blocks of the last round
  uint32_t* next = forms->blocks;
  forms->num_rounds = 0;
  for (int32_t i = 0; i < forms->num_prompts; ++i) {
    const SequenceRows& rows = forms->prompts[i];
    const int64_t count =
        base::CeilDiv(int64_t{rows.first_position} + rows.num_rows, int64_t{kBlockTokens});
    const uint32_t* const table = tables + rows.table_row * table_stride;
    const auto fresh = std::count_if(table, table + count,
                                     [&](uint32_t entry) { return !places.contains(entry); });
    if (i == 0 || std::ssize(places) + fresh > workspace_blocks) {
      places.clear();
      forms->rounds[forms->num_rounds++] = {};
    }
    FB_CHECK(count <= workspace_blocks, "{} blocks to expand at once, room for {}", count,
             workspace_blocks);
    LatentForms::Round& round = forms->rounds[forms->num_rounds - 1];
    for (int64_t block = 0; block < count; ++block) {
      const auto [found, is_new] =
          places.try_emplace(table[block], static_cast<uint32_t>(places.size()));
      forms->places[rows.table_row * table_stride + block] = found->second;
      if (is_new) *next++ = table[block];
    }
    round.num_blocks = static_cast<int32_t>(places.size());
    ++round.num_sequences;
    round.context.Add(rows.first_position, rows.num_rows);
  }
}

FormShapes::FormShapes(const kernels::ContextSums& sums) {
  const auto prompt_rows = static_cast<int32_t>(sums.prefill_rows);
  answers = {prompt_rows, prompt_rows + static_cast<int32_t>(sums.decode_rows)};
  forms.answer_rows = &answers;
  forms.num_answer_rows = sums.decode_rows > 0 ? 1 : 0;
  forms.num_answers = static_cast<int32_t>(sums.decode_rows);
  forms.answer_context = {.decode_rows = sums.decode_rows,
                          .decode_context = sums.decode_context,
                          .repeated = sums.repeated};
  if (prompt_rows == 0) return;
  // As far as the last row of each sequence sees, equal numbers of rows assumed.
  const int64_t sequences = std::max<int64_t>(1, sums.prefill_sequences),
                seen = sums.prefill_context / sums.prefill_rows + sums.prefill_rows / sequences / 2;
  round = {
      .num_sequences = static_cast<int32_t>(sequences),
      .num_blocks = static_cast<int32_t>(sequences * base::CeilDiv(seen, int64_t{kBlockTokens})),
      .context = {.prefill_sequences = sums.prefill_sequences,
                  .prefill_rows = sums.prefill_rows,
                  .prefill_context = sums.prefill_context}};
  forms.rounds = &round;
  forms.num_rounds = 1;
  forms.num_prompts = round.num_sequences;
}

}  // namespace forebay::model
