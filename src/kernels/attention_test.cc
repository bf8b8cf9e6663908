#include "kernels/attention.h"

#include <gtest/gtest.h>

#include "kernels/cpu/attention_items.h"
#include "kernels/testing/attention_problem.h"
#include "kernels/testing/distance.h"

namespace forebay::kernels {
namespace {

using tensor::BF16;
using testing::AttentionProblem;
using testing::AttentionShape;
using testing::Distance;
using testing::SequenceSpec;
using testing::Team;

template <typename T>
::testing::AssertionResult SameBytes(const std::vector<std::vector<T>>& a,
                                     const std::vector<std::vector<T>>& b) {
  for (size_t s = 0; s < a.size(); ++s) {
    if (std::memcmp(a[s].data(), b[s].data(), a[s].size() * sizeof(T)) == 0) continue;
    for (size_t i = 0; i < a[s].size(); ++i) {
      if (std::memcmp(&a[s][i], &b[s][i], sizeof(T)) != 0) {
        return ::testing::AssertionFailure()
               << "sequence " << s << " element " << i << ": " << tensor::ToFloat(a[s][i])
               << " and " << tensor::ToFloat(b[s][i]);
      }
    }
  }
  return ::testing::AssertionSuccess();
}

template <typename T>
class AttentionTest : public ::testing::Test {
 protected:
  // bf16 rounds probabilities (2^-9 each, signs at random) and the output (2^-9).
  static constexpr double kTolerance = sizeof(T) == 2 ? 0x1p-8 : 2e-6;

  // The reference against double; every set against the reference, with 1 to 3 workers and chunks
  // of several sizes.
  void Check(AttentionShape shape, std::vector<SequenceSpec> sequences,
             std::vector<int32_t> chunks = {1 << 20}) {
    SCOPED_TRACE(::testing::Message()
                 << shape.heads << "/" << shape.kv_heads << " heads of " << shape.head_dim
                 << ", window " << shape.window << ", last length " << sequences.back().length);
    AttentionProblem<T> problem(shape, std::move(sequences));
    const auto expected = problem.Run(RefKernels(), teams_[1]);
    for (size_t s = 0; s < expected.size(); ++s) {
      // Chains over wide keys round more often.
      const double wide = std::sqrt(std::max(1.0, shape.head_dim / 256.0));
      EXPECT_LT(Distance(expected[s], problem.Naive(s)), wide * kTolerance) << "sequence " << s;
    }
    for (const KernelSet* kernels : AvailableKernels()) {
      for (const int32_t chunk : chunks) {
        for (const int workers : {1, 2, 3}) {
          // Many small steps, and the slow set, with one number of workers each.
          if ((kernels->isa == Isa::kRef || chunk < 100) && workers != 1 + chunk % 3) continue;
          problem.Permute(static_cast<uint64_t>(workers));
          EXPECT_TRUE(SameBytes(problem.Run(*kernels, teams_[workers - 1], chunk), expected))
              << kernels->name << ", chunk " << chunk << ", " << workers << " workers";
        }
      }
    }
  }

  Team teams_[3] = {Team(1), Team(2), Team(3)};
};

using Types = ::testing::Types<BF16, float>;
TYPED_TEST_SUITE(AttentionTest, Types);

TYPED_TEST(AttentionTest, HeadDimsAndGroups) {
  for (const int32_t head_dim : {16, 32, 48, 64, 80, 96, 128}) {
    for (const int32_t group : {1, 2, 3, 4, 8}) {
      this->Check({2 * group, 2, head_dim}, {{0, 45}, {70, 71}, {38, 39}});
    }
  }
}

TYPED_TEST(AttentionTest, HeadDimsOfNoWholeVectors) {
  for (const int32_t head_dim : {2, 24, 40, 72, 256})
    this->Check({4, 2, head_dim}, {{0, 37}, {70, 71}});
}

TYPED_TEST(AttentionTest, MoreHeadsThanAnItemTakes) {
  this->Check({71, 1, 64}, {{0, 40}, {33, 34}});
}

TYPED_TEST(AttentionTest, Contexts) {
  for (const int32_t context : {1, 31, 32, 33, 1023, 1024, 1025, 2100}) {
    this->Check({4, 2, 64}, {{context - 1, context}, {std::max(0, context - 40), context}});
  }
}

// All rows of a sequence are in one step, of which a row sees what is behind it too.
TYPED_TEST(AttentionTest, BothWays) {
  for (const int32_t window : {0, 1, 2, 17, 33, 65, 1024}) {
    AttentionShape shape{.heads = 4, .kv_heads = 2, .head_dim = 32, .window = window};
    for (const int32_t ahead : {base::Reach::kAllAhead, window - 1, 40}) {
      if (ahead <= 0) continue;
      shape.ahead = ahead;
      this->Check(shape, {{0, 80}, {0, 1}, {0, 33}, {0, 31}, {7, 100}});
    }
  }
  this->Check({.heads = 2, .kv_heads = 1, .head_dim = 16, .ahead = base::Reach::kAllAhead},
              {{0, 1100}});
}

TYPED_TEST(AttentionTest, Windows) {
  for (const int32_t window : {1, 2, 31, 32, 33, 100, 1024, 1500}) {
    this->Check({4, 2, 32, window}, {{0, 80}, {1000, 1040}, {2040, 2080}, {2099, 2100}},
                {1 << 20, 7});
  }
}

// Rows see their own chunk of the context alone; units of rows lie across its borders.
TYPED_TEST(AttentionTest, ChunksOfTheContext) {
  for (const int32_t chunk : {1, 2, 31, 32, 33, 100, 1024, 1500}) {
    this->Check({.heads = 4, .kv_heads = 2, .head_dim = 32, .chunk = chunk},
                {{0, 80}, {1000, 1040}, {2040, 2080}, {2099, 2100}}, {1 << 20, 7});
  }
}

TYPED_TEST(AttentionTest, CapsAndSinks) {
  const std::vector<SequenceSpec> sequences = {{0, 45}, {70, 71}, {1000, 1040}, {2040, 2060}};
  for (const auto& [cap, sinks] : {std::pair{2.0f, false}, {0.0f, true}, {2.0f, true}}) {
    this->Check({.heads = 6, .kv_heads = 2, .head_dim = 40, .score_cap = cap, .sinks = sinks},
                sequences, {1 << 20, 7});
    this->Check(
        {.heads = 4, .kv_heads = 4, .head_dim = 32, .window = 33, .score_cap = cap, .sinks = sinks},
        sequences);
  }
}

TYPED_TEST(AttentionTest, Chunks) {
  this->Check({6, 2, 64}, {{0, 150}, {0, 33}, {1000, 1100}}, {1 << 20, 1, 7, 32, 100});
  this->Check({4, 2, 80, 45}, {{0, 150}, {0, 97}}, {1 << 20, 1, 7, 32, 100});
}

// Codes of a byte, with scales and without; some of a block's second half is never read, some
// values fill no whole vectors, and what is unseen is NaN.
TYPED_TEST(AttentionTest, CachesOfCodes) {
  for (const KvCodes codes : {KvCodes::kInt8, KvCodes::kFP8}) {
    for (const int32_t head_dim : {2, 16, 40, 64, 72, 128, 256}) {
      for (const int32_t group : {1, 4}) {
        this->Check({.heads = 2 * group, .kv_heads = 2, .head_dim = head_dim, .codes = codes},
                    {{0, 45}, {70, 71}, {38, 39}, {1020, 1027}}, {1 << 20, 7});
      }
    }
    this->Check({.heads = 4, .kv_heads = 2, .head_dim = 32, .window = 33, .codes = codes},
                {{0, 80}, {1000, 1040}, {2099, 2100}}, {1 << 20, 7});
    this->Check({.heads = 4,
                 .kv_heads = 2,
                 .head_dim = 32,
                 .score_cap = 2,
                 .sinks = true,
                 .ahead = base::Reach::kAllAhead,
                 .codes = codes},
                {{0, 80}, {0, 33}});
    this->Check({.heads = 3, .kv_heads = 3, .head_dim = 24, .value_dim = 16, .codes = codes},
                {{0, 70}, {99, 100}});
    // Items of several KV heads, and parts that workers share.
    std::vector<SequenceSpec> sequences = {{60, 70}, {2090, 2091}};
    for (int32_t length = 1; length <= 66; ++length) sequences.push_back({length - 1, length});
    for (const AttentionShape shape : {AttentionShape{.heads = 16, .kv_heads = 8, .head_dim = 32},
                                       {.heads = 10, .kv_heads = 5, .head_dim = 24}}) {
      AttentionShape coded = shape;
      coded.codes = codes;
      this->Check(coded, sequences);
    }
  }
}

// As latent attention has them: expanded keys are wider than values, latent values lie in the keys.
TYPED_TEST(AttentionTest, KeysAndValuesOfUnlikeWidths) {
  for (const int32_t value_dim : {2, 12, 16, 40, 64, 72}) {
    for (const bool in_keys : {false, true}) {
      const int32_t key_dim = in_keys ? value_dim + 8 : 24;
      this->Check({.heads = 6,
                   .kv_heads = 2,
                   .head_dim = key_dim,
                   .value_dim = value_dim,
                   .values_in_keys = in_keys},
                  {{0, 45}, {70, 71}, {1020, 1027}}, {1 << 20, 7});
    }
  }
  this->Check(
      {.heads = 40, .kv_heads = 1, .head_dim = 576, .value_dim = 512, .values_in_keys = true},
      {{0, 33}, {2090, 2091}});
  this->Check({.heads = 3, .kv_heads = 3, .head_dim = 192, .value_dim = 128}, {{0, 70}, {99, 100}});
}

// Heads of wider rows, pass after pass, are what they are together.
TYPED_TEST(AttentionTest, SomeHeadsOfRows) {
  constexpr int32_t kHeads = 7, kKeyDim = 24, kValueDim = 16, kRows = 75;
  AttentionProblem<TypeParam> problem(
      {.heads = kHeads, .kv_heads = 1, .head_dim = kKeyDim, .value_dim = kValueDim},
      {{0, 70}, {1030, 1031}, {60, 64}});
  const auto expected = problem.Run(RefKernels(), this->teams_[0]);
  for (const KernelSet* kernels : AvailableKernels()) {
    for (const int32_t most : {1, 3, 4}) {
      problem.Prepare({0, 1030, 60}, 1 << 20);
      AttentionArgs args = problem.args();
      args.row_heads = kHeads;
      std::vector<TypeParam> out(kRows * kHeads * kValueDim, tensor::RoundTo<TypeParam>(7.0f));
      for (int32_t first = 0; first < kHeads; first += most) {
        args.heads = std::min(most, kHeads - first);
        args.q = problem.args().q + first * kKeyDim * sizeof(TypeParam);
        args.out = reinterpret_cast<std::byte*>(&out[first * kValueDim]);
        this->teams_[1].Run(
            [&](const device::WorkerContext& context) { kernels->attention(args, context); });
      }
      std::vector<std::vector<TypeParam>> found;
      auto at = out.begin();
      for (const auto& rows : expected) {
        found.emplace_back(at, at + std::ssize(rows));
        at += std::ssize(rows);
      }
      EXPECT_TRUE(SameBytes(found, expected)) << kernels->name << ", " << most << " heads";
    }
  }
}

// So many single rows that an item takes several KV heads, beside rows of a prompt.
TYPED_TEST(AttentionTest, ManySequences) {
  for (const AttentionShape shape : {AttentionShape{16, 8, 32},
                                     {9, 3, 64},
                                     {8, 4, 24},
                                     {20, 5, 16},
                                     {10, 10, 16},
                                     {32, 4, 16},
                                     {12, 2, 16},
                                     {6, 6, 16, 40},
                                     {9, 3, 16, 1}}) {
    std::vector<SequenceSpec> sequences = {{60, 70}, {1030, 1031}};
    for (int32_t length = 1; length <= 98; ++length) sequences.push_back({length - 1, length});
    this->Check(shape, sequences);
  }
}

// Few sequences that see several parts, which workers share; with scratch for some of the parts'
// results, or for none.
TYPED_TEST(AttentionTest, PartsOverWorkers) {
  for (const AttentionShape shape :
       {AttentionShape{6, 3, 16}, {16, 8, 16}, {36, 1, 16}, {4, 2, 24, 2500}}) {
    this->Check(shape, {{3299, 3300}});
    this->Check(shape, {{2090, 2100}, {1030, 1031}, {1020, 1027}}, {1 << 20, 3});
  }
  AttentionProblem<TypeParam> problem({8, 4, 64}, {{5000, 5001}, {2040, 2056}});
  const auto expected = problem.Run(RefKernels(), this->teams_[0]);
  const uint64_t own = RefKernels().attention_scratch(problem.args().layout, problem.args().heads);
  const uint64_t slot_bytes = kMaxLines * (64 + 2) * sizeof(float);
  int64_t used_before = -1;
  for (const int slots_each : {1, 6, 18}) {  // too few for any unit, for one, for both
    Team team(2, own + slots_each * slot_bytes);
    int64_t used = 0;
    team.Run([&](const device::WorkerContext& context) {
      if (context.worker != 0) return;
      const PartSlots slots(problem.args(), context);
      EXPECT_EQ(slots.size(), 2 * slots_each);
      for (const Units units : {Units::kOneRow, Units::kSeveralRows}) {
        ItemWalk walk(problem.args(), 2, slots.size(), units);
        AttentionItem item;
        for (int64_t i = 0; walk.Seek(i, item); ++i) {
        }
        used += walk.slots();
      }
    });
    EXPECT_EQ(used == 0, slots_each == 1) << slots_each;
    EXPECT_GT(used, used_before) << slots_each;
    used_before = used;
    for (const KernelSet* kernels : AvailableKernels()) {
      EXPECT_TRUE(SameBytes(problem.Run(*kernels, team), expected))
          << kernels->name << " " << slots_each;
    }
  }
}

// Values that grow and shrink along the sequence: every block rescales, or none after the first
// does.
TYPED_TEST(AttentionTest, ManySeeds) {
  for (uint64_t seed = 2; seed < 12; ++seed) {
    AttentionProblem<TypeParam> problem({3, 1, 32}, {{0, 130}, {90, 200}}, seed);
    const auto expected = problem.Run(RefKernels(), this->teams_[0]);
    for (const KernelSet* kernels : AvailableKernels()) {
      EXPECT_TRUE(SameBytes(problem.Run(*kernels, this->teams_[1]), expected))
          << kernels->name << " seed " << seed;
    }
  }
}

TEST(KvCodes, AreTheNearestOfTheirFormat) {
  for (int code = 0; code < 256; ++code) {
    const float value = KvValue(KvCodes::kFP8, static_cast<uint8_t>(code));
    const int kept = KvRowOf(KvCodes::kFP8, &value, 1).codes[0];
    if ((code & 0x7F) == 0x7F) {
      EXPECT_TRUE(std::isnan(value));
      EXPECT_EQ(kept, 0x7F);
      continue;
    }
    EXPECT_EQ(kept, code);
    if ((code & 0x7F) == 0x7E) continue;
    // Half way to the next one the even code wins, beside it the nearer.
    const float next = KvValue(KvCodes::kFP8, static_cast<uint8_t>(code + 1)),
                middle = (value + next) / 2;
    const float around[] = {std::nextafter(middle, value), middle, std::nextafter(middle, next)};
    const KvRow row = KvRowOf(KvCodes::kFP8, around, 3);
    EXPECT_EQ(row.codes[0], code);
    EXPECT_EQ(row.codes[1], code % 2 == 0 ? code : code + 1);
    EXPECT_EQ(row.codes[2], code + 1);
  }
  const float far[] = {460, -1e30f, std::numeric_limits<float>::infinity()};
  const KvRow most = KvRowOf(KvCodes::kFP8, far, 3);
  EXPECT_EQ(most.codes[0], 0x7E);
  EXPECT_EQ(most.codes[1], 0xFE);
  EXPECT_EQ(most.codes[2], 0x7E);

  const float x[] = {-2, 1, 0.0078125f, 0};
  const KvRow row = KvRowOf(KvCodes::kInt8, x, 4);
  EXPECT_EQ(row.scale, 2.0f / 127.0f);
  EXPECT_EQ(KvValue(KvCodes::kInt8, row.codes[0]), -127);
  EXPECT_EQ(KvValue(KvCodes::kInt8, row.codes[1]), 64);  // 63.5
  EXPECT_EQ(KvValue(KvCodes::kInt8, row.codes[2]), 0);
  EXPECT_EQ(KvRowOf(KvCodes::kInt8, x + 3, 1).scale, 1);
  const KvRow infinite = KvRowOf(KvCodes::kInt8, far, 3);
  EXPECT_TRUE(std::isnan(infinite.scale));
  EXPECT_EQ(infinite.codes[0], 0);
}

TEST(AttentionScratchTest, FitsTheDevicesDefault) {
  KvLayout layout;
  layout.key_dim = kMaxKeyDim;
  layout.value_dim = kMaxValueDim;
  layout.kv_heads = 1;
  for (const KernelSet* kernels : AvailableKernels())
    EXPECT_LE(kernels->attention_scratch(layout, 128), 1u << 20);
}

}  // namespace
}  // namespace forebay::kernels
