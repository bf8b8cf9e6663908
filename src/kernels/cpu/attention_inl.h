// Attention of one item with this file's instruction set; the order of sums is that of kernels/attention.h.
//
// A line is one query head of one row; line = row * num_heads + head, so that the lines of consecutive rows are
// consecutive. All lines visit a KV block together: scores of lines x 32 positions, softmax a line, probabilities times
// values. Rows that see only a part of a block (their own, and the first of a sliding window) take their values alone.
#pragma once

#include "kernels/cpu/attention_items.h"
#include "kernels/cpu/pair_product.h"

namespace forebay::kernels {
namespace {

template <typename T>
class Attender {
 public:
  Attender(const AttentionArgs& args, const AttentionItem& item, std::byte* scratch)
      : args_(args), item_(item), head_dim_(args.layout.head_dim), columns_((head_dim_ + kLanes - 1) / kLanes * kLanes) {
    const int lines = item.num_rows * item.num_heads;
    q_ = Cut<Left>(scratch, lines * head_dim_);
    scores_ = Cut<float>(scratch, lines * kBlockTokens);
    probabilities_ = Cut<Left>(scratch, lines * kBlockTokens);
    values_ = Cut<float>(scratch, lines * columns_);
    lanes_ = Cut<float>(scratch, lines * kLanes);
    maxima_ = Cut<float>(scratch, kMaxLines);
    factors_ = Cut<float>(scratch, kMaxLines);
    merged_values_ = Cut<float>(scratch, lines * columns_);
    merged_maxima_ = Cut<float>(scratch, kMaxLines);
    merged_sums_ = Cut<float>(scratch, kMaxLines);
    block_values_ = Cut<T>(scratch, kBlockTokens * columns_);
  }

  void Run() {
    LoadQueries();
    const int32_t first = First(0) / kBlockTokens, last = Last(item_.num_rows - 1) / kBlockTokens;
    for (int32_t part = first / kPartBlocks; part <= last / kPartBlocks; ++part) {
      BeginPart();
      const int32_t begin = Max(first, part * kPartBlocks), end = Min(last + 1, (part + 1) * kPartBlocks);
      for (int32_t block = begin; block < end; ++block) AddBlock(block, block < last);
      for (int32_t row = 0; row < item_.num_rows; ++row) EndPart(part, row);
    }
  }

 private:
  using Left = typename PairDot<T>::Left;
  static constexpr int kPartBlocks = kPartTokens / kBlockTokens;
  static constexpr float kInfinity = __builtin_inff();

  template <typename E>
  static FB_INLINE E* Cut(std::byte*& scratch, int64_t elements) {
    E* piece = reinterpret_cast<E*>(scratch);
    scratch += (elements * static_cast<int64_t>(sizeof(E)) + 63) / 64 * 64;
    return piece;
  }

  // Positions that a row sees, both included.
  FB_INLINE int32_t Last(int32_t row) const { return item_.position + row; }
  FB_INLINE int32_t First(int32_t row) const {
    return args_.sliding_window > 0 ? Max(0, Last(row) - args_.sliding_window + 1) : 0;
  }
  FB_INLINE int64_t OutputOffset(int32_t row) const {
    return ((item_.row + row) * args_.heads + item_.head) * head_dim_;
  }

  FB_INLINE void LoadQueries() {
    const T* q = reinterpret_cast<const T*>(args_.q);
    const int64_t elements = int64_t{item_.num_heads} * head_dim_;
    for (int32_t row = 0; row < item_.num_rows; ++row) {
      const T* from = q + OutputOffset(row);
      Left* to = q_ + row * elements;
      for (int64_t j = 0; j < elements; j += kLanes) StorePart(to + j, LoadPart(from + j, elements - j), elements - j);
    }
  }

  FB_INLINE void BeginPart() {
    const int lines = item_.num_rows * item_.num_heads;
    for (int line = 0; line < lines; ++line) maxima_[line] = -kInfinity;
    for (int i = 0; i < lines * kLanes; i += kLanes) Vector::Zero().Store(lanes_ + i);
    for (int i = 0; i < lines * columns_; i += kLanes) Vector::Zero().Store(values_ + i);
  }

  FB_INLINE const T* Keys(int32_t block) const {
    const uint32_t entry = item_.blocks[block];
    const std::byte* base = (entry & kWindowBit) ? args_.layer.window : args_.layer.resident;
    const int64_t head_elements = 2ll * kBlockTokens * head_dim_;
    return reinterpret_cast<const T*>(base + static_cast<int64_t>(entry & ~kWindowBit) * args_.layout.block_stride) +
           item_.kv_head * head_elements;
  }

  void AddBlock(int32_t block, bool has_next) {
    const int heads = item_.num_heads;
    const int32_t start = block * kBlockTokens;
    const T* keys = Keys(block);
    const int64_t prefetch =
        has_next ? reinterpret_cast<const char*>(Keys(block + 1)) - reinterpret_cast<const char*>(keys) : 0;
    // Rows before `row_begin` lie before the block, rows from `row_end` on have it behind their window.
    const int32_t row_begin = Max(0, start - item_.position);
    int32_t row_end = row_begin;
    while (row_end < item_.num_rows && First(row_end) < start + kBlockTokens) ++row_end;

    PairProduct<T>((row_end - row_begin) * heads, kBlockTokens,
                   {.a = q_ + row_begin * heads * head_dim_, .a_stride = head_dim_,
                    .b = keys, .b_stride = 2 * kBlockTokens, .prefetch = prefetch, .pairs = head_dim_ / 2,
                    .c = scores_ + row_begin * heads * kBlockTokens, .c_stride = kBlockTokens, .factors = nullptr});
    const T* values = keys + head_dim_ * kBlockTokens;
    if (columns_ != head_dim_) values = PaddedValues(values);
    int32_t whole_begin = row_end, whole_end = row_begin;  // the rows that see all of the block
    for (int32_t row = row_begin; row < row_end; ++row) {
      const int begin = Max(First(row) - start, 0), end = Min(Last(row) - start + 1, kBlockTokens);
      for (int line = row * heads; line < (row + 1) * heads; ++line) Softmax(line, begin, end);
      if (end - begin < kBlockTokens) {
        AddPartialValues(row, begin, end, values);
      } else {
        whole_begin = Min(whole_begin, row);
        whole_end = row + 1;
      }
    }
    if (whole_begin < whole_end) AddValues(whole_begin, whole_end, 0, kBlockTokens / 2, values, prefetch, true);
  }

  FB_INLINE void Softmax(int line, int begin, int end) {
    const Vector scale = Vector::Set(args_.scale);
    Vector low = Vector::Load(scores_ + line * kBlockTokens) * scale;
    Vector high = Vector::Load(scores_ + line * kBlockTokens + kLanes) * scale;
    const bool partial = end - begin < kBlockTokens;
    if (partial) {
      low = SelectRange(begin, end, low, Vector::Set(-kInfinity));
      high = SelectRange(begin - kLanes, end - kLanes, high, Vector::Set(-kInfinity));
    }
    const float maximum = ReduceMax(Max(low, high));
    Vector lanes = Vector::Load(lanes_ + line * kLanes);
    factors_[line] = 1;
    if (maximum > maxima_[line]) {
      factors_[line] = ExpOne(maxima_[line] - maximum);
      lanes = lanes * Vector::Set(factors_[line]);
      maxima_[line] = maximum;
    }
    const Vector shift = Vector::Set(maxima_[line]);
    low = Exp(low - shift);
    high = Exp(high - shift);
    if (partial) {
      low = SelectRange(begin, end, low, Vector::Zero());
      high = SelectRange(begin - kLanes, end - kLanes, high, Vector::Zero());
    }
    (lanes + low + high).Store(lanes_ + line * kLanes);
    Left* p = probabilities_ + line * kBlockTokens;
    StoreProbabilities(p, low);
    StoreProbabilities(p + kLanes, high);
  }

  static FB_INLINE void StoreProbabilities(BF16* p, Vector v) { v.Store(p); }
  static FB_INLINE void StoreProbabilities(float* p, Vector v) { Rounded<T>(v).Store(p); }

  // values += probabilities . V over the pairs given, for all lines of the rows given; `v` is V from pair_begin on.
  FB_INLINE void AddValues(int32_t row_begin, int32_t row_end, int pair_begin, int pair_end, const T* v,
                           int64_t prefetch, bool rescale) {
    const int line = row_begin * item_.num_heads;
    static constexpr float kOnes[kMaxLines] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                                               1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    PairProduct<T>((row_end - row_begin) * item_.num_heads, columns_,
                   {.a = probabilities_ + line * kBlockTokens + 2 * pair_begin, .a_stride = kBlockTokens,
                    .b = v, .b_stride = columns_ * 2, .prefetch = prefetch,
                    .pairs = pair_end - pair_begin,
                    .c = values_ + line * columns_, .c_stride = columns_,
                    .factors = rescale ? factors_ + line : kOnes});
  }

  // One row that sees positions [begin, end) of the block: whole pairs as they are, a half-seen pair with its unseen
  // half cleared.
  void AddPartialValues(int32_t row, int begin, int end, const T* values) {
    bool rescale = true;
    for (int pair = begin / 2; 2 * pair < end;) {
      const bool whole = 2 * pair >= begin && 2 * pair + 1 < end;
      const int next = whole ? end / 2 : pair + 1;
      const T* from = values + int64_t{pair} * columns_ * 2;
      if (whole) {
        AddValues(row, row + 1, pair, next, from, 0, rescale);
      } else {
        T* half = half_pair_;
        const int seen = 2 * pair >= begin ? 0 : 1;
        for (int j = 0; j < columns_; ++j) {
          half[2 * j + seen] = from[2 * j + seen];
          half[2 * j + 1 - seen] = T{};
        }
        AddValues(row, row + 1, pair, next, half, 0, rescale);
      }
      rescale = false;
      pair = next;
    }
  }

  // A block's V with rows of whole vectors.
  const T* PaddedValues(const T* values) {
    for (int pair = 0; pair < kBlockTokens / 2; ++pair) {
      T* row = block_values_ + pair * columns_ * 2;
      __builtin_memcpy(row, values + pair * head_dim_ * 2, static_cast<size_t>(head_dim_) * 2 * sizeof(T));
      for (int j = 2 * head_dim_; j < 2 * columns_; ++j) row[j] = T{};
    }
    return block_values_;
  }

  // Ends a part for one row, if the row sees it: keeps the first, merges later ones, writes the result after the last.
  FB_INLINE void EndPart(int32_t part, int32_t row) {
    const int32_t first = First(row) / kPartTokens, last = Last(row) / kPartTokens;
    if (part < first || part > last) return;
    for (int head = 0; head < item_.num_heads; ++head) {
      const int line = row * item_.num_heads + head;
      const float* values = values_ + line * columns_;
      float* merged = merged_values_ + line * columns_;
      float sum = ReduceAdd(Vector::Load(lanes_ + line * kLanes));
      if (first != last) {
        Vector old_factor = Vector::Zero(), factor = Vector::Set(1);
        if (part == first) {
          merged_maxima_[line] = maxima_[line];
          for (int j = 0; j < columns_; j += kLanes) Vector::Load(values + j).Store(merged + j);
        } else {
          const float maximum =
              maxima_[line] > merged_maxima_[line] ? maxima_[line] : merged_maxima_[line];
          old_factor = Vector::Set(ExpOne(merged_maxima_[line] - maximum));
          factor = Vector::Set(ExpOne(maxima_[line] - maximum));
          merged_maxima_[line] = maximum;
          sum = Fma(Vector::Set(sum), factor, Vector::Set(merged_sums_[line]) * old_factor).First();
          for (int j = 0; j < columns_; j += kLanes) {
            Fma(Vector::Load(values + j), factor, Vector::Load(merged + j) * old_factor).Store(merged + j);
          }
        }
        merged_sums_[line] = sum;
        values = merged;
      }
      if (part == last) Write(values, sum, reinterpret_cast<T*>(args_.out) + OutputOffset(row) + head * head_dim_);
    }
  }

  FB_INLINE void Write(const float* values, float sum, T* out) const {
    for (int j = 0; j < head_dim_; j += kLanes) {
      StorePart(out + j, Vector::Load(values + j) / Vector::Set(sum), head_dim_ - j);
    }
  }

  const AttentionArgs& args_;
  const AttentionItem& item_;
  const int head_dim_;
  const int columns_;      // head_dim in whole vectors
  Left* q_;                // [lines, head_dim]
  float* scores_;          // [lines, 32]
  Left* probabilities_;    // [lines, 32]
  float* values_;          // [lines, columns]
  float* lanes_;           // [lines, 16]
  float* maxima_;          // [lines]
  float* factors_;         // [lines] by which this block rescales
  float* merged_values_;   // [lines, columns] of the parts so far
  float* merged_maxima_;
  float* merged_sums_;
  T* block_values_;        // [16, columns, 2]
  alignas(64) T half_pair_[2 * kMaxHeadDim];
};

template <typename T>
void AttendItem(const AttentionArgs& args, const AttentionItem& item, std::byte* scratch) {
  Attender<T>(args, item, scratch).Run();
}

void AttendItems(const AttentionArgs& args, const device::WorkerContext& context) {
  RunAttention(args, context, args.layout.dtype == tensor::DType::kF32 ? &AttendItem<float> : &AttendItem<BF16>);
}

}  // namespace
}  // namespace forebay::kernels
