#include "engine/step_price.h"

#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "model/decoder.h"

namespace forebay::engine {
namespace {

constexpr uint64_t kPage = 4096;

// Adds up what is enqueued, by what bounds it.
class PriceStream final : public device::Stream {
 public:
  PriceStream(const cost::DeviceProfile& profile, cost::Calibration calibration) : profile_(profile), calibration_(calibration) {}

  void Enqueue(const device::Operation& operation) override { Add(operation.desc); }
  void Add(const cost::OpDesc& desc) {
    const cost::PriceResult price = cost::Price(desc, profile_, calibration_);
    seconds_[static_cast<size_t>(price.bound)] += static_cast<double>(times_) * price.seconds;
  }
  void Record(device::DeviceEvent&) override {}
  void Wait(const device::DeviceEvent&) override {}
  void Post(device::Counter&, uint64_t) override {}
  void Await(device::Counter&, uint64_t) override {}
  void BeginRepeat(int64_t times, uint64_t) override { times_ = times; }
  int64_t EndRepeat() override { return std::exchange(times_, 1); }

  // Of what was added since the last call.
  double Take(const cost::CopyLoad& load) {
    double sum = 0;
    for (size_t bound = 0; bound < seconds_.size(); ++bound) {
      sum += std::exchange(seconds_[bound], 0) * cost::Interference(static_cast<cost::Bound>(bound), load, profile_);
    }
    return sum;
  }

 private:
  const cost::DeviceProfile& profile_;
  const cost::Calibration calibration_;
  int64_t times_ = 1;
  std::array<double, 3> seconds_{};  // [Bound]
};

// A region of addresses that nothing reads.
device::Region Addresses(std::string name, uint64_t bytes) {
  return {.name = std::move(name), .data = reinterpret_cast<std::byte*>(kPage), .bytes = bytes};
}

// Ranks that are all this one: their regions are its own, and nobody waits.
class ShapeFabric final : public fabric::Fabric {
 public:
  ShapeFabric(int num_ranks, const device::Region& staging) : num_ranks_(num_ranks), staging_(staging) {}

  int rank() const override { return 0; }
  int num_ranks() const override { return num_ranks_; }
  base::Status Publish(const device::Region&) override { return base::Status::Ok(); }
  base::Result<fabric::PreparedPull> Prepare(const fabric::CopyPlan&) const override { return fabric::PreparedPull{}; }
  void Pull(device::Stream&, const fabric::PreparedPull&, std::span<const uint8_t>, std::span<device::DeviceEvent* const>) override {}
  base::Result<const device::Region*> FindRegion(int, std::string_view) const override { return &staging_; }
  void Post(device::Stream&, int, int, uint64_t) override {}
  void Await(device::Stream&, int, int, uint64_t) override {}
  void Abort(const base::Status&) override {}
  base::Status status() const override { return base::Status::Ok(); }
  uint64_t bytes_pulled() const override { return 0; }

 private:
  const int num_ranks_;
  const device::Region& staging_;
};

}  // namespace

// Shapes and addresses of a rank, as on a simulated device.
struct StepPricer::Program {
  Program(const model::ModelConfig& config, tensor::DType dtype, int tp, int64_t max_batch,
          const cost::DeviceProfile& device_profile, cost::Calibration calibration)
      : profile(device_profile), stream(device_profile, calibration) {
    const model::ReplicaCut cut{.tp = tp};
    const model::DecoderPlan plan = model::PlanDecoder(config, dtype, 1, cut);
    // Tables say where tiles lie: they are written.
    tables.resize(plan.table_bytes() + kPage);
    const device::Region table_region{.name = "weight tables", .data = tables.data(), .bytes = tables.size()};
    decoder = {.config = &config, .dtype = dtype, .kernels = &kernels::RefKernels(), .stream = &stream,
               .capacity = {max_batch, max_batch}};
    decoder.weights = model::LoadDecoder(plan, nullptr, Addresses("weights", plan.bytes()), table_region, {}, 1).value();
    const device::Region workspace = Addresses("workspace", model::ActivationBytes(config, dtype, decoder.capacity, cut));
    device::RegionCutter cutter(workspace);
    decoder.activations = model::CutActivations(config, dtype, decoder.capacity, &cutter, cut);
    const model::Shard& shard = decoder.weights.shard;
    decoder.kv = model::CutKvCache(model::PlanKvGroups(config, dtype, shard.layers, shard.kv_heads.size()), 0, false, nullptr);
    if (tp == 1) return;
    staging = Addresses("staging", model::TensorStagingBytes(config, decoder.capacity, cut));
    fabric = std::make_unique<ShapeFabric>(tp, staging);
    fabric::Communicator ranks;
    for (int rank = 0; rank < tp; ++rank) ranks.ranks.push_back(rank);
    exchange.emplace(fabric::Exchange::Create(*fabric, ranks, staging, fabric::kTensorChannel).value());
    decoder.links.tensor = &*exchange;
  }

  const cost::DeviceProfile& profile;
  PriceStream stream;
  std::vector<std::byte> tables;
  device::Region staging;
  std::unique_ptr<ShapeFabric> fabric;
  std::optional<fabric::Exchange> exchange;
  model::Decoder decoder;
};

StepPricer::StepPricer(const model::ModelConfig& config, tensor::DType dtype, int tp, int64_t max_batch,
                       const cost::DeviceProfile& profile, cost::Calibration calibration)
    : program_(std::make_unique<Program>(config, dtype, tp, max_batch, profile, calibration)) {}
StepPricer::~StepPricer() = default;

double StepPricer::Seconds(int64_t batch, int64_t context, double pulled_per_s) const {
  kernels::ContextSums sums;
  for (int64_t i = 0; i < batch; ++i) sums.Add(context - 1, 1);
  const auto rows = static_cast<int32_t>(batch);
  const kernels::StepBatch step{.num_rows = rows, .num_sequences = rows, .num_logit_rows = rows};
  const model::Decoder& decoder = program_->decoder;
  decoder.Forward(step, sums);
  decoder.Logits(step, 0, rows);
  const int64_t vocab = decoder.config->vocab_size;
  program_->stream.Add({.kind = cost::OpKind::kSample, .label = "sample", .rows = batch, .columns = vocab,
                        .read_bytes = static_cast<double>(batch * vocab) * sizeof(float)});
  const double host = program_->profile.step_overhead_s + program_->profile.sequence_overhead_s * static_cast<double>(batch);
  return host + program_->stream.Take({.in = pulled_per_s, .out = pulled_per_s});
}

}  // namespace forebay::engine
