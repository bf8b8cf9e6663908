#include "cli/layout_flags.h"

#include <tuple>

#include "base/units.h"
#include "cli/flag_spelling.h"
#include "layout/job_plan.h"
#include "layout/shift_plan.h"

namespace forebay::cli {

void AddParallelFlags(Command command, LayoutFlags& flags) {
  command
      .add_option("--tensor-parallel-size", flags.tensor_parallel,
                  "vLLM's name for tp of --layout; with --devices cpu as many ranks")
      .check(CheckPositive);
  command.add_option("--pipeline-parallel-size", flags.pipeline_parallel, "The same for pp")
      .check(CheckPositive);
  command.add_option("--data-parallel-size", flags.data_parallel, "The same for dp")
      .check(CheckPositive);
  command.add_option("--ulysses-sequence-parallel-size", flags.sequence_parallel, "The same for sp")
      .check(CheckPositive);
  const Flag shifts =
      command.add_flag("--enable-shift-parallel", flags.shifts,
                       "With sp in the layout, each step takes its mode by its rows (the default)");
  command
      .add_flag("--no-enable-shift-parallel", flags.keeps_mode,
                "All steps take the layout's own mode, as --shift-mode with its sp and tp")
      .excludes(shifts);
}

base::Status ApplyParallelFlags(LayoutFlags* flags) {
  std::string text;
  int ranks = 1;
  const std::pair<const char*, int> sizes[] = {{"dp", flags->data_parallel},
                                               {"pp", flags->pipeline_parallel},
                                               {"sp", flags->sequence_parallel},
                                               {"tp", flags->tensor_parallel}};
  for (const auto& [key, size] : sizes) {
    if (size == 0) continue;
    text += fmt::format("{}{}={}", text.empty() ? "" : ",", key, size);
    ranks *= size;
  }
  if (text.empty()) return {};
  if (!flags->layout.empty()) {
    return base::Status(
        base::kInvalidArgument,
        fmt::format("--layout {} and --tensor-parallel-size or the like are both given; expected "
                    "one of them, say --layout {}",
                    flags->layout, text));
  }
  flags->layout = text;
  // vLLM takes as many devices as its sizes multiply to; `cpu` alone names no number.
  if (flags->devices == "cpu" && ranks > 1) flags->devices = fmt::format("{}xcpu", ranks);
  return {};
}

void AddLayoutFlags(Command command, LayoutFlags& flags, layout::EngineOptions& engine) {
  command
      .add_option("--devices", flags.devices,
                  "cpu, 2xcpu (two ranks), or simulated ones: sim:8xh200, sim:4xPROFILE.json")
      .capture_default_str();
  command.add_option("--context", flags.context,
                     "Instead of --layout, beside --generation: the layout of the devices that "
                     "read prompts and draw first tokens (docs/parallelism.md); they come first");
  command.add_option("--generation", flags.generation,
                     "The layout of the devices that go on from there");
  command
      .add_option("--generation-mode", flags.generation_mode,
                  "--mode of the devices of --generation (default: what --mode says, of both)")
      .among(schedule::WantedModeNames());
  command.add_option(
      "--device-profile", engine.machine.device_profile,
      "By which pool=auto, --mode auto and forecasts price real devices: a file of "
      "forebay profile, or a built-in profile (default: the built-in one that fits "
      "the CPU, else what is measured of it once, where several ranks decide by it)");
  command.add_option("--dtype", flags.dtype, "Compute type: auto (bfloat16), bfloat16, float32")
      .capture_default_str();
  command
      .add_option("--mla", flags.mla,
                  "Latent attention: auto (keys and values are expanded for prompts, absorbed "
                  "for answers) or absorbed (one form for all rows, other bits)")
      .among({"auto", "absorbed"})
      .capture_default_str();
  command
      .add_option("-q,--quantization", flags.quantization,
                  "Simulated devices store the matrices of layers as fp8, fp8_block (128 x 128) or "
                  "nvfp4 (default: as the model's config.json says)")
      .among({"fp8", "fp8_block", "nvfp4"});
  command
      .add_option("--kv-cache-dtype", flags.kv_cache_dtype,
                  "Simulated devices: auto (the compute type) or fp8, a byte an element")
      .among({"auto", "fp8"})
      .capture_default_str();
  command
      .add_option("--sim-tp-wire", flags.tp_wire,
                  "Simulated devices: the price of partial sums between ranks, exact (4 bytes an "
                  "element, as real ranks send them) or bf16 (2)")
      .among({"exact", "bf16"})
      .capture_default_str();
  command.add_option("--threads", engine.machine.threads,
                     "Worker threads (default: all usable cores)");
  command.add_option(
      "--max-model-len", engine.limits.max_model_len,
      "Longest prompt and output together (default: the model's, as far as the KV cache holds it)");
  command
      .add_option("--max-num-seqs", engine.limits.max_num_seqs,
                  "Most choices that run at once on a rank (default: 256; on simulated GPUs of 70 "
                  "GiB and more 1024)")
      .check(CheckPositive);
  command
      .add_option("--max-num-batched-tokens", engine.limits.max_num_batched_tokens,
                  "Most tokens of a step; longer prompts are computed in chunks (default: 512; on "
                  "simulated GPUs 8192, "
                  "of 70 GiB and more 16384)")
      .check(CheckPositive);
  command.add_option("--memory-per-rank", flags.memory_per_rank,
                     "The budget of one rank, instead of --memory");
  command
      .add_option("--gpu-memory-utilization", engine.machine.memory_utilization,
                  "Part of a simulated device's memory that is used, where --memory is not given")
      .capture_default_str();
  command.add_option("--touch-kv", flags.touch_kv,
                     "Touch so much of each rank's KV cache at start, as 4GiB, where first touches "
                     "are slow (default: "
                     "as it comes into use)");
  command.add_option("--pool-slots", flags.pool_slots,
                     "Most memory of a rank for weights that it pulls, as 2GiB (default: what "
                     "--pool-look-ahead takes)");
  command
      .add_option(
          "--pool-look-ahead", engine.pool.slots.look_ahead_layers,
          "Layers that a rank pulls ahead of the one in use (default: 2, or what the order needs)")
      .check(CheckPositive);
  command
      .add_option("--pool-order", flags.pool_order,
                  "Order of the pulls of weights=by_layer over more than two ranks: peak-shifted "
                  "(each rank begins at "
                  "another owner) or as-used")
      .among({"peak-shifted", "as-used"})
      .capture_default_str();
  command
      .add_option("--pool-parts", flags.pool_parts,
                  "What a slot holds, and a copy brings: a layer, or a matrix of one, where slots "
                  "take less memory")
      .among({"layer", "matrix"})
      .capture_default_str();
  command
      .add_option("--pool-streams", flags.pool_streams,
                  "Streams that copy layers of one owner each: one an owner, where devices have "
                  "copy engines for it, or one")
      .among({"owner", "one"})
      .capture_default_str();
  command
      .add_option("--pool-peers", flags.pool_peers,
                  "Which peers a pull of several copies from in turn: rotated (slices in turns, "
                  "from the next peer on), sliced (the same from the lowest), serial (peer after "
                  "peer) or random (the same in a drawn order)")
      .among({"rotated", "sliced", "serial", "random"})
      .capture_default_str();
  command
      .add_option("--pool-wait", flags.pool_wait,
                  "What pulled experts are waited for by: a layer, or a part (those that the rank "
                  "holds are computed with first, then each peer's as they come)")
      .among({"layer", "part"})
      .capture_default_str();
  command.add_flag("--expert-merge", engine.pool.merges_experts,
                   "Copy the experts that a rank holds and those that it pulled into one buffer "
                   "before it computes with them");
  command
      .add_option("--expert-wire", flags.expert_wire,
                  "How experts' outputs come back to ranks that shipped rows: exact (one of each "
                  "expert, of the same bytes as at home), or on simulated devices reduced (one sum "
                  "of each rank, of rows that went out in the experts' format)")
      .among({"exact", "reduced"})
      .capture_default_str();
  command
      .add_option(
          "--expert-overlap", flags.expert_overlap,
          "Whether what experts made of shipped rows comes home while the rank computes its "
          "shared expert (on), or after it (off)")
      .among({"on", "off"})
      .capture_default_str();
  command
      .add_option("--expert-rows", engine.ship.rounds.expert_rows,
                  "Rows of a rank in a round of shipped experts (default: as many as a 64th of its "
                  "memory stages, 256 to 8192)")
      .check(CheckPositive);
  command.add_option("--pool-slice", flags.pool_slice,
                     "Bytes that a pull copies from one owner before it turns to the next "
                     "(default: 1MiB, on simulated "
                     "devices 64MiB)");
  command
      .add_option("--pool-requests", engine.pool.requests_in_flight,
                  "Slices of a pull that are under way at once, on simulated devices (default: one "
                  "a peer, at least 2)")
      .check(CheckPositive);
  command
      .add_option("--steps-in-flight", engine.limits.steps_in_flight,
                  "Steps of a replica at once, each with choices of its own (default: one a "
                  "pipeline stage)")
      .check(CheckPositive);
  command
      .add_option("--mode", flags.mode,
                  "How ranks reach weights that they pool: " + schedule::WantedModeHelp())
      .among(schedule::WantedModeNames())
      .capture_default_str();
  command
      .add_option("--shift-mode", flags.shift_mode,
                  "With sp in the layout, the mode of all steps, sp x tp as 4x2, or auto (by the "
                  "rows of each step)")
      .capture_default_str();
  command
      .add_option("--shift-modes", flags.shift_modes,
                  "Modes that auto chooses from: all of the layout's, or its ends alone (default: "
                  "all; with --shift-weights copy or pooled weights ends)")
      .among({"all", "ends"});
  command
      .add_option("--shift-weights", flags.shift_weights,
                  "What further modes read: views of the layout's weights, or a copy, a second "
                  "model in memory")
      .among({"views", "copy"})
      .capture_default_str();
  command
      .add_option("--shift-parallel-threshold", engine.shift.threshold,
                  "Steps of more rows take the layout's sp and tp, others tp alone (default: the "
                  "cheapest mode by the device's profile)")
      .check(CheckPositive);
  command
      .add_option("--kv-replication", flags.kv_replication,
                  "With sp, how KV heads come to the several ranks that hold them: fused (with the "
                  "queries, in one meeting) or two-step (to one of them, then from it to the "
                  "others)")
      .among({"fused", "two-step"})
      .capture_default_str();
  command
      .add_option("--steal", flags.steal,
                  "At the job's end ranks without work take requests from others of their group: "
                  "auto (running ones "
                  "where moving their KV cache pays), off, or always")
      .among({"auto", "off", "always"})
      .capture_default_str();
  command.add_option(
      "--kv-offloading-size", flags.kv_offloading_size,
      "Memory of the host, as 8GiB, of all ranks, where preempted choices keep their "
      "KV cache (default: none)");
  command.add_option("--kv-file", engine.tier.file,
                     "A file for the same on a disk, read and written past the page cache; it has "
                     "no name while the job runs. Beside --kv-offloading-size it takes what that "
                     "has to give up (default: none)");
  command.add_option("--kv-file-size", flags.kv_file_size, "How large it is, as 20GiB");
  command.add_flag("--kv-file-keep", engine.tier.keep_file,
                   "The file stays, with an index PATH.index: the next job finds in it the "
                   "prefixes that this one has computed");
  command
      .add_option("--kv-preempt", flags.kv_preempt,
                  "What becomes of a preempted choice's KV cache: park (it waits in the host's "
                  "memory), recompute, or auto (whichever takes less)")
      .among({"auto", "park", "recompute"})
      .capture_default_str();
  command
      .add_option(
          "--kv-offload", flags.kv_offload,
          "Whether running choices keep a part of their KV cache below the device, read "
          "layer by layer in every step: off, uniform (as much as stays hidden behind the "
          "step), alg1, alg2 or max (Vasuki's plans of whole layers, where they stay hidden), "
          "always (as much as there is room for), or auto (where it makes the job faster)")
      .among({"auto", "off", "uniform", "alg1", "alg2", "max", "always"})
      .capture_default_str();
  command
      .add_option("--scheduling-policy", flags.policy,
                  "continuous, adaptive (as many choices as the KV cache holds at their mean "
                  "length), makespan (as many as it holds until they end, by their foreseen "
                  "lengths), whole (prompts in one step) or a baseline: sarathi, static_batch, "
                  "vllm, vasuki-printed")
      .capture_default_str();
  command
      .add_option("--length-predictor", flags.length_predictor,
                  "How long --scheduling-policy makespan takes answers to become: max (as long as "
                  "the request allows), mean, quantile (what half of those that came as far "
                  "exceed), or known (what a trace says)")
      .among({"max", "mean", "quantile", "known"})
      .capture_default_str();
  // Trials, for tests.
  command.add_option("--overcommit", engine.trial.overcommit).check(CheckPositiveNumber).hidden();
  command.add_option("--link-gbps", engine.trial.link_gbps).check(CheckPositiveNumber).hidden();
  command.add_option("--shift-every", engine.trial.shift_every).hidden();
  command.add_option("--kv-up-gbps", engine.trial.kv_up_gbps).check(CheckPositiveNumber).hidden();
  command.add_option("--kv-up-stall", engine.trial.kv_up_stall).check(CheckPositiveNumber).hidden();
  command.add_option("--kv-up-stall-at", engine.trial.kv_up_stall_at).hidden();
  command.add_option("--sim-host-link", engine.trial.host_link).check(CheckPositiveNumber).hidden();
  command.add_option("--plant-fault-rank", engine.trial.fault.rank).hidden();
  command.add_option("--plant-fault-at-pull", engine.trial.fault.at_pull).hidden();
  command.add_option("--plant-fault-at-post", engine.trial.fault.at_post).hidden();
  command
      .add_option("--ship-threshold", engine.ship.threshold,
                  "--mode auto ships while a rank's steps have fewer rows on average (default: "
                  "from the device's profile)")
      .check(CheckPositive);
  command
      .add_option("--routed-threshold", engine.ship.routed_threshold,
                  "Steps of a rank's own of at most so many rows pull only experts that have rows "
                  "(default: from the device's profile in --mode auto, else none)")
      .check(CheckPositive);
  command
      .add_option("--mean-context", engine.limits.mean_context,
                  "Tokens that a running choice holds on average, for pool=auto and "
                  "expert-size=auto (default: a quarter of the longest, at most 2048; of a trace: "
                  "its mean)")
      .check(CheckPositive);
}

base::Status ApplyLayout(const std::string& text, layout::EngineOptions* engine) {
  engine->layout.reset();
  engine->layout_by_job = text == "auto";
  if (text.empty() || engine->layout_by_job) return {};
  FB_ASSIGN_OR_RETURN(engine->layout, layout::ParseLayout(text));
  return {};
}

namespace {

// --context and --generation.
base::Status ApplyRoles(const LayoutFlags& flags, layout::EngineOptions* engine) {
  engine->roles.reset();
  if (flags.context.empty() && flags.generation.empty()) {
    if (flags.generation_mode.empty()) return {};
    return {layout::kRolesInvalid,
            fmt::format("--generation-mode {} without --generation; expected both",
                        flags.generation_mode)};
  }
  if (flags.context.empty() || flags.generation.empty()) {
    return {layout::kRolesInvalid,
            flags.context.empty()
                ? fmt::format("--generation {} without --context; expected both", flags.generation)
                : fmt::format("--context {} without --generation; expected both", flags.context)};
  }
  if (!flags.layout.empty()) {
    return {layout::kRolesInvalid,
            fmt::format("--layout {} beside --context {} and --generation {}; expected either",
                        flags.layout, flags.context, flags.generation)};
  }
  layout::RoleLayouts& roles = engine->roles.emplace();
  for (const auto& [flag, text, role] :
       {std::tuple("--context", &flags.context, &roles.context),
        std::tuple("--generation", &flags.generation, &roles.generation)}) {
    auto parsed = layout::ParseLayout(*text);
    if (!parsed.ok()) return parsed.status().WithContext(flag);
    *role = *std::move(parsed);
  }
  if (!flags.generation_mode.empty()) {
    FB_ASSIGN_OR_RETURN(roles.generation_mode, schedule::ParseWantedMode(flags.generation_mode));
  }
  return {};
}

// --enable-shift-parallel and --no-enable-shift-parallel.
base::Status ApplyShiftSwitch(const LayoutFlags& flags, layout::EngineOptions* engine) {
  if (!flags.shifts && !flags.keeps_mode) return {};
  const char* const flag = flags.shifts ? "--enable-shift-parallel" : "--no-enable-shift-parallel";
  if (!engine->layout || engine->layout->sp == 1) {
    return {layout::kShiftInvalid,
            fmt::format("{} of a layout with sp=1, which has one mode; expected sp of at least 2",
                        flag)};
  }
  if (flags.shifts && engine->shift.mode) {
    return {layout::kShiftInvalid,
            fmt::format("{} and --shift-mode {} are both given; expected one of them", flag,
                        flags.shift_mode)};
  }
  if (flags.shifts) return {};
  if (engine->shift.mode || engine->shift.among != layout::ModeChoice::kDefault ||
      engine->shift.threshold > 0) {
    return {layout::kShiftInvalid,
            fmt::format("{} and --shift-mode, --shift-modes or --shift-parallel-threshold are both "
                        "given; expected one of them",
                        flag)};
  }
  engine->shift.mode = engine->layout->degrees();
  return {};
}

}  // namespace

base::Status ApplyLayoutFlags(const LayoutFlags& flags, layout::EngineOptions* engine) {
  FB_ASSIGN_OR_RETURN(engine->machine.devices, layout::ParseDevices(flags.devices));
  FB_RETURN_IF_ERROR(ApplyLayout(flags.layout, engine));
  FB_RETURN_IF_ERROR(ApplyRoles(flags, engine));
  FB_ASSIGN_OR_RETURN(engine->machine.dtype, layout::ParseComputeType(flags.dtype));
  engine->machine.mla_absorbed = flags.mla == "absorbed";
  for (const auto format :
       {cost::NumberFormat::kFP8, cost::NumberFormat::kFP8Block, cost::NumberFormat::kNVFP4}) {
    if (flags.quantization == cost::Name(format)) engine->machine.quantization = format;
  }
  if (flags.kv_cache_dtype == "fp8") engine->machine.kv_cache_format = cost::NumberFormat::kFP8;
  engine->machine.tp_wire_bf16 = flags.tp_wire == "bf16";
  FB_ASSIGN_OR_RETURN(engine->shift.mode, layout::ParseShiftMode(flags.shift_mode));
  engine->shift.two_step_kv = flags.kv_replication == "two-step";
  engine->shift.copies_weights = flags.shift_weights == "copy";
  engine->shift.among = flags.shift_modes.empty()     ? layout::ModeChoice::kDefault
                        : flags.shift_modes == "ends" ? layout::ModeChoice::kEnds
                                                      : layout::ModeChoice::kAll;
  // After the layout and the other shift flags, against which it is checked.
  FB_RETURN_IF_ERROR(ApplyShiftSwitch(flags, engine));
  FB_ASSIGN_OR_RETURN(engine->steal, layout::ParseStealing(flags.steal));
  FB_ASSIGN_OR_RETURN(engine->policy, schedule::FindPolicy(flags.policy));
  FB_ASSIGN_OR_RETURN(engine->lengths, schedule::ParseLengthPredictor(flags.length_predictor));
  FB_ASSIGN_OR_RETURN(engine->tier.preempt, layout::ParsePreempting(flags.kv_preempt));
  FB_ASSIGN_OR_RETURN(engine->tier.offload, layout::ParseOffloading(flags.kv_offload));
  if (!flags.kv_offloading_size.empty()) {
    FB_ASSIGN_OR_RETURN(engine->tier.host_bytes,
                        layout::ParseOffloadingSize(flags.kv_offloading_size));
  }
  if (!flags.kv_file_size.empty()) {
    FB_ASSIGN_OR_RETURN(engine->tier.file_bytes, layout::ParseKvFileSize(flags.kv_file_size));
  }
  if (!engine->tier.in_file() && (engine->tier.file_bytes > 0 || engine->tier.keep_file)) {
    return base::Status(base::kInvalidArgument,
                        fmt::format("{} is given without --kv-file; expected its path beside it",
                                    engine->tier.keep_file ? "--kv-file-keep" : "--kv-file-size"));
  }
  if (engine->tier.preempt != layout::Preempting::kAuto && !engine->tier.in_file() &&
      !engine->tier.in_memory()) {
    return base::Status(base::kInvalidArgument,
                        fmt::format("--kv-preempt {}: there is nothing below the device; expected "
                                    "--kv-offloading-size or --kv-file beside it",
                                    flags.kv_preempt));
  }
  const auto apply = [](const char* flag, const std::string& text, uint64_t* bytes) {
    if (text.empty()) return base::Status::Ok();
    const auto parsed = base::ParseBytes(text);
    if (!parsed.ok()) return parsed.status().WithContext(flag);
    *bytes = *parsed;
    if (*bytes > 0) return base::Status::Ok();
    return base::Status(base::kInvalidArgument,
                        fmt::format("{} is {}; expected at least a byte", flag, text));
  };
  if (!flags.memory.empty() && !flags.memory_per_rank.empty()) {
    return base::Status(
        base::kInvalidArgument,
        fmt::format("--memory {} and --memory-per-rank {} are both given; expected one of them",
                    flags.memory, flags.memory_per_rank));
  }
  FB_RETURN_IF_ERROR(apply("--memory", flags.memory, &engine->machine.memory_bytes));
  FB_RETURN_IF_ERROR(apply("--touch-kv", flags.touch_kv, &engine->machine.touch_kv_bytes));
  FB_RETURN_IF_ERROR(
      apply("--memory-per-rank", flags.memory_per_rank, &engine->machine.memory_per_rank_bytes));
  FB_RETURN_IF_ERROR(apply("--pool-slots", flags.pool_slots, &engine->pool.slots.budget_bytes));
  FB_RETURN_IF_ERROR(apply("--pool-slice", flags.pool_slice, &engine->pool.slice_bytes));
  FB_ASSIGN_OR_RETURN(engine->ship.mode, schedule::ParseWantedMode(flags.mode));
  engine->ship.rounds.hides_return = flags.expert_overlap == "on";
  engine->ship.rounds.reduced_wire = flags.expert_wire == "reduced";
  engine->pool.stream_per_owner = flags.pool_streams == "owner";
  FB_ASSIGN_OR_RETURN(engine->pool.peers, layout::ParsePeerOrder(flags.pool_peers));
  engine->pool.waits_by_part = flags.pool_wait == "part";
  engine->pool.by_matrix = flags.pool_parts == "matrix";
  engine->pool.order = flags.pool_order == "as-used" ? weights::FetchOrder::kAsUsed
                                                     : weights::FetchOrder::kPeakShifted;
  return base::Status::Ok();
}

}  // namespace forebay::cli
