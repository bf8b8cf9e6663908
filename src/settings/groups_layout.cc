// Settings of devices, of the layout that shares the model among them, and of the papers that
// layouts come from; and trials.
#include <charconv>

#include "layout/shift_plan.h"
#include "settings/groups.h"

namespace forebay::settings {
namespace {

using Mode = std::optional<model::Degrees>;

// "auto" (nothing), or a mode as "4x2": sp x tp.
base::Result<Mode> ParseShiftMode(const std::string& text) {
  if (text == "auto") return Mode();
  model::Degrees mode;
  const char *const begin = text.data(), *const end = begin + text.size();
  const auto sp = std::from_chars(begin, end, mode.sp);
  if (sp.ec == std::errc() && sp.ptr != end && *sp.ptr == 'x') {
    const auto tp = std::from_chars(sp.ptr + 1, end, mode.tp);
    if (tp.ec == std::errc() && tp.ptr == end && mode.sp > 0 && mode.tp > 0) return Mode(mode);
  }
  return base::Status(
      base::kInvalidArgument,
      fmt::format("--shift-mode \"{}\" is no mode; expected auto, or sp x tp as 4x2", text));
}

// How ranks reach weights, by the names that schedule/ has for it.
template <typename At>
Value WantedMode(At at) {
  std::vector<Named<Member<At>>> choices;
  for (const std::string& name : schedule::WantedModeNames())
    choices.push_back({name, *schedule::ParseWantedMode(name)});
  return Choice(at, std::move(choices));
}

std::string_view ModeHelp() {
  static const std::string help = fmt::format(
      "How ranks reach weights that they pool: {}\n"
      "A mode in which no step was taken ends the run with `mode_not_taken`. It is refused where "
      "no ranks share weights.",
      schedule::WantedModeHelp());
  return help;
}

// The same on the devices that generate, as a text: nothing is as --mode says.
Value GenerationMode() {
  std::vector<Named<std::string>> choices;
  for (const std::string& name : schedule::WantedModeNames()) choices.push_back({name, name});
  return Choice(FB_AT(generation_mode), std::move(choices));
}

}  // namespace

Group DevicesGroup() {
  using layout::ModeChoice;
  using layout::Stealing;
  return {
      "Devices and layout",
      "[parallelism.md](parallelism.md) explains the words.",
      {{"--devices", kAll, Class::kUser,
        Parsed(FB_AT(engine.machine.devices), layout::ParseDevices,
               [](const layout::DevicesSpec& devices) { return devices.text; }),
        "`cpu`, `2xcpu` (two ranks), `cuda`, `4xcuda`, `cuda:0,2`, `2xcuda:0` (two ranks on one "
        "GPU), or simulated ones: `sim:8xh200`, `sim:4xPROFILE.json`\n"
        "[gpu.md](gpu.md) says what runs on GPUs."},
       {"--layout", kModel, Class::kUser, Text(FB_AT(layout)),
        "How ranks share the model, as `dp=4,weights=striped,pool=auto`; or `auto`: the layout in "
        "which the job should be done soonest (default: copies; for a trace `auto`)\n"
        "`auto` is for an `--input-file` or a `--trace` whose requests are all there. It takes the "
        "first layout that `forebay plan` prints for the job, and copies where they are within 2 % "
        "of it; roles (`--context`, `--generation`) where they are 5 % before any layout. Choices "
        "by prices (`auto`, `pool=auto`, `--mode auto`) are made for the whole job. "
        "For them at most 2,000 lines of an input are tokenized before the engine starts, finished "
        "lines of earlier runs included, so a resumed job keeps its layout. Answers count as "
        "`max_tokens` long, or 512 where none is given. `auto` also chooses rows of a step, slots "
        "for pulled weights and `--mode`, where no flag sets them. Without `--layout`, a "
        "`--trace`, and on simulated devices an `--input-file`, takes `auto` if its requests are "
        "all there. Other jobs on real devices, requests with arrivals, and mixtures of experts on "
        "real devices run with a copy on each device ([why](parallelism.md#when-to-use-which))."},
       {"--layout", kPlan, Class::kUser, Texts(FB_AT(plan.layouts)),
        "As `dp=4,weights=striped,pool=auto`, or `auto`; once for each column (default: each rank "
        "a copy)"},
       {"--tensor-parallel-size", kModel, Class::kUser, Positive(FB_AT(parallel.tensor)),
        "vLLM's name for `tp` of `--layout`; with `--devices cpu` as many ranks"},
       {"--pipeline-parallel-size", kModel, Class::kUser, Positive(FB_AT(parallel.pipeline)),
        "The same for `pp`"},
       {"--data-parallel-size", kModel, Class::kUser, Positive(FB_AT(parallel.data)),
        "The same for `dp`"},
       {"--mode", kAll, Class::kUser, WantedMode(FB_AT(engine.ship.mode)), ModeHelp(),
        &kSharedWeights},
       {"--threads", kAll, Class::kUser, Optional(FB_AT(engine.machine.threads)),
        "Worker threads of all ranks (default: all cores that the process may use)\n"
        "It changes no answer."},
       {"--isa", kModel, Class::kUser, Text(FB_AT(isa)),
        "Instruction set: `auto`, `amx`, `avx512bf16`, `avx512f`, `avx2` or `ref`; on GPUs `pair` "
        "or `mma`\n"
        "It changes no answer, except that `amx` and `mma` are numerics classes of their own. "
        "`auto` takes `amx` where the CPU has it (name another set to agree with machines that do "
        "not), else the AVX-512 set whose products are faster: `avx512bf16` on AMD, `avx512f` on "
        "Intel; on GPUs `mma` where each is a Hopper (H100, H200), else `pair`."},
       {"--numerics", kModel, Class::kTuning, Text(FB_AT(numerics)),
        "Numerics class: `auto` (that of the instruction set), `pair`, `amx_*`, `amx_*_p1024` (set "
        "`amx`, and `--isa ref`), `mma_k16f25` (GPUs, and `--isa ref`) or `mma_k8f24` (`--isa "
        "ref`)\n"
        "`--isa ref --numerics mma_k16f25` computes the answers of a Hopper GPU's tensor cores on "
        "a CPU, slowly; `mma_k8f24` is the class of Ampere and Ada. `--isa amx --numerics "
        "amx_split_p1024` attends on AMX tiles too, which no machine has run "
        "([classes](../ARCHITECTURE.md))."},
       {"--debug-sync", kModel, Class::kTuning, Switch(FB_AT(engine.machine.debug_sync)),
        "GPUs: wait for each operation, so that a fault names the operation that caused it"},
       {"--cuda-graphs,!--no-cuda-graphs", kModel, Class::kTuning,
        Switch(FB_AT(engine.machine.cuda_graphs)),
        "GPUs: repeated kernel launches, as those of decoding steps, go to the driver together "
        "([graphs](gpu.md))"},
       {"--device-profile", kAll, Class::kUser, Text(FB_AT(engine.machine.device_profile)),
        "Prices of real devices, for forecasts, `pool=auto` and `--mode auto`: a file of `forebay "
        "profile`, or a built-in profile's name (default: the one that fits the CPU, else one that "
        "is measured once)\n"
        "See the [built-in profiles](profiles.md) and [which one "
        "fits](profiles.md#which-one-prices-a-real-cpu). Where real ranks decide by prices "
        "(several with `pool=auto`, `--mode auto`, `--layout auto` or modes of `sp`; any with KV "
        "cache below the device) and none fits, the CPU is measured once: stderr says so, and the "
        "profile is kept in `$XDG_CACHE_HOME/forebay` or `~/.cache/forebay`. The summary names the "
        "profile."},
       {"--ulysses-sequence-parallel-size", kModel, Class::kTuning,
        Positive(FB_AT(parallel.sequence)),
        "The same as `--tensor-parallel-size` for `sp`, by the name of vLLM's plug-in "
        "ArcticInference"},
       {"--enable-shift-parallel,!--no-enable-shift-parallel", kModel, Class::kTuning,
        Switch(FB_AT(shifts)),
        "The plug-in's names: with `sp` in the layout each step takes its mode by its rows (the "
        "default), or all steps take the layout's own, as `--shift-mode` with its `sp` and `tp`"},
       {"--shift-mode", kAll, Class::kTuning,
        Parsed(FB_AT(engine.shift.mode), ParseShiftMode,
               [](const Mode& mode) { return mode ? layout::FormatMode(*mode) : "auto"; }),
        "With `sp` in the layout, the mode of all steps, `sp x tp` as `4x2`; `auto` takes each "
        "step in the cheapest"},
       {"--shift-modes", kAll, Class::kTuning,
        Choice(FB_AT(engine.shift.among), {{"all", ModeChoice::kAll}, {"ends", ModeChoice::kEnds}}),
        "Modes that `--shift-mode auto` chooses from: `all` of the layout's, or its `ends` alone "
        "(default: all; with `--shift-weights copy` or pooled weights the ends)"},
       {"--shift-parallel-threshold", kAll, Class::kTuning, Positive(FB_AT(engine.shift.threshold)),
        "Steps of more rows take the layout's `sp` and `tp`, others `tp` alone (default: the "
        "cheapest mode by the device's profile)"},
       {"--context", kAll, Class::kTuning, Text(FB_AT(context)),
        "Instead of `--layout`, beside `--generation`: the layout of the devices that read prompts "
        "and draw first tokens; they come first\n"
        "[Context and generation](parallelism.md#context-and-generation)."},
       {"--generation", kAll, Class::kTuning, Text(FB_AT(generation)),
        "The layout of the devices that go on from there"},
       {"--generation-mode", kAll, Class::kTuning, GenerationMode(),
        "`--mode` of the devices of `--generation` (default: what `--mode` says, for both)",
        &kSharedWeightsOfGeneration},
       {"--ship-threshold", kAll, Class::kTuning, Positive(FB_AT(engine.ship.threshold)),
        "`--mode auto` ships while a rank's steps have fewer rows on average (default: from the "
        "device's profile)",
        &kChosenMode},
       {"--routed-threshold", kAll, Class::kTuning, Positive(FB_AT(engine.ship.routed_threshold)),
        "Steps of a rank's own with at most this many rows pull only experts that have rows "
        "(default: from the device's profile in `--mode auto`, else none)",
        &kPulledExperts},
       {"--steal", kAll, Class::kTuning,
        Choice(FB_AT(engine.steal),
               {{"auto", Stealing::kAuto}, {"off", Stealing::kOff}, {"always", Stealing::kAlways}}),
        "At the job's end ranks without work take requests from others of their group: `auto` "
        "(running ones where moving their KV cache pays), `off`, or `always`",
        Mute(&kReplicas, "always")},
       {"--pool-slots", kAll, Class::kTuning, Bytes(FB_AT(engine.pool.slots.budget_bytes)),
        "Most memory of a rank for weights that it pulls, as `2GiB` (default: what "
        "`--pool-look-ahead` takes)",
        &kSharedWeights},
       {"--pool-look-ahead", kAll, Class::kTuning,
        Positive(FB_AT(engine.pool.slots.look_ahead_layers)),
        "Layers that a rank pulls ahead of the one in use (default: 2, or what the order needs; "
        "none with `--mode ship` of experts alone)",
        &kSharedWeights},
       {"--pool-parts", kAll, Class::kTuning,
        Choice(FB_AT(engine.pool.by_matrix), {{"layer", false}, {"matrix", true}}),
        "What a slot holds and a copy brings: a `layer`, or a `matrix` of one, where slots take "
        "less memory",
        &kSharedWeights},
       {"--pool-slice", kAll, Class::kTuning, Bytes(FB_AT(engine.pool.slice_bytes)),
        "Bytes that a pull copies from one owner before it turns to the next (default: 1MiB, on "
        "simulated devices 64MiB)",
        &kSharedWeights},
       {"--pool-requests", kAll, Class::kTuning, Positive(FB_AT(engine.pool.requests_in_flight)),
        "Slices of a pull that are under way at once, on simulated devices (default: one a peer, "
        "at least 2)\n"
        "A CPU's cores copy one slice after another."},
       {"--expert-rows", kAll, Class::kTuning, Positive(FB_AT(engine.ship.rounds.expert_rows)),
        "Rows of a rank in a round of shipped experts (default: as many as a 64th of its memory "
        "stages, 256 to 8,192)\n"
        "Staging has room for all of them at one rank.",
        &kShippedExperts},
       {"--expert-overlap", kAll, Class::kTuning,
        Choice(FB_AT(engine.ship.rounds.hides_return), {{"on", true}, {"off", false}}),
        "Whether experts' outputs for shipped rows come home while the rank computes its shared "
        "expert (`on`), or after it (`off`)",
        &kShippedExperts}}};
}

Group PaperGroup() {
  using enum weights::FetchOrder;
  using enum fabric::PeerOrder;
  return {
      "Settings of the papers",
      "Baselines and variants of the papers, for `forebay repro` and comparisons. None makes a job "
      "faster. Values of the same kind are the policies `sarathi`, `static_batch`, `vllm` and "
      "`vasuki-printed`, and `alg1`, `alg2` and `max` of `--kv-offload`.",
      {{"--pool-order", kAll, Class::kPaper,
        Choice(FB_AT(engine.pool.order), {{"peak-shifted", kPeakShifted}, {"as-used", kAsUsed}}),
        "Order of the pulls of `weights=by_layer` over more than two ranks: `peak-shifted` (each "
        "rank begins at another owner) or `as-used`",
        &kSharedWeights},
       {"--pool-streams", kAll, Class::kPaper,
        Choice(FB_AT(engine.pool.stream_per_owner), {{"owner", true}, {"one", false}}),
        "Streams that copy layers of one owner each: one an `owner`, where devices have copy "
        "engines for it, or `one`",
        &kSharedWeights},
       {"--pool-peers", kAll, Class::kPaper,
        Choice(
            FB_AT(engine.pool.peers),
            {{"rotated", kRotated}, {"sliced", kSliced}, {"serial", kSerial}, {"random", kRandom}}),
        "Which peers a pull of several copies from in turn: `rotated` (slices in turns, from the "
        "next peer on), `sliced` (the same from the lowest), `serial` (peer after peer) or "
        "`random` (the same in a drawn order)",
        &kSeveralPeers},
       {"--pool-wait", kAll, Class::kPaper,
        Choice(FB_AT(engine.pool.waits_by_part), {{"layer", false}, {"part", true}}),
        "What pulled experts are waited for by: a `layer`, or a `part` (held experts are computed "
        "with first, then each peer's as they come)",
        &kSharedExperts},
       {"--expert-merge", kAll, Class::kPaper, Switch(FB_AT(engine.pool.merges_experts)),
        "Copy held and pulled experts into one buffer before they are computed with",
        &kSharedExperts},
       {"--expert-wire", kAll, Class::kPaper,
        Choice(FB_AT(engine.ship.rounds.reduced_wire), {{"exact", false}, {"reduced", true}}),
        "How experts' outputs come back to ranks that shipped rows: `exact` (one of each expert, "
        "the bytes of one rank), or on simulated devices `reduced` (one sum of each rank; rows go "
        "out in the format of the experts' weights)",
        &kShippedExperts},
       {"--sim-tp-wire", kAll, Class::kPaper,
        Choice(FB_AT(engine.machine.tp_wire_bf16), {{"exact", false}, {"bf16", true}}),
        "Simulated devices: the price of partial sums between `tp` ranks, `exact` (4 bytes an "
        "element, as real ranks send them) or `bf16` (2, as published systems send them)\n"
        "A price alone; the summary names it (`tp_wire`)."},
       {"--sim-links", kAll, Class::kPaper,
        Choice(FB_AT(engine.machine.source_queues), {{"fair", false}, {"queue", true}}),
        "Simulated devices: how copies from one source share its link, `fair` (all at once) or as "
        "a "
        "`queue` (in the order of their start, each with all that those before it leave)\n"
        "A `queue` is a source's copy engine as DWDP has it (section 4.3)."},
       {"--shift-weights", kAll, Class::kPaper,
        Choice(FB_AT(engine.shift.copies_weights), {{"views", false}, {"copy", true}}),
        "What modes beside the layout's own read: `views` of its weights (no further bytes), or a "
        "`copy`, a second model in memory\n"
        "`forebay plan` shows a copy as weights of further modes."},
       {"--kv-replication", kAll, Class::kPaper,
        Choice(FB_AT(engine.shift.two_step_kv), {{"fused", false}, {"two-step", true}}),
        "With `sp`, how a KV head comes to the several ranks that hold it: `fused` (with the "
        "queries, in one meeting) or `two-step` (to one of them, then from it to the others)\n"
        "`two-step` is Algorithm 1 of Shift Parallelism: the same bytes and answers, one meeting "
        "more a layer."}}};
}

Group TrialGroup() {
  return {
      "Trials",
      "Faults and slow links for tests and experiments.",
      {{"--overcommit", kAll, Class::kTrial, Positive(FB_AT(engine.trial.overcommit)),
        "Scales the blocks that the policies `makespan` and `packed` promise to choices beyond "
        "what these are foreseen to need"},
       {"--link-gbps", kAll, Class::kTrial, Positive(FB_AT(engine.trial.link_gbps)),
        "Meetings of real ranks with `tp` or `sp` take as long as over a link of this many GB/s"},
       {"--shift-every", kAll, Class::kTrial, Optional(FB_AT(engine.trial.shift_every)),
        "Ranks with `sp` take this many steps in each of their modes in turn; -1: every step in "
        "one at random"},
       {"--sim-host-link", kAll, Class::kTrial, Positive(FB_AT(engine.trial.host_link)),
        "The part of its rate that the host's link of simulated devices has; steps are planned by "
        "the whole"},
       {"--kv-up-gbps", kAll, Class::kTrial, Positive(FB_AT(engine.trial.kv_up_gbps)),
        "KV that comes up to real devices takes as long as over a link of this many GB/s besides, "
        "as PCIe's stand-in"},
       {"--kv-up-stall", kAll, Class::kTrial, Positive(FB_AT(engine.trial.kv_up_stall)),
        "Seconds that one copy of streamed KV stands still"},
       {"--kv-up-stall-at", kAll, Class::kTrial, Number(FB_AT(engine.trial.kv_up_stall_at)),
        "The number of that copy, counted by each rank"},
       {"--plant-fault-rank", kAll, Class::kTrial, Number(FB_AT(engine.trial.fault.rank)),
        "The rank that fails"},
       {"--plant-fault-at-pull", kAll, Class::kTrial, Optional(FB_AT(engine.trial.fault.at_pull)),
        "At its n-th copy"},
       {"--plant-fault-at-post", kAll, Class::kTrial, Optional(FB_AT(engine.trial.fault.at_post)),
        "At its n-th signal"}}};
}

}  // namespace forebay::settings
