#include "kernels/attention.h"

#include <algorithm>
#include <limits>
#include <span>
#include <vector>

#include "kernels/exp.h"
#include "kernels/kv_codes.h"
#include "kernels/ref/row.h"
#include "kernels/sets.h"
#include "tensor/bf16.h"

namespace forebay::kernels::ref {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// A softmax over some positions, not yet divided: sum of exp(s - maximum) and of exp(s - maximum)
// v.
struct Partial {
  float maximum = -kInfinity;
  float sum = 0;
  float values[kMaxValueDim] = {};
};

// What one query head of one row sees.
struct Query {
  const AttentionArgs& args;
  const SequenceRows& sequence;
  int64_t row;
  int32_t head;
  int32_t first, last;  // positions seen, both included
};

// Online softmax over the positions of one part that the query sees.
template <typename T>
class PartSum {
 public:
  explicit PartSum(const Query& query)
      : query_(query),
        key_dim_(query.args.layout.key_dim),
        value_dim_(query.args.layout.value_dim) {}

  void AddBlock(int32_t block) {
    const AttentionArgs& args = query_.args;
    const int32_t start = block * kBlockTokens;
    begin_ = query_.first > start ? query_.first - start : 0;
    end_ = query_.last - start < kBlockTokens - 1 ? query_.last - start + 1 : kBlockTokens;
    const uint32_t entry =
        args.batch.block_tables[query_.sequence.table_row * args.batch.table_stride + block];
    const int32_t kv_head = query_.head / (args.heads / args.layout.kv_heads);
    const std::byte* const part =
        args.layer.Block(entry, args.layout) + kv_head * args.layout.HeadBytes();
    keys_ = args.layout.codes == KvCodes::kNone ? reinterpret_cast<const T*>(part) : Expand(part);
    if (args.layout.codes == KvCodes::kInt8)
      scales_ = reinterpret_cast<const float*>(part + args.layout.HeadElements());
    Score();
    Rescale();
    AddProbabilities();
  }

  Partial Finish() {
    partial_.sum = SumTree(lanes_);
    return partial_;
  }

 private:
  // K and V of a head's part of a block, as the compute type.
  const T* Expand(const std::byte* part) {
    const KvLayout& layout = query_.args.layout;
    expanded_.resize(static_cast<size_t>(layout.HeadElements()));
    const float* const values = KvValues(layout.codes);
    for (size_t i = 0; i < expanded_.size(); ++i)
      expanded_[i] = tensor::RoundTo<T>(values[static_cast<uint8_t>(part[i])]);
    return expanded_.data();
  }

  void Score() {
    const AttentionArgs& args = query_.args;
    const T* q = reinterpret_cast<const T*>(args.q) +
                 (query_.row * args.HeadsOfRow() + query_.head) * key_dim_;
    float chains[kBlockTokens] = {};
    const T* pairs = keys_;
    for (int i = 0; i < key_dim_; i += 2, pairs += 2 * kBlockTokens) {
      const float even = tensor::ToFloat(q[i]), odd = tensor::ToFloat(q[i + 1]);
      for (int t = 0; t < kBlockTokens; ++t) {
        chains[t] = std::fma(odd, tensor::ToFloat(pairs[2 * t + 1]), chains[t]);
        chains[t] = std::fma(even, tensor::ToFloat(pairs[2 * t]), chains[t]);
      }
    }
    for (int t = 0; t < kBlockTokens; ++t) {
      float score = chains[t] * args.scale;
      if (scales_ != nullptr) score *= scales_[t];
      if (args.score_cap > 0) score = Cap(score, args.score_cap);
      scores_[t] = Seen(t) ? score : -kInfinity;
    }
  }

  void Rescale() {
    float lanes[kLanes];
    for (int i = 0; i < kLanes; ++i) lanes[i] = Max(scores_[i], scores_[i + kLanes]);
    const float maximum = ReduceTree(lanes, Max);
    if (!(maximum > partial_.maximum)) return;
    const float factor = Exp(partial_.maximum - maximum);
    for (float& lane : lanes_) lane *= factor;
    for (int j = 0; j < value_dim_; ++j) partial_.values[j] *= factor;
    partial_.maximum = maximum;
  }

  void AddProbabilities() {
    float p[kBlockTokens];
    for (int t = 0; t < kBlockTokens; ++t) {
      float probability = Seen(t) ? Exp(scores_[t] - partial_.maximum) : 0.0f;
      lanes_[t % kLanes] += probability;
      if (scales_ != nullptr && !(probability <= 0)) probability *= scales_[kBlockTokens + t];
      p[t] = tensor::ToFloat(tensor::RoundTo<T>(probability));
    }
    for (int pair = begin_ / 2; pair <= (end_ - 1) / 2; ++pair) {
      float even[kMaxValueDim], odd[kMaxValueDim];
      ReadValues(2 * pair, even);
      ReadValues(2 * pair + 1, odd);
      for (int j = 0; j < value_dim_; ++j) {
        float& sum = partial_.values[j];
        sum = std::fma(p[2 * pair + 1], odd[j], sum);
        sum = std::fma(p[2 * pair], even[j], sum);
      }
    }
  }

  // V of a position; zeros where it is not seen.
  void ReadValues(int t, float* out) const {
    const T* const values = keys_ + key_dim_ * kBlockTokens + t / 2 * value_dim_ * 2 + t % 2;
    if (!Seen(t)) {
      std::fill_n(out, value_dim_, 0.0f);
    } else if (query_.args.layout.values_in_keys) {
      for (int j = 0; j < value_dim_; ++j)
        out[j] = tensor::ToFloat(keys_[(j / 2 * kBlockTokens + t) * 2 + j % 2]);
    } else {
      for (int j = 0; j < value_dim_; ++j) out[j] = tensor::ToFloat(values[2 * j]);
    }
  }
  bool Seen(int t) const { return t >= begin_ && t < end_; }

  const Query& query_;
  const int key_dim_, value_dim_;
  int begin_ = 0, end_ = 0;  // positions of the block that are seen
  const T* keys_ = nullptr;
  const float* scales_ = nullptr;  // of the block's keys, then of its values; or null
  std::vector<T> expanded_;
  float scores_[kBlockTokens];
  float lanes_[kLanes] = {};
  Partial partial_;
};

void Merge(const Partial& part, int value_dim, Partial& total) {
  const float maximum = Max(part.maximum, total.maximum);
  const float old_factor = Exp(total.maximum - maximum), factor = Exp(part.maximum - maximum);
  total.maximum = maximum;
  total.sum = std::fma(part.sum, factor, total.sum * old_factor);
  for (int j = 0; j < value_dim; ++j) {
    total.values[j] = std::fma(part.values[j], factor, total.values[j] * old_factor);
  }
}

void AddSink(float sink, int value_dim, Partial& total) {
  const float maximum = Max(total.maximum, sink);
  const float factor = Exp(total.maximum - maximum);
  total.sum = std::fma(1.0f, Exp(sink - maximum), total.sum * factor);
  for (int j = 0; j < value_dim; ++j) total.values[j] *= factor;
}

template <typename T>
void Attend(const Query& query) {
  const int value_dim = query.args.layout.value_dim;
  constexpr int kPartBlocks = kPartTokens / kBlockTokens;
  const int32_t first_block = query.first / kBlockTokens, last_block = query.last / kBlockTokens;
  Partial total;
  for (int32_t part = first_block / kPartBlocks; part <= last_block / kPartBlocks; ++part) {
    PartSum<T> sum(query);
    for (int32_t block = part * kPartBlocks; block < (part + 1) * kPartBlocks; ++block) {
      if (block >= first_block && block <= last_block) sum.AddBlock(block);
    }
    const Partial partial = sum.Finish();
    if (part == first_block / kPartBlocks) {
      total = partial;
    } else {
      Merge(partial, value_dim, total);
    }
  }
  if (query.args.sinks != nullptr) AddSink(query.args.sinks[query.head], value_dim, total);
  T* out = reinterpret_cast<T*>(query.args.out) +
           (query.row * query.args.HeadsOfRow() + query.head) * value_dim;
  for (int j = 0; j < value_dim; ++j) out[j] = tensor::RoundTo<T>(total.values[j] / total.sum);
}

}  // namespace

void Attention(const AttentionArgs& args, const device::WorkerContext& context) {
  for (const SequenceRows& sequence : std::span(args.batch.sequences, args.batch.num_sequences)) {
    const device::Range part = StaticPart(context, int64_t{sequence.num_rows} * args.heads);
    for (int64_t item = part.begin; item < part.end; ++item) {
      const auto row = static_cast<int32_t>(item / args.heads);
      const int32_t position = sequence.first_position + row;
      const Query query{args,
                        sequence,
                        int64_t{sequence.first_row} + row,
                        static_cast<int32_t>(item % args.heads),
                        args.reach.First(position),
                        args.reach.Last(position, sequence.last_position())};
      args.layout.dtype == tensor::DType::kF32 ? Attend<float>(query) : Attend<tensor::BF16>(query);
    }
  }
}

}  // namespace forebay::kernels::ref
