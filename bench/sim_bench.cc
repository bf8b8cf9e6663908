// What the device plane of a simulated run costs: `sim_bench [rounds, default 5]`. Steps of
// Qwen3-32B on a simulated H200, and the pool's slot protocol on eight ranks; the best of the
// rounds, since others may use the machine.
#include <fmt/core.h>
#include <time.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <memory>

#include "bench/limits.h"
#include "cost/model.h"
#include "device/sim/sim_device.h"
#include "fabric/testing/pool_program.h"
#include "model/builtin_configs.h"
#include "model/testing/shape_decoder.h"
#include "runtime/virtual/virtual_runtime.h"

namespace forebay {
namespace {

// Seconds of this thread, so that others on the machine disturb less.
double CpuNow() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

device::SimPrice PriceOn(const cost::DeviceProfile& profile, const cost::OpDesc& op) {
  const cost::PriceResult price = cost::Price(op, profile);
  return {.seconds = price.seconds, .compute_bound = price.bound == cost::Bound::kCompute};
}

// Seconds of host time a decode step of `rows` sequences takes on the device plane.
double StepSeconds(const model::ModelConfig& config, const cost::DeviceProfile& profile, int rows,
                   device::SimDetail detail, int steps) {
  double seconds = 0;
  runtime::VirtualRuntime runtime(1);
  const base::Status status = runtime.Run([&] {
    device::EventEngine engine(runtime, 1);
    const auto device = device::CreateSimDevice(
        engine, {.memory_bytes = uint64_t{141} << 30,
                 .price = [&profile](const cost::OpDesc& op) { return PriceOn(profile, op); },
                 .detail = detail});
    const model::Decoder decoder = model::MakeShapeDecoder(config, *device, rows);
    const auto done = device->NewEvent();
    kernels::StepBatch batch{.num_rows = rows, .num_sequences = rows, .num_logit_rows = rows};
    kernels::ContextSums context{.decode_rows = rows, .decode_context = 1000 * rows};
    const double start = CpuNow();
    for (int step = 0; step < steps; ++step) {
      context.decode_context += rows;
      decoder.Forward(batch, context);
      decoder.WantedRows(batch, 0, rows);
      decoder.Logits(rows);
      device::Operation sample;
      sample.desc = {.kind = cost::OpKind::kSample,
                     .label = "sample",
                     .rows = rows,
                     .columns = config.vocab_size};
      decoder.stream->Enqueue(sample);
      decoder.stream->Record(*done);
      device->WaitFor(*done);
    }
    seconds = (CpuNow() - start) / steps;
  });
  FB_CHECK(status.ok(), "{}", status.ToString());
  return seconds;
}

double Best(int rounds, const std::function<double()>& measure) {
  double best = measure();
  for (int round = 1; round < rounds; ++round) best = std::min(best, measure());
  return best;
}

void MeasureSteps(int rounds) {
  const model::ModelConfig config = model::LoadBuiltinConfig("Qwen3-32B").value();
  const cost::DeviceProfile profile = cost::LoadProfile("h200").value();
  fmt::print(
      "\n## Decode steps without transfers\n\nQwen3-32B (64 layers), H200, host time of the device "
      "plane.\n\n"
      "| batch | us a step | rank-steps/s | full: us a step | full: rank-steps/s "
      "|\n|---|---|---|---|---|\n");
  for (const int rows : {1, 64, 512}) {
    const double jump = Best(rounds, [&] {
      return StepSeconds(config, profile, rows, device::SimDetail::kJump, 20'000);
    });
    const double full = Best(
        rounds, [&] { return StepSeconds(config, profile, rows, device::SimDetail::kFull, 500); });
    fmt::print("| {} | {:.2f} | {:.0f} | {:.1f} | {:.0f} |\n", rows, jump * 1e6, 1 / jump,
               full * 1e6, 1 / full);
  }
}

struct PoolCase {
  const char* name;
  double kernel_spread;
  fabric::PeerOrder order;
};

void MeasurePool(int rounds) {
  fmt::print(
      "\n## Eight ranks that pull\n\nA layer is eight tiles of 94 MB, one a rank; every rank pulls "
      "the other seven "
      "into one of two slots, 8 kernels a layer, two requests in flight, each with a latency of 1 "
      "us.\n\n"
      "| layers | ranks and order of peers | transfers a rank-step | us a rank-step | rank-steps/s "
      "| ns an event |\n"
      "|---|---|---|---|---|---|\n");
  for (const int layers : {8, 64}) {
    for (const PoolCase& pool : {PoolCase{"equal, rotated", 0, fabric::PeerOrder::kRotated},
                                 PoolCase{"unequal, rotated", 0.01, fabric::PeerOrder::kRotated},
                                 PoolCase{"equal, as listed", 0, fabric::PeerOrder::kAsListed}}) {
      const fabric::PoolProgram program{.num_layers = layers,
                                        .num_steps = 256 / layers,
                                        .kernels = 8,
                                        .kernel_ns = 180'000,
                                        .kernel_spread = pool.kernel_spread,
                                        .tile_bytes = 94 << 20,
                                        .link_bytes_per_s = 450e9,
                                        .request_latency_s = 1e-6,
                                        .copy_memory_weight = 1,
                                        .slice_bytes = 94 << 20,
                                        .order = pool.order,
                                        .checked = false};
      int64_t events = 0;
      const double seconds = Best(rounds, [&] {
        const double start = CpuNow();
        const fabric::PoolOutcome outcome = fabric::RunPoolProgram(program);
        FB_CHECK(outcome.status.ok(), "{}", outcome.status.ToString());
        events = outcome.num_events;
        return CpuNow() - start;
      });
      const double rank_steps = program.num_steps * fabric::kPoolRanks;
      fmt::print("| {} | {} | {} | {:.1f} | {:.0f} | {:.0f} |\n", layers, pool.name, layers * 7,
                 seconds / rank_steps * 1e6, rank_steps / seconds,
                 seconds / static_cast<double>(events) * 1e9);
    }
  }
}

}  // namespace
}  // namespace forebay

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 5;
  fmt::print(
      "# The simulator's device plane\n\n`sim_bench {}` on {}, kernels {}: CPU time of one thread, "
      "the best of {} rounds.\n",
      rounds, forebay::bench::CpuName(), forebay::kernels::AvailableKernels().front()->name,
      rounds);
  forebay::MeasureSteps(rounds);
  forebay::MeasurePool(rounds);
}
