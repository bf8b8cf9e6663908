// The emulation itself: kernels with and without planted faults. A kernel without one gives the
// same bytes under every schedule; a fault shows as other bytes or is named.
#include "kernels/cuda/emulation/grid.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "base/rng.h"
#include "kernels/cuda/emulation/tensor_core.h"
#include "kernels/cuda/wgmma.h"
#include "tensor/bf16.h"

namespace forebay::kernels::cuda {
namespace {

using gpu::Bar;
using gpu::emulation::Grid;
using gpu::emulation::RunGrid;
using ::testing::HasSubstr;

constexpr int kSchedules = 24, kChunk = 8192, kTile = 64;

enum class Planted {
  kNone,
  kMissingBarrier,
  kReleasedEarly,
  kWrongParity,
  kOneWarpForFour,
  kWrongBytes,
  kRegistersReused,
  kBlockLeavesEarly
};

// y = x w^T, one tile of 64 x 64: a producer, a ring of two stages, one warpgroup of wgmma.
struct RingParams {
  const std::byte* x;  // packed chunks, see hopper.h
  const std::byte* w;
  float* y;  // [64, 64]
  int chunks;
  Planted planted;
};
FB_KERNEL(ring, RingParams, 160) {
  constexpr int kStages = 2, kStage = 2 * kChunk;
  FB_SHARED(std::byte, shared);
  Bar* const full = reinterpret_cast<Bar*>(shared + kStages * kStage);
  Bar* const empty = full + kStages;
  if (gpu::Tid() == 0) {
    for (int s = 0; s < kStages; ++s) {
      gpu::BarInit(full + s, 1);
      gpu::BarInit(empty + s, 4);
    }
    gpu::BarFence();
  }
  gpu::Sync();
  if (gpu::Warp() == 4) {
    if (gpu::Lane() != 0) return;
    for (int k = 0; k < args.chunks; ++k) {
      const int s = k % kStages;
      const int lap = args.planted == Planted::kWrongParity ? k / kStages : k / kStages - 1;
      if (k >= kStages) gpu::BarWait(empty + s, lap & 1);
      gpu::BarExpect(full + s, args.planted == Planted::kWrongBytes ? kStage - 16 : kStage);
      gpu::BulkCopy(shared + s * kStage, args.x + k * kChunk, kChunk, full + s);
      gpu::BulkCopy(shared + s * kStage + kChunk, args.w + k * kChunk, kChunk, full + s);
    }
    return;
  }
  float c[kTile / 2];
  for (int k = 0; k < args.chunks; ++k) {
    const int s = k % kStages;
    gpu::BarWait(full + s, k / kStages & 1);
    const bool early = args.planted == Planted::kReleasedEarly;
    if (early && gpu::Lane() == 0) gpu::BarArrive(empty + s);
    gpu::WgmmaFence();
    const uint32_t a = gpu::Smem(shared + s * kStage), b = a + kChunk;
    for (int step = 0; step < 4; ++step) {
      gpu::Wgmma<kTile>::Shared<false>(c, gpu::OperandAlongK(a + static_cast<uint32_t>(step * 32)),
                                       gpu::OperandAlongK(b + static_cast<uint32_t>(step * 32)),
                                       k > 0 || step > 0);
    }
    gpu::WgmmaCommit();
    gpu::WgmmaWait<0>();
    const bool arrives = args.planted == Planted::kOneWarpForFour ? gpu::Warp() == 0 : true;
    if (!early && gpu::Lane() == 0 && arrives) {
      for (int i = 0; i < (args.planted == Planted::kOneWarpForFour ? 4 : 1); ++i)
        gpu::BarArrive(empty + s);
    }
  }
  for (int i = 0; i < kTile / 2; ++i) {
    const int row = gpu::Warp() * 16 + gpu::Lane() / 4 + i / 2 % 2 * 8;
    args.y[row * kTile + i / 4 * 8 + gpu::Lane() % 4 * 2 + i % 2] = c[i];
  }
}

uint16_t RandomBF16(base::Rng& rng) {
  return tensor::ToBF16(static_cast<float>(rng.Uniform() * 2 - 1)).bits;
}

struct Product {
  explicit Product(int chunks) : x(chunks * kChunk / 2), w(x.size()), expected(kTile * kTile) {
    base::Rng rng(5);
    for (uint16_t& value : x) value = RandomBF16(rng);
    for (uint16_t& value : w) value = RandomBF16(rng);
    for (int row = 0; row < kTile; ++row) {
      for (int column = 0; column < kTile; ++column) {
        float& sum = expected[static_cast<size_t>(row * kTile + column)];
        for (int k = 0; k < chunks * kTile; k += 16) {
          uint16_t a[16], b[16];
          for (int i = 0; i < 16; ++i) {
            a[i] = x[At(row, k + i)];
            b[i] = w[At(column, k + i)];
          }
          sum = gpu::emulation::TensorCoreStep(a, b, sum);
        }
      }
    }
  }
  static size_t At(int row, int k) {
    return static_cast<size_t>(k / 64 * kChunk + row / 8 * 1024 + row % 8 * 128 +
                               ((k % 64 * 2) ^ (row % 8 * 16))) /
           2;
  }
  std::vector<uint16_t> x, w;
  std::vector<float> expected;
};

struct Outcome {
  int equal = 0, differ = 0, faults = 0;
  std::string fault;  // the last one
};

// Runs `launch(seed, y)` under many schedules.
template <typename Launch>
Outcome RunSchedules(const std::vector<float>& expected, Launch launch) {
  Outcome outcome;
  for (uint64_t seed = 0; seed < kSchedules; ++seed) {
    std::vector<float> y(expected.size(), -1.0f);
    const base::Status status = launch(seed, y.data());
    if (!status.ok()) {
      ++outcome.faults;
      outcome.fault = status.message();
    } else if (std::memcmp(y.data(), expected.data(), y.size() * sizeof(float)) == 0) {
      ++outcome.equal;
    } else {
      ++outcome.differ;
    }
  }
  return outcome;
}

Outcome RunRing(Planted planted) {
  constexpr int kChunks = 5;
  static const Product product(kChunks);
  return RunSchedules(product.expected, [&](uint64_t seed, float* y) {
    const RingParams params{reinterpret_cast<const std::byte*>(product.x.data()),
                            reinterpret_cast<const std::byte*>(product.w.data()), y, kChunks,
                            planted};
    return RunGrid(&fb_emulated_ring, &params, sizeof params,
                   {.threads = 160, .shared_bytes = 4 * kChunk + 32, .seed = seed});
  });
}

TEST(Emulation, RingOfBulkCopiesAndWgmma) {
  const Outcome outcome = RunRing(Planted::kNone);
  EXPECT_EQ(outcome.equal, kSchedules) << outcome.fault;
}

TEST(Emulation, FindsAStageThatIsReleasedEarly) {
  EXPECT_GT(RunRing(Planted::kReleasedEarly).differ, 0);
}

TEST(Emulation, FindsAWrongParity) {
  const Outcome outcome = RunRing(Planted::kWrongParity);
  EXPECT_LT(outcome.equal, kSchedules);
}

TEST(Emulation, FindsOneWarpThatArrivesForFour) {
  const Outcome outcome = RunRing(Planted::kOneWarpForFour);
  EXPECT_GT(outcome.differ + outcome.faults, 0);
}

TEST(Emulation, NamesWhereThreadsWaitForEver) {
  const Outcome outcome = RunRing(Planted::kWrongBytes);
  EXPECT_EQ(outcome.faults, kSchedules);
  for (const char* part : {"wait for ever", "threads 0 to 127: BarWait at grid_test.cc",
                           "0 of 1 arrivals and -16 bytes", "threads 129 to 159: ended"}) {
    EXPECT_THAT(outcome.fault, HasSubstr(part));
  }
}

// Each thread reads what its neighbour has copied, stage after stage.
struct NeighbourParams {
  const float* x;  // [stages, threads, 4]
  float* y;        // [threads]
  int stages;
  Planted planted;
};
FB_KERNEL(neighbours, NeighbourParams, 128) {
  FB_SHARED(float, stage);
  float sum = 0;
  for (int s = 0; s < args.stages; ++s) {
    gpu::CopyAsync16(stage + gpu::Tid() * 4, args.x + (s * gpu::Threads() + gpu::Tid()) * 4, true);
    gpu::CommitCopies();
    gpu::WaitCopies<0>();
    gpu::Sync();
    sum = gpu::Fma(sum, 2.0f, stage[(gpu::Tid() + 37) % gpu::Threads() * 4]);
    if (args.planted != Planted::kMissingBarrier) gpu::Sync();
  }
  args.y[gpu::Tid()] = sum;
}

Outcome RunNeighbours(Planted planted) {
  constexpr int kStages = 6, kThreads = 128;
  std::vector<float> x(kStages * kThreads * 4), expected(kThreads);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 251);
  for (int s = 0; s < kStages; ++s) {
    for (int t = 0; t < kThreads; ++t) {
      expected[static_cast<size_t>(t)] =
          expected[static_cast<size_t>(t)] * 2 +
          x[static_cast<size_t>((s * kThreads + (t + 37) % kThreads) * 4)];
    }
  }
  return RunSchedules(expected, [&](uint64_t seed, float* y) {
    const NeighbourParams params{x.data(), y, kStages, planted};
    return RunGrid(&fb_emulated_neighbours, &params, sizeof params,
                   {.threads = kThreads, .shared_bytes = kThreads * 16, .seed = seed});
  });
}

TEST(Emulation, FindsAMissingBarrier) {
  EXPECT_EQ(RunNeighbours(Planted::kNone).equal, kSchedules);
  EXPECT_GT(RunNeighbours(Planted::kMissingBarrier).differ, kSchedules / 2);
}

// One step with A in registers, which belong to it until its wait.
struct RegistersParams {
  const std::byte* x;
  const std::byte* w;
  float* y;
  Planted planted;
};
FB_KERNEL(from_registers, RegistersParams, 128) {
  FB_SHARED(std::byte, shared);
  for (int i = gpu::Tid(); i < kChunk; i += gpu::Threads()) {
    shared[i] = args.x[i];
    shared[kChunk + i] = args.w[i];
  }
  gpu::ProxyFence();
  gpu::Sync();
  float c[kTile / 2];
  const uint32_t x = gpu::Smem(shared), b = x + kChunk;
  uint32_t a[4];
  for (int step = 0; step < 4; ++step) {
    const int row = gpu::Warp() * 16 + gpu::Lane() % 16, half = gpu::Lane() / 16;
    gpu::LoadMatrix4(a, x + static_cast<uint32_t>(row / 8 * 1024 + row % 8 * 128 +
                                                  ((step * 32 + half * 16) ^ (row % 8 * 16))));
    gpu::WgmmaFence();
    gpu::Wgmma<kTile>::Registers<false>(
        c, a, gpu::OperandAlongK(b + static_cast<uint32_t>(step * 32)), step > 0);
    gpu::WgmmaCommit();
    if (args.planted == Planted::kRegistersReused) a[0] = 0;
    gpu::WgmmaWait<0>();
    gpu::KeepRegisters(a);
  }
  for (int i = 0; i < kTile / 2; ++i) {
    const int row = gpu::Warp() * 16 + gpu::Lane() / 4 + i / 2 % 2 * 8;
    args.y[row * kTile + i / 4 * 8 + gpu::Lane() % 4 * 2 + i % 2] = c[i];
  }
}

Outcome RunFromRegisters(Planted planted) {
  static const Product product(1);
  return RunSchedules(product.expected, [&](uint64_t seed, float* y) {
    const RegistersParams params{reinterpret_cast<const std::byte*>(product.x.data()),
                                 reinterpret_cast<const std::byte*>(product.w.data()), y, planted};
    return RunGrid(&fb_emulated_from_registers, &params, sizeof params,
                   {.threads = 128, .shared_bytes = 2 * kChunk, .seed = seed});
  });
}

TEST(Emulation, FindsRegistersThatAreUsedAgainBeforeTheWait) {
  EXPECT_EQ(RunFromRegisters(Planted::kNone).equal, kSchedules);
  EXPECT_EQ(RunFromRegisters(Planted::kRegistersReused).equal, 0);
}

// Blocks of a cluster arrive at each other's barrier; the last to do so must find the other there.
struct ClusterParams {
  float* y;  // [blocks]
  Planted planted;
};
FB_KERNEL(cluster_pair, ClusterParams, 32) {
  FB_SHARED(Bar, bar);
  const int other = gpu::ClusterRank() ^ 1;
  if (gpu::Tid() == 0) {
    gpu::BarInit(bar, 1);
    gpu::BarFence();
  }
  gpu::Sync();
  gpu::ClusterSync();
  if (gpu::Tid() == 0) {
    if (gpu::ClusterRank() == 0) gpu::BarWait(bar, 0);
    args.y[gpu::BlockX()] = static_cast<float>(gpu::BlockX());
    gpu::BarArriveAt(bar, other);
  }
  if (args.planted != Planted::kBlockLeavesEarly) gpu::ClusterSync();
}

Outcome RunCluster(Planted planted) {
  const std::vector<float> expected = {0, 1, 2, 3};
  return RunSchedules(expected, [&](uint64_t seed, float* y) {
    const ClusterParams params{y, planted};
    return RunGrid(
        &fb_emulated_cluster_pair, &params, sizeof params,
        {.blocks = {4, 1, 1}, .threads = 32, .cluster_blocks = 2, .shared_bytes = 8, .seed = seed});
  });
}

TEST(Emulation, FindsABlockOfAClusterThatLeavesEarly) {
  const Outcome good = RunCluster(Planted::kNone);
  EXPECT_EQ(good.equal, kSchedules) << good.fault;
  const Outcome bad = RunCluster(Planted::kBlockLeavesEarly);
  EXPECT_GT(bad.faults, 0);
  EXPECT_THAT(bad.fault, HasSubstr("which has ended"));
}

struct NoParams {};
FB_KERNEL(half_a_warp, NoParams, 32) {
  if (gpu::Lane() < 16) (void)gpu::Shuffle(1, 0);
}
FB_KERNEL(two_places, NoParams, 32) {
  if (gpu::Lane() < 16) {
    (void)gpu::Shuffle(1, 0);
  } else {
    (void)gpu::Ballot(true);
  }
}
FB_KERNEL(beyond_shared, NoParams, 32) {
  FB_SHARED(std::byte, shared);
  uint32_t r[4];
  gpu::LoadMatrix4(r, gpu::Smem(shared) + 16);
}

struct AskewParams {
  const std::byte* from;
  int which;
};
FB_KERNEL(askew, AskewParams, 32) {
  FB_SHARED(std::byte, shared);
  uint32_t r[4] = {};
  switch (args.which) {
    case 0: return gpu::LoadMatrix4(r, gpu::Smem(shared) + 8);
    case 1: return gpu::StoreMatrix4(gpu::Smem(shared) + 8, r);
    case 2: return gpu::CopyAsync16(shared, args.from + 8, true);
    case 3: return gpu::CopyAsync16(shared + 4, args.from, true);
    case 4: return gpu::BulkStore(const_cast<std::byte*>(args.from), shared + 8, 16);
    default: return gpu::BulkCopy(shared + 16, args.from + 8, 16, reinterpret_cast<Bar*>(shared));
  }
}

TEST(Emulation, NamesLanesThatStandElsewhere) {
  const NoParams params{};
  const auto fault = [&](gpu::emulation::ThreadFunction function, size_t shared_bytes = 0) {
    return RunGrid(function, &params, sizeof params, {.shared_bytes = shared_bytes}).message();
  };
  EXPECT_THAT(fault(&fb_emulated_half_a_warp),
              HasSubstr("threads 0 to 15: Shuffle at grid_test.cc"));
  EXPECT_THAT(fault(&fb_emulated_two_places), HasSubstr("lanes of warp 0 stand in Shuffle"));
  EXPECT_THAT(fault(&fb_emulated_beyond_shared, 16), HasSubstr("of 16 bytes"));
}

TEST(Emulation, NamesAddressesThatAGpuRefuses) {
  alignas(16) std::byte memory[32] = {};
  for (int which = 0; which < 6; ++which) {
    const AskewParams params{memory, which};
    EXPECT_THAT(RunGrid(&fb_emulated_askew, &params, sizeof params, {.shared_bytes = 64}).message(),
                HasSubstr("is not aligned to 16 at grid_test.cc"))
        << which;
  }
}

TEST(Emulation, NamesGridsThatAGpuRefuses) {
  const NoParams params{};
  const auto fault = [&](const Grid& grid) {
    return RunGrid(&fb_emulated_half_a_warp, &params, sizeof params, grid).message();
  };
  EXPECT_THAT(fault({.threads = 64}), HasSubstr("64 threads, of at most 32"));
  EXPECT_THAT(fault({.blocks = {1, 65536, 1}}), HasSubstr("at most 65535 along y"));
  EXPECT_THAT(fault({.shared_bytes = (227 << 10) + 1}), HasSubstr("with 232448 bytes"));
}

struct CopyWordParams {
  const int* from;
  int* to;
  bool awaits;
};
FB_KERNEL(copy_word, CopyWordParams, 32) {
  if (args.awaits) gpu::TakeTurn();
  if (gpu::Tid() == 0) args.to[gpu::BlockX()] = args.from[gpu::BlockX()] + 1;
}

// A kernel that overlaps with the one before it and does not await it.
TEST(Emulation, RunsTheKernelBeforeAsLateAsItMay) {
  std::vector<int> words = {1, 2}, between(2), out(2);
  for (const bool awaits : {true, false}) {
    const CopyWordParams first{words.data(), between.data(), true},
        second{between.data(), out.data(), awaits};
    Grid grid{.blocks = {2, 1, 1}};
    grid.previous = [&] {
      EXPECT_TRUE(
          RunGrid(&fb_emulated_copy_word, &first, sizeof first, {.blocks = {2, 1, 1}}).ok());
    };
    const base::Status status = RunGrid(&fb_emulated_copy_word, &second, sizeof second, grid);
    if (awaits) {
      EXPECT_EQ(out, (std::vector{3, 4}));
    } else {
      EXPECT_THAT(status.message(), HasSubstr("has not awaited the kernel before it"));
    }
  }
}

// One step against values that a person can add: what is cut, and what is not.
TEST(TensorCoreStep, CutsBelow25BitsTowardsZero) {
  const auto bf16 = [](float value) { return tensor::ToBF16(value).bits; };
  uint16_t a[16] = {}, b[16] = {};
  a[0] = bf16(1), b[0] = bf16(1);
  a[1] = bf16(0x1p-25f), b[1] = bf16(1);
  a[2] = bf16(-0x1p-26f), b[2] = bf16(1);
  // 1 + 2^-25 - 2^-26: the last is cut to nothing, and the sum to 1.
  EXPECT_EQ(gpu::emulation::TensorCoreStep(a, b, 0), 1.0f);
  a[0] = bf16(0);
  EXPECT_EQ(gpu::emulation::TensorCoreStep(a, b, 0), 0x1p-26f);
  EXPECT_EQ(gpu::emulation::TensorCoreStep(a, b, -1), -0x1.fffffep-1f);
  b[3] = bf16(std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(gpu::emulation::TensorCoreStep(a, b, 0)));
}

// Zeros of both signs, denormals, infinities and NaN among values of any exponents.
TEST(TensorCoreTile, IsTheStepOfEachOutput) {
  base::Rng rng(7);
  const auto bits = [&rng](uint32_t least_exponent, uint64_t exponents, bool specials) {
    const uint64_t kind = rng.Below(32);
    const auto value = static_cast<uint32_t>(rng.Next());
    if (kind == 0) return value & 0x80000000u;
    if (kind == 1) return value & 0x807FFFFFu;
    if (kind == 2 && specials) return (value & 0x80400000u) | 0x7F800000u;
    return (value & 0x807FFFFFu) | (least_exponent + static_cast<uint32_t>(rng.Below(exponents)))
                                       << 23;
  };
  for (int i = 0; i < 64; ++i) {
    const bool specials = i % 4 == 0;
    const uint64_t exponents = 1 + static_cast<uint64_t>(i % 8) * 20;
    const uint32_t least = i % 3 == 0   ? 30
                           : i % 3 == 1 ? 100
                                        : 254 - static_cast<uint32_t>(exponents);
    uint16_t a[16][16], b[16][8];
    float c[16][8], expected[16][8];
    for (int row = 0; row < 16; ++row) {
      for (uint16_t& value : a[row]) {
        value = static_cast<uint16_t>(bits(least, exponents, specials) >> 16);
        if (row % 5 == 0) value &= 0x8000u;
      }
      for (uint16_t& value : std::span(b[row]))
        value = static_cast<uint16_t>(bits(least, exponents, specials) >> 16);
      for (float& value : c[row]) value = std::bit_cast<float>(bits(least, exponents, specials));
    }
    for (int row = 0; row < 16; ++row) {
      for (int column = 0; column < 8; ++column) {
        uint16_t down[16];
        for (int k = 0; k < 16; ++k) down[k] = b[k][column];
        expected[row][column] = gpu::emulation::TensorCoreStep(a[row], down, c[row][column]);
      }
    }
    gpu::emulation::TensorCoreTile(a, b, c);
    ASSERT_EQ(std::memcmp(c, expected, sizeof c), 0) << "tile " << i;
  }
}

}  // namespace
}  // namespace forebay::kernels::cuda
