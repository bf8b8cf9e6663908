// forebay run: the main job. Flags carry vLLM's names where vLLM has the thing.
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>

#include "base/hash.h"
#include "base/json.h"
#include "base/log.h"
#include "base/units.h"
#include "cli/commands.h"
#include "cli/open_text.h"
#include "cli/run_flags.h"
#include "engine/compose.h"
#include "engine/layout.h"
#include "engine/machine.h"
#include "engine/memory_plan.h"
#include "job/job.h"
#include "job/job_clock.h"
#include "job/job_file.h"
#include "job/signal_control.h"
#include "kernels/kernel_set.h"
#include "model/config_reader.h"
#include "runtime/real/real_runtime.h"
#include "runtime/topology.h"
#include "schedule/policy.h"
#include "sim/run_outputs.h"
#include "weights/book/placement.h"

namespace forebay::cli {
namespace {

// --generation-config: "auto" (the model's), "vllm" (none), or a folder that holds the file.
base::Result<model::GenerationConfig> ReadGeneration(const RunFlags& flags, const engine::ModelFiles& files) {
  if (flags.generation_config == "auto") return files.generation;
  if (flags.generation_config == "vllm")
    return model::GenerationConfig{.eos_token_ids = files.generation.eos_token_ids};
  const std::string path = flags.generation_config + "/generation_config.json";
  FB_ASSIGN_OR_RETURN(const std::string json, base::ReadFile(path));
  return model::ParseGenerationConfig(json, path);
}

SamplingParams SamplingDefaults(const model::GenerationConfig& generation) {
  SamplingParams params;
  if (generation.temperature) params.temperature = static_cast<float>(*generation.temperature);
  if (generation.top_p) params.top_p = static_cast<float>(*generation.top_p);
  if (generation.min_p) params.min_p = static_cast<float>(*generation.min_p);
  if (generation.top_k) params.top_k = static_cast<int32_t>(*generation.top_k);
  if (generation.max_new_tokens) params.default_max_tokens = static_cast<int32_t>(*generation.max_new_tokens);
  if (generation.repetition_penalty) params.repetition_penalty = static_cast<float>(*generation.repetition_penalty);
  return params;
}

// Raised by every change that may change an answer of the same request: results of an older one are not gone on with.
constexpr int64_t kAnswerRevision = 1;

// Everything but the line that an answer depends on.
job::Fingerprints MakeFingerprints(const RunFlags& flags, const engine::ModelFiles& files, const job::ModelText& text,
                                   const ModelFacts& facts, const SamplingParams& defaults) {
  std::string settings;
  base::JsonWriter writer(&settings);
  writer.BeginArray()
      .Int(kAnswerRevision)
      .UInt(text.Fingerprint())
      .UInt(flags.engine.seed)
      .Int(facts.max_model_len)
      .Int(flags.max_logprobs);
  writer.Float(defaults.temperature).Float(defaults.top_p).Float(defaults.min_p).Int(defaults.top_k);
  writer.Float(defaults.repetition_penalty)
      .Int(defaults.default_max_tokens)
      .Bool(flags.engine.digest)
      .String(facts.name);
  writer.Bool(flags.text.skip_tokenizer);
  for (const int32_t id : files.generation.eos_token_ids) writer.Int(id);
  writer.EndArray();
  return {.model = files.fingerprint,
          .settings = base::HashBytes(settings),
          .numerics = base::HashBytes(facts.numerics_class)};
}

base::Status CheckNumbers(const RunFlags& flags) {
  if (flags.max_logprobs < -1) {
    return base::Status(base::kInvalidArgument,
                        fmt::format("--max-logprobs is {}; expected at least -1", flags.max_logprobs));
  }
  if (flags.job.grace_seconds >= 0) return base::Status::Ok();
  return base::Status(base::kInvalidArgument,
                      fmt::format("--grace is {}; expected at least 0", flags.job.grace_seconds));
}

// CLI11 takes negative and overflowing numbers for unsigned ones.
std::string CheckSeed(const std::string& text) {
  uint64_t seed = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
  if (error == std::errc() && end == text.data() + text.size()) return "";
  return fmt::format("\"{}\" is no seed; expected an integer from 0 to 2^64 - 1", text);
}

}  // namespace

base::Result<engine::ModelFiles> OpenFiles(const RunFlags& flags) {
  const bool simulated = flags.simulated();
  // Shapes need no weights; a GGUF file's configuration stands in its header.
  const bool config_alone = simulated && !flags.engine.model.ends_with(".gguf");
  FB_ASSIGN_OR_RETURN(auto files, engine::OpenModel(flags.engine.model, flags.engine.random_weights || config_alone,
                                                    flags.engine.seed));
  if (simulated) files.random_weights = false;
  FB_ASSIGN_OR_RETURN(files.generation, ReadGeneration(flags, files));
  if (!flags.served_model_name.empty()) files.name = flags.served_model_name;
  return files;
}

job::RequestRules RulesOf(const RunFlags& flags, const engine::ModelFiles& files, const ModelFacts& facts) {
  return {.defaults = SamplingDefaults(files.generation),
          .model_name = facts.name,
          .vocab_size = facts.vocab_size,
          .max_logprobs = flags.max_logprobs};
}

int EngineExitCode(const base::Status& status) {
  const base::ErrorCode flags[] = {base::kInvalidArgument,    engine::kMaxModelLen,    kernels::kIsaUnavailable,
                                   schedule::kUnknownPolicy,  engine::kDevicesInvalid, cost::kProfileUnknown,
                                   engine::kLayoutInvalid,    engine::kLayoutDevices,  engine::kLayoutPool,
                                   weights::kUnknownPlacement};
  return std::ranges::count(flags, status.code()) > 0 ? 2 : 1;
}

void PrintProfile(const std::vector<device::OpProfile>& profile, double step_seconds, const profile::Rates* rates) {
  if (profile.empty()) return;
  std::fprintf(stderr, "\n%-16s %10s %10s %7s %12s %10s", "operation", "calls", "seconds", "share", "GFLOP/s",
               "GB/s read");
  std::fprintf(stderr, rates ? " %9s\n" : "\n", "of limit");
  double sum = 0, limits = 0;
  for (const device::OpProfile& op : profile) sum += op.seconds;
  // Of several replicas the sum is shared out; of one its steps, and what lies between their operations.
  const bool one = sum <= step_seconds;
  if (!one) step_seconds = sum;
  for (const device::OpProfile& op : profile) {
    std::fprintf(stderr, "%-16s %10ld %10.3f %6.1f%% %12.1f %10.1f", op.label, static_cast<long>(op.calls), op.seconds,
                 100 * op.seconds / step_seconds, op.flops / op.seconds * 1e-9, op.read_bytes / op.seconds * 1e-9);
    // Of all calls together: where some are bound by arithmetic and some by memory the true limit is higher.
    const bool counts = op.kind == cost::OpKind::kLinear || op.kind == cost::OpKind::kAttention;
    const double limit = rates && counts ? std::max(op.flops / rates->flops, op.read_bytes / rates->bytes_per_s) : 0;
    limits += limit;
    limit > 0 ? std::fprintf(stderr, " %9.2f\n", limit / op.seconds) : std::fprintf(stderr, "\n");
  }
  if (one)
    std::fprintf(stderr, "%-16s %10s %10.3f %6.1f%%\n", "everything else", "", step_seconds - sum,
                 100 * (step_seconds - sum) / step_seconds);
  if (rates) {
    std::fprintf(stderr, "%-16s %10s %10.3f %6.1f%% %12.1f %10.1f %9.2f\n", "limit", "", limits,
                 100 * limits / step_seconds, rates->flops * 1e-9, rates->bytes_per_s * 1e-9, limits / step_seconds);
  }
}

namespace {

bool HasResults(const RunFlags& flags) { return flags.trace.empty() && !flags.simulated(); }

// Which of the flags that say what runs go together.
base::Status CheckWork(const RunFlags& flags) {
  FB_RETURN_IF_ERROR(engine::ParseDevices(flags.engine.devices).status());
  const auto refuse = [](std::string message) { return base::Status(base::kInvalidArgument, std::move(message)); };
  const bool trace = !flags.trace.empty();
  if (trace == flags.input.has_value())
    return refuse(trace ? "--trace and --input-file exclude each other"
                        : "nothing to run; expected --input-file or --trace");
  const bool results = HasResults(flags);
  if (results && flags.job.output_path.empty())
    return refuse("--output-file is missing; expected where the results go");
  if (!results && !flags.job.output_path.empty()) {
    return refuse(fmt::format("--output-file: {} has no results; leave it out, and see --summary, --steps and --report",
                              trace ? "a trace" : "a simulated device"));
  }
  if (!flags.output_lengths.empty() && (results || trace))
    return refuse("--output-lengths is for an --input-file on simulated devices");
  return {};
}

base::Status CheckFlags(RunFlags* flags) {
  FB_RETURN_IF_ERROR(CheckNumbers(*flags));
  FB_RETURN_IF_ERROR(CheckWork(*flags));
  FB_RETURN_IF_ERROR(ApplyLayoutFlags(flags->layout, &flags->engine));
  auto now = ParseNow(flags->now);
  if (!now.ok()) return now.status().WithContext("--now");
  flags->text.now = *now;
  flags->engine.sim_full_detail = flags->sim_detail == "full";
  return base::Status::Ok();
}

// A job whose template reads the clock goes on with the one it began with, unless --now says another.
base::Status AdoptClock(const RunFlags& flags, job::ModelText* text) {
  if (!text->uses_clock() || !flags.now.empty()) return base::Status::Ok();
  const std::optional<std::string> clock = job::FindJobClock(flags.job.output_path);
  if (!clock) return base::Status::Ok();
  FB_ASSIGN_OR_RETURN(const std::tm now, text::ParseClock(*clock));
  text->set_now(now);
  return base::Status::Ok();
}

std::string SystemFingerprint(const ModelFacts& facts, const job::ModelText& text) {
  std::string fingerprint = "fb-" + facts.numerics_class;
  if (facts.random_weights) fingerprint += "-random-weights";
  if (text.uses_clock()) fingerprint += job::kClockMark + text.clock();
  return fingerprint;
}

// What the job needs to know of the model and of the flags.
void FillJob(const RunFlags& flags, const engine::ModelFiles& files, const job::ModelText& text,
             const engine::LocalEngine& engine, job::JobOptions* job) {
  const ModelFacts& facts = engine.facts();
  job->rules = RulesOf(flags, files, facts);
  job->fingerprints = MakeFingerprints(flags, files, text, facts, job->rules.defaults);
  job->style = {
      .model = facts.name, .system_fingerprint = SystemFingerprint(facts, text), .digests = flags.engine.digest};
  job->isa = engine.isa();
  job->progress = flags.quiet ? job::ProgressMode::kQuiet
                  : isatty(2) ? job::ProgressMode::kLive
                              : job::ProgressMode::kLines;
}

// With --profile: what the machine can do while the engine rests.
profile::Rates RatesNow(const RunFlags& flags, runtime::Runtime& runtime, const engine::LocalEngine& engine) {
  if (!flags.engine.profile || engine.isa() == "ref") return {};
  const int workers = flags.engine.threads > 0 ? flags.engine.threads : runtime::ReadTopology().usable_cores;
  const auto rates = profile::MeasureRates(runtime, workers, engine.isa());
  return rates.ok() ? *rates : profile::Rates{};
}

int Run(RunFlags& flags, runtime::Runtime& runtime) {
  flags.job.process_began = runtime.Now();
  if (flags.quiet) base::SetLogLevel(base::LogLevel::kError);
  if (const base::Status status = CheckFlags(&flags); !status.ok()) return Fail(status, 2);
  if (!HasResults(flags)) return RunWithoutResults(flags, runtime);
  // Before a large model is read.
  const auto input = job::JobFile::Open(*flags.input);
  if (!input.ok()) return Fail(input.status(), static_cast<int>(job::ExitCodeOf(input.status())));
  auto files = OpenFiles(flags);
  if (!files.ok()) return Fail(files.status());
  flags.text.path = flags.engine.model;
  flags.text.gguf = files->gguf;
  auto text = job::ModelText::Load(flags.text);
  if (!text.ok()) return Fail(text.status());
  if (const base::Status status = AdoptClock(flags, text->get()); !status.ok()) return Fail(status);
  auto engine = engine::CreateEngine(runtime, flags.engine, *files, (*text)->tokenizer());
  if (!engine.ok()) return Fail(engine.status(), EngineExitCode(engine.status()));

  const profile::Rates before = RatesNow(flags, runtime, **engine);
  FillJob(flags, *files, **text, **engine, &flags.job);
  auto outputs = sim::RunOutputs::Open(flags.steps_path, flags.report_path);
  if (!outputs.ok()) return Fail(outputs.status());
  (*engine)->SetStepObserver(outputs->observer());
  RunControl control;
  const job::SignalControl signals(&control);
  const job::JobOutcome outcome = job::RunJob(runtime, *input, flags.job, **text, **engine, control);
  const base::Status written =
      outputs->Finish({.summary = outcome.summary, .latencies = {}, .profile = (*engine)->Profile()});
  if (!written.ok()) base::Log(base::LogLevel::kError, written.ToString());
  if (flags.engine.profile) {
    const profile::Rates after = RatesNow(flags, runtime, **engine);
    const profile::Rates rates{(before.flops + after.flops) / 2, (before.bytes_per_s + after.bytes_per_s) / 2};
    PrintProfile((*engine)->Profile(), (*engine)->stats().step_seconds, rates.flops > 0 ? &rates : nullptr);
  }
  if (!outcome.status.ok()) base::Log(base::LogLevel::kError, outcome.status.ToString());
  // A device that hangs cannot be waited for; the results file is whole without it.
  if (outcome.exit_code == job::ExitCode::kStalled) std::_Exit(static_cast<int>(outcome.exit_code));
  return outcome.exit_code == job::ExitCode::kComplete && !written.ok() ? 1 : static_cast<int>(outcome.exit_code);
}

void AddEngineFlags(CLI::App& command, RunFlags& flags) {
  engine::EngineOptions& engine = flags.engine;
  command
      .add_option("--devices", engine.devices,
                  "cpu, 2xcpu (two ranks), or simulated ones: sim:8xh200, sim:4xPROFILE.json")
      ->capture_default_str();
  command.add_option(
      "--layout", engine.layout,
      "How ranks share the model, as dp=4,weights=striped,pool=auto (docs/parallelism.md; default: each a copy)");
  command.add_option("--memory", flags.layout.memory,
                     "Budget of all ranks for weights, KV cache and workspace, as 8GiB, divided evenly (default: what "
                     "is free, less a margin)");
  AddLayoutFlags(command, flags.layout, engine);
  command.add_option("--dtype", engine.dtype, "Compute type: auto (bfloat16), bfloat16, float32")
      ->capture_default_str();
  command.add_option("--threads", engine.threads, "Worker threads (default: all usable cores)");
  command.add_option("--max-model-len", engine.max_model_len,
                     "Longest prompt and output together (default: the model's, as far as the KV cache holds it)");
  command
      .add_option("--max-num-seqs", engine.max_num_seqs,
                  "Most choices that run at once on a rank (default: 256; on simulated GPUs of 70 GiB and more 1024)")
      ->check(CLI::PositiveNumber);
  command
      .add_option("--max-num-batched-tokens", engine.max_num_batched_tokens,
                  "Most tokens of a step; longer prompts are computed in chunks (default: 512; on simulated GPUs 8192, "
                  "of 70 GiB and more 16384)")
      ->check(CLI::PositiveNumber);
  command.add_option("--seed", engine.seed, "Keys the sampling of requests without a seed of their own")
      ->check(CheckSeed)
      ->capture_default_str();
  command.add_flag("--enable-prefix-caching,!--no-enable-prefix-caching", engine.prefix_caching,
                   "Share the KV cache of equal beginnings (default: on)");
  command.add_option("--num-kv-blocks-override", engine.kv_blocks, "At most so many blocks of 32 tokens of KV cache");
  command
      .add_option("--scheduling-policy", engine.policy,
                  "continuous, adaptive (as many choices as the KV cache holds at their mean length) or static_batch")
      ->capture_default_str();
  command.add_option("--isa", engine.isa, "Instruction set: auto, amx, avx512bf16, avx512f, avx2, ref")
      ->capture_default_str();
  command.add_flag("--digest", engine.digest, "Add to each choice a digest of its logits, keys and values");
  command.add_flag("--random-weights", engine.random_weights,
                   "Benchmarking: run a config.json without weights, on random ones (results say so)");
  command.add_flag("--profile", engine.profile,
                   "At the end print time by operation, its rates and their share of the machine's");
}

void AddSimulationFlags(CLI::App& command, RunFlags& flags) {
  command.add_option("--trace", flags.trace,
                     "Instead of --input-file: requests of given lengths, from a CSV file or "
                     "synthetic:n=1000,prompt=512,output=128,... (docs/formats/traces.md)");
  command.add_option("--trace-rows", flags.trace_options.max_rows,
                     "The first so many rows of the trace (default: all)");
  command
      .add_option("--trace-scale", flags.trace_options.time_scale,
                  "Arrival times are multiplied by it; 0: all at the begin")
      ->capture_default_str();
  command.add_option("--output-lengths", flags.output_lengths,
                     "Simulated devices: answers are as long as in this results file (default: as max_tokens says)");
  command
      .add_option("--sim-detail", flags.sim_detail,
                  "jump (equal layers are priced once) or full (every layer is simulated)")
      ->check(CLI::IsMember({"jump", "full"}))
      ->capture_default_str();
  command.add_flag("--sim-uncalibrated", flags.engine.sim_uncalibrated, "Price by the datasheet alone");
  command.add_option("--steps", flags.steps_path, "Write a JSON line a step to this file");
  command.add_option("--report", flags.report_path, "Draw the run into this HTML file");
}

void AddTextFlags(CLI::App& command, RunFlags& flags) {
  command.add_option("--chat-template", flags.text.chat_template,
                     "Template file, or the template itself (default: the model's)");
  command.add_flag("--skip-tokenizer-init", flags.text.skip_tokenizer,
                   "No tokenizer: prompts are token ids, answers have no text");
  command.add_flag("--parse-special-in-content", flags.text.parse_special_in_content,
                   "Let message contents spell special tokens, as other engines do");
  command.add_option("--now", flags.now,
                     "Clock that templates see, as 2026-03-07T14:05:09 (default: the start of the run)");
  command
      .add_option("--generation-config", flags.generation_config,
                  "Sampling defaults: auto (the model's generation_config.json), vllm (the API's), or a folder")
      ->capture_default_str();
  command
      .add_option("--max-logprobs", flags.max_logprobs,
                  "Most logprobs that a request may ask for; -1: the whole vocabulary")
      ->capture_default_str();
  command.add_option("--served-model-name", flags.served_model_name,
                     "The model's name in requests and results (default: the path's last part)");
}

}  // namespace

void AddRunCommand(CLI::App& app, int* exit_code) {
  auto flags = std::make_shared<RunFlags>();
  CLI::App* command =
      app.add_subcommand("run", "Run a job: every line of INPUT gets its answer in OUTPUT; run it again to resume");
  command
      ->add_option("-m,--model", flags->engine.model,
                   "Folder in Hugging Face's layout, GGUF file, or builtin:NAME (a configuration without weights)")
      ->required();
  command->add_option("-i,--input-file", flags->input,
                      "Requests: OpenAI Batch lines, or {\"prompt\"|\"messages\": ...}");
  command->add_option(
      "-o,--output-file", flags->job.output_path,
      "Results, appended in completion order; also the journal of the job (none for traces and simulated devices)");
  AddEngineFlags(*command, *flags);
  AddSimulationFlags(*command, *flags);
  AddTextFlags(*command, *flags);
  command->add_flag("--strict", flags->job.strict, "Check all lines first; run nothing if one is bad");
  command->add_flag("--preserve-order", flags->job.preserve_order,
                    "At the end rewrite the results in the input's order");
  command->add_option("--grace", flags->job.grace_seconds, "Seconds to finish what runs after SIGINT or SIGTERM")
      ->capture_default_str();
  command->add_option("--summary", flags->job.summary_path, "Write the summary as JSON to this file");
  command->add_flag("--quiet", flags->quiet, "No progress; only errors");
  command->callback([flags, exit_code] {
    const std::unique_ptr<runtime::Runtime> runtime = runtime::CreateRealRuntime();
    *exit_code = Run(*flags, *runtime);
  });
}

}  // namespace forebay::cli
