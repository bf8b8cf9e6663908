#include "layout/plan_checks.h"

#include "model/family.h"

namespace forebay::layout {
namespace {

// More only fill memory: a step waits for its turn on every stage.
constexpr int kMostStepsInFlight = 64;

// What is said of a file below must be whole, and of use.
base::Status CheckFile(const EngineOptions& options, const LayoutPlan& plan) {
  const TierOptions& tier = options.tier;
  const auto refuse = [&](std::string_view why) {
    return base::Status(kv::kKvFileInvalid, fmt::format("--kv-file {}: {}", tier.file, why));
  };
  if (tier.file_bytes == 0) return refuse("expected --kv-file-size, as 20GiB, beside it");
  if (!tier.keep_file) return base::Status::Ok();
  const MemoryPlan& memory = plan.ranks[0].memory;
  const auto& groups = memory.kv_groups;
  if (plan.machine.spec.count > 1) {
    return refuse(fmt::format(
        "--kv-file-keep serves one device, and there are {}; expected one, or the flag left out",
        plan.machine.spec.count));
  }
  if (!options.prefix_caching || groups.size() > 1 || !groups[0].spec.reach.all() ||
      !memory.states.empty()) {
    return refuse(
        "--kv-file-keep: blocks are kept by their prefixes, which need prefix caching "
        "and layers that see all and keep no state; expected it left out");
  }
  return base::Status::Ok();
}

}  // namespace

base::Status CheckOptions(const EngineOptions& options, const model::ModelConfig& config) {
  const auto at_least = [](const char* flag, int64_t value, int64_t least) {
    if (value >= least) return base::Status::Ok();
    return base::Status(base::kInvalidArgument,
                        fmt::format("{} is {}; expected at least {}", flag, value, least));
  };
  const MachineOptions& machine = options.machine;
  const LimitOptions& limits = options.limits;
  FB_RETURN_IF_ERROR(at_least("--max-num-seqs", limits.max_num_seqs, 0));
  FB_RETURN_IF_ERROR(at_least("--max-num-batched-tokens", limits.max_num_batched_tokens, 0));
  FB_RETURN_IF_ERROR(at_least("--max-model-len", limits.max_model_len, 0));
  FB_RETURN_IF_ERROR(at_least("--num-kv-blocks-override", limits.kv_blocks, 0));
  FB_RETURN_IF_ERROR(at_least("--threads", machine.threads, 0));
  FB_RETURN_IF_ERROR(at_least("--steps-in-flight", limits.steps_in_flight, 0));
  if (limits.steps_in_flight > kMostStepsInFlight) {
    return base::Status(base::kInvalidArgument,
                        fmt::format("--steps-in-flight is {}; expected at most {}",
                                    limits.steps_in_flight, kMostStepsInFlight));
  }
  if (machine.memory_bytes > 0 && machine.memory_per_rank_bytes > 0) {
    return base::Status(
        base::kInvalidArgument,
        fmt::format("--memory {} and --memory-per-rank {} are both given; expected one of them",
                    base::FormatBytes(machine.memory_bytes),
                    base::FormatBytes(machine.memory_per_rank_bytes)));
  }
  if (!(machine.memory_utilization > 0 && machine.memory_utilization <= 1)) {
    return base::Status(
        base::kInvalidArgument,
        fmt::format("--gpu-memory-utilization is {}; expected more than 0 and at most 1",
                    machine.memory_utilization));
  }
  if (const auto policy = options.policy->make();
      options.lengths != EngineOptions().lengths && !policy->wants_lengths()) {
    return base::Status(base::kInvalidArgument,
                        fmt::format("--length-predictor with --scheduling-policy {}, which "
                                    "foresees no lengths; expected makespan",
                                    policy->name()));
  }
  if (limits.state_every <= 0 || limits.state_every % kernels::kBlockTokens != 0) {
    return base::Status(base::kInvalidArgument,
                        fmt::format("--state-every is {}; expected a multiple of {}, the positions "
                                    "of a block",
                                    limits.state_every, kernels::kBlockTokens));
  }
  if (limits.state_every != LimitOptions().state_every && !config.states) {
    return base::Status(
        base::kInvalidArgument,
        fmt::format("--state-every {}: {} has no layers that keep a state; expected "
                    "the flag left out",
                    limits.state_every, config.architecture));
  }
  if (machine.devices.platform != &CudaPlatform() && (machine.debug_sync || !machine.cuda_graphs)) {
    return base::Status(base::kInvalidArgument,
                        fmt::format("{} on devices {}, which are no real GPUs; expected --devices "
                                    "cuda, or the flag left out",
                                    machine.debug_sync ? "--debug-sync" : "--no-cuda-graphs",
                                    machine.devices.text));
  }
  if (options.trial.overcommit != EngineOptions().trial.overcommit &&
      !options.policy->make()->wants_lengths()) {
    return base::Status(base::kInvalidArgument,
                        fmt::format("--overcommit with --scheduling-policy {}, which promises no "
                                    "blocks; expected makespan",
                                    options.policy->name));
  }
  if (config.both_ways && (options.tier.in_memory() || options.tier.in_file())) {
    return base::Status(base::kInvalidArgument,
                        fmt::format("--kv-offloading-size and --kv-file: {} keeps no KV beyond the "
                                    "step that reads a text; expected neither",
                                    config.architecture));
  }
  if (!model::Generates(config) && options.roles) {
    return base::Status(base::kInvalidArgument,
                        fmt::format("--context and --generation: {} generates nothing; expected a "
                                    "job without roles",
                                    config.architecture));
  }
  if (limits.max_model_len > config.max_position_embeddings) {
    return base::Status(
        kMaxModelLen,
        fmt::format("--max-model-len {} is more than the {} positions of the model (config.json, "
                    "max_position_embeddings)",
                    limits.max_model_len, config.max_position_embeddings));
  }
  return base::Status::Ok();
}

base::Status CheckRouted(const EngineOptions& options, const Layout& layout) {
  if (options.ship.mode != StepMode{.ffn = FfnMode::kRouted}) return {};
  if (layout.pools_experts() && layout.dp > 1) return {};
  return {kCannotRoute,
          fmt::format("--mode {} with dp={},experts={}: no rank lacks experts; "
                      "expected experts=by_expert and dp of at least 2",
                      schedule::Name(options.ship.mode), layout.dp, layout.experts.text())};
}

base::Status CheckRecording(const EngineOptions& options, const model::ModelConfig& config,
                            const LayoutDraft& plan) {
  if (plan.layout.sp > 1) {
    return {base::kInvalidArgument,
            fmt::format("--record-routing: no rank sees the choices of all rows beside sp={}; "
                        "expected sp=1",
                        plan.layout.sp)};
  }
  if (!config.moe) {
    return {base::kInvalidArgument,
            fmt::format("--record-routing: {} has no experts", config.architecture)};
  }
  if (!options.prefix_caching) return {};
  return {base::kInvalidArgument,
          "--record-routing: rows that the prefix cache has are not computed and would be missing; "
          "expected --no-enable-prefix-caching beside it"};
}

base::Status LinkTrialRefused(const EngineOptions& options) {
  return {base::kInvalidArgument,
          fmt::format("--link-gbps {}: expected real ranks that meet, with tp or sp of at least 2",
                      options.trial.link_gbps)};
}

base::Status KvTrialRefused() {
  return {base::kInvalidArgument,
          "--kv-up-gbps and --kv-up-stall: expected real devices with KV below them, by "
          "--kv-offloading-size or --kv-file"};
}

base::Status CheckLinks(const EngineOptions& options, const LayoutDraft& plan) {
  const bool meet = plan.layout.ranks_per_stage() > 1;
  if (options.trial.link_gbps > 0 && !meet) return LinkTrialRefused(options);
  if (options.trial.slows_kv_up() && !options.tier.in_memory() && !options.tier.in_file())
    return KvTrialRefused();
  if (!options.machine.tp_wire_bf16 || meet) return {};
  return {base::kInvalidArgument,
          fmt::format("--sim-tp-wire bf16 with sp={}, tp={}: no ranks add sums; expected a layout "
                      "with tp or sp of at least 2",
                      plan.layout.sp, plan.layout.tp)};
}

base::Status CheckRequests(const EngineOptions& options, const LayoutDraft& plan) {
  const int requests = options.pool.requests_in_flight;
  if (requests == 0 || plan.layout.pools()) return {};
  return {base::kInvalidArgument,
          fmt::format("--pool-requests {} where no rank pulls weights; expected --devices sim:... "
                      "and a layout that pools",
                      requests)};
}

base::Status CheckTier(const EngineOptions& options, const LayoutPlan& plan) {
  const RankPlan& rank = plan.ranks[0];
  const TierOptions& tier = options.tier;
  if (tier.in_file()) FB_RETURN_IF_ERROR(CheckFile(options, plan));
  const auto check = [&](const char* flag, const base::ErrorCode& code, uint64_t bytes,
                         uint64_t of_rank, int32_t blocks, uint64_t block_bytes) -> base::Status {
    if (bytes == 0 || blocks > 0) return {};
    return {code,
            fmt::format(
                "{} {} leaves {} to each of {} ranks; expected at least a block of KV cache, {}",
                flag, base::FormatBytes(bytes), base::FormatBytes(of_rank), plan.machine.spec.count,
                base::FormatBytes(block_bytes))};
  };
  FB_RETURN_IF_ERROR(check("--kv-offloading-size", kOffloadingSize, tier.host_bytes,
                           rank.request.host_bytes, rank.memory.tier_blocks.in_memory,
                           plan.BlockBytesBelow(options.digest)));
  return check("--kv-file-size", kKvFileSize, tier.file_bytes, rank.request.file_bytes,
               rank.memory.tier_blocks.in_file, rank.memory.block_bytes_in_file(options.digest));
}

}  // namespace forebay::layout
