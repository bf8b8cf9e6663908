// Attention of one row a sequence over paged KV, in the order of kernels/mma_attention.h: the query
// heads of a KV head are rows 0 to 7 of A.
//
//   mma_decode       a unit a warp, which has a ring of K or V pieces of its own: nobody waits for
//                    others. Best from two units a multiprocessor on.
//   mma_decode_wide  a unit a block: warp w scores step w, then has 1/8 of head_dim for all steps'
//                    values. A part takes a fraction of the time that one warp needs.
//   mma_decode_codes mma_decode over KV in one byte: pieces are codes, and scales of int8, which
//                    the warp makes bf16 of in a tile of its own. Never run on a GPU.
//
// A piece is K or V of a block's head. The unit that ends last merges a row's parts.
// Bytes: K and V once. Flops: 4 group positions head_dim. Limit: reading K and V.
#include "kernels/cuda/hopper.h"
#include "kernels/cuda/mma/code_tiles.h"
#include "kernels/cuda/mma/head_row.h"
#include "kernels/cuda/mma/params.h"
#include "kernels/cuda/mma/row_softmax.h"

namespace forebay::kernels::cuda {
namespace {

constexpr int kPartPositions = 1024, kSteps = 8;
constexpr uint32_t kInWindow = 0x80000000u;

// What is seen of a unit's part, and the blocks that hold it.
struct Span : SeenPart {
  FB_DEVICE explicit Span(const DecodeUnit& unit)
      : SeenPart{unit.first % kPartPositions, (unit.end - 1) % kPartPositions + 1} {}
  FB_DEVICE int first_block() const { return first / kPositions; }
  FB_DEVICE int end_block() const { return (end + kPositions - 1) / kPositions; }
  FB_DEVICE int first_step() const { return first_block() / kStepBlocks; }
  FB_DEVICE int end_step() const { return (end_block() + kStepBlocks - 1) / kStepBlocks; }
};

// Where a unit's blocks lie: lane i knows block i of the part.
template <int kHeadDim, bool kCoded = false>
struct Places {
  static constexpr int kPiece = HeadHalfBytes(kHeadDim) / (kCoded ? 2 : 1);
  const std::byte* mine = nullptr;

  FB_DEVICE void Find(const MmaKvParams& kv, const DecodeUnit& unit, const Span& span) {
    const int lane = gpu::Lane();
    if (lane < span.first_block() || lane >= span.end_block()) return;
    const uint32_t entry =
        kv.block_tables[unit.table_row * kv.table_stride +
                        unit.first / kPartPositions * kSteps * kStepBlocks + lane];
    const auto index = static_cast<int64_t>(entry & ~kInWindow);
    mine = ((entry & kInWindow) != 0 ? kv.window + index * kv.layer_bytes
                                     : kv.resident + index * kv.block_stride) +
           unit.kv_head * int64_t{2 * kPiece + (kv.codes == kInt8Codes ? 2 * kScalesBytes : 0)};
  }
  FB_DEVICE const std::byte* Piece(int block, bool values) const {
    const auto at = gpu::Shuffle(reinterpret_cast<unsigned long long>(mine), block);
    return reinterpret_cast<const std::byte*>(at) + (values ? kPiece : 0);
  }
};

// The rows of one thread: head lane / 4 of the group.
template <int kHeadDim>
struct Rows {
  bool there;
  int step_row, head;
  int64_t row;  // of q, heads counted

  FB_DEVICE Rows(const DecodeParams& args, const DecodeUnit& unit)
      : there(gpu::Lane() / 4 < args.group),
        step_row(unit.row),
        head(unit.kv_head * args.group + gpu::Lane() / 4),
        row(int64_t{step_row} * args.row_heads + head) {}

  FB_DEVICE void LoadQueries(const DecodeParams& args, uint32_t (&a)[kHeadDim / 16][2]) const {
    const auto* const q =
        reinterpret_cast<const uint32_t*>(args.q) + row * (kHeadDim / 2) + gpu::Lane() % 4;
#pragma unroll
    for (int i = 0; i < kHeadDim / 16; ++i) {
      a[i][0] = there ? q[i * 8] : 0;
      a[i][1] = there ? q[i * 8 + 4] : 0;
    }
  }
  // Of this part and row; `part` columns of values, then M and the sum.
  FB_DEVICE float* Partial(const DecodeParams& args, const DecodeUnit& unit, int part) const {
    const int64_t at = (int64_t{unit.slot} + part) * args.group + gpu::Lane() / 4;
    return args.partials + at * (kHeadDim + 2);
  }
};

// The scores of a block: c[t] of positions 8 t + lane % 4 * 2 + {0, 1}.
template <int kHeadDim>
FB_DEVICE void ScoreBlock(const uint32_t (&q)[kHeadDim / 16][2], uint32_t keys, float (*c)[2]) {
  const int lane = gpu::Lane(), row = lane % 8;
#pragma unroll
  for (int i = 0; i < kHeadDim / 32; ++i) {
    uint32_t b[4][4];
#pragma unroll
    for (int t = 0; t < 4; ++t) {
      gpu::LoadMatrix4(b[t], keys + static_cast<uint32_t>(i / 2 * 4096 + (t * 8 + row) * 128 +
                                                          (((i % 2 * 4 + lane / 8) ^ row) << 4)));
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int t = 0; t < 4; ++t)
        gpu::MmaUpper(c[t], q[i * 2 + half], b[t][half * 2], b[t][half * 2 + 1]);
    }
  }
}

// values += p V over 16 positions from `at` on of the part, which lie at `shared`; kTiles tiles of
// 8 elements from tile `first_tile` on. V that is not seen counts as 0, whatever it is.
template <int kTiles>
FB_DEVICE void AddValues(const Span& span, int at, const uint32_t (&p)[2], uint32_t shared,
                         int first_tile, float (*values)[2]) {
  const int lane = gpu::Lane(), row = lane % 16;
  const bool all = span.HasAll(at, at + 16);
  const int t = at + lane % 4 * 2;
  const uint32_t low = all ? ~0u : Kept(span, t), high = all ? ~0u : Kept(span, t + 8);
  // Four matrices are two tiles' halves along positions; of a single tile only two count.
  const int second = kTiles == 1 ? 0 : lane / 16;
#pragma unroll
  for (int j = 0; j < kTiles; j += 2) {
    const int tile = first_tile + j;
    uint32_t b[4];
    gpu::LoadMatrix4Transposed(
        b, shared + static_cast<uint32_t>(tile / 8 * 4096 + row * 128 +
                                          (((tile % 8 + second) ^ (row % 8)) << 4)));
    gpu::MmaUpper(values[j], p, b[0] & low, b[1] & high);
    if constexpr (kTiles > 1) gpu::MmaUpper(values[j + 1], p, b[2] & low, b[3] & high);
  }
}

// out = values / sum, kTiles tiles from `first_tile` on.
template <int kHeadDim, int kTiles>
FB_DEVICE void StoreRow(const DecodeParams& args, const Rows<kHeadDim>& rows, int first_tile,
                        const float (&values)[kTiles][2], float sum) {
  if (!rows.there) return;
  const float inverse = gpu::Div(1.0f, sum);
  const HeadRow out(args.out, args.out_form, rows.step_row, rows.head, kHeadDim, args.row_heads);
  const int column = gpu::Here(first_tile * 8 + gpu::Lane() % 4 * 2);
#pragma unroll
  for (int j = 0; j < kTiles; ++j) {
    out.Store(column + j * 8, gpu::Fma(values[j][0], inverse, 0.0f),
              gpu::Fma(values[j][1], inverse, 0.0f));
  }
}

template <int kHeadDim, int kTiles>
FB_DEVICE void StorePartial(float* to, int first_tile, const float (&values)[kTiles][2],
                            float whole, float sum) {
  const int column = first_tile * 8 + gpu::Lane() % 4 * 2;
#pragma unroll
  for (int j = 0; j < kTiles; ++j) {
    to[column + j * 8] = values[j][0];
    to[column + j * 8 + 1] = values[j][1];
  }
  if (column == 0) {
    to[kHeadDim] = whole;
    to[kHeadDim + 1] = sum;
  }
}

// All parts of a row, in ascending order.
template <int kHeadDim, int kTiles>
FB_DEVICE void MergeParts(const DecodeParams& args, const DecodeUnit& unit,
                          const Rows<kHeadDim>& rows, int first_tile) {
  if (!rows.there) return;
  float values[kTiles][2] = {}, whole = FB_NOTHING, sum = 0;
  const int column = first_tile * 8 + gpu::Lane() % 4 * 2;
  for (int part = 0; part < unit.parts; ++part) {
    const float* const from = rows.Partial(args, unit, part);
    const float of_part = gpu::LoadFresh(from + kHeadDim), top = gpu::Max(whole, of_part);
    const float old = FactorOf(whole - top), factor = FactorOf(of_part - top);
    whole = top;
    sum = gpu::Fma(gpu::LoadFresh(from + kHeadDim + 1), factor, sum * old);
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        values[j][e] =
            gpu::Fma(gpu::LoadFresh(from + column + j * 8 + e), factor, values[j][e] * old);
      }
    }
  }
  StoreRow(args, rows, first_tile, values, sum);
}

// Counts a unit as done; true for the last one of its row, by the first lane.
FB_DEVICE bool CountPart(const DecodeParams& args, const DecodeUnit& unit) {
  int32_t* const count = args.counts + unit.slot;
  const bool last = gpu::AtomicAdd(count, 1) + 1 == unit.parts;
  if (last) *count = 0;
  return last;
}

// A warp's own ring, filled by itself: it asks for a piece where it has read one.
template <int kHeadDim, bool kCoded>
class WarpFeed {
 public:
  using PiecePlaces = Places<kHeadDim, kCoded>;
  static constexpr int kPiece = PiecePlaces::kPiece, kPieces = DecodePieces(kHeadDim);
  static constexpr int kPlace = DecodePlaceBytes(kHeadDim, kCoded),
                       kOfWarp = kPieces * kPlace + DecodeTileBytes(kHeadDim, kCoded);

  FB_DEVICE WarpFeed(const DecodeParams& args, std::byte* shared)
      : args_(args),
        num_units_(*args.num_units),
        base_(shared + gpu::Warp() * kOfWarp),
        full_(reinterpret_cast<gpu::Bar*>(shared + gpu::Warps() * kOfWarp) + gpu::Warp() * kPieces),
        unit_(gpu::Warp() * gpu::GridX() + gpu::BlockX()) {
    if (gpu::Lane() == 0) {
      for (int i = 0; i < kPieces; ++i) gpu::BarInit(full_ + i, 1);
      gpu::BarFence();
    }
    gpu::SyncWarp();
    for (int i = 0; i < kPieces; ++i) Ask();
  }

  // The next piece, as bf16, until Done.
  FB_DEVICE uint32_t Await() const {
    gpu::BarWait(full_ + slot_, parity_);
    std::byte* const place = base_ + slot_ * kPlace;
    if constexpr (kCoded) {
      // Done has let all lanes read what was in the tile.
      std::byte* const tile = base_ + kPieces * kPlace;
#pragma unroll 4
      for (int i = gpu::Lane(); i < kPiece / 8; i += gpu::kWarpLanes) {
        const auto* const codes = As<uint32_t>(place) + 2 * i;
        As<CodeWords>(tile)[i] = ExpandEight(args_.kv.codes, codes[0], codes[1]);
      }
      gpu::SyncWarp();
      return gpu::Smem(tile);
    } else {
      return gpu::Smem(place);
    }
  }
  FB_DEVICE bool scaled() const { return kCoded && args_.kv.codes == kInt8Codes; }
  // The scale of position `t` of the piece. REQUIRES: scaled().
  FB_DEVICE float Scale(int t) const { return As<float>(base_ + slot_ * kPlace + kPiece)[t]; }
  FB_DEVICE void Done() {
    gpu::SyncWarp();
    Ask();
    if (++slot_ == kPieces) slot_ = 0, parity_ ^= 1;
  }

 private:
  // The next piece: of each step its blocks' K, then their V.
  FB_DEVICE void Ask() {
    if (unit_ >= num_units_) return;
    if (!begun_) {
      const DecodeUnit& unit = args_.units[unit_];
      const Span span(unit);
      places_.Find(args_.kv, unit, span);
      block_ = step_ = span.first_block();
      end_ = span.end_block();
      begun_ = true;
    }
    const std::byte* const from = places_.Piece(block_, values_);
    if (gpu::Lane() == 0) {
      std::byte* const to = base_ + asked_ * kPlace;
      gpu::BarExpect(full_ + asked_, kPiece + (scaled() ? kScalesBytes : 0));
      gpu::BulkCopy(to, from, kPiece, full_ + asked_);
      if (scaled()) {  // behind K and V: K's, then V's
        gpu::BulkCopy(to + kPiece, from + (values_ ? kPiece + kScalesBytes : 2 * kPiece),
                      kScalesBytes, full_ + asked_);
      }
    }
    if (++asked_ == kPieces) asked_ = 0;
    if (++block_ < end_ && block_ % kStepBlocks != 0) return;
    if (!values_) {
      values_ = true, block_ = step_;
      return;
    }
    values_ = false, step_ = block_;
    if (block_ < end_) return;
    begun_ = false;
    unit_ += gpu::GridX() * gpu::Warps();
  }

  const DecodeParams& args_;
  const int num_units_;
  std::byte* const base_;
  gpu::Bar* const full_;
  int slot_ = 0, parity_ = 0;
  // What is asked for next.
  int unit_, block_ = 0, step_ = 0, end_ = 0, asked_ = 0;
  bool begun_ = false, values_ = false;
  PiecePlaces places_;
};

template <int kHeadDim, bool kCoded = false>
FB_DEVICE void Decode(const DecodeParams& args) {
  FB_SHARED(std::byte, shared);
  gpu::TakeTurn();
  constexpr int kTiles = kHeadDim / 8;
  const float c = MmaScale(args.scale), c128 = c * 0x1p-7f;
  WarpFeed<kHeadDim, kCoded> feed(args, shared);
  const int pair = gpu::Lane() % 4 * 2;
  const int stride = gpu::GridX() * gpu::Warps(), num_units = *args.num_units;
  for (int i = gpu::Warp() * gpu::GridX() + gpu::BlockX(); i < num_units; i += stride) {
    const DecodeUnit unit = args.units[i];
    const Span span(unit);
    const Rows<kHeadDim> rows(args, unit);
    uint32_t q[kHeadDim / 16][2];
    rows.LoadQueries(args, q);
    float values[kTiles][2] = {}, sums[4] = {}, whole = FB_NOTHING;
    for (int step = span.first_step(); step < span.end_step(); ++step) {
      const auto there = [&](int b) {
        const int block = step * kStepBlocks + b;
        return block >= span.first_block() && block < span.end_block();
      };
      float scores[kStepTiles][2] = {};
#pragma unroll
      for (int b = 0; b < kStepBlocks; ++b) {
        if (!there(b)) continue;
        ScoreBlock<kHeadDim>(q, feed.Await(), scores + b * 4);
        if (feed.scaled()) {
#pragma unroll
          for (int i = 0; i < 8; ++i) {
            float& score = scores[b * 4 + i / 2][i % 2];
            score = score * feed.Scale(i / 2 * 8 + pair + i % 2);
          }
        }
        feed.Done();
      }
      const int at = step * kStepTiles * 8;
      const float best = MaskScores(span, at, scores);
      const float top = gpu::Max(whole, WholeOf(best, c)), factor = FactorOf(whole - top);
      whole = top;
      Rescale(factor, values);
      uint32_t p[kStepTiles];
      float lanes[4];
      if constexpr (kCoded) {
        // They are rounded when their values' scales are there.
        ProbabilitiesOf(scores, c128, whole, lanes, [&](int t, float p0, float p1) {
          scores[t][0] = p0;
          scores[t][1] = p1;
        });
      } else {
        Probabilities(scores, c128, whole, p, lanes);
      }
#pragma unroll
      for (int l = 0; l < 4; ++l) sums[l] = gpu::Fma(sums[l], factor, lanes[l]);
#pragma unroll
      for (int b = 0; b < kStepBlocks; ++b) {
        if (!there(b)) continue;
        const uint32_t piece = feed.Await();
        if constexpr (kCoded) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            float(&of)[2] = scores[b * 4 + i];
            const int t = i * 8 + pair;
            p[b * 4 + i] = feed.scaled() ? gpu::PairOf(Scaled(of[0], feed.Scale(t)),
                                                       Scaled(of[1], feed.Scale(t + 1)))
                                         : gpu::PairOf(of[0], of[1]);
          }
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int t = b * 4 + half * 2;
          AddValues<kTiles>(span, at + t * 8, {p[t], p[t + 1]},
                            piece + static_cast<uint32_t>(half * 2048), 0, values);
        }
        feed.Done();
      }
    }
    const float sum = LanesTree(sums);
    if (unit.parts == 1) {
      StoreRow(args, rows, 0, values, sum);
      continue;
    }
    if (rows.there)
      StorePartial<kHeadDim>(rows.Partial(args, unit, unit.part), 0, values, whole, sum);
    gpu::FenceGrid();
    gpu::SyncWarp();
    const bool last = gpu::Lane() == 0 && CountPart(args, unit);
    if (gpu::Ballot(last) == 0) continue;
    gpu::FenceGrid();
    MergeParts<kHeadDim, kTiles>(args, unit, rows, 0);
  }
}

// A piece has a slot: keys of step w one of consumer w's own, of which it alone knows how far they
// are; values those of all in turn. A consumer that waited for a phase of a slot that others empty
// could take the phase before the last for it.
template <int kSlotsOfWarp>
FB_DEVICE int SlotOf(int block, bool values) {
  return values ? block % kSteps * kSlotsOfWarp + (1 + block / kSteps) % kSlotsOfWarp
                : block / kStepBlocks * kSlotsOfWarp + block % kStepBlocks % kSlotsOfWarp;
}

template <int kHeadDim>
FB_DEVICE void DecodeWide(const DecodeParams& args) {
  FB_SHARED(std::byte, shared);
  gpu::TakeTurn();
  constexpr int kPiece = HeadHalfBytes(kHeadDim), kTiles = kHeadDim / 64;
  constexpr int kSlots = WidePieces(kHeadDim), kSlotsOfWarp = kSlots / kDecodeConsumers;
  static_assert(kDecodeConsumers == kSteps && kSlots <= 32);
  const int warp = gpu::Warp(), lane = gpu::Lane();
  auto* const words = reinterpret_cast<uint32_t*>(shared + kSlots * kPiece);  // [step][tile][lane]
  auto* const lanes =
      reinterpret_cast<float*>(words + kSteps * kStepTiles * 32);  // [step][4][lane]
  float* const wholes = lanes + kSteps * 4 * 32;                   // [2][step][8]
  auto* const full = reinterpret_cast<gpu::Bar*>(wholes + 2 * kSteps * 8);
  gpu::Bar* const empty = full + kSlots;
  auto* const last = reinterpret_cast<int*>(empty + kSlots);
  const auto meet = [] { gpu::NamedSync(1, kDecodeConsumers * gpu::kWarpLanes); };
  const int num_units = *args.num_units;
  if (gpu::Tid() == 0) {
    for (int i = 0; i < kSlots; ++i) {
      gpu::BarInit(full + i, 1);
      gpu::BarInit(empty + i, kDecodeConsumers);
    }
    gpu::BarFence();
  }
  gpu::Sync();
  uint32_t parity = 0;  // a bit a slot
  if (warp == kDecodeConsumers) {
    for (int i = gpu::BlockX(); i < num_units; i += gpu::GridX()) {
      const DecodeUnit unit = args.units[i];
      const Span span(unit);
      Places<kHeadDim> places;
      places.Find(args.kv, unit, span);
      const auto put = [&](int block, bool values) {
        const std::byte* const from = places.Piece(block, values);
        const int slot = SlotOf<kSlotsOfWarp>(block, values);
        if (lane == 0) {
          gpu::BarWait(empty + slot, static_cast<int>(~parity >> slot & 1));
          gpu::BarExpect(full + slot, kPiece);
          gpu::BulkCopy(shared + slot * kPiece, from, kPiece, full + slot);
        }
        parity ^= 1u << slot;
      };
      // The first blocks of all steps, then the second ones: all consumers can begin.
      for (int b = 0; b < kStepBlocks; ++b) {
        for (int step = span.first_step(); step < span.end_step(); ++step) {
          const int block = step * kStepBlocks + b;
          if (block >= span.first_block() && block < span.end_block()) put(block, false);
        }
      }
      for (int block = span.first_block(); block < span.end_block(); ++block) put(block, true);
    }
    return;
  }
  const float c = MmaScale(args.scale), c128 = c * 0x1p-7f;
  int turn = 0;
  for (int i = gpu::BlockX(); i < num_units; i += gpu::GridX(), turn ^= 1) {
    const DecodeUnit unit = args.units[i];
    const Span span(unit);
    const Rows<kHeadDim> rows(args, unit);
    float* const tops = wholes + turn * kSteps * 8 + lane / 4;  // M of each step alone
    const bool scores_here = warp >= span.first_step() && warp < span.end_step();
    float scores[kStepTiles][2] = {};
    if (scores_here) {
      uint32_t q[kHeadDim / 16][2], mine = parity;
      rows.LoadQueries(args, q);
#pragma unroll
      for (int b = 0; b < kStepBlocks; ++b) {
        const int block = warp * kStepBlocks + b;
        if (block < span.first_block() || block >= span.end_block()) continue;
        const int slot = SlotOf<kSlotsOfWarp>(block, false);
        gpu::BarWait(full + slot, static_cast<int>(mine >> slot & 1));
        mine ^= 1u << slot;
        ScoreBlock<kHeadDim>(q, gpu::Smem(shared + slot * kPiece), scores + b * 4);
        gpu::SyncWarp();
        if (lane < kDecodeConsumers) gpu::BarArrive(empty + slot);
      }
      const float best = MaskScores(span, warp * kStepTiles * 8, scores);
      if (lane % 4 == 0) tops[warp * 8] = WholeOf(best, c);
    }
    meet();
    if (scores_here) {
      float whole = FB_NOTHING;
      for (int step = span.first_step(); step <= warp; ++step)
        whole = gpu::Max(whole, tops[step * 8]);
      uint32_t p[kStepTiles];
      float of_step[4];
      Probabilities(scores, c128, whole, p, of_step);
#pragma unroll
      for (int t = 0; t < kStepTiles; ++t) words[(warp * kStepTiles + t) * 32 + lane] = p[t];
#pragma unroll
      for (int l = 0; l < 4; ++l) lanes[(warp * 4 + l) * 32 + lane] = of_step[l];
    }
    meet();
    for (int block = span.first_block(); block < span.end_block(); ++block)
      parity ^= 1u << SlotOf<kSlotsOfWarp>(block, false);
    float values[kTiles][2] = {}, sums[4] = {}, whole = FB_NOTHING;
    for (int step = span.first_step(); step < span.end_step(); ++step) {
      const float top = gpu::Max(whole, tops[step * 8]), factor = FactorOf(whole - top);
      whole = top;
#pragma unroll
      for (int l = 0; l < 4; ++l)
        sums[l] = gpu::Fma(sums[l], factor, lanes[(step * 4 + l) * 32 + lane]);
      Rescale(factor, values);
#pragma unroll
      for (int b = 0; b < kStepBlocks; ++b) {
        const int block = step * kStepBlocks + b;
        if (block < span.first_block() || block >= span.end_block()) continue;
        const int slot = SlotOf<kSlotsOfWarp>(block, true);
        gpu::BarWait(full + slot, static_cast<int>(parity >> slot & 1));
        parity ^= 1u << slot;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int t = b * 4 + half * 2;
          const uint32_t* const p = words + (step * kStepTiles + t) * 32 + lane;
          AddValues<kTiles>(span, step * kStepTiles * 8 + t * 8, {p[0], p[32]},
                            gpu::Smem(shared + slot * kPiece) + static_cast<uint32_t>(half * 2048),
                            warp * kTiles, values);
        }
        gpu::SyncWarp();
        if (lane == 0) gpu::BarArrive(empty + slot);
      }
    }
    const float sum = LanesTree(sums);
    if (unit.parts == 1) {
      StoreRow(args, rows, warp * kTiles, values, sum);
      continue;
    }
    if (rows.there) {
      StorePartial<kHeadDim>(rows.Partial(args, unit, unit.part), warp * kTiles, values, whole,
                             sum);
    }
    gpu::FenceGrid();
    meet();
    if (gpu::Tid() == 0) {
      *last = CountPart(args, unit) ? 1 : 0;
      gpu::FenceGrid();
    }
    meet();
    if (*last != 0) MergeParts<kHeadDim, kTiles>(args, unit, rows, warp * kTiles);
  }
}

}  // namespace

FB_KERNEL(mma_decode_64, DecodeParams, DecodeWarps(64) * 32) { Decode<64>(args); }
FB_KERNEL(mma_decode_128, DecodeParams, DecodeWarps(128) * 32, 1) { Decode<128>(args); }
FB_KERNEL(mma_decode_codes_64, DecodeParams, DecodeWarps(64) * 32) { Decode<64, true>(args); }
FB_KERNEL(mma_decode_codes_128, DecodeParams, DecodeWarps(128) * 32, 1) { Decode<128, true>(args); }
FB_KERNEL(mma_decode_wide_64, DecodeParams, kWideThreads, 2) { DecodeWide<64>(args); }
FB_KERNEL(mma_decode_wide_128, DecodeParams, kWideThreads, 1) { DecodeWide<128>(args); }

}  // namespace forebay::kernels::cuda
