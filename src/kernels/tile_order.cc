#include "kernels/tile_order.h"

#include <xmmintrin.h>

#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "kernels/cpu/trial_bits.h"
#include "kernels/linear_sets.h"
#include "kernels/tile_attention.h"

namespace forebay::kernels {
namespace {

struct Free {
  void operator()(std::byte* memory) const { ::operator delete[](memory, std::align_val_t{64}); }
};
using Aligned = std::unique_ptr<std::byte[], Free>;
Aligned Allocate(size_t bytes) { return Aligned(new (std::align_val_t{64}) std::byte[bytes]); }

struct OneWorker : device::WorkerContext {
  OneWorker() : memory(Allocate(1 << 20)) {
    scratch = memory.get();
    scratch_bytes = 1 << 20;
    ticket = &tickets;
  }
  void Barrier() const override {}

  Aligned memory;
  std::atomic<int64_t> tickets{0};
};

// Two panels in two leaves, the second with a tail, for so many rows of x.
class Trial {
 public:
  Trial(TrialKind kind, int rows, TrialBits& bits)
      : rows_(rows), x_(rows * kDepth / 2), weights_(Allocate(kWeightBytes)) {
    for (uint32_t& pair : x_) pair = bits.Next(kind);
    for (int64_t at = 0; at < kWeightBytes; at += 4) {
      const uint32_t pair = bits.Next(kind);
      std::memcpy(weights_.get() + at, &pair, 4);
    }
  }

  std::vector<float> Run(LinearFunction linear) const {
    constexpr int kColumns = kPanels * kPanelColumns;
    std::vector<float> y(rows_ * kColumns);
    const Aligned workspace = Allocate(LinearWorkspaceBytes(tensor::DType::kBF16, rows_, kDepth));
    const std::byte* const second = weights_.get() + kPanels * kFirstLeaf / 2 * kPairBytes;
    const std::byte* const tiles[] = {weights_.get(), weights_.get() + kFirstLeaf / 2 * kPairBytes,
                                      second, second + (kDepth - kFirstLeaf) / 2 * kPairBytes};
    const PanelColumns panels[] = {{0, kPanelColumns}, {kPanelColumns, kPanelColumns}};
    LinearArgs args;
    args.weight = {.k = kDepth,
                   .n = kColumns,
                   .num_panels = kPanels,
                   .leaves = {2, {0, kFirstLeaf, kDepth}},
                   .tiles = tiles,
                   .panels = panels};
    args.x = reinterpret_cast<const std::byte*>(x_.data());
    args.y = reinterpret_cast<std::byte*>(y.data());
    args.x_stride = kDepth;
    args.y_stride = kColumns;
    args.rows = rows_;
    args.output = LinearOutput::kF32;
    args.leaf_end = 2;
    args.workspace = workspace.get();
    linear(args, OneWorker());
    return y;
  }

 private:
  static constexpr int kPanels = 2, kFirstLeaf = 2 * kTileDepth,
                       kDepth = kFirstLeaf + 3 * kTileDepth + 6;
  static constexpr int64_t kPairBytes = kPanelColumns * 4,
                           kWeightBytes = kPanels * kDepth / 2 * kPairBytes;

  int rows_;
  std::vector<uint32_t> x_;
  Aligned weights_;  // [leaf][panel][pair][column][2]
};

// FTZ and DAZ while it lives.
class FlushDenormals {
 public:
  FlushDenormals() : saved_(_mm_getcsr()) { _mm_setcsr(saved_ | 0x8040u); }
  ~FlushDenormals() { _mm_setcsr(saved_); }
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
  const unsigned saved_;
};

bool Same(const std::vector<float>& a, const std::vector<float>& b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace

const char* NumericsClassOf(TileOrder order) {
  switch (order) {
    case TileOrder::kSplit: return "amx_split";
    case TileOrder::kEvenFirst: return "amx_even";
    case TileOrder::kOddFirst: return "amx_odd";
    case TileOrder::kUnknown: break;
  }
  return "";
}

const char* PartClassOf(TileOrder order) {
  switch (order) {
    case TileOrder::kSplit: return "amx_split_p1024";
    case TileOrder::kEvenFirst: return "amx_even_p1024";
    case TileOrder::kOddFirst: return "amx_odd_p1024";
    case TileOrder::kUnknown: break;
  }
  return "";
}

TileOrder FindTileOrder(LinearFunction linear) {
  const FlushDenormals flush;
  std::vector<TileOrder> fit(std::begin(kTileOrders), std::end(kTileOrders));
  TrialBits bits;
  for (int kind = 0; kind < kTrialKinds; ++kind) {
    for (const int rows : {5, 33}) {  // a short row tile; two row tiles and one that is filled up
      const Trial trial(static_cast<TrialKind>(kind), rows, bits);
      const std::vector<float> found = trial.Run(linear);
      std::erase_if(
          fit, [&](TileOrder order) { return !Same(trial.Run(ref::TileLinear(order)), found); });
    }
  }
  return fit.empty() ? TileOrder::kUnknown : fit.front();
}

}  // namespace forebay::kernels
