#include "engine/step_price.h"

#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "model/decoder.h"

namespace forebay::engine {
namespace {

constexpr uint64_t kPage = 4096;

// Adds up what is enqueued.
class PriceStream final : public device::Stream {
 public:
  PriceStream(const cost::DeviceProfile& profile, cost::Calibration calibration) : profile_(profile), calibration_(calibration) {}

  void Enqueue(const device::Operation& operation) override { Add(operation.desc); }
  void Add(const cost::OpDesc& desc) {
    const std::string_view label = desc.label;
    const bool ffn = label == "gate_up" || label == "down";
    (ffn ? price_.ffn : price_.rest) += cost::WorkOf(desc, profile_, calibration_) * static_cast<double>(times_);
  }
  void Record(device::DeviceEvent&) override {}
  void Wait(const device::DeviceEvent&) override {}
  void Post(device::Counter&, uint64_t) override {}
  void Await(device::Counter&, uint64_t) override {}
  void BeginRepeat(int64_t times, uint64_t) override { times_ = times; }
  int64_t EndRepeat() override { return std::exchange(times_, 1); }

  // Of what was added since the last call.
  StepPrice Take() { return std::exchange(price_, {}); }

 private:
  const cost::DeviceProfile& profile_;
  const cost::Calibration calibration_;
  int64_t times_ = 1;
  StepPrice price_;
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
  Program(const model::ModelConfig& config, tensor::DType dtype, int tp, const model::StepCapacity& capacity,
          const cost::DeviceProfile& device_profile, cost::Calibration calibration)
      : profile(device_profile), stream(device_profile, calibration) {
    const model::ReplicaCut cut{.tp = tp};
    const model::DecoderPlan plan = model::PlanDecoder(config, dtype, 1, cut);
    // Tables say where tiles lie: they are written.
    tables.resize(plan.table_bytes() + kPage);
    const device::Region table_region{.name = "weight tables", .data = tables.data(), .bytes = tables.size()};
    decoder = {.config = &config, .dtype = dtype, .kernels = &kernels::RefKernels(), .stream = &stream,
               .capacity = capacity};
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

StepPricer::StepPricer(const model::ModelConfig& config, tensor::DType dtype, int tp, const model::StepCapacity& capacity,
                       const cost::DeviceProfile& profile, cost::Calibration calibration)
    : program_(std::make_unique<Program>(config, dtype, tp, capacity, profile, calibration)) {}
StepPricer::~StepPricer() = default;

const cost::DeviceProfile& StepPricer::profile() const { return program_->profile; }
const model::Decoder& StepPricer::decoder() const { return program_->decoder; }

StepPrice StepPricer::Decode(int64_t batch, int64_t context) const {
  kernels::ContextSums sums;
  for (int64_t i = 0; i < batch; ++i) sums.Add(context - 1, 1);
  const auto rows = static_cast<int32_t>(batch);
  const kernels::StepBatch step{.num_rows = rows, .num_sequences = rows, .num_logit_rows = rows};
  const model::Decoder& decoder = program_->decoder;
  decoder.Forward(step, sums);
  const int64_t vocab = decoder.config->vocab_size;
  for (int64_t first = 0; first < batch; first += decoder.capacity.logit_rows) {
    const int64_t count = std::min(decoder.capacity.logit_rows, batch - first);
    decoder.Logits(step, static_cast<int32_t>(first), static_cast<int32_t>(count));
    program_->stream.Add({.kind = cost::OpKind::kSample, .label = "sample", .rows = count, .columns = vocab,
                          .read_bytes = static_cast<double>(count * vocab) * sizeof(float)});
  }
  return program_->stream.Take();
}

namespace {

// Of a shipped layer: rows to its owners, partial sums back, over the links of those that send or get most.
double ExchangeSeconds(const StepPricer& pricer, const model::ShipPlan& ship, int64_t rows) {
  if (ship.max_planes == 0) return 0;
  const model::Decoder& decoder = pricer.decoder();
  const auto sent = (ship.num_ranks - 1) * static_cast<int64_t>(tensor::SizeOf(decoder.dtype)) +
                    (ship.num_members() - 1) * ship.max_planes * static_cast<int64_t>(sizeof(float));
  const auto bytes = static_cast<double>(rows * decoder.config->hidden_size * sent);
  return 2 * pricer.profile().link_latency_s + bytes / cost::PullRate(pricer.profile());
}

}  // namespace

double ShipThreshold(const StepPricer& pricer, const model::PoolPlan& pool, const model::ShipPlan& ship, int64_t context) {
  const double fetch = static_cast<double>(pool.book->StepBytes(pool.rank)) / cost::PullRate(pricer.profile());
  const double pooled = static_cast<double>(pool.options.layers) / static_cast<double>(ship.leaves.size());
  const int ranks = ship.options.gather ? 1 : ship.num_ranks;
  const double owners = std::max(ship.max_owners, 1);
  const auto ships = [&](int64_t rows) {
    const StepPrice own = pricer.Decode(rows, context), joined = pricer.Decode(ranks * rows, context);
    const double shipped = own.all().seconds + pooled * (joined.ffn.seconds / owners - own.ffn.seconds) +
                           static_cast<double>(pool.options.layers) * ExchangeSeconds(pricer, ship, rows);
    return shipped < std::max(own.all().seconds, fetch);
  };
  int64_t pulled = pricer.decoder().capacity.rows / ranks + 1, shipped = 0;  // rows of steps that pull, and that ship
  while (pulled - shipped > 1) {
    const int64_t middle = shipped + (pulled - shipped) / 2;
    (ships(middle) ? shipped : pulled) = middle;
  }
  return static_cast<double>(pulled);
}

}  // namespace forebay::engine
