// Whole jobs on a GPU: tokens, log probabilities and digests are those of the CPU in the same
// numerics class, byte for byte. On the emulated driver, or in bench/gpu/ on a GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <map>
#include <set>
#include <string>

#include "base/read_file.h"
#include "base/rng.h"
#include "base/testing/temporary_folder.h"
#include "choose/create_engine.h"
#include "device/cuda/launch_context.h"
#include "device/cuda/testing/driver_under_test.h"
#include "device/cuda/testing/emulated_driver.h"
#include "kernels/cuda/testing/emulated_gpu.h"
#include "kernels/cuda/trial/params.h"
#include "layout/platform.h"
#include "runtime/real/real_runtime.h"
#include "testing/golden_files.h"
#include "testing/list_source.h"

namespace forebay {
namespace {

using device::testing::EmulatedDriver;
using device::testing::RealDriver;

std::atomic<int> latent_kernels = 0;  // that the emulated driver has run

base::Status RunKernel(std::string_view name, const device::cu::LaunchConfig& config,
                       const void* params, uint64_t seed) {
  if (name == "mma_latent_512") ++latent_kernels;
  return kernels::cuda::testing::RunLaunched(name, config, params, seed);
}

// Whose tokens are drawn by whom.
enum class Draws { kKernels, kHostToo };

// Prompts of one and of several blocks; half of them begin alike.
std::vector<Request> MakeRequests(int32_t vocab, Draws draws) {
  const int count = RealDriver() != nullptr ? 48 : 5;
  base::Rng rng(23);
  const auto token = [&] { return static_cast<int32_t>(rng.Below(static_cast<uint64_t>(vocab))); };
  std::vector<int32_t> prefix(40);
  for (int32_t& t : prefix) t = token();
  std::vector<Request> requests;
  for (int i = 0; i < count; ++i) {
    Request request;
    request.id = request.line = i;
    std::vector<int32_t> prompt;
    if (i % 2 == 0) prompt = prefix;
    for (int j = static_cast<int>(rng.Below(12)); j >= 0; --j) prompt.push_back(token());
    request.prompts = {prompt};
    request.n = i % 4 == 1 ? 2 : 1;
    request.sampling.temperature = i % 3 == 0 ? 0.0f : 1.0f;
    request.sampling.max_tokens = 3 + static_cast<int32_t>(rng.Below(4));
    request.sampling.ignore_eos = true;
    if (i % 4 == 1) request.sampling.top_k = 20, request.sampling.top_p = 0.9f;
    if (draws == Draws::kKernels) {
      if (i % 5 == 2) request.sampling.top_p = 0.8f;
      if (i % 5 == 4) request.sampling.min_p = 0.02f;
    } else if (i % 2 == 0) {
      request.sampling.logprobs = 2;
      if (i % 5 == 0) request.sampling.frequency_penalty = 0.5f;
    }
    requests.push_back(request);
  }
  return requests;
}

// A choice as text: what must not differ.
using Answers = std::map<std::pair<int64_t, int32_t>, std::string>;

Answers ToAnswers(const std::vector<RequestResult>& results) {
  Answers answers;
  for (const RequestResult& result : results) {
    if (!result.error_message.empty()) answers[{result.id, -1}] = result.error_message;
    for (const Choice& choice : result.choices) {
      std::string text = fmt::format("digest {:016x}, tokens", choice.digest);
      for (const int32_t token : choice.tokens) text += fmt::format(" {}", token);
      for (const PositionLogprobs& position : choice.logprobs) {
        for (const TokenLogprob& top : position.top)
          text += fmt::format("; {} {:a}", top.token, top.logprob);
      }
      answers[{result.id, choice.index}] = text;
    }
  }
  return answers;
}

constexpr std::string_view kMma = "mma_k16f25";

// A model, and the type or class of its numbers.
class CudaJobs : public testing::TestWithParam<std::tuple<const char*, const char*>> {
 protected:
  void SetUp() override {
    const std::string model = golden::Path(fmt::format("models/{}", std::get<0>(GetParam())));
    // A folder without weights gets random ones.
    options_.random_weights = !std::filesystem::exists(model + "/model.safetensors") &&
                              std::filesystem::exists(model + "/config.json");
    auto files = engine::OpenModel(model, options_.random_weights, 0);
    ASSERT_TRUE(files.ok()) << files.status().ToString();
    files_ = std::move(files).value();
    const std::string_view numbers = std::get<1>(GetParam());
    if (numbers == kMma) numerics_ = numbers;
    options_.machine.dtype = numbers == "float32" ? tensor::DType::kF32 : tensor::DType::kBF16;
    options_.machine.memory_per_rank_bytes = 24 << 20;
    options_.machine.threads = 2;
    options_.limits.max_model_len = 128;
    options_.limits.max_num_seqs = 16;
    options_.limits.max_num_batched_tokens = 64;
    options_.stall_seconds = 60;
    options_.digest = true;
  }

  Answers Run(layout::EngineOptions options, const std::string& devices,
              const std::string& layout) {
    options.machine.devices = layout::ParseDevices(devices).value();
    if (!layout.empty()) options.layout = layout::ParseLayout(layout).value();
    if (named_ || devices == "cpu") {
      options.machine.kernels =
          options.machine.devices.platform->Kernels("auto", numerics_).value();
    }
    const auto runtime = runtime::CreateRealRuntime();
    auto engine = choose::CreateEngine(*runtime, options, files_, nullptr);
    if (!engine.ok()) {
      ADD_FAILURE() << devices << " " << layout << ": " << engine.status().ToString();
      return {};
    }
    Answers answers = ToAnswers(testing_support::RunAll(
        **engine, MakeRequests(static_cast<int32_t>(files_.config.vocab_size), draws_)));
    stats_ = (*engine)->stats();
    operations_.clear();
    for (const device::OpProfile& operation : (*engine)->Profile())
      operations_.insert(operation.label);
    EXPECT_EQ((*engine)->isa().starts_with("cuda-"), devices != "cpu");
    return answers;
  }
  Answers RunOnCpu() { return Run(options_, "cpu", ""); }
  Answers RunOnGpu(layout::EngineOptions options, const std::string& devices,
                   const std::string& layout) {
    if (RealDriver() != nullptr) return Run(options, devices, layout);
    EmulatedDriver emulated(EmulatedOptions());
    options.trial.driver = &emulated.driver();
    Answers answers = Run(options, devices, layout);
    EXPECT_EQ(emulated.Leaks(), "");
    return answers;
  }

  device::testing::EmulatedDriverOptions EmulatedOptions() const {
    device::testing::EmulatedDriverOptions options = kernels::cuda::testing::WithKernels(
        {.seed = 1, .memory_bytes = 256 << 20, .gpus = gpus_, .queue_commands = queue_commands_});
    options.kernel = run_kernel_;
    options.peers = peers_;
    options.stream_values = stream_values_;
    return options;
  }

  // Says which answers differ, and with how many layers of the model they begin to.
  void ExpectCpusAnswers(const layout::EngineOptions& options, const std::string& devices,
                         const std::string& layout) {
    const std::string what = fmt::format("{} \"{}\"", devices, layout);
    if (cpu_.empty()) cpu_ = RunOnCpu();
    if (!Differ(what, cpu_, RunOnGpu(options, devices, layout))) return;
    const int64_t layers = files_.config.num_layers;
    layout::EngineOptions slow = options;
    slow.machine.debug_sync = true;
    for (files_.config.num_layers = 1; files_.config.num_layers < layers;
         ++files_.config.num_layers) {
      const bool differ = Differ(fmt::format("{}, its first {} layers, each operation waited for",
                                             what, files_.config.num_layers),
                                 RunOnCpu(), RunOnGpu(slow, devices, layout));
      if (differ) break;
    }
    files_.config.num_layers = layers;
  }

  engine::ModelFiles files_;
  layout::EngineOptions options_;
  Draws draws_ = Draws::kHostToo;
  EngineStats stats_;
  std::set<std::string> operations_;  // of the last run, if its options have a profile
  std::string_view numerics_ = "pair";
  bool named_ = true;  // --numerics of jobs on GPUs; else it is auto
  device::testing::EmulatedKernelFn run_kernel_ = RunKernel;  // of the emulated driver
  size_t queue_commands_ = 1024;                              // of the emulated driver
  int gpus_ = 1;                                              // of the emulated driver
  bool peers_ = true, stream_values_ = true;                  // of the emulated driver

 private:
  Answers cpu_;  // the whole model's, once asked for

  static bool Differ(const std::string& what, const Answers& expected, const Answers& found) {
    constexpr int kShown = 3;
    int differ = 0;
    for (const auto& [key, answer] : expected) {
      const auto at = found.find(key);
      if (at != found.end() && at->second == answer) continue;
      if (++differ > kShown) continue;
      ADD_FAILURE() << what << ": request " << key.first << ", choice " << key.second
                    << "\n  CPU: " << answer
                    << "\n  GPU: " << (at == found.end() ? "none" : at->second);
    }
    for (const auto& [key, answer] : found) {
      if (!expected.contains(key)) {
        ADD_FAILURE() << what << ": request " << key.first << ": " << answer;
        ++differ;
      }
    }
    if (differ > kShown) ADD_FAILURE() << what << ": " << differ << " answers differ";
    return differ > 0;
  }
};

TEST_P(CudaJobs, HaveTheCpusAnswers) {
  ExpectCpusAnswers(options_, "cuda", "");
  EXPECT_GT(stats_.prefix_blocks_hit, 0);
  EXPECT_GT(stats_.mode_counters["kernels_launched"], 0);
  if (files_.config.mla && files_.config.mla->latent_dim() == 576 && RealDriver() == nullptr) {
    EXPECT_GT(latent_kernels, 0);
  }
}

// The host draws no row that a kernel can draw, and gets no logits of it.
class CudaJobsDrawn : public CudaJobs {};
TEST_P(CudaJobsDrawn, ByKernels) {
  const auto drawn = [&] { return stats_.mode_counters.at("rows_drawn_by_kernels"); };
  layout::EngineOptions options = options_;
  options.profile = true;
  draws_ = Draws::kKernels;
  ExpectCpusAnswers(options, "cuda", "");
  EXPECT_EQ(drawn(), stats_.output_tokens);
  EXPECT_THAT(operations_, testing::Contains("draw"));
  EXPECT_THAT(operations_, testing::Not(testing::Contains("sample")));
  EXPECT_THAT(operations_, testing::Not(testing::Contains("logits")));
  draws_ = Draws::kHostToo;
  (void)RunOnGpu(options, "cuda", "");
  EXPECT_GT(drawn(), 0);
  EXPECT_LT(drawn(), stats_.output_tokens);
  EXPECT_THAT(operations_, testing::IsSupersetOf({"draw", "sample", "logits"}));
}

// Choices one at a time, and prompts piece by piece: kernels of the class are chosen by rows. A
// model for each kind of kernel.
class CudaJobsByRows : public CudaJobs {};
TEST_P(CudaJobsByRows, HaveOneAnswerAloneAndInABatch) {
  layout::EngineOptions options = options_;
  options.limits.max_num_seqs = 1;
  ExpectCpusAnswers(options, "cuda", "");
  // Steps of one row come again.
  if (device::kClearsPadding) {
    EXPECT_GT(stats_.mode_counters["kernels_in_graphs"], 0);
  }
  options = options_;
  options.limits.max_num_batched_tokens = 17;
  options.machine.cuda_graphs = false;
  ExpectCpusAnswers(options, "cuda", "");
  EXPECT_EQ(stats_.mode_counters["kernels_in_graphs"], 0);
}

// --numerics auto: tensor cores, unless they sum in another order.
TEST_P(CudaJobs, TakeTensorCoresThatCanBeTrusted) {
  if (numerics_ != kMma || std::get<0>(GetParam()) != std::string_view("llama3-gqa"))
    GTEST_SKIP() << "one model shows it";
  named_ = false;
  ExpectCpusAnswers(options_, "cuda", "");
  if (RealDriver() != nullptr) return;
  numerics_ = "pair";
  const Answers of_pair = RunOnCpu();
  run_kernel_ = [](std::string_view name, const auto& config, const void* params, uint64_t seed) {
    const base::Status status = RunKernel(name, config, params, seed);
    if (name == "trial_mma") *static_cast<const kernels::cuda::StepTrialParams*>(params)->d += 1;
    return status;
  };
  EXPECT_EQ(RunOnGpu(options_, "cuda", ""), of_pair);
}

// KV in one byte: codes, and their scales.
TEST_P(CudaJobs, KeepKvInOneByte) {
  if (numerics_ == kMma ? std::get<0>(GetParam()) != std::string_view("qwen3-awq")
                        : files_.config.family != "llama")
    GTEST_SKIP() << "one model shows it";
  for (const cost::NumberFormat format : {cost::NumberFormat::kInt8, cost::NumberFormat::kFP8}) {
    options_.machine.kv_cache_format = format;
    const Answers expected = RunOnCpu();
    EXPECT_EQ(RunOnGpu(options_, "cuda", ""), expected) << cost::Name(format);
  }
}

class CudaJobsOfRanks : public CudaJobs {
 protected:
  void SetUp() override {
    CudaJobs::SetUp();
    queue_commands_ = 32;  // less than a step of these layers
  }
  // `mode`: of --mode; what it counts is above 0.
  void ExpectCpusAnswersIn(const char* mode, const std::string& layout, const char* counter) {
    layout::EngineOptions options = options_;
    options.ship.mode = schedule::ParseWantedMode(mode).value();
    if (!options.ship.mode) {
      options.ship.threshold = 6;
      options.ship.patience = 1;
      options.ship.rounds.rows = 5;
    }
    options.ship.rounds.expert_rows = 7;
    ExpectCpusAnswers(options, devices_, layout);
    EXPECT_GT(stats_.mode_counters[counter], 0) << mode << " " << layout;
  }

  const char* devices_ = "2xcuda:0";
};

TEST_P(CudaJobsOfRanks, ThatShareAGpu) {
  for (const char* layout : {"dp=2", "tp=2"}) ExpectCpusAnswers(options_, "2xcuda:0", layout);
  if (files_.config.num_layers > 1) ExpectCpusAnswers(options_, "2xcuda:0", "pp=2");
  if (files_.config.mla) return;  // has no such ranks
  // Steps that cut rows, and steps that do not, in turn.
  layout::EngineOptions options = options_;
  options.trial.shift_every = 2;
  ExpectCpusAnswers(options, "2xcuda:0", "sp=2");
  EXPECT_GT(stats_.mode_counters["bytes_all_to_all"], 0);
}

// Kernels of each reach the other's memory.
TEST_P(CudaJobsOfRanks, OnGpusOfTheirOwn) {
  const bool experts = files_.config.family == "qwen3_moe";
  if (numerics_ == kMma || !(experts || files_.config.family == "llama"))
    GTEST_SKIP() << "two models show it";
  if (RealDriver() != nullptr) {
    int gpus = 0;
    RealDriver()->DeviceGetCount(&gpus);
    if (gpus < 2) GTEST_SKIP() << "one GPU";
  }
  gpus_ = 2;
  devices_ = "cuda:0,1";
  if (experts) return ExpectCpusAnswersIn("ship", "dp=2,experts=by_expert", "expert_rows_returned");
  ExpectCpusAnswers(options_, devices_, "tp=2");
  ExpectCpusAnswersIn("pull", "dp=2,weights=striped,pool=2", "bytes_pulled");
}

// GPUs that do not reach each other and have no counters run what exchanges nothing, and say what
// they lack for the rest.
TEST_P(CudaJobsOfRanks, AskGpusForWhatTheyUse) {
  if (numerics_ == kMma || files_.config.family != "llama") GTEST_SKIP() << "one model shows it";
  if (RealDriver() != nullptr) GTEST_SKIP() << "the emulated driver's GPUs";
  gpus_ = 2;
  peers_ = stream_values_ = false;
  ExpectCpusAnswers(options_, "cuda:0,1", "dp=2");
  const auto refusal = [&] {
    EmulatedDriver emulated(EmulatedOptions());
    layout::EngineOptions options = options_;
    options.trial.driver = &emulated.driver();
    options.machine.devices = layout::ParseDevices("cuda:0,1").value();
    options.layout = layout::ParseLayout("tp=2").value();
    const auto runtime = runtime::CreateRealRuntime();
    return choose::CreateEngine(*runtime, options, files_, nullptr).status();
  };
  EXPECT_THAT(refusal().message(), testing::HasSubstr("cuda:0 has no 64-bit stream memory"));
  stream_values_ = true;
  EXPECT_THAT(refusal().message(), testing::HasSubstr("cuda:0 does not reach the memory of"));
}

// A choice's KV and digests come from two ranks. The rank that meets no other makes no graphs
// beside those that do.
TEST_P(CudaJobsOfRanks, HandOverKv) {
  if (numerics_ == kMma || files_.config.family != "llama") GTEST_SKIP() << "one model shows it";
  layout::EngineOptions options = options_;
  options.roles = {layout::ParseLayout("tp=2").value(), layout::ParseLayout("dp=1").value()};
  ExpectCpusAnswers(options, "3xcuda:0", "");
  EXPECT_GT(stats_.requests_handed_over, 0);
  EXPECT_EQ(stats_.mode_counters["kernels_in_graphs"], 0);
}

// The papers' ways to share weights (docs/layouts.md).
TEST_P(CudaJobsOfRanks, ShareWeights) {
  if (files_.config.num_layers < 2) GTEST_SKIP() << "one layer";
  if (!files_.config.moe) {
    ExpectCpusAnswersIn("ship", "dp=2,weights=striped,pool=2", "bytes_shipped");
    if (numerics_ == kMma) return;
    ExpectCpusAnswersIn("pull", "dp=2,weights=by_layer,pool=2", "bytes_pulled");
    ExpectCpusAnswersIn("pull", "dp=2,weights=sharded,pool=2", "bytes_pulled");
    ExpectCpusAnswersIn("auto", "dp=2,weights=striped,pool=2", "bytes_shipped");
    return;
  }
  ExpectCpusAnswersIn("ship", "dp=2,experts=by_expert", "expert_rows_returned");
  if (numerics_ == kMma || files_.config.family != "qwen3_moe") return;
  ExpectCpusAnswersIn("pull", "dp=2,experts=by_expert", "bytes_pulled");
  ExpectCpusAnswersIn("routed", "dp=2,experts=by_expert", "bytes_routed");
  // Some experts have two holders.
  ExpectCpusAnswersIn(
      "ship",
      fmt::format("dp=2,experts=by_expert,expert-size={}", files_.config.moe->num_experts / 2 + 1),
      "expert_rows_returned");
}

// Which experts rows chose, whichever steps had them.
TEST_P(CudaJobsOfRanks, RecordRouting) {
  if (files_.config.family != "qwen3_moe" || numerics_ == kMma)
    GTEST_SKIP() << "one model shows it";
  layout::EngineOptions options = options_;
  options.prefix_caching = false;
  options.limits.max_num_seqs = 1;
  const auto record = [&](const std::string& devices) {
    const base::TemporaryFolder folder;
    options.machine.record_routing = folder.path() + "/chosen.routing";
    devices == "cpu" ? Run(options, devices, "") : RunOnGpu(options, devices, "");
    return base::ReadFile(options.machine.record_routing).value();
  };
  EXPECT_EQ(record("cuda"), record("cpu"));
}

// Fewer blocks than the running choices have: their KV is streamed from pinned memory or a file.
TEST_P(CudaJobsOfRanks, KeepKvBelowTheGpu) {
  if (files_.config.moe || files_.config.num_layers < 3) GTEST_SKIP() << "one model shows it";
  for (const bool in_file : {false, true}) {
    layout::EngineOptions options = options_;
    options.limits.kv_blocks = 5;
    options.tier.offload = layout::Offloading::kAlways;
    options.tier.preempt = layout::Preempting::kPark;
    if (in_file) {
      options.tier.file = fmt::format("cuda_jobs_{}.kv", getpid());
      options.tier.file_bytes = 4 << 20;
    } else {
      options.tier.host_bytes = 4 << 20;
    }
    ExpectCpusAnswers(options, "cuda", "");
    EXPECT_GT(stats_.mode_counters["kv_blocks_streamed"], 0) << in_file;
  }
}

// Vectors and scores of texts, by decoders and encoders.
class CudaTexts : public CudaJobs {
 protected:
  void SetUp() override {
    CudaJobs::SetUp();
    const base::Status pooled = engine::SetPooling("auto", &files_);
    ASSERT_TRUE(pooled.ok()) << pooled.ToString();
    // Encoders read a text in one step.
    options_.limits.max_num_batched_tokens = options_.limits.max_model_len;
    options_.digest = false;
  }
  std::vector<std::vector<float>> Vectors(const std::string& devices) {
    EmulatedDriver emulated(EmulatedOptions());
    options_.machine.devices = layout::ParseDevices(devices).value();
    options_.machine.kernels =
        options_.machine.devices.platform->Kernels("auto", numerics_).value();
    options_.trial.driver = RealDriver() == nullptr ? &emulated.driver() : nullptr;
    const auto runtime = runtime::CreateRealRuntime();
    auto engine = choose::CreateEngine(*runtime, options_, files_, nullptr);
    if (!engine.ok()) {
      ADD_FAILURE() << devices << ": " << engine.status().ToString();
      return {};
    }
    std::vector<Request> requests =
        MakeRequests(static_cast<int32_t>(files_.config.vocab_size), draws_);
    for (Request& request : requests) {
      request.n = 1;
      request.sampling = {};
      request.sampling.max_tokens = 0;
      request.pooled = true;
    }
    auto results = testing_support::RunAll(**engine, std::move(requests));
    std::ranges::sort(results, {}, &RequestResult::id);
    std::vector<std::vector<float>> vectors;
    for (RequestResult& result : results) {
      EXPECT_EQ(result.error_message, "");
      for (auto& vector : result.vectors) vectors.push_back(std::move(vector));
    }
    return vectors;
  }
};

TEST_P(CudaTexts, HaveTheCpusVectors) {
  const std::vector<std::vector<float>> expected = Vectors("cpu");
  EXPECT_FALSE(expected.empty());
  EXPECT_EQ(Vectors("cuda"), expected);
}

std::string NameOf(const testing::TestParamInfo<CudaJobs::ParamType>& info) {
  std::string name = std::string(std::get<0>(info.param)) + "_" + std::get<1>(info.param);
  std::ranges::replace_if(
      name, [](char c) { return c == '-' || c == '.'; }, '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Models, CudaTexts,
                         testing::Combine(testing::Values("qwen3-embed", "bert-embed",
                                                          "modernbert-embed", "embedding-gemma",
                                                          "xlm-roberta-rerank"),
                                          testing::Values("bfloat16")),
                         &NameOf);
INSTANTIATE_TEST_SUITE_P(TensorCores, CudaTexts,
                         testing::Combine(testing::Values("bert-embed", "modernbert-embed",
                                                          "embedding-gemma"),
                                          testing::Values(kMma.data())),
                         &NameOf);
INSTANTIATE_TEST_SUITE_P(Dense, CudaJobs,
                         testing::Combine(testing::Values("llama3-gqa"),
                                          testing::Values("bfloat16", "float32")),
                         &NameOf);
INSTANTIATE_TEST_SUITE_P(
    Families, CudaJobs,
    testing::Combine(testing::Values("qwen3", "mistral", "phi3", "qwen2-tied", "gemma2", "gemma3",
                                     "glm4", "granite", "olmo3", "exaone4", "hunyuan", "mixtral",
                                     "qwen3-moe", "qwen3-awq", "llama4-text", "gpt-oss",
                                     "minimax-m2", "deepseek-v2", "deepseek-v3", "qwen3-next",
                                     "qwen3.5", "gemma4-e", "gemma4-moe", "lfm2", "nemotron-h",
                                     "granite4-hybrid"),
                     testing::Values("bfloat16")),
    &NameOf);
INSTANTIATE_TEST_SUITE_P(
    TensorCores, CudaJobs,
    testing::Combine(testing::Values("llama3-gqa", "qwen2-tied", "gemma2", "qwen3-awq", "qwen3-moe",
                                     "mixtral", "gpt-oss", "deepseek-v3", "deepseek-v3-wide"),
                     testing::Values(kMma.data())),
    &NameOf);
INSTANTIATE_TEST_SUITE_P(TensorCores, CudaJobsByRows,
                         testing::Combine(testing::Values("llama3-gqa", "gemma2", "qwen3-awq",
                                                          "qwen3-moe", "gpt-oss", "deepseek-v3",
                                                          "deepseek-v3-wide"),
                                          testing::Values(kMma.data())),
                         &NameOf);
INSTANTIATE_TEST_SUITE_P(TensorCores, CudaJobsOfRanks,
                         testing::Combine(testing::Values("llama3-gqa", "qwen3-moe"),
                                          testing::Values(kMma.data())),
                         &NameOf);
INSTANTIATE_TEST_SUITE_P(Draws, CudaJobsDrawn,
                         testing::Combine(testing::Values("llama3-gqa"),
                                          testing::Values("bfloat16")),
                         &NameOf);
INSTANTIATE_TEST_SUITE_P(Layouts, CudaJobsOfRanks,
                         testing::Combine(testing::Values("llama3-gqa", "qwen3-moe", "qwen3-next",
                                                          "deepseek-v3"),
                                          testing::Values("bfloat16")),
                         &NameOf);

}  // namespace
}  // namespace forebay
