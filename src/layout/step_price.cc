#include "layout/step_price.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "cost/all_reduce.h"
#include "device/lone_worker.h"
#include "model/decoder.h"
#include "model/kv_groups.h"
#include "model/routing.h"

namespace forebay::layout {
namespace {

constexpr uint64_t kPage = 4096;
constexpr int kRounds = 3;  // until step and rate agree within a percent
// Layers of which it is looked at how a law spreads rows.
constexpr int64_t kDraws = 8;

// The nearest of so many numbers an octave.
int64_t Rounded(int64_t count, int an_octave) {
  if (count <= an_octave) return count;
  return std::llround(
      std::exp2(std::round(std::log2(static_cast<double>(count)) * an_octave) / an_octave));
}

StepLoad Decoding(int64_t rows, int64_t context) {
  StepLoad load{.sampled = rows};
  load.sums.decode_rows = rows;
  load.sums.decode_context = rows * context;
  return load;
}

// Adds up what is enqueued.
class PriceStream final : public device::Stream {
 public:
  PriceStream(const cost::DeviceProfile& profile, cost::Calibration calibration)
      : profile_(profile), calibration_(calibration) {}

  void Enqueue(const device::Operation& operation) override {
    if (operation.control) operation.run(operation.args.data(), device::LoneWorker());
    Add(operation.CompleteDesc());
  }
  void Add(const cost::OpDesc& desc) {
    const std::string_view label = desc.label;
    const bool ffn = label == "gate_up" || label == "down" || desc.kind == cost::OpKind::kExperts;
    (ffn ? price_.ffn : price_.rest) +=
        cost::WorkOf(desc, profile_, calibration_) * static_cast<double>(times_);
  }
  void Record(device::DeviceEvent&) override {}
  void Wait(const device::DeviceEvent&) override {}
  void Post(device::Counter&, uint64_t) override {}
  void Await(device::Counter&, uint64_t) override {}
  void BeginRepeat(int64_t times, uint64_t) override { times_ = times; }
  int64_t EndRepeat() override { return std::exchange(times_, 1); }

  // The price of what was added since the last call.
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
  ShapeFabric(int num_ranks, const device::Region& staging)
      : num_ranks_(num_ranks), staging_(staging) {}

  int rank() const override { return 0; }
  int num_ranks() const override { return num_ranks_; }
  base::Status Publish(const device::Region&) override { return base::Status::Ok(); }
  base::Result<fabric::PreparedPull> Prepare(const fabric::CopyPlan&) const override {
    return fabric::PreparedPull{};
  }
  void Pull(device::Stream&, const fabric::PreparedPull&, const int32_t*,
            std::span<device::DeviceEvent* const>) override {}
  base::Result<const device::Region*> FindRegion(int, std::string_view) const override {
    return &staging_;
  }
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

model::AllReducePlan PlanAllReduce(const model::ModelConfig& config, tensor::DType dtype, int tp,
                                   int64_t max_rows, const cost::DeviceProfile& profile,
                                   const StepPricing& pricing) {
  const cost::AllReduceShape shape{.columns = config.hidden_size,
                                   .ranks = tp,
                                   .wire_bytes = pricing.tp_wire_bytes,
                                   .sum_bytes = static_cast<int>(tensor::SizeOf(dtype))};
  return {cost::RowsOfOneMeeting(shape, max_rows, profile, pricing.calibration),
          pricing.tp_wire_bytes};
}

// Shapes and addresses of a rank, as on a simulated device.
struct StepPricer::Program {
  Program(const model::ModelConfig& config, tensor::DType dtype, const model::Degrees& degrees,
          const model::StepCapacity& capacity, const cost::DeviceProfile& device_profile,
          const StepPricing& pricing)
      : profile(device_profile),
        stream(device_profile, pricing.calibration),
        routing(model::ParseRouting("balanced", 0).value()) {
    const model::ReplicaCut cut{
        .tp = degrees.tp, .sp = degrees.sp, .two_step_kv = pricing.two_step_kv};
    const model::DecoderPlan plan = model::PlanDecoder(config, dtype, 1, cut);
    // Tables say where tiles lie: they are written.
    tables.resize(plan.table_bytes() + kPage);
    const device::Region table_region{
        .name = "weight tables", .data = tables.data(), .bytes = tables.size()};
    decoder.config = &config;
    decoder.dtype = dtype;
    decoder.kernels = &kernels::RefKernels();
    decoder.stream = &stream;
    decoder.capacity = capacity;
    decoder.routing = routing.get();
    decoder.weights =
        model::LoadDecoder(plan, nullptr, Addresses("weights", plan.bytes()), table_region, {}, 1)
            .value();
    const device::Region workspace =
        Addresses("workspace", model::ActivationBytes(config, dtype, decoder.capacity, cut));
    device::RegionCutter cutter(workspace);
    decoder.activations = model::CutActivations(config, dtype, decoder.capacity, &cutter, cut);
    const model::Shard& shard = decoder.weights.shard;
    decoder.kv =
        kv::CutCache(model::PlanKvGroups(config, dtype, shard.layers, shard.own_kv_heads.size()), 0,
                     false, nullptr);
    staging = Addresses("staging",
                        std::max({model::TensorStagingBytes(config, dtype, decoder.capacity, cut),
                                  model::SequenceStagingBytes(config, dtype, decoder.capacity, cut),
                                  model::HeadStagingBytes(config, decoder.capacity, cut)}));
    fabric = std::make_unique<ShapeFabric>(degrees.ranks(), staging);
    const auto meet = [&](int count, int channel) -> fabric::Exchange* {
      if (count == 1) return nullptr;
      fabric::Communicator ranks;
      for (int rank = 0; rank < count; ++rank) ranks.ranks.push_back(rank);
      return &exchanges.emplace_back(
          fabric::Exchange::Create(*fabric, ranks, staging, channel).value());
    };
    decoder.links.tensor = meet(degrees.tp, fabric::kTensorChannel);
    decoder.links.all_reduce =
        PlanAllReduce(config, dtype, degrees.tp, capacity.rows, device_profile, pricing);
    decoder.links.sequence = meet(degrees.sp, fabric::kSequenceChannel);
    if (degrees.sp > 1) decoder.links.stage = meet(degrees.ranks(), fabric::kHeadChannel);
  }

  const cost::DeviceProfile& profile;
  PriceStream stream;
  const std::shared_ptr<const kernels::RoutingSource> routing;
  std::vector<std::byte> tables;
  device::Region staging;
  std::unique_ptr<ShapeFabric> fabric;
  std::deque<fabric::Exchange> exchanges;
  model::Decoder decoder;
  std::map<std::array<int64_t, 5>, StepPrice> near;
};

StepPricer::StepPricer(const model::ModelConfig& config, tensor::DType dtype,
                       const model::Degrees& degrees, const model::StepCapacity& capacity,
                       const cost::DeviceProfile& profile, const StepPricing& pricing)
    : program_(std::make_unique<Program>(config, dtype, degrees, capacity, profile, pricing)) {}
StepPricer::~StepPricer() = default;

const cost::DeviceProfile& StepPricer::profile() const { return program_->profile; }
const model::Decoder& StepPricer::decoder() const { return program_->decoder; }

StepPrice StepPricer::Decode(int64_t batch, int64_t context) const {
  return Step(Decoding(batch, context));
}

StepPrice StepPricer::Prompts(int64_t rows, int64_t length) const {
  StepLoad load;
  for (int64_t left = rows; left > 0; left -= length, ++load.sampled)
    load.sums.Add(0, std::min(left, length));
  return Step(load);
}

StepPrice StepPricer::Step(const StepLoad& load) const {
  const auto rows = static_cast<int32_t>(load.rows());
  const auto sequences = static_cast<int32_t>(load.sums.decode_rows + load.sums.prefill_sequences);
  const auto sampled = static_cast<int32_t>(load.sampled);
  std::vector<int32_t> wanted(static_cast<size_t>(sampled));
  std::iota(wanted.begin(), wanted.end(), rows - sampled);
  const kernels::StepBatch step{.num_rows = rows,
                                .num_sequences = sequences,
                                .num_logit_rows = sampled,
                                .logit_rows = wanted.data()};
  const model::Decoder& decoder = program_->decoder;
  decoder.Forward(step, load.sums);
  const int64_t vocab = decoder.config->vocab_size;
  for (int64_t first = 0; first < load.sampled; first += decoder.capacity.logit_rows) {
    const int64_t count = std::min(decoder.capacity.logit_rows, load.sampled - first);
    decoder.Logits(step, static_cast<int32_t>(first), static_cast<int32_t>(count));
    program_->stream.Add({.kind = cost::OpKind::kSample,
                          .label = "sample",
                          .rows = count,
                          .columns = vocab,
                          .read_bytes = static_cast<double>(count * vocab) * sizeof(float)});
  }
  return program_->stream.Take();
}

const StepPrice& StepPricer::Near(const StepLoad& load) const {
  const kernels::ContextSums& sums = load.sums;
  // One more row that is drawn costs little beside one more that is computed.
  std::array<int64_t, 5> key{Rounded(sums.decode_rows, 32), Rounded(sums.decode_context, 16),
                             Rounded(sums.prefill_rows, 16), Rounded(sums.prefill_context, 8),
                             Rounded(sums.prefill_sequences, 4)};
  // Routes of rows to experts are written, where the step's arrays have room.
  if (program_->decoder.config->moe)
    key[0] = std::min(key[0], program_->decoder.capacity.rows - key[2]);
  const auto [found, is_new] = program_->near.try_emplace(key);
  if (!is_new) return found->second;
  StepLoad rounded{.sums = {.prefill_sequences = key[4],
                            .prefill_rows = key[2],
                            .prefill_context = key[3],
                            .decode_rows = key[0],
                            .decode_context = key[1]}};
  rounded.sampled = std::max<int64_t>(1, key[0]);
  return found->second = Step(rounded);
}

uint64_t PullBytes(const share::PoolPlan& pool) {
  // Of an expert there may be several owners.
  if (pool.options.experts != "replicated") return pool.book->StepBytes(pool.rank);
  const uint64_t given =
      pool.book->held_bytes(pool.rank) * static_cast<uint64_t>(pool.num_ranks - 1);
  return std::max(pool.book->StepBytes(pool.rank), given);
}

double SecondsBeside(const cost::Work& step, const StepPulls& pulls) {
  double seconds = step.seconds;
  for (int i = 0; i < kRounds && pulls.bytes > 0; ++i) {
    const double rate = static_cast<double>(pulls.bytes) / std::max(seconds, pulls.seconds());
    seconds = step.seconds * cost::Slowdown(step, {.in = rate, .out = rate}, pulls.contention);
  }
  return seconds;
}

namespace {

// What a shipped layer sends: rows to its owners, partial sums back, over the links of those that
// send or get most.
double ExchangeSeconds(const StepPricer& pricer, const share::ShipPlan& ship, int64_t rows) {
  const model::Decoder& decoder = pricer.decoder();
  const auto seconds = [&](double bytes) {
    return 2 * pricer.profile().link_latency_s + bytes / cost::PullRate(pricer.profile());
  };
  if (ship.num_experts > 0) {
    // A row goes to each rank that has one of its experts, and comes back from each of these.
    const double others = ship.num_ranks - 1, part = others / ship.num_ranks,
                 sent = others * (1 - std::pow(part, ship.experts_per_token)),
                 returned = part * ship.experts_per_token;
    return seconds(static_cast<double>(rows * decoder.config->hidden_size) *
                   static_cast<double>(tensor::SizeOf(decoder.dtype)) * (sent + returned));
  }
  if (ship.max_planes == 0) return 0;
  const auto sent =
      (ship.num_ranks - 1) * static_cast<int64_t>(tensor::SizeOf(decoder.dtype)) +
      (ship.num_members() - 1) * ship.max_planes * static_cast<int64_t>(sizeof(float));
  const auto bytes = static_cast<double>(rows * decoder.config->hidden_size * sent);
  return seconds(bytes);
}

}  // namespace

double ShippedSeconds(const StepPricer& pricer, const share::ShipPlan& ship, const StepPrice& own,
                      int64_t own_rows, int64_t all_rows) {
  const auto layers =
      static_cast<double>(std::ranges::count_if(ship.layers, &share::ShipPlan::Layer::pooled));
  const double pooled = layers / static_cast<double>(ship.layers.size());
  const double owners = std::max(ship.max_owners, 1);
  // Ranks that meet to pull compute with their own rows alone.
  const StepLoad all = Decoding(all_rows, 1);
  const double joined = ship.mode.pulls()      ? own.ffn.seconds * owners
                        : ship.num_experts > 0 ? pricer.Step(all).ffn.seconds
                                               : pricer.Near(all).ffn.seconds;
  return own.all().seconds + pooled * (joined / owners - own.ffn.seconds) +
         layers * ExchangeSeconds(pricer, ship, own_rows);
}

RoutedExperts::RoutedExperts(const model::ModelConfig& config, const model::Routing* routing)
    : moe_(config.moe ? &*config.moe : nullptr),
      law_(routing != nullptr && !routing->names_rows() ? routing : nullptr) {}

double RoutedExperts::Share(int64_t rows) const {
  if (moe_ == nullptr) return 0;
  const auto experts = static_cast<double>(moe_->num_experts),
             chosen = static_cast<double>(moe_->experts_per_token);
  if (law_ == nullptr) return 1 - std::pow(1 - chosen / experts, static_cast<double>(rows));
  int64_t with_rows = 0;
  std::vector<int32_t> counts(static_cast<size_t>(moe_->num_experts));
  for (int64_t layer = 0; layer < kDraws; ++layer) {
    law_->Count({.layer = layer, .rows = rows, .experts_per_token = moe_->experts_per_token},
                counts);
    with_rows += std::ranges::count_if(counts, [](int32_t count) { return count > 0; });
  }
  return static_cast<double>(with_rows) / experts / static_cast<double>(kDraws);
}

double PullPrices::Pulled(const StepPrice& own) const {
  return std::max(SecondsBeside(own.all(), pulls), pulls.seconds());
}

double PullPrices::Routed(const StepPrice& own, int64_t rows) const {
  const weights::PlacementGroup& group = pool.book->group();
  const model::MoeConfig& moe = *pricer.decoder().config->moe;
  const auto layers = static_cast<double>(std::ranges::count(moe.has_experts, 1));
  StepPulls ahead = pulls;
  double waits = 0;
  const double share = experts.Share(rows);
  for (int64_t layer = 0; layer < group.num_layers(); ++layer) {
    if (group.pool_index[layer] < 0 || group.layer(layer).tensors != weights::TensorKind::kExperts)
      continue;
    uint64_t lacked = 0;
    for (int32_t piece = 0; piece < group.layer(layer).num_pieces; ++piece)
      lacked += pool.book->PullBytes(pool.rank, layer, piece);
    ahead.bytes -= std::min(ahead.bytes, lacked);
    const double held =
        1 - static_cast<double>(lacked) / static_cast<double>(group.layer(layer).bytes());
    const double comes =
        pricer.profile().link_latency_s + share * static_cast<double>(lacked) / pulls.bytes_per_s;
    waits += std::max(0.0, comes - held * own.ffn.seconds / layers);
  }
  return std::max(SecondsBeside(own.all(), ahead), ahead.seconds()) + waits;
}

int64_t RoutedRows(const PullPrices& prices, int64_t context) {
  int64_t routed = 0, pulled = prices.pricer.decoder().capacity.rows + 1;
  while (pulled - routed > 1) {
    const int64_t middle = routed + (pulled - routed) / 2;
    const StepPrice own = prices.pricer.Decode(middle, context);
    (prices.Routed(own, middle) < prices.Pulled(own) ? routed : pulled) = middle;
  }
  return routed;
}

double ShipThreshold(const PullPrices& prices, const share::ShipPlan& ship, int64_t context) {
  const StepPricer& pricer = prices.pricer;
  const int ranks = ship.mode.pulls() ? 1 : ship.num_ranks;
  const auto ships = [&](int64_t rows, bool prompts = false) {
    const StepPrice own = prompts ? pricer.Prompts(rows, context) : pricer.Decode(rows, context);
    const double pulled = ship.num_experts > 0
                              ? std::min(prices.Pulled(own), prices.Routed(own, rows))
                              : prices.Pulled(own);
    return ShippedSeconds(pricer, ship, own, rows, ranks * rows) < pulled;
  };
  // rows of steps that pull, and that ship
  const int64_t most = pricer.decoder().capacity.rows / ranks;
  if (ship.num_experts > 0 && ships(most, true)) return std::numeric_limits<double>::infinity();
  int64_t pulled = most + 1, shipped = 0;
  while (pulled - shipped > 1) {
    const int64_t middle = shipped + (pulled - shipped) / 2;
    (ships(middle) ? shipped : pulled) = middle;
  }
  return static_cast<double>(pulled);
}

}  // namespace forebay::layout
