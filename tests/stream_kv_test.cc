// Running choices whose first blocks lie below the device: the same answers, digests included, as
// with all of them resident; and counters that prove that blocks were streamed.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <iterator>
#include <regex>
#include <utility>

#include "choose/create_engine.h"
#include "choose/decide.h"
#include "choose/stream_choice.h"
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

// Writes over the file below, which has no name any more, after the first step that has streamed
// from it and `patience` others.
class FileDamage final : public StepObserver {
 public:
  explicit FileDamage(int patience) : patience_(patience) {}
  void OnStep(const StepRecord& record) override {
    if (done_ || record.kv_blocks_streamed == 0 || patience_-- > 0) return;
    const std::string ours = "stream_kv_" + std::to_string(getpid()) + ".kv";
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code error;
      const std::string target = std::filesystem::read_symlink(entry, error).string();
      if (target.find(ours) == target.npos) continue;
      const int file = open(entry.path().c_str(), O_WRONLY);
      const std::vector<char> junk(1 << 20, 'x');
      for (off_t at = 0; at < 32 << 20; at += 1 << 20)
        done_ = pwrite(file, junk.data(), junk.size(), at) == std::ssize(junk);
      fsync(file);
      close(file);
    }
  }
  bool done() const { return done_; }

 private:
  int patience_;
  bool done_ = false;
};

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

  void StreamFromFile(int32_t resident) {
    StreamInto(resident);
    options_.tier.host_bytes = 0;
    options_.tier.file = "stream_kv_" + std::to_string(getpid()) + ".kv";
    options_.tier.file_bytes = 32 << 20;
  }

  int64_t BlockBytes() {
    const auto plan = choose::Decide(options_, files_.config);
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

// A file alone: layers come from the disk.
TEST_P(StreamKv, FromAFileChangesNothing) {
  const Answers expected = Run();
  for (const auto& [devices, layout, rows] :
       {std::tuple{"cpu", "", 48}, {"cpu", "", 7}, {"2xcpu", "tp=2", 48}}) {
    if (!layout::ValidateLayout(*layout::ParseLayout(layout), files_.config, 2).ok()) continue;
    StreamFromFile(9);
    options_.limits.max_num_batched_tokens = rows;
    EXPECT_EQ(Run(devices, layout), expected) << layout;
    auto& counters = stats_.mode_counters;
    EXPECT_GT(counters["kv_blocks_streamed"], 0) << layout;
    EXPECT_GE(counters["kv_file_bytes_read"], counters["kv_bytes_streamed"]) << layout;
    EXPECT_EQ(counters["kv_blocks_failed"], 0) << layout;
  }
}

TEST_P(StreamKv, AContextLongerThanTheDevicesKvFromAFile) {
  requests_ = {MakeRequest(0, 150, 100), MakeRequest(1, 20, 60), MakeRequest(2, 205, 40, 2),
               MakeRequest(3, 225, 30)};
  const Answers expected = Run();
  StreamFromFile(4);
  EXPECT_EQ(Run(), expected);
  EXPECT_GT(stats_.mode_counters["kv_blocks_streamed"], 0);
  EXPECT_LE(stats_.kv_blocks_used_peak, 4);
}

// The file's content is written over once, while choices read it.
TEST_P(StreamKv, WhatAFileLosesIsComputedAgain) {
  const Answers expected = Run();
  StreamFromFile(9);
  for (const auto& [caching, flips, patience] :
       {std::tuple{false, 0, 3}, {true, 0, 9}, {true, 5, 4}, {true, 6, 7}, {false, 7, 15}}) {
    options_.prefix_caching = caching;
    options_.trial.flip_streaming = static_cast<uint64_t>(flips);
    FileDamage damage(patience);
    observer_ = &damage;
    EXPECT_EQ(Run(), expected) << patience;
    observer_ = nullptr;
    EXPECT_TRUE(damage.done());
    EXPECT_GT(stats_.mode_counters["kv_blocks_failed"], 0) << patience;
    EXPECT_GT(stats_.recomputed_tokens, 0) << patience;
  }
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
  int64_t parks = 0;
  for (const char* policy : {"sarathi", "vllm", "makespan", "adaptive", "whole"}) {
    SCOPED_TRACE(policy);
    options_.policy = *schedule::FindPolicy(policy);
    StreamInto(8);
    EXPECT_EQ(Run(), expected);
    EXPECT_GT(stats_.mode_counters["kv_blocks_streamed"], 0);
    // Parked instead.
    options_.tier.offload = layout::Offloading::kOff;
    EXPECT_EQ(Run(), expected);
    EXPECT_EQ(stats_.mode_counters["kv_parks"], stats_.preemptions);
    parks += stats_.preemptions;
  }
  EXPECT_GT(parks, 0);
}

// Plans by the prices of a device: as much as stays hidden, and less where steps wait; what makes
// the job fastest; Vasuki's, where a little lies below.
TEST_P(StreamKv, PlansByPricesChangeNothing) {
  requests_.resize(10);
  const Answers expected = Run();
  options_.machine.device_profile = "zen4";
  options_.limits.mean_context = 96;
  using layout::Offloading;
  for (const auto& [offload, blocks] : {std::pair{Offloading::kUniform, 1000},
                                        {Offloading::kAuto, 1000},
                                        {Offloading::kAlg2, 3},
                                        {Offloading::kMax, 3}}) {
    SCOPED_TRACE(layout::Name(offload));
    StreamInto(8, static_cast<uint64_t>(blocks * BlockBytes()));
    options_.tier.offload = offload;
    EXPECT_EQ(Run(), expected);
    EXPECT_GT(stats_.mode_counters["kv_blocks_streamed"], 0);
    EXPECT_GT(stats_.mode_counters["kv_stream_places"], 0);
  }
}

// KV that comes up slowly, as over a link: on the virtual runtime, where kernels take a time that
// is drawn, and copies what the trial says.
class SlowKvUp : public StreamKv {
 protected:
  struct Timed {
    RunEnd end = RunEnd::kComplete;
    Answers answers;
    double seconds = 0;
    std::vector<StepRecord> steps;
    std::string said;
  };
  class Records final : public StepObserver {
   public:
    explicit Records(std::vector<StepRecord>* steps) : steps_(steps) {}
    void OnStep(const StepRecord& record) override { steps_->push_back(record); }

   private:
    std::vector<StepRecord>* const steps_;
  };

  SlowKvUp() {
    requests_.clear();
    for (int i = 0; i < 48; ++i) requests_.push_back(MakeRequest(i, 60 + i * 37 % 60, 100));
    StreamInto(8);
    options_.tier.preempt = layout::Preempting::kRecompute;
    options_.tier.offload = layout::Offloading::kUniform;
    options_.limits.mean_context = 96;
    options_.machine.device_profile = "zen4";
    options_.machine.devices = *layout::ParseDevices("cpu");
    options_.layout = *layout::ParseLayout("");
    options_.trial.max_virtual_delay = 20'000;
  }

  Timed RunTimed(uint64_t seed = 7) {
    Timed timed;
    runtime::VirtualRuntime runtime(seed);
    testing::internal::CaptureStderr();
    const base::Status status = runtime.Run([&] {
      auto engine = choose::CreateEngine(runtime, options_, files_, nullptr);
      ASSERT_TRUE(engine.ok()) << engine.status().ToString();
      if (!hand_out_.replicas.empty()) (*engine)->ReplayHandOut(&hand_out_);
      Records records(&timed.steps);
      (*engine)->SetStepObserver(&records);
      testing_support::ListSource source(requests_);
      testing_support::ListSink sink;
      RunControl control;
      const runtime::TimeNs begin = runtime.Now();
      timed.end = (*engine)->Run(source, sink, control);
      timed.seconds = static_cast<double>(runtime.Now() - begin) * 1e-9;
      for (const RequestResult& result : sink.results) {
        for (const Choice& choice : result.choices)
          timed.answers[{result.id, choice.index}] = {choice.tokens, choice.digest};
      }
      stats_ = (*engine)->stats();
    });
    timed.said = testing::internal::GetCapturedStderr();
    EXPECT_TRUE(status.ok()) << status.ToString();
    return timed;
  }

  // The part of the steps from this one on in which compute waited for streamed KV. What goes below
  // or comes back is waited for once, in its step or the next.
  static double Exposed(const std::vector<StepRecord>& steps, size_t first) {
    double seconds = 0, waited = 0;
    for (size_t i = std::max<size_t>(1, first); i < steps.size(); ++i) {
      const StepRecord &step = steps[i], &last = steps[i - 1];
      if (step.kv_blocks_down + step.kv_blocks_up + last.kv_blocks_down + last.kv_blocks_up > 0)
        continue;
      seconds += step.end_seconds - step.begin_seconds;
      waited += step.waits[WaitCause::kKv];
    }
    EXPECT_GT(seconds, 0);
    return waited / seconds;
  }

  void ExpectWarnedOnce(const std::string& said) {
    const std::regex both(
        "KV cache comes up at [0-9.]+ GB/s where [0-9.]+ were foreseen, and [0-9]+ % of a step "
        "waits for it: at most [0-9]+ blocks are streamed, not [0-9]+");
    EXPECT_EQ(std::distance(std::sregex_iterator(said.begin(), said.end(), both), {}), 1) << said;
  }
};

TEST_P(SlowKvUp, AtThirtyPercentOfTheRateLessIsStreamed) {
  const Answers expected = Run();
  const Timed fast = RunTimed();
  EXPECT_EQ(fast.answers, expected);
  const double rate = static_cast<double>(stats_.mode_counters["kv_bytes_streamed"]) / fast.seconds;
  ASSERT_GT(rate, 0);
  // What the steps read takes 3.3 times as long as they do.
  options_.trial.kv_up_gbps = 0.3 * rate * 1e-9;
  const Timed slow = RunTimed();
  EXPECT_EQ(slow.answers, expected);
  EXPECT_GT(stats_.mode_counters["kv_stream_shrinks"], 0);
  EXPECT_LT(stats_.mode_counters["kv_stream_limit_least"],
            stats_.mode_counters["kv_stream_places"]);
  ExpectWarnedOnce(slow.said);
  const auto shrunk = std::ranges::find_if(slow.steps, [&](const StepRecord& step) {
    return step.kv_stream_limit < stats_.mode_counters["kv_stream_places"];
  });
  const auto first = static_cast<size_t>(shrunk - slow.steps.begin());
  ASSERT_LT(first + 64, slow.steps.size());
  EXPECT_LT(Exposed(slow.steps, first + 32), 0.03);
  options_.tier.offload = layout::Offloading::kOff;
  const Timed off = RunTimed();
  EXPECT_EQ(off.answers, expected);
  EXPECT_LT(slow.seconds, 1.05 * off.seconds)
      << fast.seconds << " fast, shrunk at " << first << " of " << slow.steps.size();
}

TEST_P(SlowKvUp, AStallOfTwoSecondsCostsNoMore) {
  const Answers expected = Run();
  options_.trial.kv_up_stall = 2;
  const Timed stalled = RunTimed();
  EXPECT_EQ(stalled.answers, expected);
  EXPECT_EQ(stalled.end, RunEnd::kComplete);
  EXPECT_GT(stats_.mode_counters["kv_stream_shrinks"], 0);
  ExpectWarnedOnce(stalled.said);
  EXPECT_GT(stalled.seconds, 2);
  const auto waited = std::ranges::find_if(
      stalled.steps, [](const StepRecord& step) { return step.waits[WaitCause::kKv] > 1; });
  const auto first = static_cast<size_t>(waited - stalled.steps.begin());
  ASSERT_LT(first + 64, stalled.steps.size());
  EXPECT_LT(Exposed(stalled.steps, first + 32), 0.03);
  options_.tier.offload = layout::Offloading::kOff;
  EXPECT_LT(stalled.seconds - 2, 1.05 * RunTimed().seconds);
}

TEST_P(SlowKvUp, TheWatchdogNamesTheCopyThatDoesNotEnd) {
  options_.trial.kv_up_stall = 3;
  options_.stall_seconds = 1;
  const Timed hung = RunTimed();
  EXPECT_EQ(hung.end, RunEnd::kStalled);
  EXPECT_THAT(hung.said, testing::HasSubstr("did not finish in 1.0s [step_timeout]"));
  EXPECT_THAT(hung.said, testing::ContainsRegex(
                             "; rank 0 compute in layer [0-9] waits for 'rank 0 kv copy up'"));
  EXPECT_THAT(hung.said, testing::ContainsRegex(
                             "; rank 0 kv copy up in layer [0-9] runs 'kv_stream, slot [01]'"));
}

// One of two long choices is parked until a replica has nothing to do any more.
TEST_P(SlowKvUp, AParkedChoiceIsGivenToAnIdleReplicaWithItsBlocks) {
  requests_ = {MakeRequest(0, 90, 150), MakeRequest(1, 90, 60), MakeRequest(2, 20, 50)};
  const Answers expected = Run();
  StreamInto(9);
  options_.tier.offload = layout::Offloading::kOff;
  options_.steal = layout::Stealing::kAlways;
  hand_out_.replicas = {{{0, 0}, {0, 1}}, {{0, 2}}};
  const std::pair<const char*, const char*> layouts[] = {
      {"2xcpu", "dp=2"}, {"4xcpu", "dp=2,tp=2"}, {"2xcpu", "dp=2,weights=by_layer,pool=3"}};
  for (const auto& [devices, layout] : layouts) {
    options_.machine.devices = *layout::ParseDevices(devices);
    options_.layout = *layout::ParseLayout(layout);
    int64_t gifts = 0;
    for (uint64_t seed = 0; seed < 6; ++seed) {
      device::HazardChecker checker;
      options_.trial.checker = &checker;
      options_.trial.kv_up_gbps = seed % 2 == 0 ? 0.01 : 0;
      EXPECT_EQ(RunTimed(seed).answers, expected) << layout << " " << seed;
      options_.trial.checker = nullptr;
      EXPECT_TRUE(checker.status().ok()) << checker.status().ToString();
      EXPECT_EQ(stats_.recomputed_tokens, 0) << layout << " " << seed;
      gifts += stats_.mode_counters["kv_parked_gifts"];
    }
    EXPECT_GT(gifts, 0) << layout;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, StreamKv, testing::Values("llama3-gqa", "deepseek-v3"));
INSTANTIATE_TEST_SUITE_P(Models, SlowKvUp, testing::Values("llama3-gqa"));

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
    return choose::Decide(options, files->config).status();
  };
  using layout::Offloading;
  for (const Offloading forced : {Offloading::kAlways, Offloading::kUniform}) {
    EXPECT_EQ(refusal("llama3-gqa", "cpu", "", forced, 0).code(), choose::kCannotStream);
    EXPECT_EQ(refusal("llama3-gqa", "2xcpu", "pp=2", forced).code(), choose::kCannotStream);
    EXPECT_EQ(refusal("mistral", "cpu", "", forced).code(), choose::kCannotStream);
    EXPECT_EQ(refusal("llama2-mha", "cpu", "", forced).code(), choose::kCannotStream);
    EXPECT_EQ(refusal("llama3-gqa", "cpu", "", forced, 64 << 20, 0).code(), choose::kCannotStream)
        << "all fits";
  }
  EXPECT_EQ(refusal("llama3-gqa", "cpu", "", Offloading::kAlg1, 0).code(), choose::kCannotStream);
  EXPECT_THAT(refusal("llama2-mha", "cpu", "", Offloading::kAlways).message(),
              testing::HasSubstr("2 layers"));
  for (const Offloading unforced : {Offloading::kAuto, Offloading::kOff}) {
    EXPECT_TRUE(refusal("llama3-gqa", "2xcpu", "pp=2", unforced).ok());
    EXPECT_TRUE(refusal("mistral", "cpu", "", unforced).ok());
  }
}

}  // namespace
}  // namespace forebay
