#include "kernels/mma_attention.h"

#include <algorithm>
#include <limits>
#include <span>

#include "kernels/attention.h"
#include "kernels/ref/mma.h"
#include "kernels/ref/row.h"
#include "kernels/sets.h"
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

// Round to nearest even, denormals kept.
BF16 RoundProbability(float p) {
  const uint32_t bits = std::bit_cast<uint32_t>(p);
  return {static_cast<uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16)};
}

// One query head of one row.
class MmaQuery {
 public:
  MmaQuery(MmaOrder order, const AttentionArgs& args, const SequenceRows& sequence, int32_t row,
           int32_t head)
      : order_(order),
        args_(args),
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
           step += kMmaStepTokens) {
        if (step <= last_ && step + kMmaStepTokens > first_) AddStep(step);
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
  const BF16* Keys(int32_t block) const {
    return reinterpret_cast<const BF16*>(args_.layer.Block(table_[block], args_.layout) +
                                         kv_head_ * args_.layout.HeadBytes());
  }

  void AddStep(int32_t step) {
    const int key_dim = args_.layout.key_dim, value_dim = args_.layout.value_dim;
    float scores[kMmaStepTokens], best = -kInfinity;
    std::fill_n(scores, kMmaStepTokens, -kInfinity);
    for (int t0 = 0; t0 < kMmaStepTokens; t0 += kBlockTokens) {
      const int32_t block = (step + t0) / kBlockTokens;
      const Seen seen = SeenOf(block);
      if (seen.first >= seen.end) continue;
      float all[kBlockTokens] = {};
      AddMmaSteps(order_, reinterpret_cast<const BF16*>(args_.q) + at_ * key_dim, 0, key_dim,
                  Keys(block), kBlockTokens, all);
      for (int t = seen.first; t < seen.end; ++t) {
        if (args_.score_cap > 0) all[t] = Cap(all[t] * args_.scale, args_.score_cap);
        scores[t0 + t] = all[t];
        best = std::fmax(best, all[t]);
      }
    }
    const float whole = std::fmax(part_.whole, MmaWhole(best, c_));
    const float factor = MmaFactor(part_.whole - whole), bias = MmaBias(whole);
    part_.whole = whole;
    float lanes[kLanes];
    BF16 p[kMmaStepTokens];
    for (int t = 0; t < kMmaStepTokens; ++t) {
      const float probability = MmaProbability(scores[t], c_ / 128, bias);
      lanes[t % kLanes] = t < kLanes ? probability : lanes[t % kLanes] + probability;
      p[t] = RoundProbability(probability);
    }
    for (int i = 0; i < kLanes; ++i) lanes_[i] = std::fma(lanes_[i], factor, lanes[i]);
    for (int j = 0; j < value_dim && factor != 1; ++j) part_.values[j] *= factor;
    for (int t0 = 0; t0 < kMmaStepTokens; t0 += kBlockTokens) {
      const int32_t block = (step + t0) / kBlockTokens;
      const Seen seen = SeenOf(block);
      if (seen.first >= seen.end) continue;
      AddMmaSteps(order_, p + t0, seen.first, seen.end, Values(block), value_dim, part_.values);
    }
  }

  // V of the block, pairs along positions.
  const BF16* Values(int32_t block) {
    const int key_dim = args_.layout.key_dim, value_dim = args_.layout.value_dim;
    const BF16* const keys = Keys(block);
    if (!args_.layout.values_in_keys) return keys + key_dim * kBlockTokens;
    for (int t = 0; t < kBlockTokens; ++t) {
      for (int j = 0; j < value_dim; ++j) {
        from_keys_[(t / 2 * value_dim + j) * 2 + t % 2] =
            keys[(j / 2 * kBlockTokens + t) * 2 + j % 2];
      }
    }
    return from_keys_;
  }

  const MmaOrder order_;
  const AttentionArgs& args_;
  const uint32_t* const table_;
  const int32_t kv_head_;
  const int32_t last_, first_;  // positions seen, both included
  const int64_t at_;            // row and head of q and out
  const float c_;
  const int32_t head_;
  MmaSum part_;
  float lanes_[kLanes] = {};
  BF16 from_keys_[kBlockTokens * kMaxValueDim];
};

template <MmaOrder kOrder>
void AttentionByMma(const AttentionArgs& args, const device::WorkerContext& context) {
  if (args.layout.dtype == tensor::DType::kF32) return Attention(args, context);
  for (const SequenceRows& sequence : std::span(args.batch.sequences, args.batch.num_sequences)) {
    const device::Range items = StaticPart(context, int64_t{sequence.num_rows} * args.heads);
    for (int64_t item = items.begin; item < items.end; ++item) {
      MmaQuery(kOrder, args, sequence, static_cast<int32_t>(item / args.heads),
               static_cast<int32_t>(item % args.heads))
          .Attend();
    }
  }
}

}  // namespace

AttentionFunction MmaAttention(MmaOrder order) {
  return order == MmaOrder::kK16F25 ? &AttentionByMma<MmaOrder::kK16F25>
                                    : &AttentionByMma<MmaOrder::kK8F24>;
}

}  // namespace forebay::kernels::ref
