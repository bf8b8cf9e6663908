// Attention of one item with this file's instruction set; the order of sums is that of
// kernels/attention.h.
//
// A line is one query head of one row; line = row * num_heads + head, so that the lines of
// consecutive rows are consecutive. Blocks that all rows see whole are taken in runs: scores of all
// lines, softmax a line, probabilities times values. Other blocks (the rows' own, and the first of
// a sliding window) are taken one by one. An item of several KV heads takes each block as it lies
// in memory, up to kRunBlocks heads at a time.
//
// Of a cache of codes (kernels/kv_codes.h) a run's keys are expanded into scratch before its
// scores, and its values before they are added.
#pragma once

#include "kernels/cpu/attention_items.h"
#include "kernels/cpu/attention_tiles.h"
#include "kernels/cpu/kv_codes_inl.h"
#include "kernels/cpu/kv_part.h"
#include "kernels/cpu/value_rows.h"

namespace forebay::kernels {
namespace {

constexpr float kInfinity = __builtin_inff();
constexpr TilePrefetch kNoPrefetch{};

template <typename T>
class Attender {
 public:
  Attender(const AttentionArgs& args, const AttentionItem& item, const AttentionItem* next,
           KvAhead& ahead, const PartSlots& slots, std::byte* scratch)
      : args_(args),
        item_(item),
        next_(next),
        ahead_(ahead),
        slots_(slots),
        lines_(item.num_rows * item.num_heads),
        key_dim_(args.layout.key_dim),
        value_dim_(args.layout.value_dim),
        columns_((value_dim_ + kLanes - 1) / kLanes * kLanes),
        head_bytes_(HeadBytes<T>(args.layout)),
        coded_(args.layout.codes != KvCodes::kNone),
        scaled_(args.layout.codes == KvCodes::kInt8),
        copied_(coded_ || columns_ != value_dim_ || args.layout.values_in_keys) {
    q_ = Cut<Left>(scratch, lines_ * key_dim_);
    scores_ = Cut<float>(scratch, kMaxLines * kRunTokens);
    probabilities_ = Cut<Left>(scratch, lines_ * kRunTokens);
    sums_ = Cut<float>(scratch, SumOffset(0, columns_ + kPanel - 1));
    lanes_ = Cut<float>(scratch, lines_ * kLanes);
    maxima_ = Cut<float>(scratch, kMaxLines);
    totals_ = Cut<float>(scratch, kMaxLines);
    block_maxima_ = Cut<float>(scratch, kRunBlocks * kMaxLines);
    factors_ = Cut<float>(scratch, kRunBlocks * kMaxLines);
    ones_ = Cut<float>(scratch, kMaxLines);
    seen_ = Cut<int>(scratch, kMaxLines);
    merged_ = Cut<float>(scratch, SumOffset(0, columns_ + kPanel - 1));
    merged_maxima_ = Cut<float>(scratch, kMaxLines);
    merged_totals_ = Cut<float>(scratch, kMaxLines);
    padded_ = Cut<T>(scratch, kRunTokens * columns_);
    half_pair_ = Cut<T>(scratch, 2 * columns_);
    keys_ = Cut<T>(scratch, coded_ ? kRunTokens * key_dim_ : 0);
  }

  void Run() {
    LoadQueries();
    PrefetchRows();
    for (int i = 0; i < kMaxLines; i += kLanes) {
      Vector::Set(1).Store(ones_ + i);
    }
    const int last_row = item_.num_rows - 1;
    // The blocks that all rows see whole.
    const int32_t whole_begin = (First(last_row) + kBlockTokens - 1) / kBlockTokens;
    const int32_t whole_end = (Last(0) + 1) / kBlockTokens;
    for (int32_t block = item_.first_block; block < item_.end_block;) {
      const int32_t part = block / kPartBlocks,
                    end = Min(item_.end_block, (part + 1) * kPartBlocks);
      BeginPart(part);
      while (block < end) {
        if (item_.num_kv_heads > 1) {
          AddHeads(block++);
        } else if (block >= whole_begin && block < whole_end) {
          const int blocks = Min(Min(whole_end, end) - block, kRunBlocks);
          AddRun(block, blocks);
          block += blocks;
        } else {
          AddEdge(block++);
        }
      }
      for (int line = 0; line < lines_; ++line)
        totals_[line] = ReduceAdd(Vector::Load(lanes_ + line * kLanes));
      if (item_.slot < 0) MergePart(part, 0, lines_);
    }
  }

  // Merges the parts, which lie in slots, for some lines.
  void Merge(int line_begin, int line_end) {
    for (int32_t part = item_.first_block / kPartBlocks;
         part <= (item_.end_block - 1) / kPartBlocks; ++part) {
      UseSlot(part);
      MergePart(part, line_begin, line_end);
    }
  }

 private:
  using Left = typename PairDot<T>::Left;

  template <typename E>
  static FB_INLINE E* Cut(std::byte*& scratch, int64_t elements) {
    E* piece = reinterpret_cast<E*>(scratch);
    scratch += (elements * static_cast<int64_t>(sizeof(E)) + 63) / 64 * 64;
    return piece;
  }

  // Positions that a row sees, both included.
  FB_INLINE int32_t Last(int row) const {
    return args_.reach.Last(item_.position + row, item_.last_position);
  }
  FB_INLINE int32_t First(int row) const { return args_.reach.First(item_.position + row); }
  // A row's first head among all heads of all rows.
  FB_INLINE int64_t FirstHead(const AttentionItem& item, int row) const {
    return (item.row + row) * args_.HeadsOfRow() + item.head;
  }

  FB_INLINE void LoadQueries() {
    const T* q = reinterpret_cast<const T*>(args_.q);
    const int64_t elements = int64_t{item_.num_heads} * key_dim_;
    for (int row = 0; row < item_.num_rows; ++row) {
      const T* from = q + FirstHead(item_, row) * key_dim_;
      Left* to = q_ + row * elements;
      if constexpr (sizeof(Left) == sizeof(T)) {
        __builtin_memcpy(to, from, static_cast<size_t>(elements) * sizeof(T));
        continue;
      }
      for (int64_t j = 0; j < elements; j += kLanes)
        StorePart(to + j, LoadPart(from + j, elements - j), elements - j);
    }
  }

  // The next item's queries, and the places of this one's results.
  FB_INLINE void PrefetchRows() const {
    constexpr auto kSize = static_cast<int64_t>(sizeof(T));
    const int64_t out_head = value_dim_ * kSize, q_head = key_dim_ * kSize;
    for (int row = 0; row < item_.num_rows; ++row) {
      const std::byte* out = args_.out + FirstHead(item_, row) * out_head;
      for (int64_t i = 0; i < item_.num_heads * out_head; i += 64) __builtin_prefetch(out + i, 1);
    }
    if (next_ == nullptr) return;
    for (int row = 0; row < next_->num_rows; ++row) {
      const std::byte* q = args_.q + FirstHead(*next_, row) * q_head;
      for (int64_t i = 0; i < item_.num_heads * q_head; i += 64) __builtin_prefetch(q + i, 0);
    }
  }

  FB_INLINE void UseSlot(int32_t part) {
    sums_ =
        reinterpret_cast<float*>(slots_.At(item_.slot + part - item_.first_block / kPartBlocks));
    maxima_ = sums_ + (columns_ + kPanel - 1) / kPanel * kPanel * kMaxLines;
    totals_ = maxima_ + kMaxLines;
  }

  FB_INLINE void BeginPart(int32_t part) {
    if (item_.slot >= 0) UseSlot(part);
    for (int i = 0; i < kMaxLines; i += kLanes) Vector::Set(-kInfinity).Store(maxima_ + i);
    for (int i = 0; i < lines_ * kLanes; i += kLanes) Vector::Zero().Store(lanes_ + i);
    for (int64_t panel = 0; panel < columns_; panel += kPanel) {
      float* sums = sums_ + SumOffset(0, panel);
      for (int i = 0; i < lines_ * kPanel; i += kLanes) Vector::Zero().Store(sums + i);
    }
  }

  // What the cache has of a block and the item's first KV head.
  FB_INLINE const std::byte* PartOf(const AttentionItem& item, int32_t block) const {
    return LayerPart<T>(args_.layer, args_.layout, item.blocks[block]) + item.kv_head * head_bytes_;
  }
  // Keys of a part, the run's number `i`. `ahead`: bytes from the part to one that is read later.
  FB_INLINE const T* Keys(const std::byte* part, int i, int64_t ahead) const {
    if (!coded_) return reinterpret_cast<const T*>(part);
    const int64_t elements = int64_t{kBlockTokens} * key_dim_;
    T* const keys = keys_ + i * elements;
    ExpandCodes(args_.layout.codes, part, elements, keys, ahead);
    return keys;
  }

  // Bytes from `part`, that of `block`, to the block read kRunBlocks later, here or in the next
  // item; 0 if there is none.
  FB_INLINE int64_t PrefetchDistance(const std::byte* part, int32_t block) const {
    int32_t later = block + kRunBlocks;
    const AttentionItem* item = &item_;
    if (later >= item_.end_block) {
      if (next_ == nullptr) return 0;
      item = next_;
      later += next_->first_block - item_.end_block;
      if (later >= next_->end_block) return 0;
    }
    return PartOf(*item, later) - part;
  }

  // The first tile prefetches data that this item reads soon. The other tiles read the same data
  // and prefetch pieces of the waiting item. `from`: the tiles' data of each block. REQUIRES: the
  // first tile's
  // distances.
  FB_INLINE void PlanPieces(const T* const* from, int blocks, int tiles, TilePrefetch& prefetch) {
    for (int tile = 1; tile < tiles; ++tile) {
      for (int b = 0; b < blocks; ++b) prefetch.distances[tile][b] = NextPiece(from[b]);
    }
  }

  // Bytes from `from` to the next piece of the item that waits; 0 if there is none.
  FB_INLINE int64_t NextPiece(const T* from) {
    if (ahead_.left == 0) return 0;
    --ahead_.left;
    const T* const piece = reinterpret_cast<const T*>(PartOf(*ahead_.item, ahead_.block)) +
                           ahead_.piece * int64_t{kBlockTokens} * key_dim_;
    if (++ahead_.piece == 2 * ahead_.item->num_kv_heads) ahead_.piece = 0, ++ahead_.block;
    return reinterpret_cast<const char*>(piece) - reinterpret_cast<const char*>(from);
  }

  // Blocks that all rows see whole.
  void AddRun(int32_t block, int blocks) {
    TilePrefetch score_prefetch, value_prefetch;
    ScoreArgs<T> score{.q = q_,
                       .q_stride = key_dim_,
                       .pairs = key_dim_ / 2,
                       .prefetch = &score_prefetch,
                       .scale = args_.scale,
                       .scores = scores_};
    ValueArgs<T> value{.probabilities = probabilities_,
                       .blocks = blocks,
                       .pairs = kBlockTokens / 2,
                       .prefetch = &value_prefetch,
                       .columns = columns_,
                       .sums = sums_,
                       .factors = factors_};
    const std::byte* parts[kRunBlocks];
    int64_t ahead[kRunBlocks];
    for (int b = 0; b < blocks; ++b) {
      parts[b] = PartOf(item_, block + b);
      ahead[b] = PrefetchDistance(parts[b], block + b);
      score.keys[b] = Keys(parts[b], b, ahead[b]);
      if (!copied_) value.values[b] = Values(parts[b], b, ahead[b]);
      score_prefetch.distances[0][b] = value_prefetch.distances[0][b] = coded_ ? 0 : ahead[b];
    }
    PlanPieces(score.keys, blocks, ScoreTiles<T>(lines_), score_prefetch);
    if (!copied_) PlanPieces(value.values, blocks, ValueTiles<T>(lines_), value_prefetch);
    Scores(lines_, blocks, score);
    for (int b = 0; b < blocks; ++b) ScaleScores(0, lines_, b, b, parts[b]);
    if (args_.score_cap > 0) CapScores(0, lines_, blocks);
    Softmax(0, lines_, blocks);
    if (!copied_) return AddProducts(lines_, value);
    // A panel of all blocks after another, which stays in the first cache until all lines have met
    // it.
    value.prefetch = &kNoPrefetch;
    for (int column = 0; column < columns_; column += kPanel) {
      const int columns = Min(columns_ - column, kPanel);
      value.columns = columns;
      value.sums = sums_ + SumOffset(0, column);
      for (int b = 0; b < blocks; ++b) {
        T* const panel = padded_ + b * kBlockTokens * columns;
        CopyColumns(parts[b], column, columns, ahead[b], panel);
        value.values[b] = panel;
      }
      AddProducts(lines_, value);
    }
  }

  // Positions of a block that a row sees: [begin, end).
  struct Seen {
    int begin, end;
  };
  FB_INLINE Seen SeenOf(int row, int32_t start) const {
    return {Max(First(row) - start, 0), Min(Last(row) - start + 1, kBlockTokens)};
  }

  // What lies in memory after some KV heads of a block, as it will be read: KV heads of one block.
  struct Ahead {
    const std::byte* part;
    int heads;
  };
  FB_INLINE Ahead AheadOf(int32_t block, int head) const {
    const AttentionItem* item = &item_;
    if (head == item->num_kv_heads) {
      head = 0;
      if (++block == item_.end_block) {
        if (next_ == nullptr) return {};
        item = next_;
        block = next_->first_block;
      }
    }
    return {PartOf(*item, block) + head * head_bytes_, Min(item->num_kv_heads - head, kRunBlocks)};
  }

  void AddHeads(int32_t block) {
    for (int head = 0; head < item_.num_kv_heads; head += kRunBlocks) {
      AddHeads(block, head, Min(item_.num_kv_heads - head, kRunBlocks));
    }
  }

  // Some KV heads of a block that the item's one row sees whole or in part.
  void AddHeads(int32_t block, int head, int heads) {
    const int group = item_.num_heads / item_.num_kv_heads, line = head * group;
    const Seen seen = SeenOf(0, block * kBlockTokens);
    const bool whole = seen.end - seen.begin == kBlockTokens;
    const Ahead ahead = AheadOf(block, head + heads);
    TilePrefetch prefetch;
    ScoreArgs<T> score{.q = q_ + line * key_dim_,
                       .q_stride = key_dim_,
                       .pairs = key_dim_ / 2,
                       .prefetch = &prefetch,
                       .scale = args_.scale,
                       .scores = scores_ + line * kRunTokens};
    const std::byte* parts[kRunBlocks];
    int64_t distances[kRunBlocks];
    parts[0] = PartOf(item_, block) + head * head_bytes_;
    // Expanders of codes prefetch for themselves.
    score.ahead = reinterpret_cast<const char*>(coded_ ? reinterpret_cast<const std::byte*>(keys_)
                                                : ahead.heads > 0 ? ahead.part
                                                                  : parts[0]);
    for (int h = 0; h < heads; ++h) {
      parts[h] = parts[0] + h * head_bytes_;
      distances[h] = h < ahead.heads ? ahead.part + h * head_bytes_ - parts[h] : 0;
      score.keys[h] = Keys(parts[h], h, distances[h]);
      prefetch.distances[0][h] = coded_ ? 0 : distances[h];
    }
    const char* rest = seen.end <= kBlockTokens / 2  // the second half is not read
                           ? HeadScores<T, 1>(heads, group, score, kBlockTokens / 2)
                           : HeadScores(heads, group, score, kBlockTokens);
    const int end = line + heads * group;
    for (int h = 0; h < heads; ++h)
      ScaleScores(line + h * group, line + (h + 1) * group, 0, h, parts[h]);
    if (args_.score_cap > 0) CapScores(line, end, 1);
    if (!whole) Mask(line, end, seen);
    Softmax(line, end, 1, group);
    ValueArgs<T> value{.probabilities = probabilities_ + line * kRunTokens,
                       .blocks = heads,
                       .pairs = kBlockTokens / 2,
                       .prefetch = &kNoPrefetch,
                       .columns = columns_,
                       .sums = sums_ + SumOffset(line, 0),
                       .factors = factors_ + line,
                       .ahead = rest};
    for (int h = 0; h < heads; ++h) value.values[h] = Values(parts[h], h, distances[h]);
    if (whole && AddHeadProducts(group, value)) return;
    // Less is read here than is wanted next.
    const char* end_ahead = reinterpret_cast<const char*>(ahead.part + ahead.heads * head_bytes_);
    for (const char* p = value.ahead; !coded_ && p < end_ahead; p += 64)
      __builtin_prefetch(p, 0, 2);
    value.blocks = 1;
    for (int h = 0; h < heads; ++h, value.probabilities += group * kRunTokens,
             value.sums += SumOffset(group, 0), value.factors += group) {
      value.values[0] = value.values[h];
      const int first = line + h * group;
      if (whole) {
        AddProducts(group, value);
      } else if (seen.begin == 0) {
        for (int l = first; l < first + group; ++l) seen_[l] = seen.end;
        value.seen = seen_ + first;
        AddProducts<T, true>(group, value);
      } else {
        AddSeenPairs(first, group, seen, value.values[h]);
      }
    }
  }

  // A block that some row sees not at all or in part.
  void AddEdge(int32_t block) {
    const int heads = item_.num_heads;
    const int32_t start = block * kBlockTokens;
    // Rows before `begin` see less; rows from `end` on have moved their window past the block.
    int begin = 0;
    while (Last(begin) < start) ++begin;
    int end = begin;
    while (end < item_.num_rows && First(end) < start + kBlockTokens) ++end;
    const std::byte* const part = PartOf(item_, block);
    const int64_t ahead = PrefetchDistance(part, block);
    const T* keys = Keys(part, 0, ahead);
    const int lines = (end - begin) * heads;
    const bool half = Last(end - 1) - start < kBlockTokens / 2;  // no row sees the second
    TilePrefetch prefetch;
    for (auto& tile : prefetch.distances) tile[0] = 0;
    prefetch.distances[0][0] = coded_ ? 0 : ahead;
    if (!half) PlanPieces(&keys, 1, ScoreTiles<T>(lines), prefetch);
    const ScoreArgs<T> args{.q = q_ + begin * heads * key_dim_,
                            .q_stride = key_dim_,
                            .pairs = key_dim_ / 2,
                            .keys = {keys},
                            .prefetch = &prefetch,
                            .scale = args_.scale,
                            .scores = scores_ + begin * heads * kRunTokens};
    half ? ScorePanel<T, 1, 1>(lines, args, 0, 0, kBlockTokens / 2) : Scores(lines, 1, args);
    ScaleScores(begin * heads, end * heads, 0, 0, part);
    if (args_.score_cap > 0) CapScores(begin * heads, end * heads, 1);
    for (int row = begin; row < end; ++row)
      Mask(row * heads, (row + 1) * heads, SeenOf(row, start));
    Softmax(begin * heads, end * heads, 1);
    const T* values = Values(part, 0, ahead);
    if (First(end - 1) <= start) return AddEdgeValues(begin, end, start, values);
    for (int row = begin; row < end; ++row)
      AddSeenPairs(row * heads, heads, SeenOf(row, start), values);
  }

  // Scores of some lines and the run's block number `block` meet the scales of their keys, which
  // `part` has; those of its values are kept as the run's number `i`.
  void ScaleScores(int line_begin, int line_end, int block, int i, const std::byte* part) {
    if (!scaled_) return;
    const float* const scales =
        reinterpret_cast<const float*>(part + kBlockTokens * (key_dim_ + value_dim_));
    value_scales_[i] = scales + kBlockTokens;
    const Vector low = Vector::Load(scales), high = Vector::Load(scales + kLanes);
    for (int line = line_begin; line < line_end; ++line) {
      float* const scores = scores_ + line * kRunTokens + block * kBlockTokens;
      (Vector::Load(scores) * low).Store(scores);
      (Vector::Load(scores + kLanes) * high).Store(scores + kLanes);
    }
  }

  // Scores of the first `blocks` blocks of the run.
  void CapScores(int line_begin, int line_end, int blocks) {
    const Vector cap = Vector::Set(args_.score_cap);
    for (int line = line_begin; line < line_end; ++line) {
      float* scores = scores_ + line * kRunTokens;
      for (int t = 0; t < blocks * kBlockTokens; t += kLanes)
        Cap(Vector::Load(scores + t), cap).Store(scores + t);
    }
  }

  // Scores of what is not seen: -infinity.
  FB_INLINE void Mask(int line_begin, int line_end, Seen seen) {
    for (int line = line_begin; line < line_end; ++line) {
      float* scores = scores_ + line * kRunTokens;
      for (int t = 0; t < kBlockTokens; t += kLanes) {
        SelectRange(seen.begin - t, seen.end - t, Vector::Load(scores + t), Vector::Set(-kInfinity))
            .Store(scores + t);
      }
    }
  }

  // Rows that all see the block from its first position on.
  FB_INLINE void AddEdgeValues(int begin, int end, int32_t start, const T* values) {
    const int heads = item_.num_heads, line = begin * heads;
    for (int row = begin; row < end; ++row) {
      for (int head = 0; head < heads; ++head) seen_[row * heads + head] = SeenOf(row, start).end;
    }
    AddProducts<T, true>((end - begin) * heads,
                         ValueArgs<T>{.probabilities = probabilities_ + line * kRunTokens,
                                      .blocks = 1,
                                      .values = {values},
                                      .prefetch = &kNoPrefetch,
                                      .columns = columns_,
                                      .sums = sums_ + SumOffset(line, 0),
                                      .factors = factors_ + line,
                                      .seen = seen_ + line});
  }

  // Lines that see the same: whole pairs as they are, a half-seen pair with its unseen half
  // cleared.
  FB_INLINE void AddSeenPairs(int line, int lines, Seen seen, const T* values) {
    const float* factors = factors_;
    for (int pair = seen.begin / 2; 2 * pair < seen.end; factors = ones_) {
      const T* from = values + int64_t{pair} * columns_ * 2;
      if (2 * pair >= seen.begin && 2 * pair + 1 < seen.end) {
        AddPairs(line, lines, pair, seen.end / 2, from, factors);
        pair = seen.end / 2;
      } else {
        const int half = 2 * pair >= seen.begin ? 0 : 1;
        CopyHalves(from, half, 2 * columns_, half_pair_);
        AddPairs(line, lines, pair, pair + 1, half_pair_, factors);
        ++pair;
      }
    }
  }

  // Pairs [begin, end) of the run's first block for some lines; `values` is V from pair `begin` on.
  FB_INLINE void AddPairs(int line, int lines, int begin, int end, const T* values,
                          const float* factors) {
    AddProducts(lines, ValueArgs<T>{.probabilities = probabilities_ + line * kRunTokens + 2 * begin,
                                    .blocks = 1,
                                    .pairs = end - begin,
                                    .values = {values},
                                    .prefetch = &kNoPrefetch,
                                    .columns = columns_,
                                    .sums = sums_ + SumOffset(line, 0),
                                    .factors = factors + line});
  }

  // Probabilities times the scales of their values; what is not seen has no scale and stays 0.
  static FB_INLINE Vector Scaled(Vector p, const float* scales) {
    return SelectLessEqual(p, Vector::Zero(), p, p * Vector::Load(scales));
  }

  // Scores to probabilities for the first `blocks` blocks of the run, or of one block for KV heads
  // of `group` lines each; unseen scores are -infinity.
  FB_INLINE void Softmax(int line_begin, int line_end, int blocks, int group = kMaxLines) {
    for (int i = line_begin / kLanes * kLanes; i < line_end; i += kLanes) {
      const int begin = line_begin - i, end = line_end - i;
      Vector old = Vector::Load(maxima_ + i);
      for (int b = 0; b < blocks; ++b) {
        const Vector maximum = Max(BlockMaxima(i, b), old);
        const Vector factor =
            SelectLess(old, maximum, ExpNotAboveZero(old - maximum), Vector::Set(1));
        old = SelectRange(begin, end, maximum, old);
        old.Store(block_maxima_ + b * kMaxLines + i);
        factor.Store(factors_ + b * kMaxLines + i);
      }
      old.Store(maxima_ + i);
    }
    for (int line = line_begin; line < line_end; ++line) {
      Vector lanes = Vector::Load(lanes_ + line * kLanes);
      for (int b = 0; b < blocks; ++b) {
        const int64_t offset = line * kRunTokens + b * kBlockTokens;
        const Vector maximum = Vector::Set(block_maxima_[b * kMaxLines + line]);
        Vector low = ExpNotAboveZero(Vector::Load(scores_ + offset) - maximum);
        Vector high = ExpNotAboveZero(Vector::Load(scores_ + offset + kLanes) - maximum);
        lanes = lanes * Vector::Set(factors_[b * kMaxLines + line]) + low + high;
        if (scaled_) {
          const float* const scales = value_scales_[b + (line - line_begin) / group];
          low = Scaled(low, scales), high = Scaled(high, scales + kLanes);
        }
        StoreProbabilities(probabilities_ + offset, low);
        StoreProbabilities(probabilities_ + offset + kLanes, high);
      }
      lanes.Store(lanes_ + line * kLanes);
    }
  }

  // The greatest score of a block for each of 16 lines.
  FB_INLINE Vector BlockMaxima(int line, int block) const {
    Vector rows[kLanes];
#pragma GCC unroll 16
    for (int r = 0; r < kLanes; ++r) {
      const float* scores = scores_ + (line + r) * kRunTokens + block * kBlockTokens;
      rows[r] = Max(Vector::Load(scores), Vector::Load(scores + kLanes));
    }
    return ReduceMax(rows);
  }

  static FB_INLINE void StoreProbabilities(BF16* p, Vector v) { v.Store(p); }
  static FB_INLINE void StoreProbabilities(float* p, Vector v) { Rounded<T>(v).Store(p); }

  // V of a part from `column` on as 16 rows of columns.
  FB_INLINE void CopyColumns(const std::byte* part, int column, int columns, int64_t ahead,
                             T* rows) {
    if (!coded_)
      return CopyValues(args_.layout, reinterpret_cast<const T*>(part), column, columns, rows);
    ExpandValues(args_.layout, part + kBlockTokens * key_dim_, column, columns, ahead, rows);
  }

  // V of a part, the run's number `i`, with rows of whole vectors. `ahead`: as of Keys.
  FB_INLINE const T* Values(const std::byte* part, int i, int64_t ahead) {
    if (!copied_) return reinterpret_cast<const T*>(part) + key_dim_ * kBlockTokens;
    T* const padded = padded_ + i * kBlockTokens * columns_;
    CopyColumns(part, 0, columns_, ahead, padded);
    return padded;
  }

  // Takes a part's results for some lines, as far as their rows see it: keeps the first, merges
  // later ones, writes the quotient after the last.
  FB_INLINE void MergePart(int32_t part, int line_begin, int line_end) {
    for (int line = line_begin; line < line_end; ++line) {
      const int row = line / item_.num_heads;
      const int32_t first = First(row) / kPartTokens, last = Last(row) / kPartTokens;
      if (part < first || part > last) continue;
      float* sums = sums_ + SumOffset(line, 0);
      float* merged = merged_ + SumOffset(line, 0);
      float total = totals_[line];
      if (first != last) {
        if (part == first) {
          for (int j = 0; j < columns_; j += kLanes)
            Vector::Load(sums + SumOffset(0, j)).Store(merged + SumOffset(0, j));
          merged_maxima_[line] = maxima_[line];
          merged_totals_[line] = total;
        } else {
          total = MergeLine(line);
        }
        sums = merged;
      }
      if (part != last) continue;
      if (args_.sinks != nullptr) {
        total = AddSink(args_.sinks[item_.head + line - row * item_.num_heads],
                        first == last ? maxima_[line] : merged_maxima_[line], total, sums);
      }
      T* out = reinterpret_cast<T*>(args_.out) +
               (FirstHead(item_, row) + line - row * item_.num_heads) * value_dim_;
      for (int j = 0; j < value_dim_; j += kLanes) {
        StorePart(out + j, Vector::Load(sums + SumOffset(0, j)) / Vector::Set(total),
                  value_dim_ - j);
      }
    }
  }

  // A sink beside a line's results; returns the sum with it.
  FB_INLINE float AddSink(float sink, float greatest, float total, float* sums) const {
    const Vector old = Vector::Set(greatest), score = Vector::Set(sink);
    const Vector maximum = Max(old, score), factor = Exp(old - maximum);
    for (int j = 0; j < columns_; j += kLanes) {
      float* to = sums + SumOffset(0, j);
      (Vector::Load(to) * factor).Store(to);
    }
    return Fma(Vector::Set(1), Exp(score - maximum), Vector::Set(total) * factor).First();
  }

  // Merges a line's part into what came before; returns the sum of both.
  FB_INLINE float MergeLine(int line) {
    const float* sums = sums_ + SumOffset(line, 0);
    float* merged = merged_ + SumOffset(line, 0);
    const Vector old = Vector::Set(merged_maxima_[line]), part = Vector::Set(maxima_[line]);
    const Vector maximum = Max(part, old);
    const Vector old_factor = Exp(old - maximum), factor = Exp(part - maximum);
    for (int j = 0; j < columns_; j += kLanes) {
      float* to = merged + SumOffset(0, j);
      Fma(Vector::Load(sums + SumOffset(0, j)), factor, Vector::Load(to) * old_factor).Store(to);
    }
    merged_maxima_[line] = maximum.First();
    return merged_totals_[line] = Fma(Vector::Set(totals_[line]), factor,
                                      Vector::Set(merged_totals_[line]) * old_factor)
                                      .First();
  }

  const AttentionArgs& args_;
  const AttentionItem& item_;
  const AttentionItem* next_;
  KvAhead& ahead_;
  const PartSlots& slots_;
  const int lines_;
  const int key_dim_, value_dim_;
  const int columns_;  // value_dim in whole vectors
  const int64_t head_bytes_;
  const bool coded_, scaled_;  // the cache has codes; and scales
  const bool copied_;          // V is not read as it is stored
  Left* q_;                    // [lines, key_dim]
  float* scores_;              // [kMaxLines, kRunTokens], read as 16 lines at a time
  Left* probabilities_;        // [lines, kRunTokens]
  float* sums_;                // sums of probabilities times values, as SumOffset says
  float* lanes_;               // [lines, 16] of probabilities
  float* maxima_;              // [lines]
  float* totals_;              // [lines] of a part that is done
  float* block_maxima_;        // [kRunBlocks, kMaxLines] after each block
  float* factors_;             // [kRunBlocks, kMaxLines] by which a block rescales
  float* ones_;                // [kMaxLines]
  int* seen_;                  // [kMaxLines] positions of an edge block that a line sees
  float* merged_;              // sums of the parts so far, as sums_
  float* merged_maxima_;
  float* merged_totals_;
  T* padded_;     // [kRunBlocks, 16, columns, 2]
  T* half_pair_;  // [columns, 2]
  T* keys_;       // [kRunBlocks, key_dim / 2, 32, 2] of a cache of codes
  const float* value_scales_[kRunBlocks] = {};  // [32] each
};

template <typename T>
void AttendItem(const AttentionArgs& args, const AttentionItem& item, const AttentionItem* next,
                KvAhead& ahead, const PartSlots& slots, std::byte* scratch) {
  Attender<T>(args, item, next, ahead, slots, scratch).Run();
}

template <typename T>
void MergeItem(const AttentionArgs& args, const AttentionItem& item, const PartSlots& slots,
               int worker, int workers, std::byte* scratch) {
  const int lines = item.num_rows * item.num_heads;
  KvAhead nothing;
  Attender<T>(args, item, nullptr, nothing, slots, scratch)
      .Merge(lines * worker / workers, lines * (worker + 1) / workers);
}

template <typename T>
constexpr AttentionFns kAttentionFns = {&AttendItem<T>, &MergeItem<T>};

void AttendItems(const AttentionArgs& args, const device::WorkerContext& context) {
  RunAttention(
      args, context,
      args.layout.dtype == tensor::DType::kF32 ? kAttentionFns<float> : kAttentionFns<BF16>);
}

}  // namespace
}  // namespace forebay::kernels
