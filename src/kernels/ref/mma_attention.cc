#include "kernels/mma_attention.h"

#include <algorithm>
#include <limits>
#include <span>

#include "kernels/attention.h"
#include "kernels/kv_codes.h"
#include "kernels/ref/mma.h"
#include "kernels/ref/row.h"
#include "kernels/ref/tile.h"
#include "kernels/sets.h"
#include "kernels/tile_attention.h"
#include "tensor/bf16.h"

namespace forebay::kernels::ref {
namespace {

using tensor::BF16;

static_assert(kPartTokens % kMmaStepTokens == 0 && kMmaStepTokens % kBlockTokens == 0);

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// What some positions sum up to, not yet divided: p and p v are 2^(score c - whole).
struct MmaSum {
  float whole = -kInfinity;
  float sum = 0;
  float values[kMaxValueDim] = {};
};

// What a class multiplies with, and its steps of the softmax:
//
//   static constexpr int kTokens;  // positions of a step
//   static BF16 Round(float p);
//   // Goes on with the chains of `columns` outputs: as AddMmaSteps.
//   static void Add(const BF16* x, int first, int last, const BF16* w, int columns, float* sums);
template <MmaOrder kOrder>
struct MmaSteps {
  static constexpr int kTokens = kMmaStepTokens;
  // To nearest even, denormals kept.
  static BF16 Round(float p) {
    const uint32_t bits = std::bit_cast<uint32_t>(p);
    return {static_cast<uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16)};
  }
  static void Add(const BF16* x, int first, int last, const BF16* w, int columns, float* sums) {
    AddMmaSteps(kOrder, x, first, last, w, columns, sums);
  }
};
template <TileOrder kOrder>
struct TileSteps {
  static constexpr int kTokens = kPartTokens;
  static BF16 Round(float p) { return tensor::ToBF16(p); }
  static void Add(const BF16* x, int first, int last, const BF16* w, int columns, float* sums) {
    AddTileSteps(kOrder, x, first, last, w, columns, sums);
  }
};

// One query head of one row.
template <typename Steps>
class StepQuery {
 public:
  StepQuery(const AttentionArgs& args, const SequenceRows& sequence, int32_t row, int32_t head)
      : args_(args),
        table_(args.batch.block_tables + sequence.table_row * args.batch.table_stride),
        kv_head_(head / (args.heads / args.layout.kv_heads)),
        last_(args.reach.Last(sequence.first_position + row, sequence.last_position())),
        first_(args.reach.First(sequence.first_position + row)),
        at_((int64_t{sequence.first_row} + row) * args.HeadsOfRow() + head),
        c_(MmaScale(args.score_cap > 0 ? 1.0f : args.scale)),
        head_(head) {}

  void Attend() {
    const int value_dim = args_.layout.value_dim;
    MmaSum total;
    for (int32_t part = first_ / kPartTokens; part <= last_ / kPartTokens; ++part) {
      part_ = {};
      std::fill_n(lanes_, kLanes, 0.0f);
      for (int32_t step = part * kPartTokens; step < (part + 1) * kPartTokens;
           step += Steps::kTokens) {
        if (step <= last_ && step + Steps::kTokens > first_) AddStep(step);
      }
      part_.sum = SumTree(lanes_);
      Merge(value_dim, &total);
    }
    if (args_.sinks != nullptr) {
      const float sink = args_.sinks[head_], c = MmaScale(1);
      part_ = {};
      part_.whole = MmaWhole(sink, c);
      part_.sum = MmaProbability(sink, c / 128, MmaBias(part_.whole));
      Merge(value_dim, &total);
    }
    BF16* out = reinterpret_cast<BF16*>(args_.out) + at_ * value_dim;
    const float inverse = 1.0f / total.sum;
    for (int j = 0; j < value_dim; ++j)
      out[j] = tensor::ToBF16(std::fma(total.values[j], inverse, 0.0f));
  }

 private:
  // Merges the part into the total.
  void Merge(int value_dim, MmaSum* total) const {
    const float top = std::max(total->whole, part_.whole);
    const float old = MmaFactor(total->whole - top), factor = MmaFactor(part_.whole - top);
    total->whole = top;
    total->sum = std::fma(part_.sum, factor, total->sum * old);
    for (int j = 0; j < value_dim; ++j)
      total->values[j] = std::fma(part_.values[j], factor, total->values[j] * old);
  }

  // Half-open positions of the block that are seen, from its first one on.
  struct Seen {
    int first, end;
  };
  Seen SeenOf(int32_t block) const {
    const int32_t start = block * kBlockTokens;
    return {std::clamp(first_ - start, 0, kBlockTokens),
            std::clamp(last_ + 1 - start, 0, kBlockTokens)};
  }
  // The head's part of the block.
  const std::byte* Part(int32_t block) const {
    return args_.layer.Block(table_[block], args_.layout) + kv_head_ * args_.layout.HeadBytes();
  }
  // The scales of its keys, then of its values; null: there are none.
  const float* Scales(int32_t block) const {
    if (args_.layout.codes != KvCodes::kInt8) return nullptr;
    return reinterpret_cast<const float*>(Part(block) + args_.layout.HeadElements());
  }
  // `n` of its elements from `first` on; of codes until the next call.
  const BF16* Elements(int32_t block, int64_t first, int64_t n) {
    const std::byte* const part = Part(block);
    const KvCodes codes = args_.layout.codes;
    if (codes == KvCodes::kNone) return reinterpret_cast<const BF16*>(part) + first;
    const float* const values = KvValues(codes);
    for (int64_t i = 0; i < n; ++i)
      elements_[i] = tensor::ToBF16(values[static_cast<uint8_t>(part[first + i])]);
    return elements_;
  }
  const BF16* Keys(int32_t block) {
    return Elements(block, 0, int64_t{kBlockTokens} * args_.layout.key_dim);
  }

  void AddStep(int32_t step) {
    const int key_dim = args_.layout.key_dim, value_dim = args_.layout.value_dim;
    float scores[Steps::kTokens], best = -kInfinity;
    std::fill_n(scores, Steps::kTokens, -kInfinity);
    for (int t0 = 0; t0 < Steps::kTokens; t0 += kBlockTokens) {
      const int32_t block = (step + t0) / kBlockTokens;
      const Seen seen = SeenOf(block);
      if (seen.first >= seen.end) continue;
      float all[kBlockTokens] = {};
      Steps::Add(reinterpret_cast<const BF16*>(args_.q) + at_ * key_dim, 0, key_dim, Keys(block),
                 kBlockTokens, all);
      const float* const scales = Scales(block);
      for (int t = seen.first; t < seen.end; ++t) {
        if (scales != nullptr) all[t] *= scales[t];
        if (args_.score_cap > 0) all[t] = Cap(all[t] * args_.scale, args_.score_cap);
        scores[t0 + t] = all[t];
        best = std::fmax(best, all[t]);
      }
    }
    const float whole = std::fmax(part_.whole, MmaWhole(best, c_));
    const float factor = MmaFactor(part_.whole - whole), bias = MmaBias(whole);
    part_.whole = whole;
    float lanes[kLanes], p[Steps::kTokens];
    for (int t = 0; t < Steps::kTokens; ++t) {
      p[t] = MmaProbability(scores[t], c_ / 128, bias);
      lanes[t % kLanes] = t < kLanes ? p[t] : lanes[t % kLanes] + p[t];
    }
    for (int i = 0; i < kLanes; ++i) lanes_[i] = std::fma(lanes_[i], factor, lanes[i]);
    for (int j = 0; j < value_dim && factor != 1; ++j) part_.values[j] *= factor;
    for (int t0 = 0; t0 < Steps::kTokens; t0 += kBlockTokens) {
      const int32_t block = (step + t0) / kBlockTokens;
      const Seen seen = SeenOf(block);
      if (seen.first >= seen.end) continue;
      const float* const scales = Scales(block);
      BF16 rounded[kBlockTokens];
      for (int t = 0; t < kBlockTokens; ++t) {
        float& of = p[t0 + t];
        if (scales != nullptr && !(of <= 0)) of *= scales[kBlockTokens + t];
        rounded[t] = Steps::Round(of);
      }
      Steps::Add(rounded, seen.first, seen.end, Values(block), value_dim, part_.values);
    }
  }

  // V of the block, pairs along positions.
  const BF16* Values(int32_t block) {
    const int key_dim = args_.layout.key_dim, value_dim = args_.layout.value_dim;
    if (!args_.layout.values_in_keys)
      return Elements(block, int64_t{kBlockTokens} * key_dim, int64_t{kBlockTokens} * value_dim);
    const BF16* const keys = Keys(block);
    for (int t = 0; t < kBlockTokens; ++t) {
      for (int j = 0; j < value_dim; ++j) {
        elements_[(t / 2 * value_dim + j) * 2 + t % 2] =
            keys[(j / 2 * kBlockTokens + t) * 2 + j % 2];
      }
    }
    return elements_;
  }

  const AttentionArgs& args_;
  const uint32_t* const table_;
  const int32_t kv_head_;
  const int32_t last_, first_;  // positions seen, both included
  const int64_t at_;            // row and head of q and out
  const float c_;
  const int32_t head_;
  MmaSum part_;
  float lanes_[kLanes] = {};
  BF16 elements_[kBlockTokens * kMaxKeyDim];  // of codes, or values that lie in keys
};

template <typename Steps>
void AttentionBySteps(const AttentionArgs& args, const device::WorkerContext& context) {
  if (args.layout.dtype == tensor::DType::kF32) return Attention(args, context);
  for (const SequenceRows& sequence : std::span(args.batch.sequences, args.batch.num_sequences)) {
    const device::Range items = StaticPart(context, int64_t{sequence.num_rows} * args.heads);
    for (int64_t item = items.begin; item < items.end; ++item) {
      StepQuery<Steps>(args, sequence, static_cast<int32_t>(item / args.heads),
                       static_cast<int32_t>(item % args.heads))
          .Attend();
    }
  }
}

}  // namespace

AttentionFunction MmaAttention(MmaOrder order) {
  return order == MmaOrder::kK16F25 ? &AttentionBySteps<MmaSteps<MmaOrder::kK16F25>>
                                    : &AttentionBySteps<MmaSteps<MmaOrder::kK8F24>>;
}

AttentionFunction TileAttention(TileOrder order) {
  switch (order) {
    case TileOrder::kSplit: return &AttentionBySteps<TileSteps<TileOrder::kSplit>>;
    case TileOrder::kEvenFirst: return &AttentionBySteps<TileSteps<TileOrder::kEvenFirst>>;
    case TileOrder::kOddFirst: return &AttentionBySteps<TileSteps<TileOrder::kOddFirst>>;
    case TileOrder::kUnknown: break;
  }
  return nullptr;
}

}  // namespace forebay::kernels::ref
