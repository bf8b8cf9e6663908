// Attention problems for tests and benchmarks: sequences with random q, k, v, a paged KV cache with
// permuted blocks, and every unwritten position poisoned with NaN.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/rng.h"
#include "kernels/kernel_set.h"
#include "kernels/kv_codes.h"
#include "kernels/testing/team.h"
#include "tensor/bf16.h"

namespace forebay::kernels::testing {

struct AttentionShape {
  int32_t heads = 1, kv_heads = 1, head_dim = 16;
  int32_t window = 0, chunk = 0;
  int32_t value_dim = 0;        // 0: head_dim
  bool values_in_keys = false;  // a value is the begin of its key
  float score_cap = 0;
  bool sinks = false;
  int32_t ahead = 0;  // positions behind its own that a row sees
  KvCodes codes = KvCodes::kNone;

  int32_t values() const { return value_dim ? value_dim : head_dim; }
};

// A sequence of `length` positions; rows of positions from `first` on are computed.
struct SequenceSpec {
  int32_t first, length;
};

template <typename T>
class AttentionProblem {
 public:
  static constexpr tensor::DType kType =
      sizeof(T) == 4 ? tensor::DType::kF32 : tensor::DType::kBF16;

  AttentionProblem(AttentionShape shape, std::vector<SequenceSpec> sequences, uint64_t seed = 1)
      : shape_(shape), sequences_(std::move(sequences)), rng_(seed) {
    const size_t q_width = size_t(shape.heads) * shape.head_dim,
                 k_width = size_t(shape.kv_heads) * shape.head_dim,
                 v_width = size_t(shape.kv_heads) * shape.values();
    for (const SequenceSpec& sequence : sequences_) {
      q_.push_back(Random(sequence.length * q_width, 2.0f));
      k_.push_back(Random(sequence.length * k_width, 1.0f));
      v_.push_back(Random(sequence.length * v_width, 1.0f));
      if (!shape.values_in_keys) continue;
      for (size_t i = 0; i < v_.back().size(); ++i) {
        v_.back()[i] = k_.back()[i / shape.values() * shape.head_dim + i % shape.values()];
      }
    }
    for (size_t s = 0; s < sequences_.size() && shape.codes != KvCodes::kNone; ++s) {
      k_kept_.push_back(Keep(k_[s], shape.head_dim));
      v_kept_.push_back(Keep(v_[s], shape.values()));
    }
    for (const SequenceSpec& sequence : sequences_)
      table_stride_ = std::max(table_stride_, BlocksOf(sequence));
    // Some far above the scores, some far below.
    for (int32_t head = 0; head < shape.heads; ++head)
      sinks_.push_back(static_cast<float>(head % 5 - 2) * 3.0f);
    layout_.dtype = kType;
    layout_.kv_heads = shape.kv_heads;
    layout_.key_dim = shape.head_dim;
    layout_.value_dim = shape.values();
    layout_.values_in_keys = shape.values_in_keys;
    layout_.codes = shape.codes;
    layout_.block_stride = layout_.LayerBytes() + 192;  // as if other layers lay between
    Permute(0);
  }

  // Other places for the blocks; in every second permutation, some of them in the window. What
  // lies in tables behind a sequence's end is a block that nobody writes.
  void Permute(uint64_t seed) {
    std::vector<uint32_t*> entries;
    tables_.resize(sequences_.size() * static_cast<size_t>(table_stride_));
    for (size_t s = 0; s < sequences_.size(); ++s) {
      for (int64_t i = 0; i < BlocksOf(sequences_[s]); ++i)
        entries.push_back(&tables_[s * table_stride_ + i]);
    }
    base::Rng rng(seed);
    for (size_t i = entries.size(); i > 1; --i) std::swap(entries[i - 1], entries[rng.Below(i)]);
    std::fill(tables_.begin(), tables_.end(), static_cast<uint32_t>(entries.size()));
    for (size_t i = 0; i < entries.size(); ++i) *entries[i] = static_cast<uint32_t>(i);
    if (seed % 2 == 1) {
      for (uint32_t& entry : tables_) entry |= rng.Below(2) ? kWindowBit : 0;
    }
    const size_t elements =
        (entries.size() + 1) * static_cast<size_t>(layout_.block_stride) / sizeof(T);
    resident_.assign(elements, Poison());
    window_.assign(seed % 2 == 1 ? elements : 0, Poison());
  }

  // Computes all rows in steps of at most `chunk` rows a sequence; returns them [sequences][rows,
  // heads, value_dim]. Positions after a step's own are poison while it runs.
  std::vector<std::vector<T>> Run(const KernelSet& kernels, Team& team, int32_t chunk = 1 << 20) {
    std::fill(resident_.begin(), resident_.end(), Poison());
    std::fill(window_.begin(), window_.end(), Poison());
    std::vector<std::vector<T>> results;
    std::vector<int32_t> done;
    const size_t width = size_t(shape_.heads) * shape_.values();
    for (size_t s = 0; s < sequences_.size(); ++s) {
      results.emplace_back((sequences_[s].length - sequences_[s].first) * width);
      done.push_back(sequences_[s].first);
      Write(s, 0, sequences_[s].first);
    }
    for (bool more = true; more;) {
      more = false;
      Prepare(done, chunk);
      team.Run([&](const device::WorkerContext& context) { kernels.attention(args_, context); });
      for (const SequenceRows& rows : rows_) {
        const size_t s = static_cast<size_t>(rows.table_row);
        std::memcpy(results[s].data() + (rows.first_position - sequences_[s].first) * width,
                    out_.data() + rows.first_row * width, rows.num_rows * width * sizeof(T));
        done[s] += rows.num_rows;
        more |= done[s] < sequences_[s].length;
      }
    }
    return results;
  }

  // The first element of every KV head's value at a position. REQUIRES: a cache without codes,
  // values that do not lie in keys.
  void SetValue(size_t s, int32_t position, T value) {
    for (int32_t head = 0; head < shape_.kv_heads; ++head)
      v_[s][(size_t(position) * shape_.kv_heads + head) * shape_.values()] = value;
  }

  // Makes `args()` the next step after `done` positions of each sequence, their K and V written.
  void Prepare(const std::vector<int32_t>& done, int32_t chunk) {
    const size_t width = size_t(shape_.heads) * shape_.head_dim;
    rows_.clear();
    row_sequence_.clear();
    positions_.clear();
    q_step_.clear();
    args_ = {};
    for (size_t s = 0; s < sequences_.size(); ++s) {
      const int32_t take = std::min(chunk, sequences_[s].length - done[s]);
      if (take == 0) continue;
      Write(s, done[s], done[s] + take);
      q_step_.insert(q_step_.end(), q_[s].begin() + done[s] * width,
                     q_[s].begin() + (done[s] + take) * width);
      const auto first_row = static_cast<int32_t>(positions_.size());
      for (int32_t i = 0; i < take; ++i) {
        positions_.push_back(done[s] + i);
        row_sequence_.push_back(static_cast<int32_t>(rows_.size()));
      }
      rows_.push_back({first_row, take, done[s], static_cast<int32_t>(s)});
      args_.context.Add(done[s], take);
    }
    out_.assign(q_step_.size() / shape_.head_dim * shape_.values(), T{});
    StepBatch& batch = args_.batch;
    batch.num_rows = static_cast<int32_t>(positions_.size());
    batch.num_sequences = static_cast<int32_t>(rows_.size());
    batch.positions = positions_.data();
    batch.row_sequence = row_sequence_.data();
    batch.sequences = rows_.data();
    batch.block_tables = tables_.data();
    batch.table_stride = table_stride_;
    args_.layout = layout_;
    args_.layer.resident = reinterpret_cast<std::byte*>(resident_.data());
    args_.layer.window = reinterpret_cast<std::byte*>(window_.data());
    args_.q = reinterpret_cast<const std::byte*>(q_step_.data());
    args_.out = reinterpret_cast<std::byte*>(out_.data());
    args_.heads = shape_.heads;
    args_.scale = 1.0f / std::sqrt(static_cast<float>(shape_.head_dim));
    args_.reach = {shape_.window, shape_.chunk, shape_.ahead};
    args_.score_cap = shape_.score_cap;
    args_.sinks = shape_.sinks ? sinks_.data() : nullptr;
  }

  const AttentionArgs& args() const { return args_; }
  const std::vector<SequenceSpec>& sequences() const { return sequences_; }

  // Softmax attention in double, probabilities not rounded: [rows, heads, head_dim] of a sequence.
  std::vector<double> Naive(size_t s) const {
    const auto [first, length] = sequences_[s];
    const int32_t dim = shape_.head_dim, value_dim = shape_.values();
    const std::vector<double> k = Values(k_[s], dim), v = Values(v_[s], value_dim);
    std::vector<double> out;
    for (int32_t position = first; position < length; ++position) {
      for (int32_t head = 0; head < shape_.heads; ++head) {
        const int32_t kv_head = head / (shape_.heads / shape_.kv_heads);
        const int32_t begin = args_.reach.First(position),
                      end = args_.reach.Last(position, length - 1);
        std::vector<double> scores, values(value_dim);
        double maximum = -1e300, sum = 0;
        for (int32_t t = begin; t <= end; ++t) {
          double dot = 0;
          for (int32_t j = 0; j < dim; ++j) {
            dot +=
                double(tensor::ToFloat(q_[s][(size_t(position) * shape_.heads + head) * dim + j])) *
                k[(size_t(t) * shape_.kv_heads + kv_head) * dim + j];
          }
          const double score = dot / std::sqrt(double(dim)), cap = shape_.score_cap;
          scores.push_back(cap > 0 ? cap * std::tanh(score / cap) : score);
          maximum = std::max(maximum, scores.back());
        }
        for (int32_t t = begin; t <= end; ++t) {
          const double p = std::exp(scores[t - begin] - maximum);
          sum += p;
          for (int32_t j = 0; j < value_dim; ++j) {
            values[j] += p * v[(size_t(t) * shape_.kv_heads + kv_head) * value_dim + j];
          }
        }
        if (shape_.sinks) sum += std::exp(sinks_[head] - maximum);
        for (const double value : values) out.push_back(value / sum);
      }
    }
    return out;
  }

 private:
  static int64_t BlocksOf(const SequenceSpec& sequence) {
    return (sequence.length + kBlockTokens - 1) / kBlockTokens;
  }
  static T Poison() { return tensor::RoundTo<T>(std::numeric_limits<float>::quiet_NaN()); }

  std::vector<T> Random(size_t n, float scale) {
    std::vector<T> values(n);
    for (T& value : values) {
      // The sum of four uniforms: near enough to normal.
      double sum = 0;
      for (int i = 0; i < 4; ++i) sum += rng_.Uniform() - 0.5;
      value = tensor::RoundTo<T>(static_cast<float>(sum * 1.73 * scale));
    }
    return values;
  }

  // What the cache keeps of K or V: codes, [positions, heads] of them. REQUIRES: it keeps codes.
  std::vector<KvRow> Keep(const std::vector<T>& x, int32_t dim) const {
    std::vector<KvRow> kept;
    std::vector<float> row(static_cast<size_t>(dim));
    for (size_t i = 0; i < x.size(); i += row.size()) {
      for (size_t j = 0; j < row.size(); ++j) row[j] = tensor::ToFloat(x[i + j]);
      kept.push_back(KvRowOf(shape_.codes, row.data(), dim));
    }
    return kept;
  }
  // What that stands for, [positions, heads, dim].
  std::vector<double> Values(const std::vector<T>& x, int32_t dim) const {
    std::vector<double> values;
    if (shape_.codes == KvCodes::kNone) {
      for (const T& value : x) values.push_back(tensor::ToFloat(value));
      return values;
    }
    for (const KvRow& codes : Keep(x, dim)) {
      for (int32_t j = 0; j < dim; ++j)
        values.push_back(double(KvValue(shape_.codes, codes.codes[j])) * codes.scale);
    }
    return values;
  }

  // The codes and scales of a position's head into its part of a block.
  void WriteCodes(const KvRow& k, const KvRow& v, int32_t slot, std::byte* part) const {
    const int32_t dim = shape_.head_dim, value_dim = shape_.values();
    for (int32_t j = 0; j < dim; ++j)
      part[(j / 2 * kBlockTokens + slot) * 2 + j % 2] = std::byte{k.codes[j]};
    std::byte* const values = part + dim * kBlockTokens;
    for (int32_t j = 0; j < value_dim; ++j)
      values[(slot / 2 * value_dim + j) * 2 + slot % 2] = std::byte{v.codes[j]};
    if (shape_.codes != KvCodes::kInt8) return;
    std::byte* const scales = part + layout_.HeadElements() + slot * sizeof(float);
    std::memcpy(scales, &k.scale, sizeof(float));
    std::memcpy(scales + kBlockTokens * sizeof(float), &v.scale, sizeof(float));
  }

  // K and V of positions [begin, end) of a sequence into its blocks.
  void Write(size_t s, int32_t begin, int32_t end) {
    const int32_t dim = shape_.head_dim, value_dim = shape_.values();
    for (int32_t position = begin; position < end; ++position) {
      const uint32_t entry = tables_[s * table_stride_ + position / kBlockTokens];
      std::vector<T>& memory = (entry & kWindowBit) ? window_ : resident_;
      const int32_t slot = position % kBlockTokens;
      for (int32_t head = 0; head < shape_.kv_heads; ++head) {
        const int64_t stride = (entry & kWindowBit) ? layout_.LayerBytes() : layout_.block_stride;
        T* keys = memory.data() +
                  ((entry & ~kWindowBit) * stride + head * layout_.HeadBytes()) / sizeof(T);
        T* values = keys + dim * kBlockTokens;
        if (shape_.codes != KvCodes::kNone) {
          const size_t at = size_t(position) * shape_.kv_heads + head;
          WriteCodes(k_kept_[s][at], v_kept_[s][at], slot, reinterpret_cast<std::byte*>(keys));
          continue;
        }
        for (int32_t j = 0; j < dim; ++j) {
          const size_t from = (size_t(position) * shape_.kv_heads + head) * dim + j;
          keys[(j / 2 * kBlockTokens + slot) * 2 + j % 2] = k_[s][from];
        }
        for (int32_t j = 0; j < value_dim && !shape_.values_in_keys; ++j) {
          const size_t from = (size_t(position) * shape_.kv_heads + head) * value_dim + j;
          values[(slot / 2 * value_dim + j) * 2 + slot % 2] = v_[s][from];
        }
      }
    }
  }

  const AttentionShape shape_;
  const std::vector<SequenceSpec> sequences_;
  std::vector<float> sinks_;  // [heads]
  base::Rng rng_;
  KvLayout layout_;
  int64_t table_stride_ = 0;
  std::vector<std::vector<T>> q_, k_, v_;            // [sequences][positions, heads, head_dim]
  std::vector<std::vector<KvRow>> k_kept_, v_kept_;  // [sequences], of codes
  std::vector<uint32_t> tables_;
  std::vector<T> resident_, window_;
  std::vector<SequenceRows> rows_;
  std::vector<int32_t> positions_, row_sequence_;
  std::vector<T> q_step_, out_;
  AttentionArgs args_;
};

}  // namespace forebay::kernels::testing
