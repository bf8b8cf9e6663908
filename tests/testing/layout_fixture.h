// Layouts of several ranks against one rank, for the tests that compare them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "choose/create_engine.h"
#include "device/hazard_checker.h"
#include "kernels/kv_layout.h"
#include "layout/layout.h"
#include "layout/layout_plan.h"
#include "runtime/real/real_runtime.h"
#include "schedule/step_mode.h"
#include "testing/golden_files.h"
#include "testing/list_source.h"

namespace forebay {

// Tokens and digest of each choice.
using Answers = std::map<std::pair<int64_t, int32_t>, std::pair<std::vector<int32_t>, uint64_t>>;

inline constexpr int kRequests = 24;
inline constexpr StepMode kPull{.ffn = FfnMode::kPull}, kShip{.ffn = FfnMode::kShip},
    kGather{.ffn = FfnMode::kGather}, kRouted{.ffn = FfnMode::kRouted};

// By matrix or by layer, and layers ahead, with which experts are pulled.
inline constexpr std::pair<bool, int64_t> kPulls[] = {{false, 1}, {false, 3}, {true, 1}};

// At the end one rank works alone.
inline int32_t LongLast(int i) { return i + 1 == kRequests ? 40 : 4 + i % 9; }

// Prompts of 5 to 64 tokens, of which steps of 48 cut some in two; each fifth request wants two
// answers of `max_tokens`(i) tokens.
inline std::vector<Request> MakeRequests(int32_t (*max_tokens)(int i) = LongLast) {
  std::vector<Request> requests;
  for (int i = 0; i < kRequests; ++i) {
    Request request;
    request.id = request.line = i;
    std::vector<int32_t> prompt;
    for (int t = 0; t < 5 + i * 11 % 60; ++t) prompt.push_back((i * 31 + t * 7) % 250);
    request.prompts = {prompt};
    request.n = i % 5 == 0 ? 2 : 1;
    request.sampling.max_tokens = max_tokens(i);
    request.sampling.ignore_eos = true;
    request.sampling.temperature = i % 2 == 0 ? 0.0f : 1.0f;
    requests.push_back(std::move(request));
  }
  return requests;
}

class LayoutTest : public testing::TestWithParam<std::string> {
 protected:
  LayoutTest()
      : files_(std::move(*engine::OpenModel(golden::Path("models/" + GetParam()), false, 0))) {
    options_.machine.memory_bytes = 192 << 20;
    options_.limits.max_model_len = 128;
    options_.limits.max_num_batched_tokens = 48;
    options_.limits.max_num_seqs = 8;
    options_.machine.threads = 1;
    options_.digest = true;
    options_.ship.mode = kPull;
  }

  // Devices and layouts whose ranks share experts.
  std::vector<std::pair<const char*, const char*>> ExpertLayouts() const {
    std::vector<std::pair<const char*, const char*>> layouts = {
        {"2xcpu", "dp=2,experts=by_expert"},
        {"3xcpu", "dp=3,experts=by_expert"},
        {"4xcpu", "dp=4,experts=by_expert"},
        {"4xcpu", "dp=2,pp=2,experts=by_expert"},
        {"4xcpu", "groups=2,dp=2,experts=by_expert"}};
    // More than the least size: half of the experts lie on all ranks.
    const bool few = files_.config.moe->num_experts == 4;
    layouts.emplace_back(few ? "2xcpu" : "3xcpu", few ? "dp=2,experts=by_expert,expert-size=3"
                                                      : "dp=3,experts=by_expert,expert-size=6");
    return layouts;
  }

  int64_t ExpertLayers() const { return std::ranges::count(files_.config.moe->has_experts, 1); }

  // The bytes of all matrices of one of a layer's experts.
  int64_t ExpertBytes() const {
    const model::DecoderPlan plan = model::PlanDecoder(files_.config, options_.machine.dtype);
    uint64_t bytes = 0;
    const auto layer = std::ranges::find_if(plan.layers, [](const model::LayerPlan& each) {
      return std::ranges::any_of(each.matrices,
                                 [](const auto& matrix) { return matrix.num_experts() > 0; });
    });
    int64_t experts = 0;
    const auto is_expert = [](const model::PlannedMatrix& matrix) {
      return matrix.num_experts() > 0;
    };
    model::ForEachRun(*layer, is_expert,
                      [&](const model::PlannedMatrix& matrix, const weights::RunPlace& run) {
                        bytes += run.bytes;
                        experts = matrix.num_experts();
                      });
    return static_cast<int64_t>(bytes) / experts;
  }

  // All requests go to the ranks in turn, before their first step.
  void HandOutInTurn(size_t ranks) {
    options_.steal = layout::Stealing::kOff;
    hand_out_.replicas.assign(ranks, {});
    for (const Request& request : requests_)
      hand_out_.replicas[static_cast<size_t>(request.id) % ranks].push_back({0, request.id});
  }

  // Pools all layers that have something to pool where the layout pools and does not say how many:
  // such small models gain nothing by it.
  Answers Run(const std::string& devices, std::string layout) {
    if (layout.find("weights=") != layout.npos && layout.find("pool=") == layout.npos) {
      const model::ModelConfig& config = files_.config;
      const bool all = config.moe || layout.find("pool-attention=on") != layout.npos;
      layout += fmt::format(",pool={}", all ? config.num_layers : config.DenseLayers());
    }
    options_.machine.devices = *layout::ParseDevices(devices);
    options_.layout = *layout::ParseLayout(layout);
    const auto runtime = runtime::CreateRealRuntime();
    device::HazardChecker checker;
    options_.trial.checker = &checker;
    kv_.clear();
    auto engine = choose::CreateEngine(*runtime, options_, files_, nullptr);
    options_.trial.checker = nullptr;
    EXPECT_TRUE(engine.ok()) << layout << ": " << engine.status().ToString();
    if (!engine.ok()) return {};
    if (!hand_out_.replicas.empty()) (*engine)->ReplayHandOut(&hand_out_);
    (*engine)->SetStepObserver(observer_);
    Answers answers;
    for (const RequestResult& result : testing_support::RunAll(**engine, requests_)) {
      EXPECT_EQ(result.error_message, "");
      for (const Choice& choice : result.choices)
        answers[{result.id, choice.index}] = {choice.tokens, choice.digest};
    }
    stats_ = (*engine)->stats();
    CheckRows(answers);
    for (int i = 0; i < (*engine)->num_replicas(); ++i) {
      for (const auto& rank : (*engine)->replica(i).ranks()) {
        CountBytes(*rank);
        if (keeps_kv_) kv_.emplace_back(rank->shard().own_kv_heads.begin, KeysAndValues(*rank));
      }
    }
    mode_status_ = (*engine)->CheckCounters();
    weight_bytes_ = (*engine)->facts().weight_bytes;
    numerics_class_ = (*engine)->facts().numerics_class;
    EXPECT_TRUE(checker.status().ok()) << layout << ": " << checker.status().ToString();
    EXPECT_GT(checker.num_operations(), 0);
    return answers;
  }

  // Rows are those of prompts, less what was found of them, and of generated tokens, but for the
  // last of each answer, which nobody feeds; and those that are counted as computed again. The
  // other choices of a prompt share its full blocks, or compute it as well.
  void CheckRows(const Answers& answers) const {
    int64_t least = stats_.recomputed_tokens - stats_.cached_prompt_tokens, shared = 0;
    for (const auto& [choice, answer] : answers)
      least += std::max<int64_t>(0, std::ssize(answer.first) - 1);
    for (const Request& request : requests_) {
      for (const auto& prompt : request.prompts) {
        const int64_t tokens = std::ssize(prompt), full = (tokens - 1) / kernels::kBlockTokens;
        least += tokens + (request.n - 1) * (tokens - full * kernels::kBlockTokens);
        shared += (request.n - 1) * full * kernels::kBlockTokens;
      }
    }
    EXPECT_GE(stats_.computed_tokens, least);
    EXPECT_LE(stats_.computed_tokens, least + shared);
  }

  // What the rank's cache holds; the model has one group of layers.
  static std::string KeysAndValues(const engine::Rank& rank) {
    const kv::CacheView::KvGroupView& group = rank.kv().view().groups.front();
    const std::byte* const begin = rank.kv().region().data;
    return {reinterpret_cast<const char*>(begin), reinterpret_cast<const char*>(group.digests)};
  }

  // What a rank pulled is what its steps needed and what was fetched ahead for a step that did not
  // come, or shipped.
  void CountBytes(const engine::Rank& rank) {
    const share::WeightPool* pool = rank.pool();
    if (pool == nullptr) return;
    pooled_step_bytes_ = pool->plan().book->StepBytes(pool->plan().member);
    const uint64_t used = rank.bytes_pulled() - pool->bytes_ahead(),
                   needed = static_cast<uint64_t>(pool->steps()) * pooled_step_bytes_;
    // What came ahead is used in a step that pulls what is wanted, too.
    if (rank.modes().steps(FfnMode::kRouted) > 0) {
      EXPECT_GE(used, needed);
    } else {
      EXPECT_EQ(used, needed);
    }
  }

  std::vector<Request> requests_ = MakeRequests();
  engine::ModelFiles files_;
  layout::EngineOptions options_;
  engine::HandOutLog hand_out_;       // empty: as the policy has it
  StepObserver* observer_ = nullptr;  // of runs to come
  EngineStats stats_;
  base::Status mode_status_;
  uint64_t weight_bytes_ = 0;
  uint64_t pooled_step_bytes_ = 0;  // what a pooled step of the last rank pulls
  std::string numerics_class_;
  bool keeps_kv_ = false;
  std::vector<std::pair<int64_t, std::string>> kv_;  // of each rank: its first KV head, its K and V
};

}  // namespace forebay
