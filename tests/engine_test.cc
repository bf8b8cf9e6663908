// The engine's public behaviour on a tiny model: refusals, prompts without output, drains, aborts,
// failing sinks, stalls.
#include <gtest/gtest.h>

#include "choose/create_engine.h"
#include "runtime/real/real_runtime.h"
#include "testing/golden_files.h"
#include "testing/list_source.h"

namespace forebay {
namespace {

class EngineTest : public testing::Test {
 protected:
  EngineTest()
      : runtime_(runtime::CreateRealRuntime()),
        files_(std::move(*engine::OpenModel(golden::Path("models/llama3-gqa"), false, 0))) {
    options_.machine.memory_bytes = 128 << 20;
    options_.limits.max_model_len = 128;
    options_.machine.threads = 1;
  }
  std::unique_ptr<engine::LocalEngine> Create() {
    return std::move(*choose::CreateEngine(*runtime_, options_, files_, nullptr));
  }

  static Request MakeRequest(int64_t line, int32_t prompt_tokens, int32_t max_tokens) {
    Request request;
    request.id = request.line = line;
    request.prompts = {std::vector<int32_t>(prompt_tokens, 5)};
    request.sampling.max_tokens = max_tokens;
    request.sampling.ignore_eos = true;
    return request;
  }

  std::unique_ptr<runtime::Runtime> runtime_;
  engine::ModelFiles files_;
  layout::EngineOptions options_;
};

TEST_F(EngineTest, RefusesWhatCanNeverRun) {
  const auto engine = Create();
  EXPECT_FALSE(engine->Refusal(MakeRequest(0, 100, 28)).has_value());
  const auto code = [&](const Request& request) {
    const auto refusal = engine->Refusal(request);
    return refusal ? refusal->error_code : "none";
  };
  EXPECT_EQ(code(MakeRequest(0, 100, 29)), "context_length_exceeded");
  EXPECT_EQ(code(MakeRequest(0, 128, -1)), "context_length_exceeded");
  EXPECT_EQ(code(MakeRequest(0, 128, 0)), "none");
  // Whose fault it is: with any answer, or with this one.
  EXPECT_EQ(engine->Refusal(MakeRequest(0, 100, 29))->error_param, "max_tokens");
  EXPECT_EQ(engine->Refusal(MakeRequest(0, 128, 29))->error_param, "prompt");
  EXPECT_EQ(code(MakeRequest(0, 0, 1)), "prompt_empty");
  Request request = MakeRequest(0, 4, 1);
  request.prompts[0][2] = engine->facts().vocab_size;
  EXPECT_EQ(code(request), "token_out_of_vocabulary");
  request = MakeRequest(0, 4, 1);
  request.sampling.logit_bias = {{-1, 1.0f}};
  EXPECT_EQ(code(request), "token_out_of_vocabulary");
  request = MakeRequest(0, 4, 1);
  request.sampling.allowed_token_ids = {1 << 20};
  EXPECT_EQ(code(request), "token_out_of_vocabulary");
  request = MakeRequest(0, 4, 0);
  request.sampling.prompt_logprobs = 0;
  request.prompt_logprobs_from = {4};
  EXPECT_EQ(code(request), "invalid_value");
  EXPECT_NE(engine->Refusal(MakeRequest(0, 100, 29))->error_message.find("128"), std::string::npos);
}

TEST_F(EngineTest, RefusedRequestsCostNothingElse) {
  const auto engine = Create();
  const auto results = testing_support::RunAll(
      *engine, {MakeRequest(0, 200, 1), MakeRequest(1, 10, 3), MakeRequest(2, 0, 1)});
  ASSERT_EQ(results.size(), 3u);
  int good = 0;
  for (const RequestResult& result : results) good += result.error_message.empty();
  EXPECT_EQ(good, 1);
  EXPECT_EQ(engine->stats().requests_finished, 1);
}

TEST_F(EngineTest, RequestsWithoutOutputAreCounted) {
  const auto engine = Create();
  testing_support::RunAll(*engine, {MakeRequest(0, 7, 0), MakeRequest(1, 10, 0)});
  EXPECT_EQ(engine->stats().requests_finished, 2);
  EXPECT_EQ(engine->stats().prompt_tokens, 17);
  EXPECT_EQ(engine->stats().steps, 0);
  testing_support::RunAll(*engine, {MakeRequest(2, 5, 0), MakeRequest(3, 10, 3)});
  EXPECT_EQ(engine->stats().requests_finished, 4);
  EXPECT_EQ(engine->stats().prompt_tokens, 32);
}

TEST_F(EngineTest, PromptLogprobsWithoutOutput) {
  Request request = MakeRequest(0, 70, 0);
  request.sampling.prompt_logprobs = 2;
  const auto results = testing_support::RunAll(*Create(), {request, MakeRequest(1, 5, 0)});
  ASSERT_EQ(results.size(), 2u);
  for (const RequestResult& result : results) {
    ASSERT_EQ(result.choices.size(), 1u);
    EXPECT_TRUE(result.choices[0].tokens.empty());
    if (result.id == 1) continue;
    ASSERT_EQ(result.prompt_logprobs.size(), 1u);
    ASSERT_EQ(result.prompt_logprobs[0].size(), 70u);
    EXPECT_TRUE(result.prompt_logprobs[0][0].top.empty());
    for (int i = 1; i < 70; ++i) {
      const PositionLogprobs& position = result.prompt_logprobs[0][i];
      ASSERT_GE(position.top.size(), 2u);
      EXPECT_EQ(position.top[position.chosen].token, 5);
    }
  }
}

TEST_F(EngineTest, PromptLogprobsAreTheSameInChunks) {
  Request request = MakeRequest(0, 90, 4);
  for (size_t i = 0; i < 90; ++i) request.prompts[0][i] = static_cast<int32_t>(i + 3);
  request.sampling.prompt_logprobs = 0;
  const auto whole = testing_support::RunAll(*Create(), {request});
  options_.limits.max_num_batched_tokens = 13;
  const auto chunked = testing_support::RunAll(*Create(), {request});
  for (int i = 1; i < 90; ++i) {
    EXPECT_EQ(whole[0].prompt_logprobs[0][i].top[0].logprob,
              chunked[0].prompt_logprobs[0][i].top[0].logprob)
        << i;
  }
}

// The same scores, bit for bit, of a request with all its continuations, of each alone, without the
// prefix cache, in chunks, and as the prompt's last log probabilities.
TEST_F(EngineTest, ScoresAreTheSameHoweverTheyAreComputed) {
  Request scored = MakeRequest(0, 75, 0);
  for (size_t i = 0; i < 75; ++i) scored.prompts[0][i] = static_cast<int32_t>(i + 3);
  scored.prompts.resize(3, scored.prompts[0]);
  scored.prompts[0].back() = 90;
  scored.prompts[1].insert(scored.prompts[1].end(), {91, 92});
  scored.sampling.prompt_logprobs = 0;
  scored.prompt_logprobs_from = {70, 74, 73};
  const auto engine = Create();
  const auto together = testing_support::RunAll(*engine, {scored});
  ASSERT_EQ(together.size(), 1u);
  // Two blocks, which two prompts find; logits of the wanted rows alone.
  EXPECT_EQ(engine->stats().computed_tokens, 75 + 77 - 64 + 75 - 64);
  EXPECT_EQ(together[0].cached_tokens, 128);
  const auto expect = [&](const RequestResult& result, size_t which) {
    const auto& found = result.prompt_logprobs[0];
    const auto& expected = together[0].prompt_logprobs[which];
    const auto from = static_cast<size_t>(scored.prompt_logprobs_from[which]);
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i) {
      ASSERT_EQ(expected[i].top.size(), i < from ? 0 : 1) << which << " " << i;
      if (i < from) continue;
      EXPECT_EQ(found[i].top[0].logprob, expected[i].top[0].logprob);
    }
  };
  for (const bool cached : {true, false}) {
    options_.prefix_caching = cached;
    for (const int32_t rows : {2048, 13}) {
      options_.limits.max_num_batched_tokens = rows;
      const auto another = Create();
      for (size_t i = 0; i < 3; ++i) {
        Request alone = scored;
        alone.id = static_cast<int64_t>(i);
        alone.prompts = {scored.prompts[i]};
        alone.prompt_logprobs_from = {scored.prompt_logprobs_from[i]};
        Request whole = alone;
        whole.prompt_logprobs_from.clear();
        for (const Request& request : {alone, whole})
          expect(testing_support::RunAll(*another, {request})[0], i);
      }
    }
  }
}

TEST_F(EngineTest, SeveralPromptsWithSeveralChoices) {
  Request request = MakeRequest(0, 40, 6);
  request.prompts.push_back(std::vector<int32_t>(10, 7));
  request.n = 3;
  const auto engine = Create();
  const auto results = testing_support::RunAll(*engine, {request});
  ASSERT_EQ(results.size(), 1u);
  ASSERT_EQ(results[0].choices.size(), 6u);
  for (int32_t i = 0; i < 6; ++i) EXPECT_EQ(results[0].choices[i].index, i);
  EXPECT_EQ(results[0].prompt_tokens, 50);
  EXPECT_EQ(results[0].completion_tokens, 36);
  EXPECT_EQ(results[0].cached_tokens, 0);           // counts prompts, each once: nobody came before
  EXPECT_GT(engine->stats().prefix_blocks_hit, 0);  // siblings share the first prompt's full block
}

// Has one request ready, and another one only after the first has its result.
class SlowSource : public RequestSource {
 public:
  explicit SlowSource(std::vector<Request> requests) : requests_(std::move(requests)) {}
  std::optional<Request> Next(bool wait) override {
    if (ended() || (taken > finished && !wait)) return std::nullopt;
    FB_CHECK(taken == finished, "the engine waits for a request while another one runs");
    return requests_[taken++];
  }
  bool ended() const override { return taken == requests_.size(); }

  size_t taken = 0, finished = 0;

 private:
  std::vector<Request> requests_;
};

class CountingSink : public ResultSink {
 public:
  explicit CountingSink(size_t* finished) : finished_(finished) {}
  bool Finish(RequestResult) override {
    ++*finished_;
    return true;
  }

 private:
  size_t* finished_;
};

TEST_F(EngineTest, RunsWhileTheNextRequestIsNotReady) {
  SlowSource source(
      {MakeRequest(0, 20, 5), MakeRequest(1, 20, 5), MakeRequest(2, 3, 0), MakeRequest(3, 20, 5)});
  CountingSink sink(&source.finished);
  RunControl control;
  EXPECT_EQ(Create()->Run(source, sink, control), RunEnd::kComplete);
  EXPECT_EQ(source.finished, 4u);
}

TEST_F(EngineTest, ADefaultLengthIsClampedToTheContextAndAnAskedOneRefused) {
  Request request = MakeRequest(0, 100, -1);
  request.sampling.default_max_tokens = 1000;
  const auto results = testing_support::RunAll(*Create(), {request});
  ASSERT_EQ(results.size(), 1u);
  EXPECT_EQ(results[0].error_message, "");
  EXPECT_EQ(results[0].completion_tokens, 28);
  EXPECT_TRUE(Create()->Refusal(MakeRequest(0, 100, 1000)).has_value());
}

TEST_F(EngineTest, PreemptedChoicesGoOnInTheOrderOfTheJob) {
  options_.limits.kv_blocks = 10;
  options_.limits.max_num_seqs = 8;
  std::vector<Request> requests;
  for (int i = 0; i < 8; ++i) requests.push_back(MakeRequest(i, 20, 80));
  const auto engine = Create();
  const auto results = testing_support::RunAll(*engine, requests);
  ASSERT_EQ(results.size(), 8u);
  EXPECT_GT(engine->stats().preemptions, 0);
  for (int i = 0; i < 8; ++i) EXPECT_EQ(results[i].id, i);
}

// A sink that acts after its first result.
class ActingSink : public testing_support::ListSink {
 public:
  explicit ActingSink(std::function<bool()> act) : act_(std::move(act)) {}
  bool Finish(RequestResult result) override {
    testing_support::ListSink::Finish(std::move(result));
    return act_();
  }

 private:
  std::function<bool()> act_;
};

class EndsEarly : public EngineTest {
 protected:
  RunEnd Run(std::function<bool()> act, RunControl* control) {
    options_.limits.max_num_seqs = 4;
    std::vector<Request> requests;
    for (int i = 0; i < 40; ++i) requests.push_back(MakeRequest(i, 20, 3 + i % 4));
    testing_support::ListSource source(requests);
    ActingSink sink(std::move(act));
    const auto engine = Create();
    const RunEnd end = engine->Run(source, sink, *control);
    results_ = std::move(sink.results);
    return end;
  }
  std::vector<RequestResult> results_;
};

TEST_F(EndsEarly, ADrainFinishesWhatRuns) {
  RunControl control;
  EXPECT_EQ(Run([&] { return control.drain = true; }, &control), RunEnd::kDrained);
  EXPECT_GE(results_.size(), 4u);
  EXPECT_LT(results_.size(), 12u);
  for (const RequestResult& result : results_) EXPECT_EQ(result.error_message, "");
}

TEST_F(EndsEarly, AnAbortStopsAtTheNextStep) {
  RunControl control;
  EXPECT_EQ(Run([&] { return control.abort = true; }, &control), RunEnd::kAborted);
  EXPECT_LE(results_.size(), 4u);
}

TEST_F(EndsEarly, AFailingSinkStopsTheRun) {
  RunControl control;
  EXPECT_EQ(Run([] { return false; }, &control), RunEnd::kSinkFailed);
  EXPECT_EQ(results_.size(), 1u);
}

TEST_F(EngineTest, AStepThatDoesNotEndIsReportedAsAStall) {
  options_.stall_seconds = 1e-9;
  const auto engine = Create();
  testing_support::ListSource source({MakeRequest(0, 100, 20)});
  testing_support::ListSink sink;
  RunControl control;
  EXPECT_EQ(engine->Run(source, sink, control), RunEnd::kStalled);
  EXPECT_TRUE(sink.results.empty());
}

// Plans nothing, whatever waits.
class IdlePolicy : public schedule::Policy {
 public:
  std::string_view name() const override { return "idle"; }
  void Plan(const schedule::StepView& view, schedule::StepPlan* plan) const override {
    plan->Begin();
  }
};

TEST_F(EngineTest, APolicyThatPlansNothingIsReportedAsAStall) {
  const auto runtime = runtime::CreateRealRuntime();
  auto device =
      std::move(*device::CreateCpuDevice(*runtime, {.memory_bytes = 64 << 20, .num_workers = 1}));
  const layout::MemoryPlan plan = *layout::PlanMemory(files_.config, tensor::DType::kBF16,
                                                      {.budget_bytes = 32 << 20,
                                                       .max_model_len = 128,
                                                       .max_num_seqs = 2,
                                                       .max_num_batched_tokens = 64});
  const engine::RankParts parts{
      .memory = plan, .kernels = kernels::RefKernels(), .reader = files_.reader.get()};
  auto rank = std::move(*engine::Rank::Create(std::move(device), parts, {}));
  std::vector<std::unique_ptr<engine::Rank>> ranks;
  ranks.push_back(std::move(rank));
  engine::Replica replica(*runtime, std::move(ranks), std::make_unique<IdlePolicy>(),
                          {.choices = {.limits = {.max_num_seqs = 2,
                                                  .max_num_batched_tokens = 64,
                                                  .total_blocks = plan.num_blocks},
                                       .max_blocks_per_sequence = plan.max_blocks_per_sequence}});
  std::vector<RequestResult> finished;
  EXPECT_EQ(replica.Step(&finished, nullptr), engine::StepEnd::kIdle);
  replica.choices().Take(engine::MakeRequestState(MakeRequest(0, 10, 1), {.max_model_len = 128}));
  EXPECT_EQ(replica.Step(&finished, nullptr), engine::StepEnd::kStalled);
  EXPECT_NE(replica.what_stalled().find("idle"), std::string::npos);
}

TEST_F(EngineTest, OptionsAreChecked) {
  const auto code = [&] {
    return choose::CreateEngine(*runtime_, options_, files_, nullptr).status().code();
  };
  const layout::EngineOptions good = options_;
  options_.limits.max_model_len = 1 << 30;
  EXPECT_EQ(code(), layout::kMaxModelLen);
  options_ = good;
  options_.machine.memory_bytes = 1 << 20;
  EXPECT_EQ(code(), layout::kMemoryTooSmall);
  options_ = good;
  options_.limits.max_num_seqs = -1;
  EXPECT_EQ(code(), base::kInvalidArgument);
}

}  // namespace
}  // namespace forebay
