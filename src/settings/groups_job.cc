// Settings of a job: what it reads and writes, when its requests come, what it is on simulated
// devices, and what a plan of it shows.
#include "settings/groups.h"

namespace forebay::settings {

Group PlanGroup() {
  return {
      "What a plan shows",
      "A plan shows one of these. With a `--trace` or an `--input-file` alone, it shows the "
      "layouts in which the job ends soonest.",
      {{"--memory", kPlan, Class::kUser, Switch(FB_AT(plan.memory)), "Show how memory is divided"},
       {"--pool", kPlan, Class::kUser, Switch(FB_AT(plan.pool)),
        "Show what each number of pooled layers comes to, for layouts with `pool=auto`, or of "
        "experts with `expert-size=auto`"},
       {"--modes", kPlan, Class::kUser, Switch(FB_AT(plan.modes)),
        "Show the time of a step in each mode of a layout with `sp`, and the mode that it takes"},
       {"--json", kPlan, Class::kUser, Switch(FB_AT(plan.json)),
        "One JSON object instead of the table of `--memory`, or of layouts"},
       {"--price-per-hour", kPlan, Class::kUser, Positive(FB_AT(plan.price_per_hour)),
        "The cost of all devices an hour; layouts are then shown with the price of a million "
        "output tokens"}}};
}

Group FilesGroup() {
  return {
      "Input and output",
      "",
      {{"-i,--input-file", kRun | kPlan, Class::kUser, Text(FB_AT(input)),
        "Requests: lines of OpenAI's Batch format, or bodies `{\"prompt\"|\"messages\": ...}`\n"
        "[Parameters](formats/requests.md). A plan tokenizes the prompts, and assumes that each "
        "answer becomes as long as its request allows."},
       {"-o,--output-file", kRun, Class::kUser, Text(FB_AT(job.output_path)),
        "Results, appended as requests finish; also the journal from which the same command "
        "resumes (none for traces and simulated devices)\n"
        "[Format](formats/results-log.md)."},
       {"--shard", kRun, Class::kUser, Text(FB_AT(shard)),
        "`I/N`: only the lines I, I + N, ... of the input, counted from 1; `forebay merge` joins "
        "the results\n"
        "[More](scale-out.md)."},
       {"--strict", kRun, Class::kUser, Switch(FB_AT(job.strict)),
        "Check all lines first and list the bad ones; run nothing if there is one"},
       {"--retry-failed", kRun, Class::kUser, Switch(FB_AT(job.retry_failed)),
        "Run the lines again that failed in earlier runs; lines whose text changed run again in "
        "any case"},
       {"--preserve-order", kRun, Class::kUser, Switch(FB_AT(job.preserve_order)),
        "At the end put the results into the order of the input"},
       {"--group-prefixes", kRun, Class::kUser, Switch(FB_AT(group_prefixes)),
        "Run lines whose prompts begin alike one after another, so that they share KV cache\n"
        "Not with arrivals. The policies `makespan` and `packed` do it in any case "
        "([more](scheduling.md#the-order-of-lines))."},
       {"--grace", kRun, Class::kUser, AtLeast(FB_AT(job.grace_seconds), 0),
        "Seconds that running requests have to finish after SIGINT or SIGTERM"}}};
}

Group LogsGroup() {
  return {
      "Logs and reports",
      "",
      {{"--quiet", kRun, Class::kUser, Switch(FB_AT(quiet)),
        "No progress, only errors\n"
        "Where every line failed, the error says why."},
       {"--summary", kRun, Class::kUser, Text(FB_AT(job.summary_path)),
        "Write throughput and counters as JSON to this file\n"
        "[Members](formats/summary.md)."},
       {"--steps", kRun, Class::kUser, Text(FB_AT(steps_path)),
        "Write a JSON line a step to this file\n"
        "[Members](formats/steps.md)."},
       {"--report", kRun, Class::kUser, Text(FB_AT(report_path)),
        "Draw the run into this HTML file"},
       {"--profile", kModel, Class::kUser, Switch(FB_AT(engine.profile)),
        "At the end print time by operation, its rates, and their share of what the machine can "
        "do"},
       {"--record-routing", kRun, Class::kTuning, Text(FB_AT(engine.machine.record_routing)),
        "Write which experts each row chose to this file, which `--routing` takes\n"
        "On real devices and without the prefix cache ([format](formats/routing.md))."}}};
}

Group ArrivalsGroup() {
  return {"Arrivals",
          "[formats/arrivals.md](formats/arrivals.md) explains them; for inputs and traces, on any "
          "device.",
          {{"--request-rate", kRun, Class::kUser, Number(FB_AT(arrivals.request_rate)),
            "Requests a second; with `inf` all are there at once"},
           {"--max-concurrency", kRun, Class::kUser, Positive(FB_AT(arrivals.max_concurrency)),
            "Most requests between their arrival and their result; the next arrives when one has "
            "its result"},
           {"--arrivals", kRun, Class::kUser, Text(FB_AT(arrivals.source)),
            "When requests come: a file of seconds, a line a request, or "
            "`bursts:rate=2,bursts=4,burst_rate=60,burst_seconds=10`"},
           {"--burstiness", kRun, Class::kTuning, Number(FB_AT(arrivals.burstiness)),
            "With `--request-rate`: shape of the gamma distribution of the gaps; 1 is a Poisson "
            "process, less comes in bursts, `inf` evenly"}}};
}

Group SimulationGroup() {
  using cost::NumberFormat;
  const auto format = [](NumberFormat value) {
    return Named<layout::WeightStorage>{std::string(cost::Name(value)), {.format = value}};
  };
  return {
      "Traces and simulated devices",
      "[simulator.md](simulator.md) explains them.",
      {{"--trace", kRun | kPlan, Class::kUser, Text(FB_AT(trace)),
        "Instead of `--input-file`: requests of given lengths, from a CSV file or "
        "`synthetic:n=1000,prompt=512,output=128`, on any device\n"
        "[Format](formats/traces.md)."},
       {"--batch-trace", kRun, Class::kUser, Text(FB_AT(batch_trace)),
        "Beside `--trace`, whose requests are interactive then: a batch, as a trace of its "
        "own, there from the begin or with arrivals in its file\n"
        "[More](traffic.md)."},
       {"--output-lengths", kRun | kPlan, Class::kUser, Text(FB_AT(output_lengths)),
        "Simulated devices and plans: answers of `--input-file` are as long as in this results "
        "file (default: as `max_tokens` says)"},
       {"--trace-rows", kRun | kPlan, Class::kTuning, Optional(FB_AT(trace_rows)),
        "The first rows of the trace, this many (default: all)"},
       {"--trace-scale", kRun, Class::kTuning, Number(FB_AT(trace_scale)),
        "Arrival times of the trace are multiplied by it; with 0 all arrive at the beginning"},
       {"--gpu-memory-utilization", kAll, Class::kTuning,
        Number(FB_AT(engine.machine.memory_utilization)),
        "Part of a GPU's memory that is used, of a real one's of what is free, where `--memory` is "
        "not given"},
       {"-q,--quantization", kAll, Class::kTuning,
        Choice(FB_AT(engine.machine.quantization), {{"auto", {}},
                                                    {"expanded", {.expanded = true}},
                                                    format(NumberFormat::kFP8),
                                                    format(NumberFormat::kFP8Block),
                                                    format(NumberFormat::kNVFP4),
                                                    format(NumberFormat::kInt8),
                                                    format(NumberFormat::kInt4),
                                                    format(NumberFormat::kQ8)}),
        "How matrices lie in memory: `auto` (as the files store them), `expanded` (in the "
        "compute type), `int8` (layers multiply in int8), `int4` (4 bits, in groups of 32), or on "
        "simulated devices `fp8`, `fp8_block` (128 x 128), `nvfp4` or `q8`\n"
        "Answers are the same stored or expanded; those of `int8` and `int4`, and of int8 models "
        "unless `expanded`, are of another numerics class. Routers and norms are always expanded "
        "([quantisation.md](quantisation.md))."},
       {"--kv-cache-dtype", kAll, Class::kTuning,
        Choice(FB_AT(engine.machine.kv_cache_format), {{"auto", std::nullopt},
                                                       {"int8", NumberFormat::kInt8},
                                                       {"fp8", NumberFormat::kFP8},
                                                       {"fp8_e4m3", NumberFormat::kFP8}}),
        "How the KV cache lies in memory: `auto` (in the compute type), or a byte an element: "
        "`int8` (with a scale a position and head), `fp8` or `fp8_e4m3` (the same)\n"
        "Answers of each are of a numerics class of their own "
        "([quantisation.md](quantisation.md)). Latents have `fp8` on simulated devices alone "
        "([moe.md](moe.md))."},
       {"--routing", kRun, Class::kTuning, Text(FB_AT(routing)),
        "Simulated devices: which experts rows go to: `balanced` (default), `power:A`, as "
        "skewed as that power law, or a file of `--record-routing`"},
       {"--sim-detail", kRun, Class::kTuning,
        Choice(FB_AT(engine.machine.full_detail), {{"jump", false}, {"full", true}}),
        "`jump` (equal layers are priced once) or `full` (every layer is simulated)"},
       {"--sim-uncalibrated", kRun | kPlan, Class::kTuning,
        Switch(FB_AT(engine.machine.uncalibrated)), "Price by the datasheet alone"}}};
}

}  // namespace forebay::settings
