// The rows of one step, in device memory, fixed capacity. Kernels take it by reference; the host
// writes it between steps.
#pragma once

#include <cstdint>

namespace forebay::kernels {

// Consecutive rows of the step that belong to one sequence, at consecutive positions.
struct SequenceRows {
  int32_t first_row;
  int32_t num_rows;
  int32_t first_position;  // the first row's; the context before it is in the KV cache
  int32_t table_row;       // row of the block tables

  int32_t last_position() const { return first_position + num_rows - 1; }
};

// Consecutive rows of one sequence that layers with state pass over at once. A sequence whose state
// is kept on the way has several, in order.
struct StateRows {
  int32_t first_row;
  int32_t num_rows;
  int32_t from;  // the place of the state before them; -1: zeros
  int32_t to;    // and of the one after them, which may be the same
};

// Sums over a step's rows, for the price alone. A sequence with one row counts as decode, one with
// more as prefill; a row's context is the positions that it sees, itself included.
struct ContextSums {
  int64_t prefill_sequences = 0, prefill_rows = 0, prefill_context = 0;
  int64_t decode_rows = 0, decode_context = 0;
  // positions in blocks that another sequence of the step reads too, but for one each
  int64_t repeated = 0;

  // `rows` rows of one sequence, the first at position `first`.
  void Add(int64_t first, int64_t rows) {
    const int64_t context = rows * first + rows * (rows + 1) / 2;
    if (rows == 1) {
      ++decode_rows;
      decode_context += context;
    } else {
      ++prefill_sequences;
      prefill_rows += rows;
      prefill_context += context;
    }
  }
  int64_t context() const { return prefill_context + decode_context; }
};

// How a step's rows attend where latent attention has two forms: rows of prompts to K and V that
// are made of their sequences' latents, round by round, rows behind a prompt to the latents
// themselves. Which form a row has follows from its position in its request alone.
struct LatentForms {
  // Consecutive sequences of `prompts` whose contexts are expanded at once, each block once.
  struct Round {
    int32_t num_sequences, num_blocks;  // behind those of the rounds before
    ContextSums context;
  };
  struct Rows {
    int32_t begin, end;
  };
  int32_t num_prompts = 0, num_answers = 0, num_rounds = 0, num_answer_rows = 0;
  SequenceRows* prompts = nullptr;  // [sequences]
  SequenceRows* answers = nullptr;  // [sequences]
  Round* rounds = nullptr;          // [sequences]
  Rows* answer_rows = nullptr;      // [sequences] ascending, apart
  uint32_t* blocks = nullptr;       // entries of the block tables, of round after round
  uint32_t* places = nullptr;       // [table rows, table_stride]: of a block, within its round
  ContextSums answer_context;
};

// Groups of layers with a block table of their own each.
inline constexpr int kMaxKvGroups = 4;

// Pointers to arrays of stated capacity; the numbers in use are in the first members.
struct StepBatch {
  int32_t num_rows = 0;  // all tokens of the step
  int32_t num_sequences = 0;
  int32_t num_logit_rows = 0;  // rows whose logits are wanted
  // This rank's own range of rows (under sequence parallelism linears see a slice, attention sees
  // all).
  int32_t own_begin = 0, own_end = 0;

  // [rows] token id, or ~id of a sequence: the token that its last sample wrote on the device
  int32_t* tokens = nullptr;
  int32_t* positions = nullptr;       // [rows]
  int32_t* types = nullptr;           // [rows] token types; null: the model has one at most
  int32_t* row_sequence = nullptr;    // [rows] index into sequences
  SequenceRows* sequences = nullptr;  // [sequences]
  // Where layers keep states; num_state_rows >= num_sequences.
  int32_t num_state_rows = 0;
  StateRows* state_rows = nullptr;
  // [table rows, table_stride] of the KV group that an operation works on
  uint32_t* block_tables = nullptr;
  uint32_t* group_tables[kMaxKvGroups] = {};  // each group's
  int64_t table_stride = 0;
  int32_t* logit_rows = nullptr;       // [logit rows] ascending rows
  int32_t* sampled = nullptr;          // [sequence ids] the last token sampled for each
  const LatentForms* forms = nullptr;  // null: all rows have one form
};

}  // namespace forebay::kernels
