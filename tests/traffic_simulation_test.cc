// People beside a batch in virtual time: what each of the two gets, by the policy that knows them.
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace forebay::trace
