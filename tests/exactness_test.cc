// One request, one answer: tokens, logprobs and digests are the same bytes whatever runs beside a
// request and however the engine is set up. Counters prove that each mode ran.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <map>

#include "base/rng.h"
#include "choose/create_engine.h"
#include "kernels/testing/tile_sets.h"
#include "runtime/real/real_runtime.h"
#include "testing/golden_files.h"
#include "testing/list_source.h"

namespace forebay {
namespace {

constexpr int kRequests = 64;
constexpr char kMixed[] = "mixed";  // mistral with a window in one of its two layers alone
// mixtral likewise
constexpr char kWindowedMixture[] = "mixtral-windowed";
constexpr int kWindow = 32;
constexpr int kSharedPrefix = 70;  // two full blocks that half of the prompts begin with

std::vector<Request> MakeRequests(int32_t vocab, float temperature, int32_t n) {
  base::Rng rng(11);
  const auto token = [&] { return static_cast<int32_t>(rng.Below(static_cast<uint64_t>(vocab))); };
  std::vector<int32_t> prefix(kSharedPrefix);
  for (int32_t& t : prefix) t = token();
  std::vector<Request> requests;
  for (int i = 0; i < kRequests; ++i) {
    Request request;
    request.id = request.line = i;
    std::vector<int32_t> prompt;
    if (i % 2 == 0) prompt = prefix;
    for (int j = static_cast<int>(rng.Below(60)); j >= 0; --j) prompt.push_back(token());
    request.prompts = {prompt};
    request.n = n;
    request.sampling.temperature = temperature;
    request.sampling.max_tokens = 4 + static_cast<int32_t>(rng.Below(40));
    request.sampling.ignore_eos = true;
    request.sampling.logprobs = 2;
    if (i % 3 == 0) request.sampling.seed = 1000 + i;
    if (i % 5 == 0) request.sampling.frequency_penalty = 0.5f;
    requests.push_back(request);
  }
  return requests;
}

// All that must not change: (line, choice) -> tokens, digest, logprobs.
using Answers = std::map<std::pair<int64_t, int32_t>, std::string>;

Answers ToAnswers(const std::vector<RequestResult>& results, bool with_digests) {
  Answers answers;
  for (const RequestResult& result : results) {
    EXPECT_EQ(result.error_message, "");
    for (const Choice& choice : result.choices) {
      std::string bytes(reinterpret_cast<const char*>(&choice.digest), sizeof(choice.digest));
      EXPECT_EQ(choice.digest != 0, with_digests);
      bytes.append(reinterpret_cast<const char*>(choice.tokens.data()),
                   choice.tokens.size() * sizeof(int32_t));
      for (const PositionLogprobs& position : choice.logprobs) {
        for (const TokenLogprob& top : position.top) {
          bytes.append(reinterpret_cast<const char*>(&top.token), sizeof(top.token));
          bytes.append(reinterpret_cast<const char*>(&top.logprob), sizeof(top.logprob));
        }
      }
      answers[{result.id, choice.index}] = bytes;
    }
  }
  return answers;
}

class Exactness : public testing::TestWithParam<std::tuple<const char*, const char*>> {
 protected:
  void SetUp() override {
    const std::string name = std::get<0>(GetParam());
    const std::string of_file = name == kMixed             ? "mistral"
                                : name == kWindowedMixture ? "mixtral"
                                                           : name;
    auto files = engine::OpenModel(golden::Path("models/" + of_file), false, 0);
    ASSERT_TRUE(files.ok());
    files_ = std::move(files).value();
    if (of_file != name) files_.config.sliding_window = {0, kWindow};
    options_.machine.dtype = std::string_view(std::get<1>(GetParam())) == "float32"
                                 ? tensor::DType::kF32
                                 : tensor::DType::kBF16;
    options_.machine.memory_bytes = 192 << 20;
    options_.limits.max_model_len = 256;
    options_.machine.threads = 1;
    options_.digest = true;
  }
  Answers Run(const layout::EngineOptions& options, const std::vector<Request>& requests) {
    const auto runtime = runtime::CreateRealRuntime();
    auto engine = choose::CreateEngine(*runtime, options, files_, nullptr);
    FB_CHECK(engine.ok(), "{}", engine.status().ToString());
    Answers answers = ToAnswers(testing_support::RunAll(**engine, requests), with_digests_);
    stats_ = (*engine)->stats();
    numerics_class_ = (*engine)->facts().numerics_class;
    profile_ = (*engine)->Profile();
    return answers;
  }
  // Each request in an engine that runs nothing else beside it.
  Answers RunAlone(const std::vector<Request>& requests) {
    layout::EngineOptions alone = options_;
    alone.limits.max_num_seqs = 1;
    alone.prefix_caching = false;
    return Run(alone, requests);
  }
  bool WindowsOnly() const { return std::ranges::count(files_.config.sliding_window, 0) == 0; }
  std::vector<Request> Requests(float temperature, int32_t n = 1) {
    return MakeRequests(static_cast<int32_t>(files_.config.vocab_size), temperature, n);
  }

  engine::ModelFiles files_;
  layout::EngineOptions options_;
  bool with_digests_ = true;
  EngineStats stats_;
  std::string numerics_class_;
  std::vector<device::OpProfile> profile_;  // where the options ask for one
};

TEST_P(Exactness, AloneAndInABatch) {
  for (const float temperature : {0.0f, 1.0f}) {
    const std::vector<Request> requests = Requests(temperature);
    const Answers alone = RunAlone(requests);
    ASSERT_EQ(alone.size(), static_cast<size_t>(kRequests));
    EXPECT_EQ(stats_.prefix_blocks_hit, 0);
    layout::EngineOptions together = options_;
    together.machine.threads = 2;
    together.limits.max_num_seqs = kRequests;
    EXPECT_EQ(Run(together, requests), alone) << "temperature " << temperature;
    EXPECT_GT(stats_.prefix_blocks_hit, 0);
  }
}

TEST_P(Exactness, AnyChunkSize) {
  const std::vector<Request> requests = Requests(1);
  const Answers alone = RunAlone(requests);
  for (const int32_t rows : {7, 33, 100}) {
    layout::EngineOptions options = options_;
    options.limits.max_num_batched_tokens = rows;
    options.limits.max_num_seqs = 40;
    EXPECT_EQ(Run(options, requests), alone) << rows << " rows a step";
  }
}

TEST_P(Exactness, WithAndWithoutPrefixHits) {
  const std::vector<Request> requests = Requests(1);
  options_.limits.max_num_seqs = 8;
  const Answers with = Run(options_, requests);
  EXPECT_GT(stats_.prefix_blocks_hit, 0);
  EXPECT_GT(stats_.cached_prompt_tokens, 0);
  options_.prefix_caching = false;
  EXPECT_EQ(Run(options_, requests), with);
  EXPECT_EQ(stats_.prefix_blocks_hit, 0);
}

// A block with generated rows serves no prompt where these are computed in another form.
TEST_P(Exactness, APromptThatContinuesAnAnswer) {
  std::vector<Request> requests = Requests(0);
  requests.resize(2);
  std::vector<int32_t>& prompt = requests[0].prompts[0];
  prompt.resize(50, 7);
  requests[0].sampling.max_tokens = 60;
  const std::string first = RunAlone({requests[0]}).at({0, 0});
  std::vector<int32_t> longer = prompt;
  longer.resize(prompt.size() + 60);
  std::memcpy(&longer[prompt.size()], first.data() + sizeof(uint64_t), 60 * sizeof(int32_t));
  longer.push_back(7);
  requests[1].prompts = {longer};
  const Answers alone = RunAlone(requests);
  options_.limits.max_num_seqs = 1;
  EXPECT_EQ(Run(options_, requests), alone);
  bool sees_all = true;
  for (int64_t layer = 0; layer < files_.config.num_layers; ++layer)
    sees_all = sees_all && files_.config.ReachOf(layer).all();
  if (sees_all) {
    EXPECT_EQ(stats_.prefix_blocks_hit, files_.config.expands_prompts() ? 1 : 3);
  }
}

// Contexts of prompts that do not fit the workspace together are expanded in turns: it has 8
// blocks, of which a prompt's last chunk wants 7 and what begins behind it 2.
TEST_P(Exactness, ExpandedContextsTakeTurns) {
  if (!files_.config.mla) GTEST_SKIP() << "no latent attention";
  std::vector<Request> requests = Requests(1);
  requests.resize(24);
  for (Request& request : requests) {
    for (auto& prompt = request.prompts[0]; prompt.size() < 220;)
      prompt.push_back(static_cast<int32_t>((request.id * 31 + 7 * prompt.size()) % 256));
    request.sampling.max_tokens = 1;
  }
  const Answers alone = RunAlone(requests);
  options_.profile = true;
  options_.limits.max_num_batched_tokens = 64;
  options_.prefix_caching = false;
  EXPECT_EQ(Run(options_, requests), alone);
  const auto calls = [&](std::string_view label) {
    const auto entry = std::ranges::find(profile_, label, &device::OpProfile::label);
    return entry == profile_.end() ? 0 : entry->calls;
  };
  // Every step has rows of prompts, and expands once a layer where nobody takes turns.
  EXPECT_GT(calls("gather_latents"), calls("latent_kv"));
  EXPECT_EQ(calls("gather_latents"), calls("key_up"));
}

// Latent attention with one form for all rows: other answers, of another class.
TEST_P(Exactness, AbsorbedPrompts) {
  if (!files_.config.mla) GTEST_SKIP() << "no latent attention";
  std::vector<Request> requests = Requests(1);
  const Answers expanded = RunAlone(requests);
  EXPECT_FALSE(numerics_class_.ends_with("-absorbed"));
  ASSERT_TRUE(engine::AbsorbPrompts(&files_).ok());
  const Answers alone = RunAlone(requests);
  EXPECT_NE(alone, expanded);
  EXPECT_TRUE(numerics_class_.ends_with("-absorbed"));
  options_.limits.max_num_batched_tokens = 33;
  options_.limits.max_num_seqs = 40;
  EXPECT_EQ(Run(options_, requests), alone);
}

// Preempted choices are computed again; or they wait below the device and come back, and nothing is
// computed twice, unless the tier is full. Blocks lie there under the keys of their prefixes, or
// under a choice's own.
TEST_P(Exactness, AfterPreemption) {
  const std::string path = "exactness_" + std::to_string(getpid()) + ".kv";
  std::vector<Request> requests = Requests(1, 2);
  requests.resize(24);
  for (Request& request : requests) request.sampling.max_tokens = 100;
  const Answers alone = RunAlone(requests);
  struct Way {
    const char* name;
    int32_t choices;  // of a request
    bool prefixes, has_room;
    layout::TierOptions tier;
  };
  const Way ways[] = {
      {"no tier", 1, true, false, {}},
      {"too little memory", 1, true, false, {.host_bytes = uint64_t{200} << 10}},
      {"memory", 2, false, true, {.host_bytes = uint64_t{64} << 20}},
      {"a file", 2, true, true, {.file = path, .file_bytes = uint64_t{64} << 20}},
      {"too little memory, and a file",
       2,
       true,
       true,
       {.host_bytes = uint64_t{200} << 10, .file = path, .file_bytes = uint64_t{64} << 20}}};
  for (const Way& way : ways) {
    SCOPED_TRACE(way.name);
    for (Request& request : requests) request.n = way.choices;
    Answers expected = alone;
    std::erase_if(expected, [&](const auto& each) { return each.first.second >= way.choices; });
    layout::EngineOptions options = options_;
    options.limits.max_num_seqs = 48;
    options.limits.kv_blocks = 24;
    options.prefix_caching = way.prefixes;
    options.tier = way.tier;
    options.tier.preempt = layout::Preempting::kPark;
    EXPECT_EQ(Run(options, requests), expected);
    EXPECT_LE(stats_.kv_blocks_used_peak, 24);
    // Where every layer has a window, so many blocks are enough for all.
    EXPECT_EQ(stats_.preemptions > 0, !WindowsOnly());
    if (!way.tier.in_memory() && !way.tier.in_file()) {
      EXPECT_EQ(stats_.recomputed_tokens > 0, !WindowsOnly());
      continue;
    }
    auto& counters = stats_.mode_counters;
    EXPECT_EQ(counters["kv_parks"] + counters["kv_parks_refused"], stats_.preemptions);
    EXPECT_EQ(counters["kv_returns"], counters["kv_parks"]);
    EXPECT_EQ(counters["kv_parks"] > 0, !WindowsOnly());
    EXPECT_EQ(counters["kv_bytes_up"] > 0, !WindowsOnly());
    if (way.has_room) {
      EXPECT_EQ(stats_.recomputed_tokens, 0);
      EXPECT_EQ(counters["kv_parks_refused"], 0);
    }
    if (way.tier.file_bytes > 0) {
      if (way.tier.host_bytes > 0) {
        EXPECT_EQ(counters["kv_blocks_to_file"] > 0, !WindowsOnly());
        EXPECT_LE(counters["kv_blocks_up_from_file"], counters["kv_blocks_up"]);
      } else {
        EXPECT_EQ(counters["kv_file_bytes_read"] > 0, !WindowsOnly());
        EXPECT_GE(counters["kv_file_bytes_read"], counters["kv_bytes_up"]);
      }
      EXPECT_EQ(counters["kv_blocks_failed"], 0);
      EXPECT_NE(access(path.c_str(), F_OK), 0);  // It has no name.
    }
  }
}

// Four answers grow beside long prompts, of which a step computes a few rows, until there are
// blocks for the answers alone. A prompt of one token's answer that is preempted was in the midst
// of it.
TEST_P(Exactness, AfterPreemptionWithinPrompts) {
  std::vector<Request> requests = Requests(1);
  requests.resize(8);
  for (Request& request : requests) {
    const bool answers = request.id < 4;
    request.prompts[0].resize(answers ? 5 : 250, static_cast<int32_t>(10 + request.id));
    request.sampling.max_tokens = answers ? 70 : 1;
  }
  const Answers alone = RunAlone(requests);
  options_.limits.max_num_seqs = 6;
  options_.limits.max_num_batched_tokens = 8;
  options_.limits.kv_blocks = 16;
  EXPECT_EQ(Run(options_, requests), alone);
  EXPECT_EQ(stats_.preemptions > 0, !WindowsOnly());
  requests.resize(4);
  Run(options_, requests);
  EXPECT_EQ(stats_.preemptions, 0);
}

TEST_P(Exactness, OneOrTwoThreads) {
  const std::vector<Request> requests = Requests(1);
  const Answers one = Run(options_, requests);
  options_.machine.threads = 2;
  EXPECT_EQ(Run(options_, requests), one);
}

TEST_P(Exactness, EveryKernelSetOfTheClass) {
  const std::vector<Request> requests = Requests(1);
  std::map<std::string, Answers> of_class;
  for (const kernels::KernelSet* set : kernels::AvailableKernels()) {
    layout::EngineOptions options = options_;
    options.machine.kernels = set;
    const Answers answers = Run(options, requests);
    EXPECT_EQ(answers, of_class.emplace(numerics_class_, answers).first->second) << set->name;
    EXPECT_GT(stats_.mode_counters["steps." + std::string(set->name)], 0);
  }
}

TEST_P(Exactness, TwoChoices) {
  const std::vector<Request> requests = Requests(1, 2);
  const Answers alone = RunAlone(requests);
  ASSERT_EQ(alone.size(), 2u * kRequests);
  EXPECT_NE(alone.at({0, 0}), alone.at({0, 1}));
  options_.limits.max_num_seqs = 50;
  EXPECT_EQ(Run(options_, requests), alone);
}

// A long request alone, in chunks of two blocks: what lies before the window is let go, and its
// digest kept.
TEST_P(Exactness, BlocksThatNoRowSeesAreLetGo) {
  std::vector<Request> requests = Requests(0);
  requests.resize(1);
  while (requests[0].prompts[0].size() < 200) requests[0].prompts[0].push_back(7);
  options_.limits.max_num_seqs = 1;
  const Answers whole = Run(options_, requests);
  options_.limits.max_num_batched_tokens = 64;
  EXPECT_EQ(Run(options_, requests), whole);
  if (WindowsOnly()) {
    EXPECT_LE(stats_.kv_blocks_used_peak, (kWindow + 64) / 32 + 1);
  } else {
    EXPECT_GE(stats_.kv_blocks_used_peak, 200 / 32 + 1);
  }
}

// Models with a window in some layers, of which the cache has blocks for what choices see alone: 4
// x 3, and 2 or 3 more.
class ExactWindows : public Exactness {
 protected:
  void SetUp() override {
    Exactness::SetUp();
    options_.limits.max_num_seqs = 4;
    options_.limits.max_num_batched_tokens = 33;
  }
};

TEST_P(ExactWindows, InChunksAndAfterPreemption) {
  std::vector<Request> requests = Requests(1, 2);
  requests.resize(8);
  for (Request& request : requests) request.sampling.max_tokens = 100;
  const Answers alone = RunAlone(requests);
  ASSERT_EQ(alone.size(), 16u);
  for (const bool tier : {false, true}) {
    for (const int32_t blocks : {0, 20}) {
      SCOPED_TRACE(fmt::format("{} blocks, tier {}", blocks, tier));
      layout::EngineOptions options = options_;
      options.limits.kv_blocks = blocks;
      if (tier) {
        options.tier.host_bytes = uint64_t{64} << 20;
        options.tier.preempt = layout::Preempting::kPark;
      }
      EXPECT_EQ(Run(options, requests), alone);
      EXPECT_EQ(stats_.kv_blocks_total, blocks == 0 ? 4 * 8 : blocks);
      EXPECT_EQ(stats_.preemptions > 0, blocks > 0);
      EXPECT_EQ(stats_.mode_counters["kv_returns"] > 0, tier && blocks > 0);
    }
  }
}

// A prefix is found where its window is there; with digests, where all of it is.
TEST_P(ExactWindows, PrefixesWhoseBeginningsAreGone) {
  std::vector<Request> requests = Requests(1);
  requests.resize(16);
  for (Request& request : requests) {
    std::vector<int32_t>& prompt = request.prompts[0];
    std::vector<int32_t> begin(150);
    for (size_t t = 0; t < begin.size(); ++t)
      begin[t] = static_cast<int32_t>((static_cast<size_t>(request.id) % 2 * 50 + t * 3) % 250);
    prompt.resize(std::min<size_t>(prompt.size(), 40));
    prompt.insert(prompt.begin(), begin.begin(), begin.end());
  }
  options_.limits.max_num_seqs = 16;
  const Answers digested = RunAlone(requests);
  EXPECT_EQ(Run(options_, requests), digested);
  EXPECT_GT(stats_.cached_prompt_tokens, 4 * 128);
  options_.limits.max_num_seqs = 4;
  options_.digest = false;
  with_digests_ = false;
  const Answers alone = RunAlone(requests);
  EXPECT_EQ(Run(options_, requests), alone);
  EXPECT_GT(stats_.cached_prompt_tokens, 4 * 128);
  options_.limits.kv_blocks = 20;
  EXPECT_EQ(Run(options_, requests), alone);
  EXPECT_GT(stats_.cached_prompt_tokens, 128);
}

// Class `amx`, the experts' matrices on model tiles too: its answers are its oracle's, in any
// batch.
// Models whose layers keep a state.
class ExactStates : public Exactness {};

TEST_P(ExactStates, AloneInABatchInChunksAndAfterPreemption) {
  std::vector<Request> requests = Requests(1, 2);
  requests.resize(24);
  for (Request& request : requests) request.sampling.max_tokens = 100;
  const Answers alone = RunAlone(requests);
  ASSERT_EQ(alone.size(), 48u);
  EXPECT_NE(alone.at({0, 0}), alone.at({0, 1}));
  for (const int32_t rows : {7, 4096}) {
    layout::EngineOptions options = options_;
    options.limits.max_num_batched_tokens = rows;
    options.limits.max_num_seqs = 40;
    EXPECT_EQ(Run(options, requests), alone) << rows << " rows a step";
    options.limits.kv_blocks = 24;
    EXPECT_EQ(Run(options, requests), alone) << rows << " rows a step, 24 blocks";
    EXPECT_GT(stats_.preemptions, 0);
  }
  options_.machine.threads = 2;
  EXPECT_EQ(Run(options_, requests), alone) << "two threads";
}

// Prompts that begin alike, twice; choices begin behind a state that was kept, at the prompt's end
// or on the way, or from nothing.
TEST_P(ExactStates, PrefixesAreSharedWhereAStateWasKept) {
  std::vector<Request> requests = Requests(1, 2);
  requests.resize(8);
  for (size_t i = 0; i < requests.size(); ++i) {
    std::vector<int32_t>& prompt = requests[i].prompts[0];
    std::vector<int32_t> begin(150);
    for (size_t t = 0; t < begin.size(); ++t)
      begin[t] = static_cast<int32_t>((i % 3 * 50 + t) % 250);
    prompt.resize(std::min<size_t>(prompt.size(), 20 + i));
    prompt.insert(prompt.begin(), begin.begin(), begin.end());
    requests[i].sampling.max_tokens = 60;
  }
  layout::EngineOptions options = options_;
  options.prefix_caching = false;
  const Answers expected = Run(options, requests);
  EXPECT_EQ(stats_.prefix_blocks_hit, 0);
  options.prefix_caching = true;
  int64_t preemptions = 0;
  for (const int64_t every : {32, 1024}) {
    options.limits.state_every = every;
    for (const auto& [rows, blocks, choices] : {std::tuple{4096, 0, 40}, {21, 0, 3}, {48, 10, 8}}) {
      options.limits.max_num_batched_tokens = rows;
      options.limits.kv_blocks = blocks;
      options.limits.max_num_seqs = choices;
      EXPECT_EQ(Run(options, requests), expected) << every << " " << rows << " " << blocks;
      EXPECT_GT(stats_.prefix_blocks_hit, 0) << every << " " << rows << " " << blocks;
      preemptions += stats_.preemptions;
      // Other requests' begins lie on the way.
      if (every == 32 && choices == 3) {
        EXPECT_GT(stats_.cached_prompt_tokens, 0);
      }
    }
  }
  EXPECT_GT(preemptions, 0);
}

TEST_P(ExactStates, ReplicasThatTakeEachOthersWork) {
  const std::vector<Request> requests = Requests(1);
  const Answers alone = RunAlone(requests);
  options_.machine.devices = *layout::ParseDevices("2xcpu");
  options_.machine.memory_bytes = 384 << 20;
  options_.limits.max_num_seqs = 4;
  EXPECT_EQ(Run(options_, requests), alone);
}

class ExactExperts : public Exactness {};

TEST_P(ExactExperts, OnModelTiles) {
  if (!kernels::testing::HasModelTiles()) GTEST_SKIP() << "model tiles need AVX2";
  std::vector<Request> requests = Requests(1);
  requests.resize(4);
  for (Request& request : requests) request.sampling.max_tokens = 4;
  const Answers pair = RunAlone(requests);
  const kernels::TileOrder order = kernels::TileOrder::kEvenFirst;
  const kernels::KernelSet oracle = kernels::testing::OracleOfTiles(order),
                           tiles = kernels::testing::ModelTileKernels(order);
  options_.machine.kernels = &oracle;
  const Answers alone = RunAlone(requests);
  EXPECT_NE(alone, pair);
  EXPECT_EQ(numerics_class_, "amx_even-bf16-kvbf16");
  options_.machine.kernels = &tiles;
  for (const int32_t rows : {21, 2048}) {
    options_.limits.max_num_batched_tokens = rows;
    EXPECT_EQ(Run(options_, requests), alone) << rows << " rows a step";
    EXPECT_GT(stats_.mode_counters["rows_routed"], 0);
  }
}

std::string NameOf(const testing::TestParamInfo<Exactness::ParamType>& info) {
  std::string name = std::string(std::get<0>(info.param)) + "_" + std::get<1>(info.param);
  std::ranges::replace_if(
      name, [](char c) { return !std::isalnum(c); }, '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Models, Exactness,
                         testing::Combine(testing::Values("llama3-gqa", "qwen3", "mistral", kMixed),
                                          testing::Values("bfloat16", "float32")),
                         &NameOf);
INSTANTIATE_TEST_SUITE_P(TwoKindsOfLayers, Exactness,
                         testing::Combine(testing::Values("gemma4-e", "gemma4-moe"),
                                          testing::Values("bfloat16")),
                         &NameOf);
INSTANTIATE_TEST_SUITE_P(Windows, ExactWindows,
                         testing::Combine(testing::Values("gemma3", "gpt-oss"),
                                          testing::Values("bfloat16")),
                         &NameOf);
INSTANTIATE_TEST_SUITE_P(States, ExactStates,
                         testing::Combine(testing::Values("qwen3.5", "qwen3-next"),
                                          testing::Values("bfloat16", "float32")),
                         &NameOf);
INSTANTIATE_TEST_SUITE_P(FurtherStates, ExactStates,
                         testing::Combine(testing::Values("lfm2", "nemotron-h", "granite4-hybrid"),
                                          testing::Values("bfloat16")),
                         &NameOf);
INSTANTIATE_TEST_SUITE_P(Experts, Exactness,
                         testing::Combine(testing::Values("qwen3-moe", "mixtral", kWindowedMixture,
                                                          "deepseek-v3", "llama4-text"),
                                          testing::Values("bfloat16", "float32")),
                         &NameOf);
// Tiles multiply bf16 alone.
INSTANTIATE_TEST_SUITE_P(Models, ExactExperts,
                         testing::Combine(testing::Values("qwen3-moe", "mixtral", "deepseek-v3",
                                                          "llama4-text"),
                                          testing::Values("bfloat16")),
                         &NameOf);

}  // namespace
}  // namespace forebay
