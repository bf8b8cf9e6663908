// Draws of tokens (kernels/draw.h): in double, in the order of sample/softmax.h and
// sample/sampler.h.
//
//   pair_draw_peaks  half a warp a chunk of 1,024 logits: the greatest, and where it is
//   pair_draw_sums   half a warp a chunk: the sum of its weights, where a draw begins with those of
//                    all tokens
//   pair_draw        a block a row: the token
//   pair_likely      a block a row: the most likely tokens, and one token's place among all; peaks
//                    and sums of its row come from kernels like the two above
//
// Bytes: logits once, twice with a temperature; pair_draw reads chunks again whose peaks are high
// enough, most often one to three times. Limit: memory; with a temperature exponentials in double.
// Rows of which some thousand tokens or more stay behind top_p have sums of one chain: latency.
#include <limits>

#include "base/exp.h"
#include "kernels/cuda/pair/arithmetic.h"

namespace forebay::kernels::cuda {
namespace {

constexpr double kNoFloor = -std::numeric_limits<double>::infinity();
constexpr int kHalfWarp = 16;
static_assert(kDrawPool <= kDrawThreads && kLanes16 == kHalfWarp);

FB_DEVICE bool IsNumber(float x) { return x == x; }
// Where the row's draw begins with the weights of all tokens.
FB_DEVICE bool WeighsAll(const DrawRow& row) {
  return row.temperature > 0 && !(row.min_p > 0) && row.top_k <= 0;
}
template <typename Params>
FB_DEVICE const float* LogitsOf(const Params& args, int32_t row) {
  return args.logits + int64_t{row - args.first_row} * args.stride;
}
FB_DEVICE DrawRow Flushed(DrawRow row) {
  row.temperature = gpu::Flush(row.temperature);
  row.min_p = gpu::Flush(row.min_p);
  row.top_p = gpu::Flush(row.top_p);
  return row;
}
// Infinity counts as the greatest float.
FB_DEVICE float Finite(float x) {
  const float greatest = gpu::FromBits(0x7F7FFFFFu);
  return x > greatest ? greatest : x;
}
FB_DEVICE double WeightOf(float x, float max, double scale) {
  return base::Exp((static_cast<double>(x) - static_cast<double>(max)) * scale);
}

FB_DEVICE DrawPeak Greater(const DrawPeak& a, const DrawPeak& b) {
  if (a.token < 0 || b.token < 0) return a.token < 0 ? b : a;
  if (a.logit != b.logit) return a.logit > b.logit ? a : b;
  return a.token < b.token ? a : b;
}
// Over 2 * `half` lanes; all of them get it.
FB_DEVICE DrawPeak GreatestOfLanes(DrawPeak peak, int half) {
  for (int mask = half; mask > 0; mask /= 2) {
    const DrawPeak other{gpu::ShuffleXor(peak.logit, mask), gpu::ShuffleXor(peak.token, mask)};
    peak = Greater(peak, other);
  }
  return peak;
}
// By each warp.
FB_DEVICE DrawPeak PeakOfRow(const DrawPeak* peaks, int chunks) {
  DrawPeak peak{0, -1};
  for (int i = gpu::Lane(); i < chunks; i += gpu::kWarpLanes) peak = Greater(peak, peaks[i]);
  return GreatestOfLanes(peak, gpu::kWarpLanes / 2);
}

// What half a warp has of a row: lane i of it token i and every 16th behind.
struct HalfWarpChunk {
  int chunk, first, end;  // tokens; none where the row has no such chunk

  template <typename Params>
  FB_DEVICE explicit HalfWarpChunk(const Params& args)
      : chunk((gpu::BlockX() * gpu::Warps() + gpu::Warp()) * 2 + gpu::Lane() / kHalfWarp),
        first(chunk * kDrawChunk + gpu::Lane() % kHalfWarp),
        end(chunk * kDrawChunk + kDrawChunk < args.vocab ? chunk * kDrawChunk + kDrawChunk
                                                         : args.vocab) {}
  template <typename Params>
  FB_DEVICE bool Stores(const Params& args) const {
    return gpu::Lane() % kHalfWarp == 0 && chunk < args.chunks;
  }
};

// The chunk's peak, and the sum of its weights, for row `row` of the step.
template <typename Params>
FB_DEVICE void StorePeak(const Params& args, int32_t row) {
  const HalfWarpChunk part(args);
  const float* const logits = LogitsOf(args, row);
  DrawPeak peak{-FB_INFINITY, -1};
#pragma unroll 8
  for (int token = part.first; token < part.end; token += kHalfWarp) {
    const float x = gpu::Flush(logits[token]);
    if (IsNumber(x) && (peak.token < 0 || x > peak.logit)) peak = {x, token};
  }
  peak = GreatestOfLanes(peak, kHalfWarp / 2);
  if (part.Stores(args)) args.peaks[int64_t{gpu::BlockY()} * args.chunks + part.chunk] = peak;
}
template <typename Params>
FB_DEVICE void StoreSum(const Params& args, int32_t row, double scale) {
  const int64_t begin = int64_t{gpu::BlockY()} * args.chunks;
  const DrawPeak greatest = PeakOfRow(args.peaks + begin, args.chunks);
  if (greatest.token < 0 || greatest.logit == -FB_INFINITY) return;
  const float max = Finite(greatest.logit);
  const HalfWarpChunk part(args);
  const float* const logits = LogitsOf(args, row);
  double sum = 0;
#pragma unroll 4
  for (int token = part.first; token < part.end; token += kHalfWarp)
    sum = sum + WeightOf(Finite(gpu::Flush(logits[token])), max, scale);
  for (int half = kHalfWarp / 2; half > 0; half /= 2)
    sum = sum + gpu::Shuffle(sum, gpu::Lane() + half);
  if (part.Stores(args)) args.sums[begin + part.chunk] = sum;
}

// Logits of tokens that may be drawn: how many, the least and the greatest.
struct Span {
  int count = 0;
  float low = FB_INFINITY, high = -FB_INFINITY;

  FB_DEVICE void Add(float x) {
    ++count;
    low = x < low ? x : low;
    high = MaxOf(x, high);
  }
};

// By the block; all get it. `shared`: a value a warp.
template <typename T, typename Both>
FB_DEVICE T OverBlock(T value, T* shared, Both both) {
  for (int mask = 16; mask > 0; mask /= 2) value = both(value, gpu::ShuffleXor(value, mask));
  if (gpu::Lane() == 0) shared[gpu::Warp()] = value;
  gpu::Sync();
  value = shared[0];
  for (int warp = 1; warp < gpu::Warps(); ++warp) value = both(value, shared[warp]);
  gpu::Sync();
  return value;
}

// Falling logit, ties by rising id.
FB_DEVICE bool MoreLikely(float logit, int token, float other, int other_token) {
  return logit != other ? logit > other : token < other_token;
}

// A row's draw. All threads of the block call all functions.
class RowDraw {
 public:
  template <typename Params>
  FB_DEVICE RowDraw(const Params& args, const DrawRow& row, DrawShared* shared)
      : vocab_(args.vocab),
        chunks_(args.chunks),
        row_(row),
        shared_(*shared),
        running_(reinterpret_cast<double*>(shared + 1)),
        logits_(LogitsOf(args, row.row)),
        peaks_(args.peaks + int64_t{gpu::BlockX()} * args.chunks),
        sums_(args.sums + int64_t{gpu::BlockX()} * args.chunks) {}

  // kNothingDrawn if the logits are all NaN.
  FB_DEVICE int32_t Token() {
    const DrawPeak peak = PeakOfRow(peaks_, chunks_);
    if (peak.token < 0) return kNothingDrawn;
    if (peak.logit == -FB_INFINITY) return 0;
    if (!(row_.temperature > 0)) return peak.token;
    max_ = Finite(peak.logit);
    scale_ = 1.0 / static_cast<double>(row_.temperature);
    if (row_.top_p < 1.0f) {
      KeepTopP();
    } else if (WeighsAll(row_)) {
      return DrawAny();
    } else {
      SetFloor(kNoFloor);
      Collect();
    }
    return DrawKept();
  }

  // What the row's log probabilities follow from. `token`: kNothingDrawn where the row is all NaN.
  FB_DEVICE void Likely(int32_t token, int32_t top_k, LikelyHead* head, LikelyToken* tokens) {
    const DrawPeak peak = PeakOfRow(peaks_, chunks_);
    if (peak.token < 0) {
      if (gpu::Tid() == 0) head->token = kNothingDrawn;
      return;
    }
    const auto add = [](int a, int b) { return a + b; };
    const int count = MostLikely(top_k < vocab_ ? top_k : vocab_);
    int place = 0;
    if (gpu::Tid() < count) {
      const DrawCandidate& mine = shared_.pool[gpu::Tid()];
      tokens[gpu::Tid()] = {mine.token, mine.logit};
      if (mine.token == token) place = gpu::Tid() + 1;
    }
    place = OverBlock(place, shared_.integers, add) - 1;
    const float logit = Logit(token);
    const int greater = place < 0 ? Count([&](float x, int) { return x > logit; }) : 0;
    const double sum = peak.logit == -FB_INFINITY ? 0.0 : SumOfChunks();
    if (gpu::Tid() == 0) *head = {sum, Finite(peak.logit), logit, token, greater, place, count};
  }

 private:
  template <typename Is>
  FB_DEVICE int Count(Is is) {
    int mine = 0;
    ForEach([&](float x, int token) { mine += is(x, token) ? 1 : 0; });
    return OverBlock(mine, shared_.integers, [](int a, int b) { return a + b; });
  }
  // The most likely tokens in the pool, the likeliest first; returns their number. The row itself
  // is what passes go over behind. REQUIRES: k <= kDrawPool.
  FB_DEVICE int MostLikely(int k) {
    if (k == 0) return 0;
    const float kth = KthLargest(k);
    const bool sorted = pooled_ >= 0;
    pooled_ = -1;
    if (sorted) return k;
    // Many are as likely as the k-th, or fewer than k are above -infinity: of equal ones, those up
    // to some token.
    const int left = k - Count([&](float x, int) { return x > kth; });
    int last = 0;
    for (int above = vocab_ - 1; last < above;) {
      const int middle = last + (above - last) / 2;
      const bool enough =
          Count([&](float x, int token) { return x == kth && token <= middle; }) >= left;
      if (enough) {
        above = middle;
      } else {
        last = middle + 1;
      }
    }
    FillPool(
        [&](float x, int token) { return x > kth || (x == kth && token <= last) ? 1.0 : 0.0; });
    SortByLikelihood(k);
    return k;
  }

  FB_DEVICE float Logit(int token) const {
    const float x = gpu::Flush(logits_[token]);
    return IsNumber(x) ? Finite(x) : -FB_INFINITY;
  }
  FB_DEVICE float Peak(int chunk) const {
    const DrawPeak peak = peaks_[chunk];
    return peak.token < 0 ? -FB_INFINITY : Finite(peak.logit);
  }
  // 0: it may not be drawn.
  FB_DEVICE double Weight(float x) const {
    if (!(static_cast<double>(x) >= lowest_)) return 0;
    const double weight = WeightOf(x, max_, scale_);
    return weight >= static_cast<double>(row_.min_p) ? weight : 0;
  }
  // A logit below which no weight is above `weight` (sample/sampler.cc).
  FB_DEVICE double LogitFloor(double weight) const {
    return weight > 0 ? static_cast<double>(max_) + (base::Log(weight) - 1e-6) / scale_ : kNoFloor;
  }

  // Which tokens min_p, top_k and a floor leave; passes go over the row again.
  FB_DEVICE void SetFloor(double floor) {
    pooled_ = -1;
    const double of_min_p = LogitFloor(static_cast<double>(row_.min_p));
    lowest_ = floor > of_min_p ? floor : of_min_p;
    if (row_.top_k <= 0 || row_.top_k >= vocab_) return;
    const double of_top_k = static_cast<double>(KthLargest(row_.top_k));
    lowest_ = of_top_k > lowest_ ? of_top_k : lowest_;
  }

  // visit(logit, token) by all threads: of the pool, where it stands for the row, else of the row.
  // The pool may be rewritten meanwhile.
  template <typename Visit>
  FB_DEVICE void ForEach(Visit visit) {
    if (pooled_ >= 0) {
      const bool there = gpu::Tid() < pooled_;
      DrawCandidate mine{};
      if (there) mine = shared_.pool[gpu::Tid()];
      gpu::Sync();
      if (there) visit(mine.logit, mine.token);
      return;
    }
    constexpr int kAhead = 8;
    for (int first = gpu::Tid(); first < vocab_; first += kAhead * gpu::Threads()) {
      float x[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const int token = first + i * gpu::Threads();
        x[i] = token < vocab_ ? Logit(token) : -FB_INFINITY;
      }
#pragma unroll
      for (int i = 0; i < kAhead; ++i) visit(x[i], first + i * gpu::Threads());
    }
  }
  // Puts tokens for which weigh(logit, token) is above 0 into the pool, in no order, as far as
  // there is room; returns their number.
  template <typename Weigh>
  FB_DEVICE int FillPool(Weigh weigh) {
    if (gpu::Tid() == 0) shared_.count = 0;
    gpu::Sync();
    ForEach([&](float x, int token) {
      const double weight = weigh(x, token);
      if (!(weight > 0)) return;
      const int at = gpu::AtomicAdd(&shared_.count, 1);
      if (at < kDrawPool) shared_.pool[at] = {weight, x, token};
    });
    gpu::Sync();
    const int count = shared_.count;
    gpu::Sync();
    return count;
  }
  template <typename Before>
  FB_DEVICE void SortPool(int count, Before before) {
    const bool there = gpu::Tid() < count;
    DrawCandidate mine{};
    int place = 0;
    if (there) mine = shared_.pool[gpu::Tid()];
    for (int i = 0; there && i < count; ++i) place += before(shared_.pool[i], mine) ? 1 : 0;
    gpu::Sync();
    if (there) shared_.pool[place] = mine;
    gpu::Sync();
  }
  FB_DEVICE void SortByToken(int count) {
    SortPool(count,
             [](const DrawCandidate& a, const DrawCandidate& b) { return a.token < b.token; });
  }
  FB_DEVICE void SortByLikelihood(int count) {
    SortPool(count, [](const DrawCandidate& a, const DrawCandidate& b) {
      return MoreLikely(a.logit, a.token, b.logit, b.token);
    });
  }
  // Lets the pool stand for the row if the tokens that may be drawn fit.
  FB_DEVICE void Collect() {
    const int count = FillPool([&](float x, int) { return Weight(x); });
    pooled_ = count <= kDrawPool ? count : -1;
    if (pooled_ >= 0) SortByToken(count);
  }

  // The k-th largest logit, -inf if fewer are above it. Leaves in the pool all tokens that are at
  // least as likely, where they fit.
  FB_DEVICE float KthLargest(int k) {
    // That of the chunks' peaks is a lower bound.
    float bound = -FB_INFINITY;
    if (k <= chunks_) {
      for (int i = gpu::Tid(); i < chunks_; i += gpu::Threads()) {
        int place = 0;
        for (int other = 0; other < chunks_; ++other)
          place += MoreLikely(Peak(other), other, Peak(i), i) ? 1 : 0;
        if (place == k - 1) shared_.logit = Peak(i);
      }
      gpu::Sync();
      bound = shared_.logit;
    }
    const int count =
        FillPool([&](float x, int) { return x >= bound && x > -FB_INFINITY ? 1.0 : 0.0; });
    if (count < k) return -FB_INFINITY;
    if (count > kDrawPool) return KthByDigits(k, bound);
    SortByLikelihood(count);
    pooled_ = count;
    return shared_.pool[k - 1].logit;
  }
  // The same digit by digit. REQUIRES: k logits are at least `bound` and above -inf.
  FB_DEVICE float KthByDigits(int k, float bound) {
    uint32_t prefix = 0;
    for (int shift = 24; shift >= 0; shift -= 8) {
      for (int i = gpu::Tid(); i < 256; i += gpu::Threads()) shared_.counts[i] = 0;
      gpu::Sync();
      ForEach([&](float x, int) {
        if (!(x >= bound && x > -FB_INFINITY)) return;
        const uint32_t key = KeyOf(x);
        if (shift == 24 || key >> (shift + 8) == prefix)
          gpu::AtomicAdd(&shared_.counts[key >> shift & 255], 1);
      });
      gpu::Sync();
      int digit = 255;
      for (; k > shared_.counts[digit]; --digit) k -= shared_.counts[digit];
      prefix = prefix << 8 | static_cast<uint32_t>(digit);
      gpu::Sync();
    }
    return gpu::FromBits((prefix & 0x80000000u) != 0 ? prefix & 0x7FFFFFFFu : ~prefix);
  }
  // Rises with x.
  FB_DEVICE static uint32_t KeyOf(float x) {
    const uint32_t bits = gpu::Bits(x);
    return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  }

  FB_DEVICE int Chunks() const { return pooled_ >= 0 ? 1 : chunks_; }
  // What weigh(logit, weight, token) gives for the tokens of a chunk that may be drawn, else 0.
  template <typename Weigh>
  FB_DEVICE void Stage(int chunk, double* staged, Weigh weigh) {
    for (int i = gpu::Tid(); i < kDrawChunk; i += gpu::Threads()) {
      double value = 0;
      if (pooled_ >= 0) {
        if (i < pooled_) {
          const DrawCandidate& of = shared_.pool[i];
          value = weigh(of.logit, of.weight, of.token);
        }
      } else if (const int token = chunk * kDrawChunk + i; token < vocab_) {
        const float x = Logit(token);
        const double weight = Weight(x);
        if (weight > 0) value = weigh(x, weight, token);
      }
      staged[i] = value;
    }
  }
  // The sum of weigh(..) over the tokens that may be drawn, one after the other in ascending id,
  // begun with `sum`. running_[c]: what it is behind chunk c.
  template <typename Weigh>
  FB_DEVICE double SumInOrder(double sum, Weigh weigh) {
    int side = 0;
    for (int chunk = 0; chunk < Chunks(); ++chunk) {
      if (pooled_ >= 0 || static_cast<double>(Peak(chunk)) >= lowest_) {
        // Warp 0 adds one side while the others write the next.
        side ^= 1;
        Stage(chunk, shared_.weights[side], weigh);
        gpu::Sync();
        if (gpu::Warp() == 0) sum = AddStaged(shared_.weights[side], sum);
      }
      if (gpu::Tid() == 0) running_[chunk] = sum;
    }
    if (gpu::Tid() == 0) shared_.sum = sum;
    gpu::Sync();
    sum = shared_.sum;
    gpu::Sync();
    return sum;
  }
  FB_DEVICE static double AddStaged(const double* staged, double sum) {
    for (int first = 0; first < kDrawChunk; first += gpu::kWarpLanes) {
      if (gpu::Ballot(staged[first + gpu::Lane()] > 0) == 0) continue;
#pragma unroll
      for (int i = 0; i < gpu::kWarpLanes; ++i) sum = sum + staged[first + i];
    }
    return sum;
  }
  // The first token behind which the sum of the last SumInOrder is above `target`; -1: none.
  template <typename Weigh>
  FB_DEVICE int32_t FindInOrder(double target, Weigh weigh) {
    if (gpu::Tid() == 0) shared_.index = -1;
    gpu::Sync();
    for (int i = gpu::Tid(); i < Chunks(); i += gpu::Threads()) {
      if (running_[i] > target && !(i > 0 && running_[i - 1] > target)) shared_.index = i;
    }
    gpu::Sync();
    const int chunk = shared_.index;
    gpu::Sync();
    if (chunk < 0) return -1;
    return FindInChunk(chunk, chunk > 0 ? running_[chunk - 1] : 0, target, weigh);
  }
  // The first token of the chunk behind which the sum, begun with `sum`, is above `target`; else
  // the last with a weight, else the chunk's first.
  template <typename Weigh>
  FB_DEVICE int32_t FindInChunk(int chunk, double sum, double target, Weigh weigh) {
    const double* const staged = shared_.weights[0];
    Stage(chunk, shared_.weights[0], weigh);
    gpu::Sync();
    if (gpu::Warp() == 0) {
      int last = 0;
      bool found = false;
      for (int first = 0; first < kDrawChunk && !found; first += gpu::kWarpLanes) {
        if (gpu::Ballot(staged[first + gpu::Lane()] > 0) == 0) continue;
        for (int i = first; i < first + gpu::kWarpLanes && !found; ++i) {
          if (staged[i] == 0) continue;
          last = i;
          sum = sum + staged[i];
          found = sum > target;
        }
      }
      if (gpu::Lane() == 0) shared_.index = last;
    }
    gpu::Sync();
    const int index = shared_.index;
    gpu::Sync();
    return pooled_ >= 0 ? shared_.pool[index].token : chunk * kDrawChunk + index;
  }

  FB_DEVICE Span OfBlock(const Span& span) {
    const auto add = [](int a, int b) { return a + b; };
    const auto less = [](float a, float b) { return a < b ? a : b; };
    const auto more = [](float a, float b) { return a > b ? a : b; };
    Span whole;
    whole.count = OverBlock(span.count, shared_.integers, add);
    whole.low = OverBlock(span.low, shared_.floats, less);
    whole.high = OverBlock(span.high, shared_.floats, more);
    return whole;
  }
  // The sum of the weights of what may be drawn.
  FB_DEVICE double Gather(Span* span) {
    Collect();
    Span mine;
    const double sum = SumInOrder(0, [&](float x, double weight, int) {
      mine.Add(x);
      return weight;
    });
    *span = OfBlock(mine);
    return sum;
  }

  // sample/sampler.cc's, where candidates are looked at one by one.
  FB_DEVICE void KeepTopP() {
    const double share = 1.0 - static_cast<double>(row_.top_p);
    double dropped = 0, limit = 0;
    Span kept;
    if (!WeighsAll(row_)) {
      SetFloor(kNoFloor);
      limit = share * Gather(&kept);
    } else {
      const double total = SumOfChunks();
      limit = share * total;
      const double least = limit / static_cast<double>(vocab_);
      for (double weight = 4096 * least; weight >= least; weight = weight / 16) {
        SetFloor(LogitFloor(weight < 1.0 ? weight : 1.0));
        const double left = total - Gather(&kept);
        dropped = left > 0 ? left : 0;
        if (dropped <= limit) break;
      }
    }
    DropTail(dropped, limit, kept);
  }
  // Drops the least likely tokens of `pool`, which is all that may be drawn, while their sum with
  // `dropped` is at most `limit` (sample/select.h).
  FB_DEVICE void DropTail(double dropped, double limit, Span pool) {
    float above = -FB_INFINITY, upto = FB_INFINITY;
    while (pool.count > kDrawPool) {
      const float middle = pool.low + (pool.high - pool.low) * 0.5f;
      if (!(middle < pool.high)) break;
      Span lower, upper;
      const double sum = SumInOrder(dropped, [&](float x, double weight, int) {
        if (!(x > above && x <= upto)) return 0.0;
        (x <= middle ? lower : upper).Add(x);
        return x <= middle ? weight : 0.0;
      });
      if (sum <= limit) {
        dropped = sum;
        above = middle;
        pool = OfBlock(upper);
      } else {
        upto = middle;
        pool = OfBlock(lower);
      }
    }
    if (pool.count > kDrawPool) {
      DropEqual(dropped, limit, pool);
    } else {
      if (pooled_ < 0)
        FillPool([&](float x, int) { return x > above && x <= upto ? Weight(x) : 0.0; });
      SortByLikelihood(pool.count);
      int left = pool.count;
      while (left > 1 && dropped + shared_.pool[left - 1].weight <= limit)
        dropped = dropped + shared_.pool[--left].weight;
      border_ = shared_.pool[left - 1].logit;
      border_token_ = shared_.pool[left - 1].token;
      gpu::Sync();
      if (pooled_ >= 0) SortByToken(pool.count);
    }
    if (static_cast<double>(border_) > lowest_) lowest_ = static_cast<double>(border_);
    Collect();
  }
  // The same of more tokens than can be sorted, which have no logit between the least and the
  // greatest.
  FB_DEVICE void DropEqual(double dropped, double limit, const Span& pool) {
    int left = pool.count;
    const float values[] = {pool.low, pool.high};
    for (const float value : values) {
      const auto one = [&](float x, double, int) { return x == value ? 1.0 : 0.0; };
      const int count = static_cast<int>(SumInOrder(0, one));
      const double weight = WeightOf(value, max_, scale_);
      int gone = 0;
      for (; left > 1 && gone < count && dropped + weight <= limit; ++gone, --left)
        dropped = dropped + weight;
      if (gone == count) continue;
      border_ = value;
      border_token_ = FindInOrder(static_cast<double>(count - gone - 1), one);
      return;
    }
  }

  // The draw from what may be drawn and is no less likely than the border.
  FB_DEVICE int32_t DrawKept() {
    int last = -1;
    const auto kept = [&](float x, double weight, int token) {
      if (MoreLikely(border_, border_token_, x, token)) return 0.0;
      last = token > last ? token : last;
      return weight;
    };
    const double total = SumInOrder(0, kept);
    const int greatest =
        OverBlock(last, shared_.integers, [](int a, int b) { return a > b ? a : b; });
    const int32_t token = FindInOrder(row_.unit * total, kept);
    return token >= 0 ? token : greatest;
  }
  // The sum of the weights of all tokens; running_ are the chunks' own.
  FB_DEVICE double SumOfChunks() {
    for (int i = gpu::Tid(); i < chunks_; i += gpu::Threads()) running_[i] = sums_[i];
    gpu::Sync();
    double total = 0;
    for (int i = 0; i < chunks_; ++i) total = total + running_[i];
    gpu::Sync();
    return total;
  }
  FB_DEVICE int32_t DrawAny() {
    const double target = row_.unit * SumOfChunks();
    double before = 0;
    int chunk = 0;
    for (; chunk + 1 < chunks_ && before + running_[chunk] <= target; ++chunk)
      before = before + running_[chunk];
    return FindInChunk(chunk, before, target, [](float, double weight, int) { return weight; });
  }

  const int32_t vocab_, chunks_;
  const DrawRow row_;
  DrawShared& shared_;
  double* const running_;  // [chunks]
  const float* const logits_;
  const DrawPeak* const peaks_;
  const double* const sums_;
  float max_ = 0;
  double scale_ = 1;
  double lowest_ = kNoFloor;  // logits below may not be drawn
  int pooled_ = -1;           // tokens of the pool that stand for the row; -1: the row itself does
  // The least likely token that top_p keeps.
  float border_ = -FB_INFINITY;
  int32_t border_token_ = 0;
};

}  // namespace

FB_KERNEL(pair_draw_peaks, DrawParams, kRowThreads) {
  StorePeak(args, args.draws[gpu::BlockY()].row);
}

FB_KERNEL(pair_draw_sums, DrawParams, kRowThreads) {
  const DrawRow row = Flushed(args.draws[gpu::BlockY()]);
  if (WeighsAll(row)) StoreSum(args, row.row, 1.0 / static_cast<double>(row.temperature));
}

FB_KERNEL(pair_draw, DrawParams, kDrawThreads, 1) {
  FB_SHARED(DrawShared, shared);
  const DrawRow row = Flushed(args.draws[gpu::BlockX()]);
  const int32_t token = RowDraw(args, row, shared).Token();
  if (gpu::Tid() != 0) return;
  args.drawn[gpu::BlockX()] = token;
  if (token != kNothingDrawn) args.sampled[row.sequence] = token;
}

FB_KERNEL(pair_likely_peaks, LikelyParams, kRowThreads) {
  StorePeak(args, args.rows[gpu::BlockY()].row);
}

FB_KERNEL(pair_likely_sums, LikelyParams, kRowThreads) {
  StoreSum(args, args.rows[gpu::BlockY()].row, 1.0);
}

FB_KERNEL(pair_likely, LikelyParams, kDrawThreads, 1) {
  FB_SHARED(DrawShared, shared);
  const LikelyRow row = args.rows[gpu::BlockX()];
  const int32_t token = row.token >= 0 ? row.token : args.drawn[~row.token];
  RowDraw(args, {.row = row.row}, shared)
      .Likely(token, row.top_k, args.heads + gpu::BlockX(), args.tokens + row.tokens);
}

}  // namespace forebay::kernels::cuda
