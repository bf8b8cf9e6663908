// Attention of one item on tiles (`Tiles`: tile_loop.h); the order of sums is that of
// kernels/tile_attention.h.
//
// A line is one query head of one row. A pass takes the lines of some rows and one KV head through
// a part of KV, two line tiles by two tiles of columns, or one by four:
//   scores         block by block; the maxima of the block before are taken meanwhile
//   values         some columns through all blocks of the part, then the next ones. While the first
//                  columns pass a chunk of blocks, the next chunk's probabilities are made
// K and V are read where they lie; a copy is made of blocks that not all rows see whole, of
// columns that fill no tiles, and of values that lie in keys.
//
// Values that a row does not see meet probabilities of 0 in its tiles, so they must be finite:
// where they are not, rows pass one by one, and a copy has what a row sees alone.
//
// Included once by each file that has a Tiles; see simd.h on why all of it is unnamed and forced
// inline.
#pragma once

#include "kernels/cpu/attention_items.h"
#include "kernels/cpu/kv_part.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/value_rows.h"
#include "kernels/mma_attention.h"
#include "kernels/tile_attention.h"

namespace forebay::kernels {
namespace {

constexpr int kLineTile = 16;
constexpr int64_t kTileRowBytes = 64;                      // 32 of bf16
constexpr int64_t kTileElements = kLineTile * kTileDepth;  // of bf16
constexpr int64_t kKeyStride =
    kBlockTokens * 2 * sizeof(BF16);                       // from a pair of key_dim to the next
constexpr int64_t kPanelElements = kBlockTokens * kPanel;  // of a copied block
constexpr float kBelowAll = -__builtin_inff();

// a < b ? a : b
FB_INLINE Vector Least(Vector a, Vector b) {
#if defined(__AVX512F__)
  return {_mm512_min_ps(a.v, b.v)};
#else
  return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)};
#endif
}

// MmaProbability.
FB_INLINE Vector ProbabilityOf(Vector score, Vector c128, Vector bias) {
  using C = MmaProbabilityConstants;
  const Vector one = Vector::Set(1), round = Vector::Set(C::kRound);
  const Vector z = Least(Max(Fma(score, c128, bias), Vector::Zero()), one);
  const Vector t = z + round;
  const Vector g = z - (t - round);
  const Vector q =
      Fma(Fma(Fma(g, Vector::Set(C::kA3), Vector::Set(C::kA2)), g, Vector::Set(C::kA1)), g, one);
  return AddExponent(q, t);
}
// MmaBias, MmaWhole, MmaFactor, MmaScale.
FB_INLINE float BiasOf(float whole) { return (127.0f - whole) * 0x1p-7f; }
FB_INLINE float WholeOf(float score, float c) {
  const __m128 x = _mm_set_ss(score * c);
  return _mm_cvtss_f32(_mm_ceil_ss(x, x)) - 1.0f;
}
FB_INLINE float PowerOf(float n) {
  return n >= -126.0f ? FloatOf(static_cast<uint32_t>(static_cast<int>(n) + 127) << 23) : 0.0f;
}
FB_INLINE float Base2Scale(float scale) { return scale * ExpConstants::kLog2E; }

FB_INLINE bool AreFinite(const BF16* values, int64_t n) {
  Vector none = Vector::Zero();
  for (int64_t i = 0; i < n; i += kLanes)
    none = Fma(Vector::Load(values + i), Vector::Zero(), none);
  return ReduceAdd(none) == 0;
}

template <typename Tiles>
class TileAttender {
 public:
  TileAttender(const AttentionArgs& args, const AttentionItem& item, const PartSlots& slots,
               std::byte* scratch)
      : args_(args),
        item_(item),
        slots_(slots),
        group_(item.num_heads / item.num_kv_heads),
        lines_(item.num_rows * item.num_heads),
        key_dim_(args.layout.key_dim),
        value_dim_(args.layout.value_dim),
        key_steps_((key_dim_ + kTileDepth - 1) / kTileDepth),
        columns_((value_dim_ + kPanel - 1) / kPanel * kPanel),
        copied_(value_dim_ % kTileDepth != 0 || args.layout.values_in_keys),
        c_(Base2Scale(args.score_cap > 0 ? 1.0f : args.scale)) {
    const int pass_lines = item.num_kv_heads > 1 ? group_ : lines_;
    x_rows_ = Min(pass_lines, kLineTile);
    q_ = Cut<BF16>(scratch, 2 * key_steps_ * kTileElements);
    tails_ = Cut<BF16>(scratch, 2 * kTileElements * 2);
    scores_ = Cut<float>(scratch, kMaxLines * kScoreStride);
    probabilities_ = Cut<BF16>(scratch, 2 * kPartBlocks * kTileElements);
    maxima_lanes_ = Cut<float>(scratch, kMaxLines * kLanes);
    lanes_ = Cut<float>(scratch, kMaxLines * kLanes);
    panels_ = Cut<BF16>(scratch, 2 * kChunkBlocks * kPanelElements);
    raw_ = Cut<float>(scratch, kMaxLines * columns_);
    sums_ = Cut<float>(scratch, kMaxLines * columns_);
    maxima_ = Cut<float>(scratch, kMaxLines);
    totals_ = Cut<float>(scratch, kMaxLines);
    merged_ = Cut<float>(scratch, kMaxLines * columns_);
    merged_maxima_ = Cut<float>(scratch, kMaxLines);
    merged_totals_ = Cut<float>(scratch, kMaxLines);
  }

  void Run() {
    Tiles tiles(x_rows_);
    for (int32_t part = item_.first_block / kPartBlocks;
         part <= (item_.end_block - 1) / kPartBlocks; ++part) {
      if (item_.slot >= 0) UseSlot(part);
      for (int head = 0; head < item_.num_kv_heads; ++head) {
        if (RunPass(tiles, part, head, 0, item_.num_rows)) continue;
        for (int row = 0; row < item_.num_rows; ++row) RunPass(tiles, part, head, row, row + 1);
      }
      if (item_.slot < 0) MergePart(part, 0, lines_);
    }
    tiles.Release();
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
  FB_INLINE int RowOf(int line) const { return line / item_.num_heads; }
  // A line's place among all heads of all rows.
  FB_INLINE int64_t PlaceOf(int line) const {
    const int row = RowOf(line);
    return (item_.row + row) * args_.HeadsOfRow() + item_.head + line - row * item_.num_heads;
  }

  FB_INLINE void UseSlot(int32_t part) {
    sums_ =
        reinterpret_cast<float*>(slots_.At(item_.slot + part - item_.first_block / kPartBlocks));
    maxima_ = sums_ + columns_ * kMaxLines;
    totals_ = maxima_ + kMaxLines;
  }

  // Lines of one KV head through the positions [begin, end) of a part, that some of their rows see.
  struct Pass {
    int line, lines;  // of the item
    int32_t begin, end;
    int32_t first_block, blocks;
    int32_t whole_begin, whole_end;  // blocks that all rows see whole
    int kv_head;
    bool two;  // line tiles
  };
  // Positions that a line sees, counted from the pass's first block on: [begin, end).
  struct Seen {
    int begin, end;
  };
  FB_INLINE Seen SeenOf(const Pass& pass, int i) const {
    const int row = RowOf(pass.line + i), start = pass.first_block * kBlockTokens;
    return {Max(Max(First(row), pass.begin) - start, 0), Min(Last(row) + 1, pass.end) - start};
  }
  FB_INLINE const BF16* Keys(const Pass& pass, int block) const {
    return reinterpret_cast<const BF16*>(
        LayerPart<BF16>(args_.layer, args_.layout, item_.blocks[pass.first_block + block]) +
        pass.kv_head * HeadBytes<BF16>(args_.layout));
  }
  FB_INLINE bool IsWhole(const Pass& pass, int block) const {
    const int32_t at = pass.first_block + block;
    return at >= pass.whole_begin && at < pass.whole_end;
  }

  // False: some value that not all rows see is not finite; nothing was kept.
  bool RunPass(Tiles& tiles, int32_t part, int head, int row_begin, int row_end) {
    Pass pass;
    pass.line = head * group_ + row_begin * item_.num_heads;
    pass.lines = item_.num_kv_heads > 1 ? group_ : (row_end - row_begin) * item_.num_heads;
    pass.begin = Max(part * kPartTokens, First(row_begin));
    pass.end = Min((part + 1) * kPartTokens, Last(row_end - 1) + 1);
    if (pass.begin >= pass.end) return true;
    pass.first_block = pass.begin / kBlockTokens;
    pass.blocks = (pass.end + kBlockTokens - 1) / kBlockTokens - pass.first_block;
    pass.whole_begin = (Max(First(row_end - 1), pass.begin) + kBlockTokens - 1) / kBlockTokens;
    pass.whole_end = Min(Last(row_begin) + 1, pass.end) / kBlockTokens;
    pass.kv_head = item_.kv_head + head;
    pass.two = pass.lines > kLineTile;
    LoadQueries(pass);
    Scores(tiles, pass);
    EndMaxima(pass);
    float* const to = pass.line + (pass.two ? kMaxLines : x_rows_) <= kMaxLines
                          ? sums_ + pass.line * columns_
                          : raw_;
    if (!Values(tiles, pass, to, row_end - row_begin > 1)) return false;
    for (int i = 0; i < pass.lines; ++i)
      totals_[pass.line + i] = ReduceAdd(Vector::Load(lanes_ + i * kLanes));
    if (to == raw_) {
      __builtin_memcpy(sums_ + pass.line * columns_, raw_,
                       static_cast<size_t>(pass.lines * columns_) * sizeof(float));
    }
    return true;
  }

  // [line tiles][key_steps][x_rows][32]
  FB_INLINE void LoadQueries(const Pass& pass) {
    const BF16* const q = reinterpret_cast<const BF16*>(args_.q);
    const int64_t step = int64_t{x_rows_} * kTileDepth;
    for (int i = 0; i < pass.lines; ++i) {
      const BF16* from = q + PlaceOf(pass.line + i) * key_dim_;
      BF16* to = q_ + i / kLineTile * key_steps_ * step + i % kLineTile * kTileDepth;
      int k = 0;
      for (; k + kTileDepth <= key_dim_; k += kTileDepth, to += step)
        __builtin_memcpy(to, from + k, kTileDepth * sizeof(BF16));
      if (k == key_dim_) continue;
      __builtin_memset(static_cast<void*>(to), 0, kTileDepth * sizeof(BF16));
      __builtin_memcpy(to, from + k, static_cast<size_t>(key_dim_ - k) * sizeof(BF16));
    }
  }

  // The last step of a block's keys, filled up with zeros; null: key_dim fills whole steps.
  FB_INLINE const BF16* Tail(const BF16* keys, int i) const {
    const int rest = key_dim_ % kTileDepth;
    if (rest == 0) return nullptr;
    BF16* const tail = tails_ + i * kTileElements * 2;
    __builtin_memset(static_cast<void*>(tail), 0, kTileElements * 2 * sizeof(BF16));
    __builtin_memcpy(tail, keys + (key_dim_ - rest) * kBlockTokens,
                     static_cast<size_t>(rest * kBlockTokens) * sizeof(BF16));
    return tail;
  }

  // What is read next, where one row waits for memory.
  FB_INLINE void FetchBlock(const Pass& pass, int block) const {
    if (item_.num_rows > 1 || block >= pass.blocks) return;
    const char* const keys = reinterpret_cast<const char*>(Keys(pass, block));
    for (int64_t at = 0; at < HeadBytes<BF16>(args_.layout); at += 64)
      __builtin_prefetch(keys + at, 0, 2);
  }

  void Scores(Tiles& tiles, const Pass& pass) {
    for (int i = 0; i < pass.lines * kLanes; i += kLanes)
      Vector::Set(kBelowAll).Store(maxima_lanes_ + i);
    const int step = pass.two ? 1 : 2;
    for (int block = 0; block < pass.blocks; block += step) {
      FetchBlock(pass, block + 2);
      if (step == 2) FetchBlock(pass, block + 3);
      float* const out = scores_ + block * kBlockTokens;
      if (pass.two) {
        ScoreTwo(tiles, Keys(pass, block), out);
      } else {
        // A single block passes twice; its second scores are not read.
        ScoreOne(tiles, Keys(pass, block), Keys(pass, Min(block + 1, pass.blocks - 1)), out);
      }
      for (int before = block - step; before >= 0 && before < block; ++before)
        AddMaxima(pass, before);
    }
    for (int block = (pass.blocks - 1) / step * step; block < pass.blocks; ++block)
      AddMaxima(pass, block);
  }

  // Two line tiles by a block.
  FB_INLINE void ScoreTwo(Tiles& tiles, const BF16* keys, float* out) {
    constexpr int64_t kStride = kScoreStride * sizeof(float);
    const BF16* const tail = Tail(keys, 0);
    const BF16* q = q_;
    tiles.template Zero<0>();
    tiles.template Zero<1>();
    tiles.template Zero<2>();
    tiles.template Zero<3>();
    for (int step = 0; step < key_steps_;
         ++step, q += kTileElements, keys += kTileDepth * kBlockTokens) {
      const BF16* const k = tail != nullptr && step + 1 == key_steps_ ? tail : keys;
      tiles.template Load<6>(k, kKeyStride);
      tiles.template Load<4>(q, kTileRowBytes);
      tiles.template MultiplyAdd<0, 4, 6>();
      tiles.template Load<7>(k + kTileDepth, kKeyStride);
      tiles.template MultiplyAdd<1, 4, 7>();
      tiles.template Load<5>(q + key_steps_ * kTileElements, kTileRowBytes);
      tiles.template MultiplyAdd<2, 5, 6>();
      tiles.template MultiplyAdd<3, 5, 7>();
    }
    tiles.template Store<0>(out, kStride);
    tiles.template Store<1>(out + kLineTile, kStride);
    tiles.template Store<2>(out + kLineTile * kScoreStride, kStride);
    tiles.template Store<3>(out + kLineTile * kScoreStride + kLineTile, kStride);
  }

  // One line tile by two blocks.
  FB_INLINE void ScoreOne(Tiles& tiles, const BF16* keys, const BF16* keys1, float* out) {
    constexpr int64_t kStride = kScoreStride * sizeof(float);
    const BF16* const tail = Tail(keys, 0);
    const BF16* const tail1 = Tail(keys1, 1);
    const BF16* q = q_;
    tiles.template Zero<0>();
    tiles.template Zero<1>();
    tiles.template Zero<2>();
    tiles.template Zero<3>();
    for (int step = 0; step < key_steps_; ++step, q += x_rows_ * kTileDepth,
             keys += kTileDepth * kBlockTokens, keys1 += kTileDepth * kBlockTokens) {
      const bool last = tail != nullptr && step + 1 == key_steps_;
      const BF16* const k = last ? tail : keys;
      const BF16* const k1 = last ? tail1 : keys1;
      tiles.template Load<4>(q, kTileRowBytes);
      tiles.template Load<5>(k, kKeyStride);
      tiles.template MultiplyAdd<0, 4, 5>();
      tiles.template Load<6>(k + kTileDepth, kKeyStride);
      tiles.template MultiplyAdd<1, 4, 6>();
      tiles.template Load<7>(k1, kKeyStride);
      tiles.template MultiplyAdd<2, 4, 7>();
      tiles.template Load<5>(k1 + kTileDepth, kKeyStride);
      tiles.template MultiplyAdd<3, 4, 5>();
    }
    tiles.template Store<0>(out, kStride);
    tiles.template Store<1>(out + kLineTile, kStride);
    tiles.template Store<2>(out + 2 * kLineTile, kStride);
    tiles.template Store<3>(out + 3 * kLineTile, kStride);
  }

  // Lanes of the greatest scores, that of a block with them; its scores are capped.
  FB_INLINE void AddMaxima(const Pass& pass, int block) {
    const bool whole = IsWhole(pass, block);
    const Vector scale = Vector::Set(args_.scale), cap = Vector::Set(args_.score_cap);
    for (int i = 0; i < pass.lines; ++i) {
      float* const scores = scores_ + i * kScoreStride + block * kBlockTokens;
      float* const lanes = maxima_lanes_ + i * kLanes;
      Vector low = Vector::Load(scores), high = Vector::Load(scores + kLanes);
      if (args_.score_cap > 0) {
        low = Cap(low * scale, cap), high = Cap(high * scale, cap);
        low.Store(scores);
        high.Store(scores + kLanes);
      }
      if (!whole) {
        const Seen seen = SeenOf(pass, i);
        const int at = block * kBlockTokens;
        low = SelectRange(seen.begin - at, seen.end - at, low, Vector::Set(kBelowAll));
        high = SelectRange(seen.begin - at - kLanes, seen.end - at - kLanes, high,
                           Vector::Set(kBelowAll));
      }
      // NaN counts for nothing.
      Max(high, Max(low, Vector::Load(lanes))).Store(lanes);
    }
  }

  FB_INLINE void EndMaxima(const Pass& pass) {
    for (int i = 0; i < pass.lines; i += kLanes) {
      Vector rows[kLanes];
#pragma GCC unroll 16
      for (int r = 0; r < kLanes; ++r) rows[r] = Vector::Load(maxima_lanes_ + (i + r) * kLanes);
      alignas(64) float greatest[kLanes];
      ReduceMax(rows).Store(greatest);
      const int end = Min(pass.lines - i, kLanes);
      for (int r = 0; r < end; ++r) maxima_[pass.line + i + r] = WholeOf(greatest[r], c_);
    }
    for (int i = 0; i < pass.lines * kLanes; i += kLanes) Vector::Zero().Store(lanes_ + i);
  }

  // Scores to probabilities: [line tiles][blocks][x_rows][32].
  FB_INLINE void Probabilities(const Pass& pass, int begin) {
    const int end = Min(begin + kChunkBlocks, pass.blocks);
    if (begin >= end) return;
    const Vector c128 = Vector::Set(c_ / 128);
    const int64_t block_elements = int64_t{x_rows_} * kTileDepth;
    bool whole = end - begin == kChunkBlocks;
    for (int block = begin; block < end; ++block) whole &= IsWhole(pass, block);
    for (int i = 0; i < pass.lines; ++i) {
      const float* scores = scores_ + i * kScoreStride + begin * kBlockTokens;
      BF16* to = probabilities_ + (i / kLineTile * int64_t{kPartBlocks} + begin) * block_elements +
                 i % kLineTile * kTileDepth;
      const Vector bias = Vector::Set(BiasOf(maxima_[pass.line + i]));
      Vector lanes = Vector::Load(lanes_ + i * kLanes);
      if (whole) {
#pragma GCC unroll 4
        for (int b = 0; b < kChunkBlocks; ++b, scores += kBlockTokens, to += block_elements) {
          const Vector low = ProbabilityOf(Vector::Load(scores), c128, bias),
                       high = ProbabilityOf(Vector::Load(scores + kLanes), c128, bias);
          lanes = lanes + low + high;
          low.Store(to);
          high.Store(to + kLanes);
        }
      } else {
        const Seen seen = SeenOf(pass, i);
        for (int block = begin; block < end;
             ++block, scores += kBlockTokens, to += block_elements) {
          const int at = block * kBlockTokens;
          const Vector low =
              SelectRange(seen.begin - at, seen.end - at,
                          ProbabilityOf(Vector::Load(scores), c128, bias), Vector::Zero());
          const Vector high =
              SelectRange(seen.begin - at - kLanes, seen.end - at - kLanes,
                          ProbabilityOf(Vector::Load(scores + kLanes), c128, bias), Vector::Zero());
          lanes = lanes + low + high;
          low.Store(to);
          high.Store(to + kLanes);
        }
      }
      lanes.Store(lanes_ + i * kLanes);
    }
  }

  // Some columns of a block's values as tiles read them: 16 pairs of positions, `stride` bytes
  // apart.
  struct ValueTiles {
    const std::byte* rows;
    int64_t stride;
  };

  // Those of a chunk; copies lie in half `i` of the panels. False: as RunPass.
  FB_INLINE bool PrepareValues(const Pass& pass, int begin, int column, int width, int i,
                               bool several_rows, ValueTiles* values) {
    for (int block = begin; block < Min(begin + kChunkBlocks, pass.blocks); ++block) {
      ValueTiles& out = values[block - begin];
      const BF16* const keys = Keys(pass, block);
      if (!copied_ && IsWhole(pass, block)) {
        out = {reinterpret_cast<const std::byte*>(keys + key_dim_ * kBlockTokens + 2 * column),
               value_dim_ * 2 * static_cast<int64_t>(sizeof(BF16))};
        continue;
      }
      BF16* const panel = panels_ + (i * kChunkBlocks + block - begin) * kPanelElements;
      CopyValues(args_.layout, keys, column, width, panel);
      out = {reinterpret_cast<const std::byte*>(panel),
             width * 2 * static_cast<int64_t>(sizeof(BF16))};
      if (IsWhole(pass, block)) continue;
      ClearUnseen(pass, block, width, panel);
      if (several_rows && !AreFinite(panel, int64_t{kBlockTokens} * width)) return false;
    }
    return true;
  }

  // Positions of a copied block that no row of the pass sees become 0.
  FB_INLINE void ClearUnseen(const Pass& pass, int block, int width, BF16* panel) {
    const int start = (pass.first_block + block) * kBlockTokens;
    for (int pair = 0; pair < kBlockTokens / 2; ++pair) {
      const int even = start + 2 * pair;
      const bool sees_even = even >= pass.begin && even < pass.end,
                 sees_odd = even + 1 >= pass.begin && even + 1 < pass.end;
      BF16* const row = panel + pair * 2 * width;
      if (!sees_even && !sees_odd) {
        __builtin_memset(static_cast<void*>(row), 0, static_cast<size_t>(width) * 2 * sizeof(BF16));
      } else if (!sees_even || !sees_odd) {
        for (int j = sees_even ? 1 : 0; j < 2 * width; j += 2) row[j] = BF16{};
      }
    }
  }

  // sums[line][columns] of all blocks of the pass. False: as RunPass.
  bool Values(Tiles& tiles, const Pass& pass, float* sums, bool several_rows) {
    Probabilities(pass, 0);
    ValueTiles values[2][kChunkBlocks];
    const int panel = static_cast<int>(kPanel), width = pass.two ? kTileDepth : panel;
    for (int column = 0; column < value_dim_; column += width) {
      const bool all = copied_ || value_dim_ - column >= width;
      if (!PrepareValues(pass, 0, column, width, 0, several_rows, values[0])) return false;
      tiles.template Zero<0>();
      tiles.template Zero<1>();
      tiles.template Zero<2>();
      tiles.template Zero<3>();
      for (int begin = 0, half = 0; begin < pass.blocks; begin += kChunkBlocks, half = 1 - half) {
        for (int b = 0; b < Min(kChunkBlocks, pass.blocks - begin); ++b) {
          const ValueTiles& v = values[half][b];
          const BF16* p = probabilities_ + (begin + b) * int64_t{x_rows_} * kTileDepth;
          pass.two ? AddTwo(tiles, p, v) : AddOne(tiles, p, v, all);
        }
        if (column == 0) Probabilities(pass, begin + kChunkBlocks);
        if (!PrepareValues(pass, begin + kChunkBlocks, column, width, 1 - half, several_rows,
                           values[1 - half]))
          return false;
      }
      const int64_t stride = columns_ * static_cast<int64_t>(sizeof(float));
      float* const out = sums + column;
      tiles.template Store<0>(out, stride);
      tiles.template Store<1>(out + kLineTile, stride);
      float* const next = pass.two ? out + kLineTile * columns_ : out + 2 * kLineTile;
      tiles.template Store<2>(next, stride);
      tiles.template Store<3>(next + kLineTile, stride);
    }
    return true;
  }

  // Two line tiles by 32 columns.
  FB_INLINE void AddTwo(Tiles& tiles, const BF16* p, const ValueTiles& v) {
    tiles.template Load<6>(v.rows, v.stride);
    tiles.template Load<4>(p, kTileRowBytes);
    tiles.template MultiplyAdd<0, 4, 6>();
    tiles.template Load<7>(v.rows + kTileRowBytes, v.stride);
    tiles.template MultiplyAdd<1, 4, 7>();
    tiles.template Load<5>(p + kPartBlocks * kTileElements, kTileRowBytes);
    tiles.template MultiplyAdd<2, 5, 6>();
    tiles.template MultiplyAdd<3, 5, 7>();
  }

  // A line tile by 64 columns, of which the second half may not be there: then the first passes
  // again, and its sums are not read.
  FB_INLINE void AddOne(Tiles& tiles, const BF16* p, const ValueTiles& v, bool all) {
    const std::byte* const second = v.rows + (all ? 2 * kTileRowBytes : 0);
    tiles.template Load<4>(p, kTileRowBytes);
    tiles.template Load<5>(v.rows, v.stride);
    tiles.template MultiplyAdd<0, 4, 5>();
    tiles.template Load<6>(v.rows + kTileRowBytes, v.stride);
    tiles.template MultiplyAdd<1, 4, 6>();
    tiles.template Load<7>(second, v.stride);
    tiles.template MultiplyAdd<2, 4, 7>();
    tiles.template Load<5>(second + kTileRowBytes, v.stride);
    tiles.template MultiplyAdd<3, 4, 5>();
  }

  // Takes a part's results for some lines, as far as their rows see it: keeps the first, merges
  // later ones, writes the result after the last.
  FB_INLINE void MergePart(int32_t part, int line_begin, int line_end) {
    for (int line = line_begin; line < line_end; ++line) {
      const int row = RowOf(line);
      const int32_t first = First(row) / kPartTokens, last = Last(row) / kPartTokens;
      if (part < first || part > last) continue;
      float* sums = sums_ + line * columns_;
      float total = totals_[line], whole = maxima_[line];
      if (first != last) {
        float* const merged = merged_ + line * columns_;
        if (part == first) {
          __builtin_memcpy(merged, sums, static_cast<size_t>(columns_) * sizeof(float));
        } else {
          const float old = merged_maxima_[line], top = old < whole ? whole : old;
          const float old_factor = PowerOf(old - top), factor = PowerOf(whole - top);
          for (int64_t j = 0; j < columns_; j += kLanes) {
            Fma(Vector::Load(sums + j), Vector::Set(factor),
                Vector::Load(merged + j) * Vector::Set(old_factor))
                .Store(merged + j);
          }
          total = Fma(Vector::Set(total), Vector::Set(factor),
                      Vector::Set(merged_totals_[line]) * Vector::Set(old_factor))
                      .First();
          whole = top;
        }
        merged_maxima_[line] = whole;
        merged_totals_[line] = total;
        sums = merged;
      }
      if (part == last) WriteLine(line, whole, total, sums);
    }
  }

  FB_INLINE void WriteLine(int line, float whole, float total, float* sums) {
    float factor = 1;
    if (args_.sinks != nullptr) {  // one more part without values
      const float sink = args_.sinks[item_.head + line - RowOf(line) * item_.num_heads];
      const float c = Base2Scale(1), sink_whole = WholeOf(sink, c),
                  top = whole < sink_whole ? sink_whole : whole;
      factor = PowerOf(whole - top);
      const Vector sum =
          ProbabilityOf(Vector::Set(sink), Vector::Set(c / 128), Vector::Set(BiasOf(sink_whole)));
      total =
          Fma(sum, Vector::Set(PowerOf(sink_whole - top)), Vector::Set(total) * Vector::Set(factor))
              .First();
    }
    BF16* const out = reinterpret_cast<BF16*>(args_.out) + PlaceOf(line) * value_dim_;
    const Vector inverse = Vector::Set(1) / Vector::Set(total), scale = Vector::Set(factor);
    for (int j = 0; j < value_dim_; j += kLanes) {
      StorePart(out + j, Fma(Vector::Load(sums + j) * scale, inverse, Vector::Zero()),
                value_dim_ - j);
    }
  }

  const AttentionArgs& args_;
  const AttentionItem& item_;
  const PartSlots& slots_;
  const int group_, lines_;
  const int key_dim_, value_dim_, key_steps_;
  const int64_t columns_;  // value_dim in whole panels
  const bool copied_;      // V is not read as it is stored
  const float c_;          // what a score meets
  int x_rows_;             // rows of a line tile: all lines of a pass if they are fewer than 16
  BF16* q_;
  BF16* tails_;    // [2][16 pairs][32][2] of keys
  float* scores_;  // [kMaxLines][kScoreStride], from the pass's first block on
  BF16* probabilities_;
  float* maxima_lanes_;  // [kMaxLines][16]
  float* lanes_;         // [kMaxLines][16] of probabilities
  BF16* panels_;         // [2][kChunkBlocks][16 pairs][kPanel][2] of values
  float* raw_;           // [kMaxLines][columns]
  float* sums_;          // the same of a part, by line
  float* maxima_;        // M, by line
  float* totals_;
  float* merged_;  // of the parts so far
  float* merged_maxima_;
  float* merged_totals_;
};

template <typename Tiles>
void AttendItemOnTiles(const AttentionArgs& args, const AttentionItem& item, const AttentionItem*,
                       KvAhead&, const PartSlots& slots, std::byte* scratch) {
  TileAttender<Tiles>(args, item, slots, scratch).Run();
}

template <typename Tiles>
void MergeItemOnTiles(const AttentionArgs& args, const AttentionItem& item, const PartSlots& slots,
                      int worker, int workers, std::byte* scratch) {
  const int lines = item.num_rows * item.num_heads;
  TileAttender<Tiles>(args, item, slots, scratch)
      .Merge(lines * worker / workers, lines * (worker + 1) / workers);
}

template <typename Tiles>
FB_INLINE void AttendOnTiles(const AttentionArgs& args, const device::WorkerContext& context) {
  RunAttention(args, context, {&AttendItemOnTiles<Tiles>, &MergeItemOnTiles<Tiles>});
}

}  // namespace
}  // namespace forebay::kernels
