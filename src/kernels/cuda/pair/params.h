// What the kernels of class `pair` take: one flat struct each, filled in by launch/. Pointers are
// to memory that the GPU reaches. Shapes and contracts are those of the operations' own headers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/draw_row.h"
#include "kernels/packed_form.h"
#include "kernels/step_batch.h"

namespace forebay::kernels::cuda {

// The activation type T of an operation: bf16, or fp32.
enum class Element : int32_t { kBF16, kF32 };

inline constexpr int kTileRows = 8;         // of a block of the linear kernels
inline constexpr int kLinearThreads = 128;  // two halves of the rows, 64 columns
inline constexpr int kWarpsOfAttention = 4;
inline constexpr int kRowThreads = 256;  // of kernels with a block a row
// Of these kernels: warps, and bytes of shared memory for a word of each.
inline constexpr int kRowWarps = kRowThreads / 32;
inline constexpr int kWordOfEachWarp = kRowWarps * static_cast<int>(sizeof(uint64_t));
inline constexpr int kMostLeaves = 8;

// A node of the fixed tree over a layer's leaves: its leaves [first, first + count) of those that
// are here. Its sum goes to plane `first..` in the order of the nodes.
struct LeafNode {
  int32_t first, count;
};

struct LinearParams {
  Element element;
  int32_t output;  // LinearOutput
  // Tiles of one expert (or head, or the whole layer): tiles[leaf * num_panels + panel], or for
  // grouped experts runs[expert] + panel * tile_bytes.
  const std::byte* const* tiles;
  const std::byte* const* runs;
  int64_t tile_bytes;
  const int32_t* panels;  // [num_panels] pairs of column and width
  const float* bias;      // experts': one after another, each as many as panels have columns
  int32_t num_panels;
  int32_t num_leaves;
  int32_t leaf_begin[kMostLeaves + 1];
  int32_t num_nodes;
  LeafNode nodes[kMostLeaves];

  const std::byte* x;
  const int32_t* x_rows;
  std::byte* y;
  int64_t x_stride, y_stride;  // elements
  RowForm x_form, y_form;      // of a layer of class mma_k16f25
  int32_t rows;                // of the layer, or of each head
  int64_t plane_stride;        // elements from one plane of kPartial to the next
  // Experts: grouped rows. Heads: `offsets` null, x and y move on by steps.
  int32_t num_experts;  // 1: a layer
  const int32_t* offsets;
  int64_t x_step, y_step;
};

struct KvParams {
  Element element;
  int32_t kv_heads, key_dim, value_dim;
  bool values_in_keys;
  PackedForm form;
  int32_t codes;  // KvCodes
  int64_t block_stride, layer_bytes, head_bytes;
  std::byte* resident;
  std::byte* window;
};

struct AttentionParams {
  StepBatch batch;
  KvParams kv;
  const std::byte* q;
  std::byte* out;
  RowForm out_form;
  int32_t heads, row_heads;
  float scale, cap;    // 0: no cap
  const float* sinks;  // [heads] or null
  int32_t reach_window, reach_chunk, reach_ahead;
  // Of class mma_k16f25: warps that share a row. Sequences of fewer rows than `least_rows` are
  // other kernels', but where `fits` says that these have no room for them.
  int32_t units, least_rows;
  const int32_t* fits;
};

// What RopeKv, RopeRows and StoreKv have in common.
struct RopeParams {
  const float* qkv;
  int32_t heads, kv_heads, head_dim;
  const float* q_norm;
  const float* k_norm;
  float norm_eps;
  bool norm_after, v_norm;
  const float* q_scale;
  const float* rope_cos;
  const float* rope_sin;
};
struct DigestParams {
  uint64_t* digests;
  int32_t layer_index, first_kv_head, digested_elsewhere;
  bool first_layer;
};
struct RopeKvParams {
  StepBatch batch;
  KvParams kv;
  RopeParams rope;
  DigestParams digest;
  std::byte* q;
};
inline constexpr int kMostReaders = 8;
struct RopeRowsParams {
  Element element;
  int32_t num_rows;
  const int32_t* positions;
  RopeParams rope;
  int32_t num_readers;
  struct Reader {
    std::byte* out;
    int32_t first_head, heads, first_kv_head, kv_heads;
  } readers[kMostReaders];
};
struct StoreKvParams {
  StepBatch batch;
  KvParams kv;
  DigestParams digest;
  const std::byte* rows;  // [rows, 2, kv_heads, head_dim]
};
struct LatentKvParams {
  StepBatch batch;
  KvParams kv;
  DigestParams digest;
  const float* projected;  // [rows, key_dim]
  const float* kv_norm;
  float norm_eps;
  const float* queries;
  std::byte* q;
  std::byte* absorbed;
  int32_t heads, plain;
  const float* rope_cos;
  const float* rope_sin;
};
struct GatherLatentsParams {
  KvParams kv;
  const uint32_t* blocks;
  std::byte* out;
};
struct StoreExpandedParams {
  KvParams kv;  // `resident`: the blocks
  const std::byte* keys;
  const std::byte* latents;
  const std::byte* values;
  int32_t latent_dim, plain;
};

struct RmsNormParams {
  Element element;
  bool x_f32, centered;
  const std::byte* x;
  std::byte* out;
  const float* weight;
  const float* bias;
  const int32_t* rows;
  int64_t stride;
  int32_t first_row, columns;
  float eps;
  RowForm out_form;
};
struct AddNormedParams {
  Element element;
  const float* x;
  const float* beside;
  const float* weight;
  const std::byte* residual;
  std::byte* out;
  int32_t columns;
  float eps, factor;
  const float* scale;
};
struct GateRowsParams {
  Element element;
  std::byte* y;
  const float* gates;
  int32_t columns;
  bool one_a_row;
};
struct LayerInputsParams {
  Element element;
  const int32_t* tokens;
  const int32_t* sampled;
  const float* projected;
  const float* weight;
  const float* gates;
  const std::byte* table;
  int64_t table_stride;
  std::byte* out;
  int32_t columns;
  float eps, table_factor, factor;
};
struct FinishLogitsParams {
  float* values;
  int64_t count;
  float factor, cap;
};
struct EmbedParams {
  Element element;
  const int32_t* tokens;
  const int32_t* sampled;
  const std::byte* table;
  const std::byte* const* tiles;
  PackedForm packed;  // of the tiles
  const int32_t* panels;
  int32_t num_panels;
  std::byte* out;
  int32_t columns;
  float factor;
  // Learned positions; null: there are none.
  const std::byte* positions;
  const int32_t* row_positions;
  int32_t position_offset;
  const std::byte* types;
  const int32_t* row_types;
};
struct LogitsDigestParams {
  const float* logits;
  int64_t stride;
  int32_t vocab;
  const int32_t* positions;
  uint64_t* digests;
};

inline constexpr int kDrawThreads = 512;
inline constexpr int kDrawChunk = 1024;  // tokens of a sum (sample/softmax.h)
inline constexpr int kDrawPool = 512;    // tokens that are sorted; no more than threads
// The greatest logit of a chunk, and the first token that has it; -1: all are NaN.
struct DrawPeak {
  float logit;
  int32_t token;
};
struct DrawParams {
  const float* logits;
  int64_t stride;
  int32_t vocab, chunks, first_row;
  const DrawRow* draws;
  DrawPeak* peaks;  // [draws, chunks]
  double* sums;     // [draws, chunks]: of weights
  int32_t* drawn;
  int32_t* sampled;
};
// The same for log probabilities.
struct LikelyParams {
  const float* logits;
  int64_t stride;
  int32_t vocab, chunks, first_row;
  const LikelyRow* rows;
  DrawPeak* peaks;  // as DrawParams has them
  double* sums;
  const int32_t* drawn;
  LikelyHead* heads;
  LikelyToken* tokens;
};
struct DrawCandidate {
  double weight;
  float logit;
  int32_t token;
};
// The shared memory of pair_draw, in front of a sum for each chunk.
struct DrawShared {
  double weights[2][kDrawChunk];
  DrawCandidate pool[kDrawPool];
  int32_t counts[256];
  float floats[kDrawThreads / 32];
  int32_t integers[kDrawThreads / 32];
  double sum;
  float logit;
  int32_t count, index;
};

struct RouteParams {
  int32_t num_experts, experts_per_token, num_groups, chosen_groups;
  int32_t scores, group_score;  // RouterScores, GroupScore
  bool renormalize;
  float epsilon, scale;
  const float* expert_scales;
  const float* bias;
  const float* logits;
  int64_t stride;
  int32_t* experts;
  float* weights;
};
struct GroupRowsParams {
  const int32_t* experts;
  int32_t slots, experts_per_token, num_experts;
  int32_t* offsets;
  int32_t* source;
  int32_t* positions;
};
struct WeighRowsParams {
  Element element;
  const std::byte* x;
  const float* weights;
  std::byte* out;
  int32_t columns;
};
struct CombineRowsParams {
  Element element;
  const std::byte* expert_rows;
  const int32_t* positions;
  const float* weights;
  const float* shared;
  std::byte* y;
  float* sums;
  int32_t experts_per_token, columns;
};

// kernels/delta_net.h.
inline constexpr int kMostKeyDim = 256;
inline constexpr int kStateThreads = 128;  // of a value head's block
struct StateParams {
  std::byte* base;
  int64_t stride;
};
struct ShortConvParams {
  StepBatch batch;
  float* x;
  int64_t stride;
  int32_t channels, taps, gates_at;
  bool silu;
  const float* weight;
  const float* bias;
  StateParams tails;
};
struct DeltaNetParams {
  StepBatch batch;
  float* x;
  int64_t stride;
  int32_t b_at, a_at, key_heads, value_heads, key_dim, value_dim;
  int64_t matrix_floats;  // of a head
  const float* a_log;
  const float* dt_bias;
  StateParams matrices;
};
struct Mamba2Params {
  StepBatch batch;
  float* x;
  int64_t stride;
  int32_t dt_at, groups, heads, state_dim, head_dim;
  float least_step;
  int64_t matrix_floats;  // of a head
  const float* a_log;
  const float* dt_bias;
  const float* d;
  StateParams matrices;
};
// StateGate's values.
enum : int32_t { kGateBehindNorm, kGateBeforeNorm, kGateWithoutNorm };
struct GatedNormParams {
  StepBatch batch;
  Element element;
  const float* x;
  const float* z;
  int64_t stride;
  int32_t gate, heads, dim, normed_heads, first_head;
  const float* weight;
  float eps;
  std::byte* out;
  DigestParams digest;
};

// What RouteRows chose, kept as 16 bits (model/blocks/experts.cc).
struct KeepChosenParams {
  const int32_t* experts;
  uint16_t* to;
  int64_t slots;
};

// kernels/serve.h. Rows of all ranks, and who computes which expert for whom.
inline constexpr int kMostServed = 64;
struct ServedParams {
  int32_t num_ranks, num_experts, experts_per_token;
  int32_t first_row[kMostServed + 1];
  const uint8_t* owners;  // [num_ranks, num_experts]
};
struct ChooseOwnersParams {
  ServedParams ranks;
  const uint64_t* holders;  // [num_experts]
  const int32_t* experts;
  int32_t* counts;  // [num_ranks, num_experts]
  uint8_t* owners;
};
struct MarkServedParams {
  ServedParams ranks;
  int32_t member;
  int32_t* experts;  // of what another computes: num_experts
  int32_t* positions;
};
struct ServedCounterParams {
  int64_t* rows;  // null: nobody counts
  int64_t* bytes;
};
struct GatherServedParams {
  int32_t num_rows, experts_per_token, member;
  const uint8_t* owners;  // [num_experts], the rank's
  const int32_t* experts;
  const std::byte* from;
  std::byte* to;
  uint64_t row_bytes;
  ServedCounterParams counted;
};
struct ReturnServedParams {
  int32_t slots, owner;
  const uint8_t* owners;
  const int32_t* experts;
  const int32_t* positions;
  const std::byte* from;
  std::byte* to;
  uint64_t row_bytes;
  ServedCounterParams counted;
};

struct ReduceParams {
  Element element;
  int32_t output;  // LinearOutput
  const float* planes[kMostLeaves];
  int8_t merges[kMostLeaves];  // nodes that are added behind each plane
  int32_t num_planes;
  const float* bias;
  std::byte* y;
  const std::byte* residual;
  int64_t stride, y_stride;
  int32_t n;
};

}  // namespace forebay::kernels::cuda
