#include "cli/model_flags.h"

#include <charconv>

#include "cli/flag_spelling.h"
#include "kernels/kernel_set.h"
#include "model/routing.h"

namespace forebay::cli {
namespace {

// CLI11 takes negative and overflowing numbers for unsigned ones.
std::string CheckSeed(const std::string& text) {
  uint64_t seed = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
  if (error == std::errc() && end == text.data() + text.size()) return "";
  return fmt::format("\"{}\" is no seed; expected an integer from 0 to 2^64 - 1", text);
}

void AddEngineFlags(Command command, ModelFlags& flags) {
  layout::EngineOptions& engine = flags.engine;
  command.add_option("--layout", flags.layout.layout,
                     "How ranks share the model, as dp=4,weights=striped,pool=auto "
                     "(docs/parallelism.md), or auto, for a trace: the one in which it is done "
                     "soonest by the prices of the devices (default: for a trace auto, else each "
                     "a copy)");
  command.add_option("--memory", flags.layout.memory,
                     "Budget of all ranks for weights, KV cache and workspace, as 8GiB, divided "
                     "evenly (default: what "
                     "is free, less a margin)");
  AddParallelFlags(command, flags.layout);
  AddLayoutFlags(command, flags.layout, engine);
  command
      .add_option("--seed", engine.seed,
                  "Keys the sampling of requests without a seed of their own")
      .check(CheckSeed)
      .capture_default_str();
  command.add_flag("--enable-prefix-caching,!--no-enable-prefix-caching", engine.prefix_caching,
                   "Share the KV cache of equal beginnings (default: on)");
  command.add_option("--num-kv-blocks-override", engine.limits.kv_blocks,
                     "At most so many blocks of 32 tokens of KV cache");
  command
      .add_option("--isa", flags.isa, "Instruction set: auto, amx, avx512bf16, avx512f, avx2, ref")
      .capture_default_str();
  command
      .add_option("--numerics", flags.numerics,
                  "Numerics class: auto, pair, amx_*, or with --isa ref mma_k16f25, mma_k8f24")
      .capture_default_str();
  command.add_flag("--digest", engine.digest,
                   "Add to each choice a digest of its logits, keys and values");
  command.add_flag(
      "--random-weights", engine.random_weights,
      "Benchmarking: run a config.json without weights, on random ones (results say so)");
  command.add_flag(
      "--profile", engine.profile,
      "At the end print time by operation, its rates and their share of the machine's");
}

void AddTextFlags(Command command, ModelFlags& flags) {
  command.add_option("--chat-template", flags.text.chat_template,
                     "Template file, or the template itself (default: the model's)");
  command.add_flag("--skip-tokenizer-init", flags.text.skip_tokenizer,
                   "No tokenizer: prompts are token ids, answers have no text");
  command.add_flag("--parse-special-in-content", flags.text.parse_special_in_content,
                   "Let message contents spell special tokens, as other engines do");
  command.add_option(
      "--now", flags.now,
      "Clock that templates see, as 2026-03-07T14:05:09 (default: the start of the run)");
  command
      .add_option("--generation-config", flags.generation_config,
                  "Sampling defaults: auto (the model's generation_config.json), vllm (the API's), "
                  "or a folder")
      .capture_default_str();
  command
      .add_option("--max-logprobs", flags.max_logprobs,
                  "Most logprobs that a request may ask for; -1: the whole vocabulary")
      .capture_default_str();
  command.add_option("--served-model-name", flags.served_model_names,
                     "Names of the model in requests, \"*\" for any; results carry the first "
                     "(default: the path's last part)");
}

}  // namespace

void AddModelFlags(Command command, ModelFlags& flags) {
  AddEngineFlags(command, flags);
  AddTextFlags(command, flags);
}

base::Status ApplyModelFlags(ModelFlags* flags) {
  if (flags->max_logprobs < -1) {
    return base::Status(
        base::kInvalidArgument,
        fmt::format("--max-logprobs is {}; expected at least -1", flags->max_logprobs));
  }
  FB_RETURN_IF_ERROR(ApplyParallelFlags(&flags->layout));
  FB_RETURN_IF_ERROR(ApplyLayoutFlags(flags->layout, &flags->engine));
  const auto kernels = kernels::ChooseKernels(flags->isa, flags->numerics);
  if (!kernels.ok()) return kernels.status().WithContext("--isa and --numerics");
  flags->engine.machine.kernels = *kernels;
  if (!flags->routing.empty()) {
    FB_ASSIGN_OR_RETURN(flags->engine.machine.routing,
                        model::ParseRouting(flags->routing, flags->engine.seed));
  }
  auto now = ParseNow(flags->now);
  if (!now.ok()) return now.status().WithContext("--now");
  flags->text.now = *now;
  return base::Status::Ok();
}

base::Result<std::tm> ParseNow(const std::string& text) {
  if (!text.empty()) return text::ParseClock(text);
  const std::time_t now = std::time(nullptr);
  std::tm local = {};
  localtime_r(&now, &local);
  return local;
}

}  // namespace forebay::cli
