// A whole profile of a GPU, at few small shapes, on the emulated driver: it holds what a profile
// has to, and ranks and the simulator take it. Times on an emulation mean nothing.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "base/units.h"
#include "cost/copy_forms.h"
#include "cost/profile_writer.h"
#include "kernels/cuda/testing/emulated_gpu.h"
#include "layout/platform.h"
#include "profile/profile_device.h"
#include "runtime/real/real_runtime.h"

namespace forebay::profile {
namespace {

using base::kMiB;

// Every table has a step along each axis that it has more than one value of.
Grid SmallGrid() {
  return {.data_bytes = 8 * kMiB,
          .input_bytes = kMiB,
          .output_bytes = kMiB,
          .workspace_bytes = kMiB,
          .table_bytes = kMiB,
          .host_bytes = kMiB,
          .copy_bytes = 1 << 17,
          .disk_bytes = 4 * kMiB,
          .scratch_bytes = kMiB,
          .fma_blocks = 2,
          .fma_rounds = 4,
          .read_bytes = 1 << 16,
          .peak_linear = {8, 64, 64},
          .linear = {{{{1, 70}, {64, 128}, {64, 256}}}, 1},
          .experts = {{{{1, 4}, {1, 2}, {64 * 128}}}, 0},
          .decode = {{{{1, 4}, {32, 64}, {1, 2}}}, 1},
          .shared = {{{{4, 8}, {32, 64}, {1}}}, 0},
          .prefill = {{{{8}, {16, 40}, {1}}}, 0},
          .rows = {{{{1, 4}, {64, 128}, {1}}}, 1},
          .rope = {{{{1, 40}, {64, 128}, {1, 2}}}, 0},
          .sample = {{{{1, 2}, {1024, 2048}, {1}}}, 0},
          .recurrence = {{{{1, 2}, {128 * 128}, {1}}}, 0},
          .copies = {{{{4096, 65536}, {1}, {1}}}, 1},
          .step_sequences = 2,
          .step_tokens = 2};
}

class GpuProfile : public testing::TestWithParam<const char*> {};

TEST_P(GpuProfile, IsWholeAndLoadable) {
  device::testing::EmulatedDriver emulated(
      kernels::cuda::testing::WithKernels({.seed = 3, .memory_bytes = 512 * kMiB}));
  const auto runtime = runtime::CreateRealRuntime();
  ProfileOptions options{.devices = layout::ParseDevices("cuda").value(),
                         .threads = 1,
                         .numerics = GetParam(),
                         .quick = true,
                         .driver = &emulated.driver(),
                         .grid = SmallGrid()};
  std::vector<std::string> lines;
  auto measured = ProfileDevice(*runtime, options, "emulated",
                                [&](std::string_view line) { lines.emplace_back(line); });
  ASSERT_TRUE(measured.ok()) << measured.status().ToString();
  EXPECT_EQ(emulated.Leaks(), "");
  EXPECT_GT(lines.size(), 8);
  // Peaks of an emulation are no measure of its kernels.
  measured->bf16_flops = measured->f32_flops = 1e14;
  measured->memory_bytes_per_s = measured->host_bytes_per_s = 1e14;

  const std::string path =
      testing::TempDir() + "/gpu_profile_" + std::to_string(getpid()) + ".json";
  std::ofstream(path) << cost::WriteProfile(*measured);
  const auto profile = cost::LoadProfile(path);
  ASSERT_TRUE(profile.ok()) << profile.status().ToString();
  EXPECT_EQ(profile->kind, cost::DeviceKind::kGpu);
  EXPECT_NE(profile->description.find(GetParam()), std::string::npos) << profile->description;
  for (const cost::TableOp op :
       {cost::TableOp::kLinear, cost::TableOp::kLinearLeaves, cost::TableOp::kExperts,
        cost::TableOp::kDecodeAttention, cost::TableOp::kDecodeShared,
        cost::TableOp::kPrefillAttention, cost::TableOp::kNorm, cost::TableOp::kEmbed,
        cost::TableOp::kRopeKv, cost::TableOp::kRopeKvDecode, cost::TableOp::kCopy}) {
    EXPECT_NE(profile->Find(op, cost::NumberFormat::kBF16), nullptr) << cost::Name(op);
  }
  for (const cost::TableOp op :
       {cost::TableOp::kArgmax, cost::TableOp::kSample, cost::TableOp::kRecurrence})
    EXPECT_NE(profile->Find(op, cost::NumberFormat::kF32), nullptr) << cost::Name(op);
  EXPECT_TRUE(cost::HasHostCurve(*profile));
  // What lies between GPUs nobody measures with one: the nearest built-in profile's.
  const auto nearest = cost::LoadProfile("h100");
  EXPECT_EQ(profile->link_bytes_per_s, nearest->link_bytes_per_s);
  std::map<std::string, cost::Mark> marks;
  for (const cost::Provenance& entry : profile->provenance) marks[entry.key] = entry.mark;
  EXPECT_EQ(marks["link_bytes_per_s"], cost::Mark::kDatasheet);
  EXPECT_EQ(marks["bf16_flops"], cost::Mark::kMeasured);

  // A rank is priced by it.
  layout::EngineOptions engine;
  engine.machine.devices = options.devices;
  engine.machine.device_profile = path;
  engine.trial.driver = &emulated.driver();
  layout::MachinePlan plan{.spec = options.devices};
  const base::Status planned = options.devices.platform->Plan(
      engine, *options.devices.platform->Kernels("auto", GetParam()).value(), &plan);
  ASSERT_TRUE(planned.ok()) << planned.ToString();
  EXPECT_EQ(plan.profile.name, "emulated");
  EXPECT_TRUE(plan.prices_modes);
  std::filesystem::remove(path);
}

INSTANTIATE_TEST_SUITE_P(, GpuProfile, testing::Values("pair", "mma_k16f25"));

TEST(MakeSubject, RefusesWhatIsNotOneDeviceThatComputes) {
  for (const char* devices : {"2xcpu", "2xcuda:0", "sim:h200"}) {
    const auto subject = MakeSubject({.devices = layout::ParseDevices(devices).value()});
    EXPECT_EQ(subject.status().code(), layout::kDevicesInvalid) << devices;
  }
}

}  // namespace
}  // namespace forebay::profile
