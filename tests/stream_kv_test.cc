// Running choices whose first blocks lie below the device: the same answers, digests included, as
// with all of them resident; and counters that prove that blocks were streamed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <functional>
#include <utility>

#include "layout/stream_choice.h"
#include "runtime/virtual/virtual_runtime.h"
#include "schedule/policy.h"
#include "testing/layout_fixture.h"

namespace forebay {
namespace {

Request MakeRequest(int64_t line, int32_t prompt, int32_t output, int32_t n = 1) {
  Request request;
  request.id = request.line = line;
  std::vector<int32_t> tokens;
  for (int32_t t = 0; t < prompt; ++t)
    tokens.push_back(static_cast<int32_t>((line * 31 + t * 7 + t * t % 13) % 250));
  request.prompts = {tokens};
  request.n = n;
  request.sampling.max_tokens = output;
  request.sampling.ignore_eos = true;
  request.sampling.temperature = line % 2 == 0 ? 0.0f : 1.0f;
  return request;
}

class StreamKv : public LayoutTest {
 protected:
  StreamKv() {
    options_.limits.max_model_len = 256;
    requests_.clear();
    for (int i = 0; i < 16; ++i)
      requests_.push_back(MakeRequest(i, 5 + i * 37 % 120, 40 + i * 7 % 50, i % 5 == 0 ? 2 : 1));
  }

  Answers Run(const std::string& devices = "cpu", const std::string& layout = "") {
    return LayoutTest::Run(devices, layout);
  }

  void StreamInto(int32_t resident, uint64_t below = 64 << 20) {
    options_.limits.kv_blocks = resident;
    options_.tier = {.host_bytes = below,
                     .preempt = layout::Preempting::kPark,
                     .offload = layout::Offloading::kAlways};
  }

  int64_t BlockBytes() {
    const auto plan = layout::PlanLayout(options_, files_.config);
    EXPECT_TRUE(plan.ok()) << plan.status().ToString();
    return static_cast<int64_t>(plan->KvBlockBytes(true));
  }
};

TEST_P(StreamKv, ChangesNothing) {
  const Answers expected = Run();
  ASSERT_EQ(expected.size(), 20u);
  EXPECT_FALSE(stats_.mode_counters.contains("kv_blocks_streamed"));
  for (const auto& [resident, rows, threads, caching] :
       {std::tuple{9, 48, 1, true}, {4, 48, 1, true}, {12, 7, 2, true}, {9, 48, 2, false}}) {
    StreamInto(resident);
    options_.limits.max_num_batched_tokens = rows;
    options_.machine.threads = threads;
    options_.prefix_caching = caching;
    EXPECT_EQ(Run(), expected) << resident;
    EXPECT_GT(stats_.mode_counters["kv_blocks_streamed"], 0) << resident;
    EXPECT_LE(stats_.kv_blocks_used_peak, resident);
  }
}

// Small tiers: there is less to stream than what runs wants, and choices are preempted beside.
TEST_P(StreamKv, PreemptionBesideChangesNothing) {
  const Answers expected = Run();
  const auto block = static_cast<uint64_t>(BlockBytes());
  for (const auto& [resident, below, preempt] : {std::tuple{9, 3, layout::Preempting::kPark},
                                                 {7, 5, layout::Preempting::kPark},
                                                 {6, 5, layout::Preempting::kRecompute}}) {
    StreamInto(resident, static_cast<uint64_t>(below) * block);
    options_.tier.preempt = preempt;
    EXPECT_EQ(Run(), expected) << resident;
    EXPECT_GT(stats_.preemptions, 0) << resident;
    EXPECT_GT(stats_.mode_counters["kv_blocks_streamed"], 0) << resident;
  }
}

// How much is streamed is drawn anew every few steps: blocks go below and come back.
TEST_P(StreamKv, AsMuchAsIsDrawnChangesNothing) {
  const Answers expected = Run();
  int64_t brought_back = 0;  // hardly any where there is little room
  for (const auto& [resident, caching] : {std::pair{9, true}, {12, false}, {5, true}}) {
    StreamInto(resident);
    options_.prefix_caching = caching;
    options_.trial.flip_streaming = static_cast<uint64_t>(resident);
    EXPECT_EQ(Run(), expected) << resident;
    EXPECT_GT(stats_.mode_counters["kv_blocks_streamed"], 0) << resident;
    brought_back += stats_.mode_counters["kv_blocks_brought_back"];
  }
  EXPECT_GT(brought_back, 0);
}

// Memory for what is streamed and little more, a file behind it.
TEST_P(StreamKv, BesideAFileChangesNothing) {
  const Answers expected = Run();
  const auto block = static_cast<uint64_t>(BlockBytes());
  StreamInto(9, 12 * block);
  options_.tier.file = "stream_kv_" + std::to_string(getpid()) + ".kv";
  options_.tier.file_bytes = 32 << 20;
  EXPECT_EQ(Run(), expected);
  EXPECT_GT(stats_.mode_counters["kv_blocks_streamed"], 0);
  EXPECT_GT(stats_.mode_counters["kv_blocks_to_file"], 0);
  EXPECT_GT(stats_.mode_counters["kv_file_bytes_written"], 0);
  EXPECT_EQ(stats_.mode_counters["kv_offload_unused"], 0);
  EXPECT_TRUE(mode_status_.ok()) << mode_status_.ToString();
}

// What was asked for and did nothing is said, once.
TEST_P(StreamKv, ThatNothingWasStreamedIsSaid) {
  requests_ = {MakeRequest(0, 20, 5)};
  StreamInto(9);
  testing::internal::CaptureStderr();
  Run();
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(stats_.mode_counters["kv_offload_unused"], 1);
  const std::string note = "--kv-offload always: nothing was streamed";
  EXPECT_THAT(said, testing::HasSubstr(note));
  EXPECT_THAT(said, testing::HasSubstr("1 of the device's 9 blocks"));
  EXPECT_EQ(said.find(note), said.rfind(note));
  EXPECT_EQ(mode_status_.code(), engine::kOffloadUnused);
  EXPECT_THAT(mode_status_.message(), testing::HasSubstr("--kv-offload always"));
  options_.tier.offload = layout::Offloading::kAuto;
  Run();
  EXPECT_FALSE(stats_.mode_counters.contains("kv_offload_unused"));
  EXPECT_TRUE(mode_status_.ok()) << mode_status_.ToString();
}

// Prompts and answers that no device of so few blocks holds, alone and beside others; siblings
// share what is streamed.
TEST_P(StreamKv, AContextLongerThanTheDevicesKv) {
  requests_ = {MakeRequest(0, 150, 100), MakeRequest(1, 20, 60), MakeRequest(2, 205, 40, 2),
               MakeRequest(3, 225, 30), MakeRequest(4, 150, 20)};
  const Answers expected = Run();
  for (const auto& [resident, rows] : {std::pair{4, 48}, {3, 33}, {6, 128}}) {
    StreamInto(resident);
    options_.limits.max_num_batched_tokens = rows;
    EXPECT_EQ(Run(), expected) << resident;
    EXPECT_GT(stats_.mode_counters["kv_blocks_streamed"], 0) << resident;
    EXPECT_LE(stats_.kv_blocks_used_peak, resident);
  }
  // Found below, and computed again where that is more than the device holds.
  requests_.push_back(MakeRequest(0, 150, 100));
  requests_.back().id = 9;
  options_.limits.max_num_seqs = 1;
  EXPECT_EQ(Run().at({9, 0}), expected.at({0, 0}));
}

// Each rank streams its heads, by one book; replicas that stream lend nothing.
TEST_P(StreamKv, OnSeveralRanksChangesNothing) {
  const Answers expected = Run();
  for (const auto& [devices, layout] :
       {std::pair{"2xcpu", "tp=2"}, {"2xcpu", "sp=2"}, {"2xcpu", "dp=2"}}) {
    const auto parsed = layout::ParseLayout(layout);
    if (!layout::ValidateLayout(*parsed, files_.config, 2).ok()) continue;
    StreamInto(8);
    options_.shift.mode.reset();
    if (parsed->sp > 1) options_.shift.mode = parsed->degrees();
    EXPECT_EQ(Run(devices, layout), expected) << layout;
    EXPECT_GT(stats_.mode_counters["kv_blocks_streamed"], 0) << layout;
    EXPECT_EQ(stats_.mode_counters["kv_bytes_stolen"], 0) << layout;
  }
}

// What was streamed came up: each block, in each step, of every layer its part, and a little for
// steps that did not come; and it went down once.
TEST_P(StreamKv, BytesAreWhatTheCountersSay) {
  StreamInto(9);
  Run();
  auto& counters = stats_.mode_counters;
  const int64_t read =
      counters["kv_blocks_streamed"] * (BlockBytes() - static_cast<int64_t>(kv::kBlockDigestBytes));
  EXPECT_GE(counters["kv_bytes_streamed"], read);
  EXPECT_LE(counters["kv_bytes_streamed"], read + read / 20);
  EXPECT_EQ(counters["kv_bytes_down"], counters["kv_blocks_stored"] * BlockBytes());
  EXPECT_EQ(counters["kv_blocks_lost"], 0);
}

// As the summary has them, step by step.
class MovedBlocks final : public StepObserver {
 public:
  void OnStep(const StepRecord& record) override {
    down += record.kv_blocks_down, up += record.kv_blocks_up;
    streamed += record.kv_blocks_streamed;
    most = std::max(most, record.kv_stream_limit);
  }
  int64_t down = 0, up = 0, streamed = 0, most = 0;
};

TEST_P(StreamKv, StepsSayWhatMoved) {
  StreamInto(9, 12 * static_cast<uint64_t>(BlockBytes()));
  options_.trial.flip_streaming = 3;
  MovedBlocks moved;
  observer_ = &moved;
  Run();
  observer_ = nullptr;
  EXPECT_GT(moved.streamed, 0);
  EXPECT_EQ(moved.streamed, stats_.mode_counters["kv_blocks_streamed"]);
  EXPECT_GT(moved.down, 0);
  EXPECT_EQ(moved.down, stats_.mode_counters["kv_blocks_stored"]);
  EXPECT_GT(moved.most, 0);
  EXPECT_LE(moved.most, stats_.mode_counters["kv_stream_places"]);
  EXPECT_GT(moved.up, 0);
  EXPECT_EQ(moved.up, stats_.mode_counters["kv_blocks_up"]);
}

TEST_P(StreamKv, InFloat32ChangesNothing) {
  options_.machine.dtype = tensor::DType::kF32;
  const Answers expected = Run();
  StreamInto(9);
  EXPECT_EQ(Run(), expected);
  EXPECT_GT(stats_.mode_counters["kv_blocks_streamed"], 0);
}

TEST_P(StreamKv, UnderOtherPoliciesChangesNothing) {
  requests_.resize(10);
  const Answers expected = Run();
  for (const char* policy : {"sarathi", "vllm", "makespan", "adaptive"}) {
    SCOPED_TRACE(policy);
    options_.policy = *schedule::FindPolicy(policy);
    StreamInto(8);
    EXPECT_EQ(Run(), expected);
    EXPECT_GT(stats_.mode_counters["kv_blocks_streamed"], 0);
  }
}

// As much as stays hidden by the prices of a device, and less where steps wait.
TEST_P(StreamKv, UniformChangesNothing) {
  requests_.resize(10);
  const Answers expected = Run();
  StreamInto(8);
  options_.tier.offload = layout::Offloading::kUniform;
  options_.machine.device_profile = "zen4";
  options_.limits.mean_context = 96;
  EXPECT_EQ(Run(), expected);
  EXPECT_GT(stats_.mode_counters["kv_blocks_streamed"], 0);
  EXPECT_GT(stats_.mode_counters["kv_stream_places"], 0);
}

// Stands for a copy into a slot, and does not end in time.
struct HangArgs {
  runtime::Runtime* runtime;
};
void Hang(const HangArgs& args, const device::WorkerContext&) {
  args.runtime->Sleep(3'000'000'000);
}

// The second result hangs the stream on which KV comes up.
class HangingSink final : public testing_support::ListSink {
 public:
  explicit HangingSink(std::function<void()> hang) : hang_(std::move(hang)) {}
  bool Finish(RequestResult result) override {
    ListSink::Finish(std::move(result));
    if (results.size() == 2) hang_();
    return true;
  }

 private:
  const std::function<void()> hang_;
};

TEST_P(StreamKv, TheWatchdogNamesTheCopyThatDoesNotEnd) {
  StreamInto(9);
  options_.machine.devices = *layout::ParseDevices("cpu");
  options_.layout = *layout::ParseLayout("");
  options_.stall_seconds = 1;
  options_.trial.max_virtual_delay = 200;
  RunEnd end = RunEnd::kComplete;
  runtime::VirtualRuntime runtime(7);
  testing::internal::CaptureStderr();
  const base::Status status = runtime.Run([&] {
    auto engine = engine::CreateEngine(runtime, options_, files_, nullptr);
    ASSERT_TRUE(engine.ok()) << engine.status().ToString();
    device::Device& device = (*engine)->replica(0).ranks()[0]->device();
    HangingSink sink([&] {
      device::Stream& up = device.copy(device::CopyKind::kKvUp);
      up.SetLayer(2);
      up.Enqueue(device::MakeOperation<&Hang>({.label = "kv_stream, slot 1"}, HangArgs{&runtime}));
      up.SetLayer(-1);
    });
    testing_support::ListSource source(requests_);
    RunControl control;
    end = (*engine)->Run(source, sink, control);
  });
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(end, RunEnd::kStalled);
  EXPECT_THAT(said, testing::HasSubstr("did not finish in 1.0s [step_timeout]"));
  EXPECT_THAT(said, testing::ContainsRegex(
                        "; rank 0 compute in layer [0-9] waits for 'rank 0 kv copy up'"));
  EXPECT_THAT(said, testing::HasSubstr("; rank 0 kv copy up in layer 2 runs 'kv_stream, slot 1'"));
}

INSTANTIATE_TEST_SUITE_P(Models, StreamKv, testing::Values("llama3-gqa", "deepseek-v3"));

TEST(StreamKvRefused, WhereNothingCanBeStreamed) {
  const auto refusal = [](const char* model, const char* devices, const char* layout,
                          layout::Offloading offload, uint64_t below = 64 << 20,
                          int32_t blocks = 8) {
    const auto files = engine::OpenModel(golden::Path(std::string("models/") + model), false, 0);
    layout::EngineOptions options;
    options.machine.memory_bytes = 192 << 20;
    options.machine.devices = *layout::ParseDevices(devices);
    options.layout = *layout::ParseLayout(layout);
    options.limits.max_model_len = 128;
    options.limits.kv_blocks = blocks;
    options.tier = {.host_bytes = below, .offload = offload};
    return layout::PlanLayout(options, files->config).status();
  };
  using layout::Offloading;
  for (const Offloading forced : {Offloading::kAlways, Offloading::kUniform}) {
    EXPECT_EQ(refusal("llama3-gqa", "cpu", "", forced, 0).code(), layout::kCannotStream);
    EXPECT_EQ(refusal("llama3-gqa", "2xcpu", "pp=2", forced).code(), layout::kCannotStream);
    EXPECT_EQ(refusal("mistral", "cpu", "", forced).code(), layout::kCannotStream);
    EXPECT_EQ(refusal("llama2-mha", "cpu", "", forced).code(), layout::kCannotStream);
    EXPECT_EQ(refusal("llama3-gqa", "cpu", "", forced, 64 << 20, 0).code(), layout::kCannotStream)
        << "all fits";
  }
  EXPECT_EQ(refusal("llama3-gqa", "cpu", "", Offloading::kAlg1, 0).code(), layout::kCannotStream);
  EXPECT_THAT(refusal("llama2-mha", "cpu", "", Offloading::kAlways).message(),
              testing::HasSubstr("2 layers"));
  for (const Offloading unforced : {Offloading::kAuto, Offloading::kOff}) {
    EXPECT_TRUE(refusal("llama3-gqa", "2xcpu", "pp=2", unforced).ok());
    EXPECT_TRUE(refusal("mistral", "cpu", "", unforced).ok());
  }
}

}  // namespace
}  // namespace forebay
