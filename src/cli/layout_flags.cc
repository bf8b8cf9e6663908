#include "cli/layout_flags.h"

#include "base/units.h"

namespace forebay::cli {

void AddLayoutFlags(CLI::App& command, LayoutFlags& flags, engine::EngineOptions& engine) {
  command.add_option("--memory-per-rank", flags.memory_per_rank, "The budget of one rank, instead of --memory");
  command
      .add_option("--gpu-memory-utilization", engine.memory_utilization,
                  "Part of a simulated device's memory that is used, where --memory is not given")
      ->capture_default_str();
  command.add_option("--touch-kv", flags.touch_kv,
                     "Touch so much of each rank's KV cache at start, as 4GiB, where first touches are slow (default: "
                     "as it comes into use)");
  command.add_option(
      "--pool-slots", flags.pool_slots,
      "Most memory of a rank for weights that it pulls, as 2GiB (default: what --pool-look-ahead takes)");
  command
      .add_option("--pool-look-ahead", engine.pool.slots.look_ahead_layers,
                  "Layers that a rank pulls ahead of the one in use (default: 2, or what the order needs)")
      ->check(CLI::PositiveNumber);
  command
      .add_option("--pool-order", flags.pool_order,
                  "Order of the pulls of weights=by_layer over more than two ranks: peak-shifted (each rank begins at "
                  "another owner) or as-used")
      ->check(CLI::IsMember({"peak-shifted", "as-used"}))
      ->capture_default_str();
  command
      .add_option("--pool-parts", flags.pool_parts,
                  "What a slot holds, and a copy brings: a layer, or a matrix of one, where slots take less memory")
      ->check(CLI::IsMember({"layer", "matrix"}))
      ->capture_default_str();
  command
      .add_option("--pool-streams", flags.pool_streams,
                  "Streams that copy layers of one owner each: one an owner, where devices have copy engines for it, or one")
      ->check(CLI::IsMember({"owner", "one"}))
      ->capture_default_str();
  command.add_option("--pool-slice", flags.pool_slice,
                     "Bytes that a pull copies from one owner before it turns to the next (default: 1MiB, on simulated "
                     "devices 64MiB)");
  command
      .add_option("--steps-in-flight", engine.steps_in_flight,
                  "Steps of a replica at once, each with choices of its own (default: one a pipeline stage)")
      ->check(CLI::PositiveNumber);
  command
      .add_option("--mode", engine.mode,
                  "How ranks reach weights that they pool: pull (weights come), ship (rows go to the owners), auto "
                  "(ship where steps are small), or gather (pull in lockstep, as FSDP does)")
      ->check(CLI::IsMember({"auto", "pull", "ship", "gather"}))
      ->capture_default_str();
  command
      .add_option("--steal", engine.steal,
                  "At the job's end ranks without work take requests from others of their group: auto (running ones "
                  "where moving their KV cache pays), off, or always")
      ->check(CLI::IsMember({"auto", "off", "always"}))
      ->capture_default_str();
  // Trials, for tests.
  command.add_option("--plant-fault-rank", engine.fault.rank)->group("");
  command.add_option("--plant-fault-at-pull", engine.fault.at_pull)->group("");
  command.add_option("--plant-fault-at-post", engine.fault.at_post)->group("");
  command
      .add_option(
          "--ship-threshold", engine.ship_threshold,
          "--mode auto ships while a rank's steps have fewer rows on average (default: from the device's profile)")
      ->check(CLI::PositiveNumber);
  command
      .add_option("--mean-context", engine.mean_context,
                  "Tokens that a running choice holds on average, for pool=auto (default: a quarter of the longest, at "
                  "most 2048; of a trace: its mean)")
      ->check(CLI::PositiveNumber);
}

base::Status ApplyLayoutFlags(const LayoutFlags& flags, engine::EngineOptions* engine) {
  const auto apply = [](const char* flag, const std::string& text, uint64_t* bytes) {
    if (text.empty()) return base::Status::Ok();
    const auto parsed = base::ParseBytes(text);
    if (!parsed.ok()) return parsed.status().WithContext(flag);
    *bytes = *parsed;
    if (*bytes > 0) return base::Status::Ok();
    return base::Status(base::kInvalidArgument, fmt::format("{} is {}; expected at least a byte", flag, text));
  };
  if (!flags.memory.empty() && !flags.memory_per_rank.empty()) {
    return base::Status(base::kInvalidArgument,
                        fmt::format("--memory {} and --memory-per-rank {} are both given; expected one of them",
                                    flags.memory, flags.memory_per_rank));
  }
  FB_RETURN_IF_ERROR(apply("--memory", flags.memory, &engine->memory_bytes));
  FB_RETURN_IF_ERROR(apply("--touch-kv", flags.touch_kv, &engine->touch_kv_bytes));
  FB_RETURN_IF_ERROR(apply("--memory-per-rank", flags.memory_per_rank, &engine->memory_per_rank_bytes));
  FB_RETURN_IF_ERROR(apply("--pool-slots", flags.pool_slots, &engine->pool.slots.budget_bytes));
  FB_RETURN_IF_ERROR(apply("--pool-slice", flags.pool_slice, &engine->pool.slice_bytes));
  engine->pool.stream_per_owner = flags.pool_streams == "owner";
  engine->pool.by_matrix = flags.pool_parts == "matrix";
  engine->pool.order = flags.pool_order == "as-used" ? weights::FetchOrder::kAsUsed : weights::FetchOrder::kPeakShifted;
  return base::Status::Ok();
}

}  // namespace forebay::cli
