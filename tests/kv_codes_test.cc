// KV caches of a byte an element: each format has a numerics class of its own, in which every set
// and layout gives one answer, digests included. What moves blocks moves codes and scales as bytes.
#include <unistd.h>

#include "model/kv_groups.h"
#include "testing/sets_fixture.h"

namespace forebay {
namespace {

using cost::NumberFormat;

class KvCodesTest : public SetsTest {
 protected:
  Answers RunWith(std::optional<NumberFormat> format) {
    options_.machine.kv_cache_format = format;
    return Run("cpu", "");
  }
};

TEST_P(KvCodesTest, EverySetGivesTheDigestsOfItsOracle) {
  requests_.resize(4);
  for (const tensor::DType dtype : {tensor::DType::kBF16, tensor::DType::kF32}) {
    options_.machine.dtype = dtype;
    for (const NumberFormat format : {NumberFormat::kInt8, NumberFormat::kFP8}) {
      options_.machine.kv_cache_format = format;
      ExpectOraclesAnswers(testing::EndsWith(format == NumberFormat::kInt8 ? "-kvint8" : "-kvfp8"));
    }
  }
}

TEST_P(KvCodesTest, EveryLayoutGivesTheDigestsOfOneRank) {
  const Answers plain = RunWith({}), fp8 = RunWith(NumberFormat::kFP8),
                expected = RunWith(NumberFormat::kInt8);
  EXPECT_NE(fp8, plain);
  EXPECT_NE(expected, plain);
  EXPECT_NE(expected, fp8);
  for (const auto& [devices, layout] : {std::pair{"2xcpu", "tp=2"},
                                        {"3xcpu", "tp=3"},
                                        {"2xcpu", "pp=2"},
                                        {"2xcpu", "sp=2"},
                                        {"4xcpu", "dp=2,tp=2"},
                                        {"2xcpu", "dp=2,weights=striped,pool-attention=on"}}) {
    const auto parsed = *layout::ParseLayout(layout);
    if (!layout::ValidateLayout(parsed, files_.config, parsed.num_devices()).ok()) continue;
    if (parsed.pools() && files_.config.moe) continue;
    options_.shift.mode.reset();
    if (parsed.sp > 1) options_.shift.mode = parsed.degrees();
    EXPECT_EQ(Run(devices, layout), expected) << layout;
  }
}

// With fewer blocks than the answers have: computed again, parked in memory or in a file, and read
// from there by steps.
TEST_P(KvCodesTest, WhatIsPreemptedParkedOrStreamedChangesNothing) {
  for (Request& request : requests_) request.sampling.max_tokens += 40;
  const Answers expected = RunWith(NumberFormat::kInt8);
  options_.limits.kv_blocks = 9;
  EXPECT_EQ(Run("cpu", ""), expected);
  EXPECT_GT(stats_.preemptions, 0);
  options_.tier = {.host_bytes = 64 << 20, .preempt = layout::Preempting::kPark};
  EXPECT_EQ(Run("cpu", ""), expected);
  EXPECT_GT(stats_.mode_counters["kv_returns"], 0);
  EXPECT_EQ(stats_.recomputed_tokens, 0);
  if (GetParam() == "llama3-gqa") {  // enough layers, none with a window
    options_.tier.offload = layout::Offloading::kAlways;
    EXPECT_EQ(Run("cpu", ""), expected);
    EXPECT_GT(stats_.mode_counters["kv_blocks_streamed"], 0);
  }
  options_.tier = {.file = "kv_codes_" + std::to_string(getpid()) + ".kv",
                   .file_bytes = 32 << 20,
                   .preempt = layout::Preempting::kPark};
  EXPECT_EQ(Run("cpu", ""), expected);
  EXPECT_GT(stats_.mode_counters["kv_file_bytes_read"], 0);
}

TEST_P(KvCodesTest, WhatIsStolenChangesNothing) {
  for (Request& request : requests_) {
    request.sampling.max_tokens = -1;
    request.ends_after = request.line % 8 == 0 ? 60 : 1 + static_cast<int32_t>(request.line % 3);
  }
  const Answers expected = RunWith(NumberFormat::kInt8);
  options_.steal = layout::Stealing::kAlways;
  int64_t bytes = 0;
  // On busy cores no replica may be idle before all have ended.
  for (int i = 0; i < 3 || (bytes == 0 && i < 50); ++i) {
    EXPECT_EQ(Run("4xcpu", "dp=4"), expected);
    bytes += stats_.kv_bytes_stolen;
  }
  EXPECT_GT(bytes, 0);
}

TEST_P(KvCodesTest, BesideInt8LayersChangesNothing) {
  options_.machine.quantization.format = NumberFormat::kInt8;
  const Answers expected = RunWith(NumberFormat::kInt8);
  EXPECT_EQ(numerics_class_.substr(numerics_class_.find('-')), "-w8a8-kvint8");
  EXPECT_EQ(Run("2xcpu", "tp=2"), expected);
  options_.limits.kv_blocks = 9;
  EXPECT_EQ(Run("cpu", ""), expected);
}

// Twice as many tokens in the same memory, less the scales.
TEST_P(KvCodesTest, ABlockTakesHalf) {
  const auto block_bytes = [&](std::optional<NumberFormat> format) {
    options_.machine.kv_cache_format = format;
    const auto draft = layout::DraftLayout(options_, files_.config);
    EXPECT_TRUE(draft.ok()) << draft.status().ToString();
    return kv::KvBlockBytes(
        model::PlanKvGroups(draft->config, draft->dtype, model::ShardOf(draft->config, {})), false);
  };
  const uint64_t plain = block_bytes({});
  EXPECT_EQ(block_bytes(NumberFormat::kFP8) * 2, plain);
  EXPECT_EQ(block_bytes(NumberFormat::kInt8) * 2 * static_cast<uint64_t>(files_.config.head_dim),
            plain * static_cast<uint64_t>(files_.config.head_dim + 4));
}

INSTANTIATE_TEST_SUITE_P(Files, KvCodesTest,
                         testing::Values("llama3-gqa", "qwen3-moe", "llama4-text", "gpt-oss",
                                         "gemma3"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::erase(name, '-');
                           return name;
                         });

class KvCodesRefused : public LayoutTest {};
TEST_P(KvCodesRefused, WhereLatentsAreCached) {
  const auto code = [&](const char* devices, NumberFormat format) {
    options_.machine.devices = *layout::ParseDevices(devices);
    options_.machine.kv_cache_format = format;
    return layout::DraftLayout(options_, files_.config).status().code();
  };
  EXPECT_EQ(code("cpu", NumberFormat::kInt8), layout::kKvCacheDtype);
  EXPECT_EQ(code("cpu", NumberFormat::kFP8), layout::kKvCacheDtype);
  EXPECT_EQ(code("sim:h200", NumberFormat::kInt8), layout::kKvCacheDtype);
  EXPECT_FALSE(code("sim:h200", NumberFormat::kFP8) == layout::kKvCacheDtype);
}
INSTANTIATE_TEST_SUITE_P(Files, KvCodesRefused, testing::Values("deepseek-v3"));

class KvCodesOfTensorCores : public LayoutTest {};
TEST_P(KvCodesOfTensorCores, AreExpandedOnGpus) {
  options_.machine.kernels = &kernels::RefKernels(kernels::MmaOrder::kK16F25);
  options_.machine.kv_cache_format = NumberFormat::kInt8;
  EXPECT_TRUE(layout::DraftLayout(options_, files_.config).ok());
}
TEST_P(KvCodesOfTensorCores, AreRefusedWhereTilesAttend) {
  options_.machine.kernels = *kernels::ChooseKernels("ref", "amx_split_p1024");
  EXPECT_TRUE(layout::DraftLayout(options_, files_.config).ok());
  options_.machine.kv_cache_format = NumberFormat::kInt8;
  const base::Status status = layout::DraftLayout(options_, files_.config).status();
  EXPECT_EQ(status.code(), layout::kKvCacheDtype);
  EXPECT_THAT(status.message(), testing::HasSubstr("amx_split_p1024"));
}
INSTANTIATE_TEST_SUITE_P(Files, KvCodesOfTensorCores, testing::Values("qwen3"));

}  // namespace
}  // namespace forebay
