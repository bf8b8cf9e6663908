// People beside a batch in virtual time: what each of the two gets, by the policy that knows them.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "layout/machine.h"
#include "trace/simulation.h"

namespace forebay::trace {
namespace {

constexpr double kTargetMs = 40;

SimulationOptions TrafficOptions(const LengthTrace& people, const LengthTrace& batch,
                                 const char* policy) {
  SimulationOptions options;
  options.engine.model = "builtin:Llama-3.1-70B";
  options.engine.machine.devices = *layout::ParseDevices("sim:8xh200");
  options.engine.machine.quantization.format = cost::NumberFormat::kFP8;
  options.engine.layout = *layout::ParseLayout("sp=8");
  options.engine.limits.max_num_batched_tokens = 8192;
  options.engine.limits.target_itl_ms = kTargetMs;
  options.engine.policy = *schedule::FindPolicy(policy);
  options.trace = &people;
  options.batch_trace = &batch;
  options.each_token = true;
  return options;
}

LengthTrace TrafficTrace(const std::string& spec) {
  return *ReadTrace("synthetic:prompt=2000," + spec, {});
}

CountedRun RunTraffic(const SimulationOptions& options) {
  auto result = Simulate(options);
  EXPECT_TRUE(result.ok()) << result.status().ToString();
  if (!result.ok()) return {};
  EXPECT_EQ(result->run.summary.failed, 0);
  return std::move(result->run);
}

// Four clients that ask again and again keep their tokens' times beside a batch, which keeps half
// of its rate.
TEST(TrafficSimulation, PeopleKeepTheirLatencyBesideABatch) {
  const LengthTrace people = TrafficTrace("n=120,output=200,service=interactive"),
                    batch = TrafficTrace("n=400,output=200"), nothing;
  SimulationOptions options = TrafficOptions(people, batch, "interactive");
  options.arrivals.max_concurrency = 4;
  const CountedRun both = RunTraffic(options);
  options.batch_trace = &nothing;
  const CountedRun alone = RunTraffic(options);
  options.trace = &nothing;
  options.batch_trace = &batch;
  const CountedRun batch_alone = RunTraffic(options);
  const auto people_of = [](const CountedRun& run) { return run.interactive->latencies; };
  EXPECT_LT(1e3 * people_of(both).tokens.between.p95, 1.2 * kTargetMs);
  EXPECT_LT(people_of(both).first_token.p95, 2 * people_of(alone).first_token.p95);
  const auto rate = [](const CountedRun& run) {
    const job::StreamTokens& tokens = run.batch->tokens;
    return tokens.PerSecond(tokens.prompt + tokens.output);
  };
  EXPECT_GT(rate(both), 0.5 * rate(batch_alone));
  EXPECT_EQ(both.batch->tokens.requests, 400);
  EXPECT_EQ(both.interactive->tokens.requests, 120);
}

// A batch alone has the rate that it has under `continuous`.
TEST(TrafficSimulation, ABatchAloneKeepsItsRate) {
  const LengthTrace nothing, batch = TrafficTrace("n=400,output=uniform(20,300)");
  const auto seconds = [&](const char* policy) {
    return RunTraffic(TrafficOptions(nothing, batch, policy)).summary.elapsed_seconds;
  };
  EXPECT_LT(seconds("interactive"), seconds("continuous") / 0.99);
}

// A burst into a batch that has all places runs as if these were free.
TEST(TrafficSimulation, ABurstTakesTheBatchsPlaces) {
  LengthTrace people = TrafficTrace("n=16,output=50,service=interactive"), nothing;
  for (TraceRow& row : people.rows) row.arrival_seconds = 20;
  const LengthTrace batch = TrafficTrace("n=200,output=400");
  SimulationOptions options = TrafficOptions(people, batch, "interactive");
  options.engine.limits.max_num_seqs = 32;
  const CountedRun beside = RunTraffic(options);
  options.batch_trace = &nothing;
  const CountedRun empty = RunTraffic(options);
  EXPECT_GE(beside.summary.stats.preemptions, 16);
  EXPECT_LE(beside.summary.stats.preemptions, 2 * 16);
  EXPECT_LT(beside.interactive->latencies.first_token.max,
            1.2 * empty.interactive->latencies.first_token.max + 1e-3 * kTargetMs);
}

// The batch whose answers are wanted first runs first.
TEST(TrafficSimulation, DeadlinesOrderBatches) {
  LengthTrace batch = TrafficTrace("n=200,output=200"), nothing;
  for (size_t i = 100; i < batch.rows.size(); ++i) {
    batch.rows[i].deadline_seconds = 30;
    batch.rows[i].output_tokens = 190;  // tells them from the others
  }
  SimulationOptions options = TrafficOptions(nothing, batch, "interactive");
  options.engine.limits.max_num_seqs = 64;
  const CountedRun run = RunTraffic(options);
  double last_due = 0, first_other = 1e9;
  for (const job::RequestTimes& times : run.batch->latencies.requests) {
    if (times.longest == 190) last_due = std::max(last_due, times.end);
    if (times.longest == 200) first_other = std::min(first_other, times.end);
  }
  EXPECT_GT(last_due, 0);
  EXPECT_LT(last_due, first_other + 5);
  // Who is late is counted.
  EXPECT_LT(last_due, 30);
  EXPECT_EQ(run.latencies.with_deadline, 100);
  EXPECT_EQ(run.latencies.late, 0);
  for (size_t i = 100; i < batch.rows.size(); ++i) batch.rows[i].deadline_seconds = 0.5;
  const CountedRun late = RunTraffic(options);
  EXPECT_EQ(late.batch->latencies.late, 100);
  EXPECT_NEAR(late.batch->latencies.most_late, last_due - 0.5, 0.05 * last_due);
}

// A batch that comes while another has all places, and would miss its deadline behind it: the other
// gives way, in time and no more than it must, and people keep their target.
TEST(TrafficSimulation, ABatchThatWouldBeLateGoesFirst) {
  LengthTrace people = TrafficTrace("n=60,output=100,service=interactive,rate=1"),
              batch = TrafficTrace("n=110,output=4000");
  constexpr size_t kDue = 32;
  constexpr double kCome = 20, kDeadline = 75;
  for (size_t i = batch.rows.size() - kDue; i < batch.rows.size(); ++i)
    batch.rows[i].output_tokens = 400;
  for (TraceRow& row : batch.rows) row.arrival_seconds = row.output_tokens == 400 ? kCome : 0;
  SimulationOptions options = TrafficOptions(people, batch, "interactive");
  options.engine.limits.max_num_seqs = 64;
  const auto last_due = [](const CountedRun& run) {
    double last = 0;
    for (const job::RequestTimes& times : run.batch->latencies.requests) {
      if (times.longest == 400) last = std::max(last, times.end);
    }
    return last;
  };
  const CountedRun without = RunTraffic(options);
  EXPECT_GT(last_due(without), kDeadline);
  for (TraceRow& row : batch.rows) {
    if (row.output_tokens == 400) row.deadline_seconds = kDeadline;
  }
  const CountedRun run = RunTraffic(options);
  EXPECT_LT(last_due(run), kDeadline);
  EXPECT_EQ(run.batch->latencies.with_deadline, static_cast<int64_t>(kDue));
  EXPECT_EQ(run.batch->latencies.late, 0);
  const int64_t gave_way = run.summary.stats.preemptions - without.summary.stats.preemptions;
  EXPECT_GT(gave_way, 0);
  EXPECT_LE(gave_way, static_cast<int64_t>(kDue) + 8);
  EXPECT_LT(1e3 * run.interactive->latencies.tokens.between.p95, 1.2 * kTargetMs);
  EXPECT_EQ(run.batch->tokens.requests, 110);
}

// Watches what each step has of both services.
class TrafficWatch final : public StepObserver {
 public:
  explicit TrafficWatch(double until) : until_(until) {}
  void OnStep(const StepRecord& record) override {
    if (record.end_seconds > until_) return;
    const int32_t batch = record.decode_rows + record.prefill_rows -
                          record.interactive_decode_rows - record.interactive_prefill_rows;
    ++steps;
    without_batch += batch == 0 ? 1 : 0;
    most_waiting = std::max(most_waiting, record.waiting);
    last_batch = batch > 0 ? record.end_seconds : last_batch;
    longest_gap = std::max(longest_gap, record.end_seconds - last_batch);
  }
  int64_t steps = 0, without_batch = 0;
  int32_t most_waiting = 0;
  double last_batch = 0, longest_gap = 0;

 private:
  const double until_;
};

// Twenty minutes in which more people come than can be served: a batch gets its one row of each
// step, what waits in the engine is bounded, and all come to their ends.
TEST(TrafficSimulation, TwentyMinutesOfTooManyPeople) {
  constexpr double kSeconds = 1200;
  LengthTrace people = TrafficTrace("n=3333,output=40,service=interactive,rate=2.75");
  for (TraceRow& row : people.rows) row.prompt_tokens = 16000;
  const LengthTrace batch = TrafficTrace("n=333,output=100");
  SimulationOptions options = TrafficOptions(people, batch, "interactive");
  options.engine.limits.target_itl_ms = 400;
  options.engine.limits.max_num_seqs = 32;
  options.each_token = false;
  TrafficWatch watch(kSeconds);
  options.observer = &watch;
  const CountedRun run = RunTraffic(options);
  EXPECT_GT(run.interactive->latencies.first_token.max, 60) << "they could be served";
  EXPECT_EQ(run.interactive->tokens.requests, 3333);
  EXPECT_EQ(run.batch->tokens.requests, 333);
  EXPECT_GT(watch.steps, 1200);
  EXPECT_LT(watch.without_batch, watch.steps / 100);
  EXPECT_LE(watch.most_waiting, 2 * 32);
}

// Counts batch rows beside people who decode.
class OneRowWatch final : public StepObserver {
 public:
  void OnStep(const StepRecord& record) override {
    if (record.interactive_decode_rows == 0) return;
    const int32_t batch = record.decode_rows + record.prefill_rows -
                          record.interactive_decode_rows - record.interactive_prefill_rows;
    ++steps;
    with_batch += batch > 0 ? 1 : 0;
    most = std::max(most, batch);
  }
  int64_t steps = 0, with_batch = 0;
  int32_t most = 0;
};

TEST(TrafficSimulation, ATargetBelowAStepLeavesABatchItsRow) {
  const LengthTrace people = TrafficTrace("n=40,output=60,service=interactive"),
                    batch = TrafficTrace("n=30,output=50");
  SimulationOptions options = TrafficOptions(people, batch, "interactive");
  options.arrivals.max_concurrency = 4;
  options.engine.limits.target_itl_ms = 1e-3;
  OneRowWatch watch;
  options.observer = &watch;
  testing::internal::CaptureStderr();
  const CountedRun run = RunTraffic(options);
  const std::string log = testing::internal::GetCapturedStderr();
  constexpr std::string_view kSaid = "beside interactive answers batches get one row a step";
  const size_t said = log.find(kSaid);
  EXPECT_NE(said, log.npos) << log;
  EXPECT_EQ(log.find(kSaid, said + 1), log.npos) << "once";
  EXPECT_GT(watch.steps, 500);
  EXPECT_EQ(watch.most, 1);
  EXPECT_GT(watch.with_batch, watch.steps * 9 / 10);
  EXPECT_EQ(run.interactive->tokens.requests, 40);
  EXPECT_EQ(run.batch->tokens.requests, 30);
}

// A batch that comes behind more people than are read ahead begins at once, not behind them.
TEST(TrafficSimulation, ABatchBehindACrowdBegins) {
  const LengthTrace people = TrafficTrace("n=600,output=40,service=interactive");
  LengthTrace batch = TrafficTrace("n=20,output=10");
  for (TraceRow& row : batch.rows) row.arrival_seconds = 1;
  SimulationOptions options = TrafficOptions(people, batch, "interactive");
  options.engine.limits.max_num_seqs = 8;
  const CountedRun run = RunTraffic(options);
  const auto first_end = [](const ServiceRun& stream) {
    double first = std::numeric_limits<double>::infinity();
    for (const job::RequestTimes& times : stream.latencies.requests)
      first = std::min(first, times.end);
    return first;
  };
  const double people_end = run.interactive->tokens.end_seconds;
  EXPECT_LT(first_end(*run.batch), 0.2 * people_end);
  EXPECT_LT(run.batch->tokens.end_seconds, 0.9 * people_end);
  EXPECT_EQ(run.interactive->tokens.requests, 600);
  EXPECT_EQ(run.batch->tokens.requests, 20);
}

// Prompts of the whole context among short chats: they run in chunks under the target.
TEST(TrafficSimulation, WholeContextsAmongShortChats) {
  LengthTrace people = TrafficTrace("n=120,output=200,service=interactive,rate=2"), nothing;
  for (size_t i = 0; i < people.rows.size(); ++i) {
    people.rows[i].prompt_tokens = i % 30 == 10 ? 131'000 : 200;
    if (i % 30 == 10) people.rows[i].output_tokens = 20;
  }
  const CountedRun run = RunTraffic(TrafficOptions(people, nothing, "interactive"));
  EXPECT_LT(1e3 * run.interactive->latencies.tokens.between.p95, 1.2 * kTargetMs);
  EXPECT_EQ(run.interactive->tokens.requests, 120);
}

// Burst after burst into a batch that has all places: what gives way does so twice at most on
// average, since what people held stays free.
TEST(TrafficSimulation, BurstsPreemptABatchChoiceTwiceAtMost) {
  LengthTrace people = TrafficTrace("n=160,output=50,service=interactive");
  for (size_t i = 0; i < people.rows.size(); ++i)
    people.rows[i].arrival_seconds = 10 + 8 * static_cast<double>(i / 16);
  const LengthTrace batch = TrafficTrace("n=300,output=800");
  SimulationOptions options = TrafficOptions(people, batch, "interactive");
  options.engine.limits.max_num_seqs = 32;
  const CountedRun run = RunTraffic(options);
  EXPECT_GE(run.summary.stats.preemptions, 16);
  EXPECT_LE(run.summary.stats.preemptions, 2 * 16);
  EXPECT_EQ(run.batch->tokens.requests, 300);
}

}  // namespace
}  // namespace forebay::trace
