#include "price/step_price.h"

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
#include "model/blocks/experts.h"
#include "model/blocks/latent_forms.h"
#include "model/decoder.h"
#include "model/kv_groups.h"
#include "model/routing.h"
#include "share/ship.h"

namespace forebay::price {
namespace {

constexpr uint64_t kPage = 4096;
constexpr int kRounds = 3;  // until step and rate agree within a percent
constexpr int kRowsAnOctave = 32;

// The nearest of so many numbers an octave.
int64_t Rounded(int64_t count, int an_octave) {
  if (count <= an_octave) return count;
  return std::llround(
      std::exp2(std::round(std::log2(static_cast<double>(count)) * an_octave) / an_octave));
}

// The first layer that has experts, or none.
int64_t FirstLayer(const model::ModelConfig& config, bool experts) {
  if (!config.moe) return 0;
  return std::ranges::find(config.moe->has_experts, experts ? 1 : 0) -
         config.moe->has_experts.begin();
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
    const bool experts = desc.kind == cost::OpKind::kExperts,
               ffn = label == "gate_up" || label == "up" || label == "down";
    const cost::Work work =
        cost::WorkOf(desc, profile_, calibration_) * static_cast<double>(times_);
    (experts ? price_.experts : ffn ? price_.ffn : price_.rest) += work;
    if (desc.kind != cost::OpKind::kCollective) {
      behind_ffn_ = experts || ffn;
    } else if (behind_ffn_ || label == "gather_experts") {
      price_.ffn_sums += work.seconds;
    }
    if (label == "shared_gate_up" || label == "shared_down" || label == "gate_shared")
      price_.shared_experts += work.seconds;
    if (desc.kind == cost::OpKind::kEmbed) price_.first += work.seconds;
    if (desc.kind == cost::OpKind::kSample || label == "final_norm" || label == "head")
      price_.last += work.seconds;
  }
  void Record(device::DeviceEvent&) override {}
  void Wait(const device::DeviceEvent&) override {}
  void Post(device::Counter&, uint64_t) override {}
  void Await(device::Counter&, uint64_t) override {}
  void BeginRepeat(int64_t times, uint64_t) override { times_ = times; }
  int64_t EndRepeat() override { return std::exchange(times_, 1); }

  double Seconds(const cost::OpDesc& desc) const {
    return cost::WorkOf(desc, profile_, calibration_).seconds;
  }
  // The price of what was added since the last call.
  StepPrice Take() { return std::exchange(price_, {}); }

 private:
  const cost::DeviceProfile& profile_;
  const cost::Calibration calibration_;
  int64_t times_ = 1;
  bool behind_ffn_ = false;
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
                                   const layout::StepPricing& pricing) {
  const cost::AllReduceShape shape{.columns = config.hidden_size,
                                   .ranks = tp,
                                   .wire_bytes = pricing.tp_wire_bytes,
                                   .sum_bytes = static_cast<int>(tensor::SizeOf(dtype))};
  return {cost::RowsOfOneMeeting(shape, max_rows, profile, pricing.calibration),
          pricing.tp_wire_bytes};
}

std::optional<StepPrice> SharedPrices::Find(const Key& key) const {
  const std::lock_guard lock(mutex_);
  const auto found = prices_.find(key);
  return found == prices_.end() ? std::nullopt : std::optional(found->second);
}

void SharedPrices::Add(const Key& key, const StepPrice& price) {
  const std::lock_guard lock(mutex_);
  prices_.try_emplace(key, price);
}

// Shapes and addresses of a rank, as on a simulated device.
struct StepPricer::Program {
  Program(const model::ModelConfig& config, tensor::DType dtype, const model::Degrees& degrees,
          const model::StepCapacity& capacity, const cost::DeviceProfile& device_profile,
          const layout::StepPricing& pricing)
      : profile(device_profile),
        stream(device_profile, pricing.calibration),
        routing(model::ParseRouting("balanced", 0).value()) {
    const model::ReplicaCut cut{
        .tp = degrees.tp, .sp = degrees.sp, .two_step_kv = pricing.two_step_kv};
    const auto plan =
        model::DecoderPlanOf(pricing.decoders.get(), config, dtype, cut, cut.degrees());
    // Tables say where tiles lie: they are written.
    tables.resize(plan->table_bytes() + kPage);
    const device::Region table_region{
        .name = "weight tables", .data = tables.data(), .bytes = tables.size()};
    decoder.config = &config;
    decoder.dtype = dtype;
    decoder.kernels = &kernels::RefKernels();
    decoder.stream = &stream;
    decoder.capacity = capacity;
    decoder.routing = routing.get();
    decoder.weights = model::LoadDecoder(*plan, 1, nullptr, Addresses("weights", plan->bytes(1)),
                                         table_region, {}, 1)
                          .value();
    const device::Region workspace =
        Addresses("workspace", model::ActivationBytes(config, dtype, decoder.capacity, cut));
    device::RegionCutter cutter(workspace);
    decoder.activations = model::CutActivations(config, dtype, decoder.capacity, &cutter, cut);
    const model::Shard& shard = decoder.weights.shard;
    decoder.kv = kv::CutCache(model::PlanKvGroups(config, dtype, shard), 0, false,
                              Addresses("kv cache", 0).data);
    decoder.states =
        kv::CutStates(model::PlanStates(config, shard), Addresses("layer states", 0).data);
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
  std::map<std::array<int64_t, 3>, double> leaves;   // by leaves and rows
  std::map<std::array<int64_t, 3>, double> experts;  // by experts, rows and those of the busiest
};

StepPricer::StepPricer(const model::ModelConfig& config, tensor::DType dtype,
                       const model::Degrees& degrees, const model::StepCapacity& capacity,
                       const cost::DeviceProfile& profile, const layout::StepPricing& pricing,
                       SharedPrices* shared)
    : program_(std::make_unique<Program>(config, dtype, degrees, capacity, profile, pricing)),
      shared_(shared) {}
StepPricer::~StepPricer() = default;

const cost::DeviceProfile& StepPricer::profile() const { return program_->profile; }
const model::Decoder& StepPricer::decoder() const { return program_->decoder; }

StepPrice StepPricer::Decode(int64_t batch, int64_t context) const {
  return Step(Decoding(batch, context));
}

StepPrice StepPricer::Prompts(int64_t rows, int64_t length) const {
  StepLoad load;
  // A prompt that is longer than the step is read in parts: this is the one in its middle.
  const int64_t before = std::max<int64_t>(0, length - rows) / 2;
  for (int64_t left = rows; left > 0; left -= length, ++load.sampled)
    load.sums.Add(before, std::min(left, length));
  return Step(load);
}

StepPrice StepPricer::Step(const StepLoad& load) const {
  const auto rows = static_cast<int32_t>(load.rows());
  const auto sequences = static_cast<int32_t>(load.sums.decode_rows + load.sums.prefill_sequences);
  const auto sampled = static_cast<int32_t>(load.sampled);
  std::vector<int32_t> wanted(static_cast<size_t>(sampled));
  std::iota(wanted.begin(), wanted.end(), rows - sampled);
  kernels::StepBatch step{.num_rows = rows,
                          .num_sequences = sequences,
                          .num_logit_rows = sampled,
                          .num_state_rows = sequences,
                          .logit_rows = wanted.data()};
  const model::Decoder& decoder = program_->decoder;
  const model::FormShapes shapes(load.sums);
  if (decoder.config->expands_prompts()) step.forms = &shapes.forms;
  decoder.Forward(step, load.sums);
  const int64_t vocab = decoder.config->vocab_size;
  for (int64_t first = 0; first < load.sampled; first += decoder.capacity.logit_rows) {
    const int64_t count = std::min(decoder.capacity.logit_rows, load.sampled - first);
    decoder.WantedRows(step, static_cast<int32_t>(first), static_cast<int32_t>(count));
    decoder.Logits(static_cast<int32_t>(count));
    const int64_t drawn = model::DrawnRows(count, decoder.weights.shard.cut.degrees(), 0).size();
    program_->stream.Add({.kind = cost::OpKind::kSample,
                          .label = "sample",
                          .rows = drawn,
                          .columns = vocab,
                          .read_bytes = static_cast<double>(drawn * vocab) * sizeof(float)});
  }
  return program_->stream.Take();
}

const StepPrice& StepPricer::Near(const StepLoad& load) const {
  const kernels::ContextSums& sums = load.sums;
  // One more row that is drawn costs little beside one more that is computed.
  std::array<int64_t, 5> key{Rounded(sums.decode_rows, kRowsAnOctave),
                             Rounded(sums.decode_context, 16), Rounded(sums.prefill_rows, 16),
                             Rounded(sums.prefill_context, 8), Rounded(sums.prefill_sequences, 4)};
  // Routes of rows to experts are written, where the step's arrays have room.
  if (program_->decoder.config->moe)
    key[0] = std::min(key[0], program_->decoder.capacity.rows - key[2]);
  const auto [found, is_new] = program_->near.try_emplace(key);
  if (!is_new) return found->second;
  const model::Decoder& decoder = program_->decoder;
  const model::Degrees cut = decoder.weights.shard.cut.degrees();
  const SharedPrices::Key key_of_all{
      cut.tp, cut.sp, decoder.capacity.rows, decoder.capacity.logit_rows, key[0], key[1], key[2],
      key[3], key[4]};
  if (shared_ != nullptr) {
    if (const std::optional<StepPrice> known = shared_->Find(key_of_all))
      return found->second = *known;
  }
  StepLoad rounded{.sums = {.prefill_sequences = key[4],
                            .prefill_rows = key[2],
                            .prefill_context = key[3],
                            .decode_rows = key[0],
                            .decode_context = key[1]}};
  rounded.sampled = std::max<int64_t>(1, key[0]);
  found->second = Step(rounded);
  if (shared_ != nullptr) shared_->Add(key_of_all, found->second);
  return found->second;
}

double StepPricer::Seconds(const cost::OpDesc& op) const { return program_->stream.Seconds(op); }

double StepPricer::ServedLeaves(const share::ShipPlan::Layer& layer, const base::Part& leaves,
                                int64_t rows) const {
  rows = Rounded(rows, kRowsAnOctave);
  const auto [found, is_new] = program_->leaves.try_emplace({leaves.begin, leaves.end, rows});
  if (!is_new) return found->second;
  const model::Decoder& decoder = program_->decoder;
  share::ServeLeaves(decoder, FirstLayer(*decoder.config, false), layer, leaves,
                     static_cast<int32_t>(rows), program_->staging.data);
  return found->second = program_->stream.Take().all().seconds;
}

double StepPricer::ServedExperts(int64_t experts, int64_t rows, double skew) const {
  rows = Rounded(rows, kRowsAnOctave);
  const double mean = std::max(1.0, static_cast<double>(rows) / static_cast<double>(experts));
  const int64_t busiest = std::min(rows, int64_t{std::llround(std::ceil(mean * skew))});
  const auto [found, is_new] = program_->experts.try_emplace({experts, rows, busiest});
  if (!is_new) return found->second;
  const model::Decoder& decoder = program_->decoder;
  const base::Part& own = decoder.weights.shard.experts;
  int32_t* const offsets = decoder.weights.expert_offsets + own.begin;
  offsets[0] = 0;
  for (int64_t expert = 0; expert < own.size(); ++expert) {
    const int64_t others = std::min(expert, experts - 1);
    offsets[expert + 1] = static_cast<int32_t>(
        busiest + (experts > 1 ? (rows - busiest) * others / (experts - 1) : 0));
  }
  model::RunExperts(decoder, FirstLayer(*decoder.config, true), model::ExpertsFrom::kHeld,
                    {.x = decoder.activations.normed,
                     .x_count = static_cast<int32_t>(rows),
                     .source = nullptr,
                     .max_rows = static_cast<int32_t>(rows),
                     .gated = decoder.activations.ffn,
                     .outputs = program_->staging.data,
                     .codes = nullptr});
  return found->second = program_->stream.Take().all().seconds;
}

uint64_t PullBytes(const share::PoolPlan& pool) {
  // An expert may have several owners.
  if (pool.options.experts.pools()) return pool.book->StepBytes(pool.member);
  const uint64_t given =
      pool.book->held_bytes(pool.member) * static_cast<uint64_t>(pool.num_members - 1);
  return std::max(pool.book->StepBytes(pool.member), given);
}

StepPulls PullsOf(const StepPricer& pricer, const layout::MachinePlan& machine,
                  std::span<const share::PoolPlan> pools, int stages) {
  StepPulls pulls{.bytes_per_s = cost::PullRate(pricer.profile()),
                  .contention = cost::ContentionOf(pricer.profile(), machine.workers)};
  for (const share::PoolPlan& pool : pools) pulls.bytes = std::max(pulls.bytes, PullBytes(pool));
  pulls.bytes *= static_cast<uint64_t>(stages);
  return pulls;
}

double SecondsBeside(const cost::Work& step, const StepPulls& pulls) {
  double seconds = step.seconds;
  for (int i = 0; i < kRounds && pulls.bytes > 0; ++i) {
    const double rate = static_cast<double>(pulls.bytes) / std::max(seconds, pulls.seconds());
    seconds = step.seconds * cost::Slowdown(step, {.in = rate, .out = rate}, pulls.contention);
  }
  return seconds;
}

}  // namespace forebay::price
