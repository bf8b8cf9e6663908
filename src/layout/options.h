// What a user may set about the engine (settings/table.h says by which flags); validated once by
// PlanLayout, immutable after.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cost/model.h"
#include "fabric/fault_fabric.h"
#include "kernels/kernel_set.h"
#include "layout/devices.h"
#include "layout/layout.h"
#include "model/routing.h"
#include "schedule/lengths.h"
#include "schedule/policy.h"
#include "schedule/step_mode.h"
#include "share/pool_plan.h"
#include "share/ship_plan.h"
#include "tensor/dtype.h"

namespace forebay::device {
struct Driver;
}

namespace forebay::layout {

inline constexpr base::ErrorCode kOffloadingSize{"kv_offloading_size_invalid"};
inline constexpr base::ErrorCode kKvFileSize{"kv_file_size_invalid"};

// What is known of a choice before the job runs.
struct ChoiceShape {
  int64_t prompt = 1, output = 1;  // Tokens.
  int64_t bound = 0;               // That it may generate, as policies see it; 0: no bound.
  int64_t shared = 0;              // Of the prompt's tokens, those with which others begin, too.
  bool cut = false;                // The prompt is cut to what the context leaves it.
};

// What devices store the matrices of layers in.
struct WeightStorage {
  // Of simulated devices any; devices that compute make kInt8 and kInt4 of what files hold.
  // Nothing: what the model's files say.
  std::optional<cost::NumberFormat> format;
  bool expanded = false;  // Devices that compute: the compute type, whatever files hold.

  friend bool operator==(const WeightStorage&, const WeightStorage&) = default;
};

struct MachineOptions {
  DevicesSpec devices;
  // By which real devices are priced: a built-in profile's name or a file. Empty: the built-in one
  // that is nearest, for what may be a little wrong; modes keep to constants then.
  std::string device_profile;
  // What computes; outlives the engine. Null: the best of this machine (kernels::ChooseKernels).
  const kernels::KernelSet* kernels = nullptr;
  tensor::DType dtype = tensor::DType::kBF16;
  bool mla_absorbed = false;  // Latent attention has one form for all rows.
  WeightStorage quantization;
  // What the KV cache is stored in, kFP8 or kInt8; nothing: the compute type.
  std::optional<cost::NumberFormat> kv_cache_format;
  // Which experts rows go to on simulated devices (model/routing.h); null: balanced.
  std::shared_ptr<const model::Routing> routing;
  std::string record_routing;  // The file that gets which experts rows went to; empty: none.
  int threads = 0;             // Of all ranks; 0: all usable cores.
  // Weights, KV and workspace of all ranks; 0: what the machine has free, less a margin.
  uint64_t memory_bytes = 0;
  uint64_t memory_per_rank_bytes = 0;  // The same of one rank; 0: an equal share of memory_bytes.
  // GPUs: this part of their memory, of real ones of what is free, where memory_bytes is 0.
  double memory_utilization = 0.9;
  // So much of each rank's KV cache is touched at start, the rest as it comes into use.
  uint64_t touch_kv_bytes = 0;
  bool debug_sync = false;    // GPUs: each operation is waited for, so that a fault names it.
  bool cuda_graphs = true;    // GPUs: launches that come again go to the driver together.
  bool full_detail = false;   // Every layer is simulated.
  bool uncalibrated = false;  // Prices are the datasheet's alone.
  // Partial sums of simulated ranks are priced as if they went from rank to rank in bf16.
  bool tp_wire_bf16 = false;
  // A simulated source serves copies in the order of their start, not all at once.
  bool source_queues = false;

  cost::Calibration calibration() const {
    return uncalibrated ? cost::Calibration::kUncalibrated : cost::Calibration::kCalibrated;
  }
};

struct LimitOptions {
  int64_t max_model_len = 0;  // 0: the model's, or what the KV cache holds.
  // 0: as the policy is published (schedule::StepPreset), else as --kv-offload auto chooses, else:
  int32_t max_num_seqs = 0;            // 256; on GPUs of 70 GiB and more 1024.
  int32_t max_num_batched_tokens = 0;  // 512 on cpu; on GPUs 8192, of 70 GiB and more 16384.
  int32_t kv_blocks = 0;               // At most so many; 0: what the memory holds.
  // Where layers keep states: positions from one that is kept for prefixes to the next.
  int64_t state_every = 1024;
  // Steps of a replica at once, each with choices of its own; 0: one a pipeline stage.
  int steps_in_flight = 0;
  // Tokens that a running choice holds, for pool=auto; 0: max_model_len / 4, at most 2048.
  int64_t mean_context = 0;
  // schedule::Limits, in milliseconds: between an interactive choice's tokens, negative: the
  // default; and a step without such a choice.
  double target_itl_ms = -1, max_step_ms = 250;
};

// How ranks reach weights that the layout pools.
struct ModeOptions {
  schedule::WantedMode mode;  // Nothing (auto): by the load.
  // Auto: rows a rank's step below which it ships; 0: from the device's profile.
  double threshold = 0;
  int patience = 64;  // Auto: steps in a row below it.
  // Most rows of a rank's own step in which experts come where they have rows; 0: in auto by the
  // device's profile, else in none.
  int64_t routed_threshold = 0;
  share::ShipOptions rounds;
};

// Which modes prices choose from: what goes with the rest of the options (all, or where modes'
// weights are copies or pooled the ends), all of the layout's, or its own and tp alone.
enum class ModeChoice : uint8_t { kDefault, kAll, kEnds };

// In which modes steps are taken where the layout has sp > 1. Nothing: by the prices of the
// device's profile.
struct ShiftOptions {
  std::optional<model::Degrees> mode;  // All steps.
  ModeChoice among = ModeChoice::kDefault;
  bool copies_weights = false;  // Each further mode loads weights of its own, for views.
  // Rows above which a step takes the layout's mode, others tp alone; 0: by price.
  int64_t threshold = 0;
  bool two_step_kv = false;  // model::ReplicaCut
};

// Whether replicas without work take requests from others of their group: running ones where that
// pays, never, or whether or not it pays.
enum class Stealing : uint8_t { kAuto, kOff, kAlways };

// What becomes of preempted choices where there is a tier below: whichever takes less by price, or
// always the one.
enum class Preempting : uint8_t { kAuto, kPark, kRecompute };

// Whether running choices keep a part of their KV below, read layer by layer in every step: where
// it makes the job faster by price, never, as much as stays hidden behind the step, or as much as
// there is room for.
enum class Offloading : uint8_t { kAuto, kOff, kUniform, kAlg1, kAlg2, kMax, kAlways };
const char* Name(Offloading offload);

// KV below the device. Where it lies in both, blocks go to memory first, and what that has to give
// up to the file.
struct TierOptions {
  uint64_t host_bytes = 0;  // In the memory of the host, of all ranks; 0: nothing lies there.
  std::string file;         // A file's path; of several ranks each has one, PATH.RANK.
  uint64_t file_bytes = 0;  // Of all ranks.
  bool keep_file = false;   // For the next job.
  Preempting preempt = Preempting::kAuto;
  Offloading offload = Offloading::kAuto;

  bool in_file() const { return !file.empty(); }
  bool in_memory() const { return host_bytes > 0; }
  // The flags that say how large it is.
  const char* size_flag() const;
  // Where a device's KV lies, of so many.
  std::string FileOf(int device, int devices) const;
  // All files that are made, written and renamed.
  std::vector<std::string> Files(int devices) const;
  // Memory of the host through which a file's blocks pass, of a rank and each way.
  uint64_t StagingBytes(int ranks) const;
  // Memory of the host, of all ranks.
  uint64_t memory_bytes(int ranks) const {
    return host_bytes + 2 * static_cast<uint64_t>(ranks) * StagingBytes(ranks);
  }
};

// What only tests and trials set.
struct TrialOptions {
  fabric::FaultPlan fault;
  // Through which GPUs are reached; outlives the engine. Null: the machine's own.
  const device::Driver* driver = nullptr;
  // Sees what all ranks' operations touch; outlives the engine. It is slow.
  device::HazardChecker* checker = nullptr;
  double overcommit = 1;  // schedule::StepView::overcommit
  double link_gbps = 0;   // GB/s at which real ranks of a stage meet; 0: as fast as they do.
  // GB/s at which KV comes up to real devices; 0: as fast as it does. And one copy of streamed KV
  // that stands still for so many seconds, its number counted by its rank; 0: none does.
  double kv_up_gbps = 0, kv_up_stall = 0;
  int64_t kv_up_stall_at = 100;
  bool slows_kv_up() const { return kv_up_gbps > 0 || kv_up_stall > 0; }
  double host_link = 1;  // Of simulated devices: the part of its rate that the host's link has.
  bool fixed_streaming = false;  // As much is streamed as was planned, whatever steps wait for.
  uint64_t flip_streaming = 0;   // Draws anew every few steps how much is streamed; 0: it does not.
  int flip_every = 0;  // So many steps are taken together, so many not; 0: as the mode says.
  // So many steps in each of the layout's modes in turn, or schedule::kFlipAtRandom; 0: as rows
  // say.
  int shift_every = 0;
  // device::CpuDeviceOptions, of real kernels on the virtual runtime
  runtime::TimeNs max_virtual_delay = 0;
  uint64_t delay_seed = 0;
};

// Devices of two roles: those of the context groups come first.
struct RoleLayouts {
  Layout context, generation;
  // ModeOptions::mode of the generation groups; nothing: the context groups'.
  std::optional<schedule::WantedMode> generation_mode = {};
};

// What prices of steps depend on beside shapes and devices.
struct StepPricing {
  cost::Calibration calibration = cost::Calibration::kCalibrated;
  int32_t tp_wire_bytes = 4;  // model::AllReducePlan
  bool two_step_kv = false;   // model::ReplicaCut
  // EngineOptions::decoders
  std::shared_ptr<model::DecoderPlans> decoders;
};

struct EngineOptions {
  std::string model;  // A folder in Hugging Face's layout, or a GGUF file.
  MachineOptions machine;
  std::optional<Layout> layout;  // Nothing: every device is a replica.
  bool layout_by_job = false;    // Instead of `layout`: the one in which the job is done soonest.
  std::optional<RoleLayouts> roles;  // Instead of both.
  LimitOptions limits;
  share::PoolOptions pool;  // How weights that the layout pools are pulled; the layout says which.
  ModeOptions ship;
  ShiftOptions shift;
  // What is known of the job's choices, in their order; null: nothing. The job has `job_times` as
  // many.
  std::shared_ptr<const std::vector<ChoiceShape>> job;
  double job_times = 1;
  bool job_exact = false;  // It has no more, and outputs are as they say.
  // Tokens that a running choice holds on average and shares with no other; 0: nobody knows.
  double job_held = 0;
  Stealing steal = Stealing::kAuto;
  TierOptions tier;
  TrialOptions trial;
  const schedule::PolicyKind* policy = schedule::DefaultPolicy();  // Never null.
  // By which policies foresee how long choices will be that want to.
  schedule::LengthPredictor lengths = schedule::LengthPredictor::kQuantile;
  uint64_t seed = 0;
  bool prefix_caching = true;
  std::string pooling = "auto";  // how prompts become vectors (--pooling)
  bool digest = false;           // Every choice gets a digest of its numbers.
  bool random_weights = false;   // A bare config.json is run.
  bool profile = false;
  double stall_seconds = 600;  // A step that takes longer is reported as a stall.
  // Of a search, whose candidates share them; null: each is planned by itself.
  std::shared_ptr<model::DecoderPlans> decoders;

  StepPricing pricing() const {
    return {.calibration = machine.calibration(),
            .tp_wire_bytes = machine.tp_wire_bf16 ? 2 : 4,
            .two_step_kv = shift.two_step_kv,
            .decoders = decoders};
  }
};

}  // namespace forebay::layout
