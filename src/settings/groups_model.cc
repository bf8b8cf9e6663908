// Settings of the model: which one, how long its requests are, its memory, its text.
#include "kernels/kernel_set.h"
#include "layout/options.h"
#include "settings/groups.h"

namespace forebay::settings {
namespace {

base::Result<tensor::DType> ParseComputeType(std::string_view text) {
  if (text == "auto" || text == "bfloat16") return tensor::DType::kBF16;
  if (text == "float32") return tensor::DType::kF32;
  if (text == "float16" || text == "half") {
    return base::Status(
        base::kInvalidArgument,
        "--dtype float16 is not supported: its range is too small for the residual streams of the "
        "models served here, and no kernel of this device computes in it; use bfloat16 or float32");
  }
  return base::Status(
      base::kInvalidArgument,
      fmt::format("--dtype \"{}\" is unknown; expected auto, bfloat16 or float32", text));
}

std::string_view PrintComputeType(tensor::DType dtype) {
  return dtype == tensor::DType::kF32 ? "float32" : "auto";
}

// A size of memory for KV below the device. A number alone is taken for a slip where it gives no
// room to speak of.
template <typename At>
Value TierBytes(At at, base::ErrorCode code) {
  // No block of a model is as small.
  constexpr uint64_t kLeast = 4 * base::kKiB;
  Value value = Bytes(at);
  value.read = [=](std::string_view flag, const std::string& text,
                   RunOptions& options) -> base::Status {
    const auto bytes = base::ParseBytes(text);
    if (!bytes.ok()) return bytes.status().WithContext(flag);
    at(options) = *bytes;
    if (*bytes >= kLeast) return {};
    const bool lacks_unit = *bytes > 0 && text.find_first_not_of("0123456789") == text.npos;
    return {code, fmt::format("{} {} is {} bytes, less than any block of KV cache; {}", flag, text,
                              *bytes, lacks_unit ? fmt::format("{}GiB?", text) : "expected more")};
  };
  return value;
}

}  // namespace

Group ModelGroup() {
  return {
      "Model",
      "",
      {{"-m,--model", kRun | kPlan, Class::kUser, Text(FB_AT(engine.model)),
        "A folder in Hugging Face's layout, a GGUF file, or `builtin:NAME` (a configuration "
        "without weights)"},
       {"--dtype", kAll, Class::kUser,
        Parsed(FB_AT(engine.machine.dtype), ParseComputeType, PrintComputeType),
        "Compute type: `auto` (bfloat16), `bfloat16` or `float32`"},
       {"--served-model-name", kModel, Class::kUser, Texts(FB_AT(served_model_names)),
        "Names of the model in requests, `*` for any; results carry the first (default: the last "
        "part of its path)"},
       {"--mla", kAll, Class::kTuning,
        Choice(FB_AT(engine.machine.mla_absorbed), {{"auto", false}, {"absorbed", true}}),
        "Latent attention: `auto` (prompts attend to expanded keys and values, answers to the "
        "latents) or `absorbed` (all rows to the latents)\n"
        "`absorbed` gives other bits, in a numerics class of its own ([moe.md](moe.md)). It is "
        "refused where a model has no latent attention."},
       {"--pooling", kAll, Class::kUser,
        Choice(FB_AT(engine.pooling), {{"auto", std::string("auto")},
                                       {"none", std::string("none")},
                                       {"last", std::string("last")},
                                       {"first", std::string("first")},
                                       {"mean", std::string("mean")},
                                       {"yes-no", std::string("yes-no")}}),
        "How a text becomes a vector: `auto` (by the model's head of labels, else by its "
        "`modules.json`), the `last` or `first` token's row after the final norm, the `mean` of "
        "all rows, or `none`\n"
        "Vectors by `last`, `first` or `mean` have length 1. How vectors are made is part of the "
        "model's fingerprint in results. `yes-no` makes a reranker of a decoder: the score of a "
        "pair of texts is the probability that the token `yes` follows them, among `yes` and "
        "`no`."},
       {"--random-weights", kModel, Class::kTuning, Switch(FB_AT(engine.random_weights)),
        "For benchmarks: run a `config.json` without weights on random ones; results say so"}}};
}

Group LengthsGroup() {
  return {
      "Lengths and batch",
      "",
      {{"--max-model-len", kAll, Class::kUser, Optional(FB_AT(engine.limits.max_model_len)),
        "Longest prompt and output together (default: the model's, as far as the KV cache holds "
        "it)",
        Mute(), job::Setting::kMaxModelLen},
       {"--max-num-seqs", kAll, Class::kUser, Positive(FB_AT(engine.limits.max_num_seqs)),
        "Most choices that run at once on a rank (default: 256; on simulated GPUs of 70 GiB and "
        "more 1,024)\n"
        "The policies `sarathi`, `vllm` and `vasuki-printed` have 128. With KV cache below the "
        "device the default is as [`--kv-offload auto`](offload.md) chooses. Where windowed layers "
        "stand beside layers that see all, it is at most as many as [fit by the job's "
        "lengths](scheduling.md#layers-with-windows)."},
       {"--max-num-batched-tokens", kAll, Class::kUser,
        Positive(FB_AT(engine.limits.max_num_batched_tokens)),
        "Most tokens of a step; longer prompts are computed in chunks (default: 512; on simulated "
        "GPUs 8,192, from 70 GiB on 16,384; `--layout auto` may take fewer)\n"
        "The policies `sarathi` and `vasuki-printed` have 512. With KV cache below the device the "
        "default is as [`--kv-offload auto`](offload.md) chooses."},
       {"--scheduling-policy", kAll, Class::kUser,
        Parsed(FB_AT(engine.policy), schedule::FindPolicy,
               [](const schedule::PolicyKind* policy) { return policy->name; }),
        "Which requests run when: `continuous`, `adaptive` (as many choices as the KV cache holds "
        "at their mean length), `makespan` (as many as it holds until they end, by foreseen "
        "lengths), `packed` (as `makespan`, and what fits overtakes what does not), `whole` "
        "(prompts in one step), or a baseline: `sarathi`, `static_batch`, `vllm`, "
        "`vasuki-printed`\n"
        "`interactive`: people beside a batch ([more](traffic.md)). "
        "[Policies](scheduling.md). Under `makespan` and `packed`, lines with long answers begin "
        "[in time](scheduling.md#the-order-of-lines). `vasuki-printed` is for one simulated "
        "device."},
       {"--length-predictor", kAll, Class::kTuning,
        Choice(FB_AT(engine.lengths), {{"max", schedule::LengthPredictor::kMax},
                                       {"mean", schedule::LengthPredictor::kMean},
                                       {"quantile", schedule::LengthPredictor::kQuantile},
                                       {"known", schedule::LengthPredictor::kKnown}}),
        "How the policies `makespan` and `packed` foresee the length of an answer: `max` (as long "
        "as the request allows), `mean`, `quantile` (the median of answers that became as long as "
        "this one is now), or `known` (as a trace says)"},
       {"--target-itl-ms", kAll, Class::kUser, AtLeast(FB_AT(engine.limits.target_itl_ms), -1),
        "With `--scheduling-policy interactive`: target in milliseconds between two tokens of an "
        "interactive answer; other rows fill its steps up to this time, by price (0: no bound; -1: "
        "four steps of one row)\n"
        "[More](traffic.md)."},
       {"--max-step-ms", kAll, Class::kUser, AtLeast(FB_AT(engine.limits.max_step_ms), 0),
        "With `--scheduling-policy interactive`: the most milliseconds of a step without "
        "interactive requests, since an arriving one waits for its end (0: no bound)\n"
        "Steps keep 0.99 of the best rows a second in any case."},
       {"--steps-in-flight", kAll, Class::kTuning, Positive(FB_AT(engine.limits.steps_in_flight)),
        "Steps of a replica at once, each with choices of its own (default: one a pipeline stage)"},
       {"--num-kv-blocks-override", kModel, Class::kTuning,
        Optional(FB_AT(engine.limits.kv_blocks)),
        "At most this many blocks of 32 tokens of KV cache"},
       {"--stall-seconds", kModel, Class::kTuning, Positive(FB_AT(engine.stall_seconds)),
        "Seconds after which a step that has not ended is reported as a stall, and ends the run"},
       {"--mean-context", kAll, Class::kTuning, Positive(FB_AT(engine.limits.mean_context)),
        "Tokens that a running choice holds on average, for `pool=auto` and `expert-size=auto` "
        "(default: a quarter of the longest, at most 2,048; of a trace its mean)"}}};
}

Group MemoryGroup() {
  using layout::Preempting;
  using enum layout::Offloading;
  const auto offload = [](layout::Offloading value) {
    return Named<layout::Offloading>{layout::Name(value), value};
  };
  return {
      "Memory",
      "",
      {{"--memory", kModel, Class::kUser, Bytes(FB_AT(engine.machine.memory_bytes)),
        "Budget of all ranks together for weights, KV cache and workspace, as `8GiB` (default: the "
        "free memory, less a margin)"},
       {"--memory-per-rank", kAll, Class::kTuning,
        Bytes(FB_AT(engine.machine.memory_per_rank_bytes)),
        "The budget of one rank, instead of `--memory`"},
       {"--enable-prefix-caching,!--no-enable-prefix-caching", kModel, Class::kUser,
        Switch(FB_AT(engine.prefix_caching)),
        "Share the KV cache of equal beginnings of prompts (default: on)"},
       {"--state-every", kAll, Class::kTuning, Number(FB_AT(engine.limits.state_every)),
        "For layers that keep a state of each choice: the distance in positions between kept "
        "states\n"
        "Prefixes are shared up to a position whose state was kept; the end of a prompt's last "
        "full block is also one. A multiple of 32."},
       {"--kv-offloading-size", kAll, Class::kUser,
        TierBytes(FB_AT(engine.tier.host_bytes), layout::kOffloadingSize),
        "Memory of the host, of all ranks, where preempted choices keep their KV cache, as `8GiB` "
        "(default: none)\n"
        "Prefixes that the device evicts are found there too ([offload](offload.md))."},
       {"--kv-file", kAll, Class::kUser, Text(FB_AT(engine.tier.file)),
        "A file on a disk for preempted choices' KV cache; beside `--kv-offloading-size` it "
        "takes blocks that host memory evicts (default: none)\n"
        "It is read and written past the page cache, and has no name while the job runs "
        "([offload](offload.md#in-a-file))."},
       {"--kv-file-size", kAll, Class::kUser,
        TierBytes(FB_AT(engine.tier.file_bytes), layout::kKvFileSize),
        "The size of `--kv-file`, as `20GiB`"},
       {"--kv-file-keep", kAll, Class::kUser, Switch(FB_AT(engine.tier.keep_file)),
        "The file stays, with an index beside it: the next job finds prefixes in it instead of "
        "computing them\n"
        "The index is `PATH.index` ([format](formats/kv-file.md))."},
       {"--kv-preempt", kAll, Class::kTuning,
        Choice(FB_AT(engine.tier.preempt), {{"auto", Preempting::kAuto},
                                            {"park", Preempting::kPark},
                                            {"recompute", Preempting::kRecompute}}),
        "How a preempted choice gets its KV cache back: `park` (it waits below the device), "
        "`recompute`, or `auto` (whichever takes less time)\n"
        "It is refused where there is nothing below the device."},
       {"--kv-offload", kAll, Class::kTuning,
        Choice(FB_AT(engine.tier.offload),
               {offload(kAuto), offload(kOff), offload(kUniform), offload(kAlg1), offload(kAlg2),
                offload(kMax), offload(kAlways)}),
        "Whether running choices keep a part of their KV cache below the device, read layer by "
        "layer in every step: `auto` (where it makes the job faster), `off`, `uniform` (as much as "
        "stays hidden behind the step), `alg1`, `alg2`, `max` (Vasuki's plans of whole layers, "
        "where they stay hidden), or `always` (as much as there is room for)\n"
        "A forced value that streams nothing ends the run with `kv_offload_unused` "
        "([offload](offload.md))."},
       {"--touch-kv", kAll, Class::kTuning, Bytes(FB_AT(engine.machine.touch_kv_bytes)),
        "Touch this much of each rank's KV cache at the start, as `4GiB`, where the first touch of "
        "a page is slow (default: as it comes into use)"}}};
}

Group TextGroup() {
  return {
      "Text and sampling",
      "",
      {{"--seed", kModel, Class::kUser, Number(FB_AT(engine.seed)),
        "Keys the sampling of requests that bring no seed of their own", Mute(),
        job::Setting::kSeed},
       {"--generation-config", kModel, Class::kUser, Text(FB_AT(generation_config)),
        "Sampling defaults: `auto` (the model's `generation_config.json`), `vllm` (the API's), or "
        "a folder",
        Mute(), job::Setting::kSampling},
       {"--defaults", kRun | kPlan, Class::kUser,
        Parsed(FB_AT(defaults), job::JobDefaults::Parse,
               [](const job::JobDefaults& defaults) { return defaults.text(); }),
        "A JSON object of request parameters for all lines that do not say them, as "
        "`{\"max_tokens\": 32, \"temperature\": 0}`\n"
        "A parameter of one endpoint alone holds for its lines ([all of them]"
        "(formats/requests.md)).",
        Mute(), job::Setting::kSampling},
       {"--chat-template", kModel, Class::kUser, Text(FB_AT(text.chat_template)),
        "A template file, or the template itself (default: the model's)", Mute(),
        job::Setting::kTemplate},
       {"--max-logprobs", kModel, Class::kUser, AtLeast(FB_AT(max_logprobs), -1),
        "Most log probabilities that a request may ask for; -1 is the whole vocabulary", Mute(),
        job::Setting::kMaxLogprobs},
       {"--skip-tokenizer-init", kAll, Class::kUser, Switch(FB_AT(text.skip_tokenizer)),
        "No tokenizer: prompts are token ids, and answers have no text", Mute(),
        job::Setting::kText},
       {"--digest", kModel, Class::kUser, Switch(FB_AT(engine.digest)),
        "Add to each choice a digest of its logits, keys and values, by which runs are compared "
        "bit by bit",
        Mute(), job::Setting::kDigest},
       {"--parse-special-in-content", kModel, Class::kTuning,
        Switch(FB_AT(text.parse_special_in_content)),
        "Let the content of messages spell special tokens, as other engines do", Mute(),
        job::Setting::kText},
       {"--now", kModel, Class::kTuning, Text(FB_AT(now)),
        "The clock that chat templates read, as `2026-03-07T14:05:09` (default: the start of the "
        "run)\n"
        "Results carry it, and a resumed job goes on with it.",
        Mute(), job::Setting::kNow}}};
}

}  // namespace forebay::settings
