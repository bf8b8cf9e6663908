// The two products of attention as register tiles: scores = q . K over pairs of key_dim, sums +=
// probabilities . V over pairs of positions, the odd element of a pair first. A tile of lines x
// vectors of 16 outputs stays in registers; lines and vectors are where latency hides, never the
// chain.
//
// KV blocks come in runs of up to kRunBlocks, so that few lines (decode) still fill the registers
// with scores of several blocks, and the sums of P.V are loaded and stored once a run.
#pragma once

#include "kernels/cpu/attention_items.h"
#include "kernels/cpu/simd.h"

namespace forebay::kernels {
namespace {

// This instruction set's products of pairs of T. Left is an element of q or of probabilities, Pair
// a pair of them in all lanes, Right 16 pairs of K or V.
template <typename T>
struct PairDot {
  using Left = float;
  struct Pair {
    Vector even, odd;
  };
  using Right = Pair;
  static FB_INLINE Pair Broadcast(const float* a) { return {Vector::Set(a[0]), Vector::Set(a[1])}; }
  static FB_INLINE Right Load(const T* b) {
    Right right;
    LoadPairs(b, right.even, right.odd);
    return right;
  }
  static FB_INLINE Vector Add(const Pair& a, const Right& b, Vector sum) {
    return Fma(a.even, b.even, Fma(a.odd, b.odd, sum));
  }
  static FB_INLINE Right EvenOnly(const Right& b) { return {b.even, Vector::Zero()}; }
  // Lines of a tile so that sums, the lesser side and one of the other side fit the registers.
  static constexpr int MaxLines(int vectors) {
#if defined(__AVX512F__)
    return vectors == 8 ? 2 : vectors == 4 ? 5 : 12;
#else
    return 5;  // rows of one Vector, which is two registers of 16
#endif
  }
};

#if defined(__AVX512BF16__)
template <>
struct PairDot<BF16> {
  using Left = BF16;
  using Pair = __m512i;
  using Right = __m512i;
  static FB_INLINE Pair Broadcast(const BF16* a) {
    int pair;
    __builtin_memcpy(&pair, a, 4);
    return _mm512_set1_epi32(pair);
  }
  static FB_INLINE Right Load(const BF16* b) { return _mm512_loadu_si512(b); }
  static FB_INLINE Vector Add(const Pair& a, const Right& b, Vector sum) {
    return {_mm512_dpbf16_ps(sum.v, (__m512bh)a, (__m512bh)b)};
  }
  static FB_INLINE Right EvenOnly(const Right& b) {
    return _mm512_and_si512(b, _mm512_set1_epi32(0xFFFF));
  }
  static constexpr int MaxLines(int vectors) { return vectors == 1 ? 12 : 24 / vectors; }
};
#endif

// Those of a block's two vectors of scores that one tile takes.
#if defined(__AVX512F__)
constexpr int kScoreVectors = 2;
#else
constexpr int kScoreVectors = 1;
#endif

// sums[m][n] += a[m] . b[n] for one pair; the side with fewer registers is held.
template <typename T, int kLines, int kVectors, typename LoadRight>
FB_INLINE void AddPair(const typename PairDot<T>::Left* a, int64_t a_stride, LoadRight load,
                       Vector (*sums)[kVectors]) {
  using Dot = PairDot<T>;
  if constexpr (kLines < kVectors) {
    typename Dot::Pair left[kLines];
#pragma GCC unroll 12
    for (int m = 0; m < kLines; ++m) left[m] = Dot::Broadcast(a + m * a_stride);
#pragma GCC unroll 12
    for (int n = 0; n < kVectors; ++n) {
      const typename Dot::Right right = load(n);
#pragma GCC unroll 12
      for (int m = 0; m < kLines; ++m) sums[m][n] = Dot::Add(left[m], right, sums[m][n]);
    }
  } else {
    typename Dot::Right right[kVectors];
#pragma GCC unroll 12
    for (int n = 0; n < kVectors; ++n) right[n] = load(n);
#pragma GCC unroll 12
    for (int m = 0; m < kLines; ++m) {
      const typename Dot::Pair left = Dot::Broadcast(a + m * a_stride);
#pragma GCC unroll 12
      for (int n = 0; n < kVectors; ++n) sums[m][n] = Dot::Add(left, right[n], sums[m][n]);
    }
  }
}

// By tile of lines and block of a run: the distance in bytes from the tile's data of the block to
// the equally large data that it prefetches; or 0.
struct TilePrefetch {
  static constexpr int kMostTiles = (kMaxLines + 4) / 5;  // no set has tiles of fewer than 5 lines
  int64_t distances[kMostTiles][kRunBlocks];
};

template <typename T>
struct ScoreArgs {
  const typename PairDot<T>::Left* q;  // [lines, 2 pairs]
  int64_t q_stride;
  int pairs;
  const T* keys[kRunBlocks];  // [pairs, 32, 2] each
  const TilePrefetch* prefetch;
  float scale;
  float* scores;                // [lines, kRunTokens]
  const char* ahead = nullptr;  // HeadScores: prefetched in order, as much as is read
};

// Prefetches the lines of one load of a Right, into the second cache: a block of all KV heads would
// not stay in a first cache of 32 KiB beside the one that is read (128 x 1 at 192 of SmolLM2 on
// Zen 4: 1,218 us a layer, and 2,000 with the hint for the first).
template <typename T>
FB_INLINE void PrefetchNext(const char*& ahead) {
  __builtin_prefetch(ahead, 0, 2);
  ahead += 2 * kLanes * sizeof(T);
}

// Tile number `tile`: lines from `line` on, blocks from `block` on, each block's positions from
// `token` on; kEach: vectors of each block.
template <typename T, int kLines, int kBlocks, int kEach>
__attribute__((noinline)) void ScoreTile(const ScoreArgs<T>& args, int64_t tile, int64_t line,
                                         int64_t block, int64_t token) {
  constexpr int kVectors = kBlocks * kEach;
  Vector sums[kLines][kVectors];
#pragma GCC unroll 12
  for (int m = 0; m < kLines; ++m) {
#pragma GCC unroll 12
    for (int n = 0; n < kVectors; ++n) sums[m][n] = Vector::Zero();
  }
  const T* keys[kBlocks];
  int64_t prefetch[kBlocks];
#pragma GCC unroll 4
  for (int b = 0; b < kBlocks; ++b)
    keys[b] = args.keys[block + b] + 2 * token,
    prefetch[b] = args.prefetch->distances[tile][block + b];
  const int64_t q_stride = args.q_stride;
  const typename PairDot<T>::Left* q = args.q + line * q_stride;
  for (int64_t i = 0, end = int64_t{args.pairs} * 2 * kBlockTokens; i < end;
       i += 2 * kBlockTokens, q += 2) {
    AddPair<T, kLines, kVectors>(
        q, q_stride,
        [&](int n) __attribute__((always_inline)) {
          const T* from = keys[n / kEach] + i + n % kEach * 2 * kLanes;
          __builtin_prefetch(reinterpret_cast<const char*>(from) + prefetch[n / kEach], 0, 2);
          return PairDot<T>::Load(from);
        },
        sums);
  }
  const Vector scale = Vector::Set(args.scale);
  float* scores = args.scores + line * kRunTokens + block * kBlockTokens + token;
#pragma GCC unroll 12
  for (int m = 0; m < kLines; ++m) {
#pragma GCC unroll 12
    for (int n = 0; n < kVectors; ++n) {
      (sums[m][n] * scale)
          .Store(scores + m * kRunTokens + n / kEach * kBlockTokens + n % kEach * kLanes);
    }
  }
}

// As ScoreTile for one block's vectors of several KV heads, from `head` on, with kLines lines each;
// keys[h] is head h's.
template <typename T, int kLines, int kHeads, int kEach>
__attribute__((noinline)) void HeadScoreTile(const ScoreArgs<T>& args, int64_t head, int64_t token,
                                             const char* ahead) {
  Vector sums[kHeads][kLines][kEach];
#pragma GCC unroll 4
  for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 12
    for (int m = 0; m < kLines; ++m) {
#pragma GCC unroll 2
      for (int n = 0; n < kEach; ++n) sums[h][m][n] = Vector::Zero();
    }
  }
  const T* keys[kHeads];
#pragma GCC unroll 4
  for (int h = 0; h < kHeads; ++h) keys[h] = args.keys[head + h] + 2 * token;
  const int64_t q_stride = args.q_stride;
  const typename PairDot<T>::Left* q = args.q + head * kLines * q_stride;
  for (int64_t i = 0, end = int64_t{args.pairs} * 2 * kBlockTokens; i < end;
       i += 2 * kBlockTokens, q += 2) {
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) {
      AddPair<T, kLines, kEach>(
          q + h * kLines * q_stride, q_stride,
          [&](int n) __attribute__((always_inline)) {
            PrefetchNext<T>(ahead);
            return PairDot<T>::Load(keys[h] + i + n * 2 * kLanes);
          },
          sums[h]);
    }
  }
  const Vector scale = Vector::Set(args.scale);
  float* scores = args.scores + head * kLines * kRunTokens + token;
#pragma GCC unroll 4
  for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 12
    for (int m = 0; m < kLines; ++m, scores += kRunTokens) {
#pragma GCC unroll 2
      for (int n = 0; n < kEach; ++n) (sums[h][m][n] * scale).Store(scores + n * kLanes);
    }
  }
}

// Where a line's sum of a column lies: [columns / kPanel, kMaxLines, kPanel], so that a tile's
// lines lie at a constant stride.
FB_INLINE int64_t SumOffset(int64_t line, int64_t column) {
  return (column / kPanel * kMaxLines + line) * kPanel + column % kPanel;
}

template <typename T>
struct ValueArgs {
  const typename PairDot<T>::Left* probabilities;  // [lines, kRunTokens], from the first pair on
  int blocks, pairs;                               // pairs of each block; blocks > 1: all 16
  const T* values[kRunBlocks];                     // [pairs, columns, 2] each
  const TilePrefetch* prefetch;
  int64_t columns;
  float* sums;  // as SumOffset says, from the first line on
  // [blocks, kMaxLines]: sums are multiplied before a block is added
  const float* factors;
  // [lines], not falling: positions of the one block that a line sees, or null
  const int* seen;
  const char* ahead = nullptr;  // AddHeadProducts: as ScoreArgs::ahead
};

// Tile number `tile`: lines from `line` on, columns from `column` on. kEdge: a line's pairs end
// where it sees no more; an unseen half of the last one counts as zero.
template <typename T, int kLines, int kVectors, bool kEdge>
__attribute__((noinline)) void ValueTile(const ValueArgs<T>& args, int64_t tile, int64_t line,
                                         int64_t column) {
  using Dot = PairDot<T>;
  Vector sums[kLines][kVectors];
  const int64_t columns = args.columns;
  float* out = args.sums + SumOffset(line, column);
#pragma GCC unroll 12
  for (int m = 0; m < kLines; ++m) {
#pragma GCC unroll 12
    for (int n = 0; n < kVectors; ++n) sums[m][n] = Vector::Load(out + SumOffset(m, n * kLanes));
  }
  for (int block = 0; block < args.blocks; ++block) {
    const float* factors = args.factors + block * kMaxLines + line;
#pragma GCC unroll 12
    for (int m = 0; m < kLines; ++m) {
      const Vector factor = Vector::Set(factors[m]);
#pragma GCC unroll 12
      for (int n = 0; n < kVectors; ++n) sums[m][n] = sums[m][n] * factor;
    }
    const typename PairDot<T>::Left* p =
        args.probabilities + line * kRunTokens + block * kBlockTokens;
    const T* values = args.values[block] + column * 2;
    const int64_t prefetch = args.prefetch->distances[tile][block];
    const int pairs = kEdge ? args.seen[line] / 2 : args.pairs;  // that all lines see whole
    for (int i = 0; i < pairs; ++i, p += 2, values += 2 * columns) {
      AddPair<T, kLines, kVectors>(
          p, kRunTokens,
          [&](int n) __attribute__((always_inline)) {
            const T* from = values + n * 2 * kLanes;
            __builtin_prefetch(reinterpret_cast<const char*>(from) + prefetch, 0, 2);
            return PairDot<T>::Load(from);
          },
          sums);
    }
    if constexpr (!kEdge) continue;
#pragma GCC unroll 12
    for (int m = 0; m < kLines; ++m) {
      const int rest = args.seen[line + m] - 2 * pairs;
      const T* from = values;
      for (int i = 0; i < rest; i += 2, from += 2 * columns) {
        const typename Dot::Pair left = Dot::Broadcast(p + m * kRunTokens + i);
#pragma GCC unroll 12
        for (int n = 0; n < kVectors; ++n) {
          const typename Dot::Right right = Dot::Load(from + n * 2 * kLanes);
          sums[m][n] = Dot::Add(left, i + 1 < rest ? right : Dot::EvenOnly(right), sums[m][n]);
        }
      }
    }
  }
#pragma GCC unroll 12
  for (int m = 0; m < kLines; ++m) {
#pragma GCC unroll 12
    for (int n = 0; n < kVectors; ++n) sums[m][n].Store(out + SumOffset(m, n * kLanes));
  }
}

// As ValueTile for one block of several KV heads with kLines lines each: values[h] is head h's,
// `blocks` their number.
template <typename T, int kLines, int kVectors>
__attribute__((noinline)) void HeadValueTile(const ValueArgs<T>& args, int64_t column,
                                             const char* ahead) {
  const int64_t columns = args.columns;
  const float* factors = args.factors;
  const typename PairDot<T>::Left* probabilities = args.probabilities;
  float* out = args.sums + SumOffset(0, column);
  for (int h = 0; h < args.blocks; ++h) {
    Vector sums[kLines][kVectors];
#pragma GCC unroll 12
    for (int m = 0; m < kLines; ++m) {
      const Vector factor = Vector::Set(factors[m]);
#pragma GCC unroll 12
      for (int n = 0; n < kVectors; ++n)
        sums[m][n] = Vector::Load(out + SumOffset(m, n * kLanes)) * factor;
    }
    const T* values = args.values[h] + column * 2;
    const typename PairDot<T>::Left* p = probabilities;
    for (int i = 0; i < kBlockTokens / 2; ++i, p += 2, values += 2 * columns) {
      AddPair<T, kLines, kVectors>(
          p, kRunTokens,
          [&](int n) __attribute__((always_inline)) {
            PrefetchNext<T>(ahead);
            return PairDot<T>::Load(values + n * 2 * kLanes);
          },
          sums);
    }
#pragma GCC unroll 12
    for (int m = 0; m < kLines; ++m) {
#pragma GCC unroll 12
      for (int n = 0; n < kVectors; ++n) sums[m][n].Store(out + SumOffset(m, n * kLanes));
    }
    out += SumOffset(kLines, 0);
    factors += kLines;
    probabilities += kLines * kRunTokens;
  }
}

// Tiles of at most `most` lines.
FB_INLINE constexpr int TilesOf(int lines, int most) { return (lines + most - 1) / most; }

// All lines in tiles of nearly equal height; `run` is called with a tile's number, its first line
// and its lines.
template <int kMost, typename RunTile>
FB_INLINE void ForTiles(int lines, RunTile run) {
  int line = 0;
  for (int tile = 0, tiles = TilesOf(lines, kMost); tile < tiles; ++tile) {
    const int take = (lines - line + tiles - tile - 1) / (tiles - tile);
    run(tile, line, take);
    line += take;
  }
}

template <typename T, int kBlocks, int kEach, int kLines = PairDot<T>::MaxLines(kBlocks* kEach)>
FB_INLINE void RunScoreTile(int lines, const ScoreArgs<T>& args, int tile, int line, int block,
                            int token) {
  if (lines == kLines) return ScoreTile<T, kLines, kBlocks, kEach>(args, tile, line, block, token);
  if constexpr (kLines > 1)
    RunScoreTile<T, kBlocks, kEach, kLines - 1>(lines, args, tile, line, block, token);
}

// Blocks from `block` on, of each the positions [token, end).
template <typename T, int kBlocks, int kEach = kScoreVectors>
void ScorePanel(int lines, const ScoreArgs<T>& args, int block, int token = 0,
                int end = kBlockTokens) {
  for (; token < end; token += kEach * kLanes) {
    ForTiles<PairDot<T>::MaxLines(kBlocks * kEach)>(
        lines, [&](int tile, int line, int take) __attribute__((always_inline)) {
          RunScoreTile<T, kBlocks, kEach>(take, args, tile, line, block, token);
        });
  }
}

// scores[line][block * 32 + t] for `blocks` blocks.
template <typename T>
void Scores(int lines, int blocks, const ScoreArgs<T>& args) {
  for (int block = 0; block < blocks;) {
#if defined(__AVX512F__)
    if (blocks - block >= 4 && lines <= PairDot<T>::MaxLines(8)) {
      ScorePanel<T, 4>(lines, args, block);
      block += 4;
      continue;
    }
    if (blocks - block >= 2 && lines <= PairDot<T>::MaxLines(4)) {
      ScorePanel<T, 2>(lines, args, block);
      block += 2;
      continue;
    }
#endif
    ScorePanel<T, 1>(lines, args, block++);
  }
}

// Tiles in which Scores, and AddProducts where columns are whole panels, take the lines.
template <typename T>
FB_INLINE int ScoreTiles(int lines) {
#if defined(__AVX512F__)
  if (lines <= PairDot<T>::MaxLines(4)) return 1;
#endif
  return TilesOf(lines, PairDot<T>::MaxLines(kScoreVectors));
}
template <typename T>
FB_INLINE int ValueTiles(int lines) {
#if defined(__AVX512F__)
  return TilesOf(lines, PairDot<T>::MaxLines(4));
#else
  return TilesOf(lines, PairDot<T>::MaxLines(1));
#endif
}

template <typename T, int kHeads, int kEach, int kLines>
FB_INLINE void RunHeadScoreTile(int lines, const ScoreArgs<T>& args, int head, int token,
                                const char* ahead) {
  if (lines == kLines) return HeadScoreTile<T, kLines, kHeads, kEach>(args, head, token, ahead);
  if constexpr (kLines > 1)
    RunHeadScoreTile<T, kHeads, kEach, kLines - 1>(lines, args, head, token, ahead);
}

// KV heads of one tile of scores at most.
FB_INLINE int MostHeads(int lines) {
#if defined(__AVX512F__)
  return lines <= 3 ? 4 : lines <= 6 ? 2 : 1;
#else
  return lines <= 2 ? 2 : 1;
#endif
}

// Scores of one block for KV heads with `lines` lines each, [heads, lines, kRunTokens]: its first
// `tokens` positions. Returns what is ahead then.
template <typename T, int kEach = kScoreVectors>
const char* HeadScores(int heads, int lines, const ScoreArgs<T>& args, int tokens) {
  const char* ahead = args.ahead;
  for (int token = 0; token < tokens; token += kEach * kLanes) {
    for (int head = 0; head < heads;) {
      const int take = Min(heads - head, MostHeads(lines));
      switch (take) {
#if defined(__AVX512F__)
        case 4: RunHeadScoreTile<T, 4, kEach, 3>(lines, args, head, token, ahead); break;
        case 3: RunHeadScoreTile<T, 3, kEach, 3>(lines, args, head, token, ahead); break;
        case 2: RunHeadScoreTile<T, 2, kEach, 6>(lines, args, head, token, ahead); break;
#else
        case 2: RunHeadScoreTile<T, 2, kEach, 2>(lines, args, head, token, ahead); break;
#endif
        default:
          if (lines <= PairDot<T>::MaxLines(kEach)) {
            RunHeadScoreTile<T, 1, kEach, PairDot<T>::MaxLines(kEach)>(lines, args, head, token,
                                                                       ahead);
          } else {
            ScoreArgs<T> one = args;
            one.q += head * lines * args.q_stride;
            one.scores += head * lines * kRunTokens;
            one.keys[0] = args.keys[head];
            TilePrefetch prefetch;
            for (auto& tile : prefetch.distances) tile[0] = args.prefetch->distances[0][head];
            one.prefetch = &prefetch;
            ScorePanel<T, 1, kEach>(lines, one, 0, token, token + kEach * kLanes);
          }
      }
      head += take;
      ahead += int64_t{take} * args.pairs * kEach * 2 * kLanes * static_cast<int64_t>(sizeof(T));
    }
  }
  return ahead;
}

template <typename T, int kVectors, int kLines = PairDot<T>::MaxLines(kVectors)>
FB_INLINE void RunHeadValueTile(int lines, const ValueArgs<T>& args, int64_t column,
                                const char* ahead) {
  if (lines == kLines) return HeadValueTile<T, kLines, kVectors>(args, column, ahead);
  if constexpr (kLines > 1) RunHeadValueTile<T, kVectors, kLines - 1>(lines, args, column, ahead);
}

// Values of one whole block for args.blocks KV heads with `lines` lines each; false: more lines
// than a tile has.
template <typename T>
bool AddHeadProducts(int lines, const ValueArgs<T>& args) {
#if defined(__AVX512F__)
  constexpr int kWidest = 4;
#else
  constexpr int kWidest = 1;
#endif
  if (lines > PairDot<T>::MaxLines(kWidest)) return false;
  const char* ahead = args.ahead;
  for (int64_t column = 0, take; column < args.columns; column += take * kLanes) {
    take = 1;
#if defined(__AVX512F__)
    const int64_t vectors = (args.columns - column) / kLanes;
    take = vectors >= 8 && lines <= PairDot<T>::MaxLines(8) ? 8 : vectors >= 4 ? 4 : 1;
    if (take == 8) RunHeadValueTile<T, 8>(lines, args, column, ahead);
    if (take == 4) RunHeadValueTile<T, 4>(lines, args, column, ahead);
#endif
    if (take == 1) RunHeadValueTile<T, 1>(lines, args, column, ahead);
    ahead += args.blocks * take * kBlockTokens * kLanes * static_cast<int64_t>(sizeof(T));
  }
  return true;
}

template <typename T, int kVectors, bool kEdge, int kLines = PairDot<T>::MaxLines(kVectors)>
FB_INLINE void RunValueTile(int lines, const ValueArgs<T>& args, int tile, int line,
                            int64_t column) {
  if (lines == kLines) return ValueTile<T, kLines, kVectors, kEdge>(args, tile, line, column);
  if constexpr (kLines > 1)
    RunValueTile<T, kVectors, kEdge, kLines - 1>(lines, args, tile, line, column);
}

template <typename T, int kVectors, bool kEdge>
void ValuePanel(int lines, const ValueArgs<T>& args, int64_t column) {
  ForTiles<PairDot<T>::MaxLines(kVectors)>(
      lines, [&](int tile, int line, int take) __attribute__((always_inline)) {
        RunValueTile<T, kVectors, kEdge>(take, args, tile, line, column);
      });
}

// sums[line] = sums[line] * factor + probabilities . V, block after block; kEdge: of one block, as
// far as each line sees.
template <typename T, bool kEdge = false>
void AddProducts(int lines, const ValueArgs<T>& args) {
  for (int64_t column = 0; column < args.columns;) {
    int take = 1;
#if defined(__AVX512F__)
    const int64_t vectors = (args.columns - column) / kLanes;
    if (vectors >= 8 && lines <= PairDot<T>::MaxLines(8)) {
      ValuePanel<T, 8, kEdge>(lines, args, column);
      take = 8;
    } else if (vectors >= 4) {
      ValuePanel<T, 4, kEdge>(lines, args, column);
      take = 4;
    } else if (vectors >= 2) {
      ValuePanel<T, 2, kEdge>(lines, args, column);
      take = 2;
    } else {
      ValuePanel<T, 1, kEdge>(lines, args, column);
    }
#else
    ValuePanel<T, 1, kEdge>(lines, args, column);
#endif
    column += take * kLanes;
  }
}

}  // namespace
}  // namespace forebay::kernels
