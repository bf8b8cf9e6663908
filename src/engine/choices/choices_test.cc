// The books of a replica's choices, without a device: a test plans, and says what was drawn.
#include "engine/choices/choices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <memory>

#include "base/rng.h"
#include "engine/testing/make_request.h"
#include "schedule/policy.h"

namespace forebay::engine {
namespace {

constexpr int64_t kContext = 512;

ChoicesOptions Options(int32_t max_num_seqs = 8, int32_t blocks = 64) {
  return {.limits = {.max_num_seqs = max_num_seqs,
                     .max_num_batched_tokens = 128,
                     .total_blocks = blocks},
          .max_blocks_per_sequence = kContext / kv::kBlockTokens};
}

// What the memory plan gives a group with a window of 64, beside one that sees all.
std::vector<int32_t> FewOfWindows(const ChoicesOptions& options) {
  const schedule::Limits& limits = options.limits;
  return {INT32_MAX, limits.max_num_seqs * 4 +
                         limits.max_num_batched_tokens * options.steps_in_flight / 32 + 1};
}

// Choices with what a replica does around them: plans are given as lines, tokens are all 1. Steps
// begin at 50 ns, 51, ..., and end at 77.
class Books {
 public:
  explicit Books(const ChoicesOptions& options = Options(), Choices::KvDigest digest = {})
      : choices(options, std::move(digest)) {}

  void Take(const Request& request) {
    auto state = MakeRequestState(request, {.max_model_len = kContext});
    for (const auto& sequence : state->sequences) sequences.push_back(sequence.get());
    choices.Take(std::move(state));
  }
  // Plans and computes a step.
  void Step(const schedule::StepPlan& plan, bool share = false) {
    Begin(plan, share);
    End();
  }
  const schedule::StepView& Begin(const schedule::StepPlan& plan, bool share = false) {
    const schedule::StepView& view = choices.View(share, 0);
    choices.Apply(plan, now_ns++, &steps.emplace_back());
    return view;
  }
  // Ends the oldest step in flight.
  void End() {
    for (const ChoiceRows& rows : steps.front()) {
      choices.Commit(rows);
      Sequence* const sequence = rows.sequence;
      if (rows.end == sequence->known() && sequence->max_generated > 0)
        choices.Append(sequence, 1, 77);
      choices.CloseIfEnded(rows, &finished);
    }
    steps.pop_front();
  }
  // Steps as the default policy plans them, until all have ended.
  void RunToTheEnd() {
    schedule::StepPlan plan;
    for (int guard = 0; guard < 1000 && !choices.idle(); ++guard) {
      Plan(true, &plan);
      ASSERT_FALSE(plan.run.empty() && plan.admit.empty());
      choices.Apply(plan, now_ns++, &steps.emplace_back());
      End();
    }
    EXPECT_TRUE(choices.idle());
  }
  void Plan(bool share, schedule::StepPlan* plan) {
    const schedule::StepView& view = choices.View(share, 0);
    policy->Plan(view, plan);
    schedule::CheckPlan(view, *plan);
  }
  void CheckTotals() const {
    int64_t room = 0, running = 0;
    for (const Sequence* sequence : sequences) {
      if (sequence->phase != Phase::kRunning) continue;
      room += sequence->room();
      ++running;
    }
    EXPECT_EQ(choices.stats().output_room, room);
    EXPECT_EQ(choices.stats().choices_running, running);
  }

  const std::unique_ptr<schedule::Policy> policy = *schedule::CreatePolicy("continuous");
  Choices choices;
  std::vector<Sequence*> sequences;  // sequences of requests that have not finished
  std::deque<std::vector<ChoiceRows>> steps;
  std::vector<RequestResult> finished;
  int64_t now_ns = 50;
};

TEST(ChoicesTest, AChoiceFromItsArrivalToItsEnd) {
  Books books;
  books.Take(MakeRequest(3, 40, 2));
  EXPECT_EQ(books.choices.load().tokens, 42);
  EXPECT_EQ(books.choices.load().step_tokens, 40);
  EXPECT_EQ(books.choices.load().longest_output, 2);
  EXPECT_EQ(books.choices.TakeIds(), std::vector<int64_t>{3});
  EXPECT_TRUE(books.choices.TakeIds().empty());

  books.Step({.admit = {{0, 30}}});  // a chunk of the prompt
  EXPECT_EQ(books.sequences[0]->computed, 30);
  EXPECT_EQ(books.choices.stats().choices_running, 1);
  EXPECT_EQ(books.choices.stats().output_room, 2);
  EXPECT_EQ(books.choices.stats().output_tokens, 0);
  EXPECT_EQ(books.choices.stats().kv_blocks_used, 1);
  books.Step({.run = {{0, 10}}});  // the rest, and the first token
  EXPECT_EQ(books.choices.stats().output_tokens, 1);
  EXPECT_EQ(books.choices.load().tokens, 2);
  EXPECT_EQ(books.choices.load().step_tokens, 1);
  books.Step({.run = {{0, 1}}});
  ASSERT_EQ(books.finished.size(), 1u);
  EXPECT_EQ(books.finished[0].id, 3);
  EXPECT_EQ(books.finished[0].prompt_tokens, 40);
  EXPECT_EQ(books.finished[0].completion_tokens, 2);
  EXPECT_EQ(books.finished[0].admitted_ns, 50);
  EXPECT_EQ(books.finished[0].first_token_ns, 77);
  EXPECT_TRUE(books.choices.idle());
  const EngineStats stats = books.choices.stats();
  EXPECT_EQ(stats.computed_tokens, 41);
  EXPECT_EQ(stats.prefill_rows, 40);
  EXPECT_EQ(stats.decode_rows, 1);
  EXPECT_EQ(stats.kv_blocks_used, 0);
  EXPECT_EQ(stats.output_room, 0);
  EXPECT_EQ(stats.output_allowed, 2);
  EXPECT_EQ(books.choices.load().tokens, 0);  // the last token is computed by nobody
}

// Vectors that a replica had made when it failed are the answer's where another goes on.
TEST(ChoicesTest, ACopyKeepsTheVectorsOfTextsThatHaveEnded) {
  Request request = MakeRequest(3, 2, 0);
  request.prompts = {{1, 2}, {3, 4}, {5, 6}};
  request.pooled = true;
  const SequenceContext context{.max_model_len = kContext,
                                .pooling = model::Pooling{.rows = model::Pooling::Rows::kMean}};
  const auto state = MakeRequestState(request, context);
  state->sequences[0]->result_vector = {0.5f, -1};
  state->sequences[1]->pooled_sum = {4, 6};  // of rows of several steps
  for (const size_t ended : {0, 1}) state->sequences[ended]->phase = Phase::kFinished;
  state->unfinished = 1;
  const auto copy = CopyForAnother(*state, context);
  EXPECT_EQ(copy->unfinished, 1);
  copy->sequences[2]->result_vector = {7, 8};
  copy->unfinished = 0;
  const std::vector<std::vector<float>> expected = {{0.5f, -1}, {2, 3}, {7, 8}};
  EXPECT_EQ(TakeResult(copy.get()).vectors, expected);
}

TEST(ChoicesTest, AVectorWithAnElementThatIsNotFiniteIsAnError) {
  const SequenceContext context{.max_model_len = kContext,
                                .pooling = model::Pooling{.rows = model::Pooling::Rows::kMean}};
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const double value : {kInfinity, -kInfinity, std::nan("")}) {
    Request request = MakeRequest(3, 2, 0);
    request.prompts = {{1, 2}, {3, 4}};
    request.pooled = true;
    const auto state = MakeRequestState(request, context);
    state->sequences[0]->result_vector = {0.5f, -1};
    state->sequences[1]->pooled_sum = {4, 6, value};
    state->unfinished = 0;
    const RequestResult result = TakeResult(state.get());
    EXPECT_EQ(result.id, 3);
    EXPECT_EQ(result.error_code, "vector_not_finite") << value;
    EXPECT_EQ(result.http_status, 500);
    EXPECT_THAT(result.error_message, testing::HasSubstr("element 2 of the vector of text 1 is "));
    EXPECT_TRUE(result.vectors.empty());
  }
}

// Of prompts that are scored one computes their common blocks, up to the first row that anybody
// scores, and the others find them.
TEST(ChoicesTest, ScoredPromptsShareTheirBegin) {
  Request request = MakeRequest(3, 101, 0);
  request.prompts.push_back(request.prompts[0]);
  request.prompts[1].back() = 7;
  request.sampling.prompt_logprobs = 0;
  request.prompt_logprobs_from = {100, 100};
  Books books;
  books.Take(request);
  EXPECT_EQ(books.Begin({.admit = {{0, 64}}}).waiting.size(), 1u);
  books.End();
  // The second waits for the third block.
  EXPECT_TRUE(books.Begin({.run = {{0, 32}}}).waiting.empty());
  books.End();
  const schedule::StepView& view = books.Begin({.run = {{0, 5}}, .admit = {{0, 5}}});
  ASSERT_EQ(view.waiting.size(), 1u);
  EXPECT_EQ(view.waiting[0].cached_tokens, 96);
  books.End();
  ASSERT_EQ(books.finished.size(), 1u);
  EXPECT_EQ(books.choices.stats().computed_tokens, 106);

  // From an earlier row on, less is found.
  request.id = 4;
  request.prompt_logprobs_from = {40, 100};
  books.Take(request);
  EXPECT_EQ(books.choices.View(false, 0).waiting.at(0).cached_tokens, 32);
}

// Batches give way with their blocks, but not with their log probabilities.
TEST(ChoicesTest, LogProbabilitiesOfABatchKeepPeopleOutToo) {
  for (const bool full : {false, true}) {
    ChoicesOptions options = Options();
    options.by_service = true;
    options.most_logprob_bytes = full ? 1 : 1 << 20;
    Books books(options);
    books.choices.Hurry(9);
    for (const int64_t line : {3, 4}) {
      Request request = MakeRequest(line, 40, 5);
      request.sampling.logprobs = 2;
      books.Take(request);
    }
    books.Step({.admit = {{0, 40}, {1, 40}}});
    EXPECT_EQ(books.choices.WantsRequests(), !full);
    EXPECT_EQ(books.choices.WantsInteractive(), !full);
    EXPECT_EQ(books.choices.WantsHurried(), !full);
  }
}

TEST(ChoicesTest, EarlierRunsTellHowLongAnswersAre) {
  ChoicesOptions options = Options();
  options.lengths = schedule::LengthPredictor::kQuantile;
  const auto earlier = std::make_shared<std::vector<schedule::EarlierAnswer>>();
  options.earlier = earlier;
  Books books(options);
  earlier->assign(40, {40, 7});
  earlier->resize(80, {200, 20});
  books.Take(MakeRequest(3, 40, 300));
  books.Take(MakeRequest(4, 200, 300));
  const schedule::StepView& view = books.Begin({.admit = {{0, 40}}});
  EXPECT_EQ(view.waiting[0].expected_left, 7);
  EXPECT_EQ(view.waiting[1].expected_left, 20);
  books.End();
}

// What the policy sees, by what the choices are at.
TEST(ChoicesTest, ViewTable) {
  struct Row {
    const char* rule;
    int32_t running, waiting, begun;  // choices; of the running ones, those in flight
    int32_t steps;
    bool share;
    size_t in_view, elsewhere, may_admit;
  };
  const Row rows[] = {
      {"all, where one step has all", 3, 2, 0, 1, true, 3, 0, 2},
      {"half of them in each of two steps", 4, 0, 0, 2, true, 2, 2, 0},
      {"those that the other step has not", 4, 0, 2, 2, true, 2, 2, 0},
      {"a share of those that wait, too", 4, 4, 2, 2, true, 2, 2, 2},
      {"all that is not in flight, where the share is not enough", 4, 4, 1, 2, false, 3, 1, 4},
      {"no more than the places", 7, 4, 0, 1, true, 7, 0, 1},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.rule);
    ChoicesOptions options = Options();
    options.steps_in_flight = row.steps;
    Books books(options);
    for (int i = 0; i < row.running; ++i) {
      books.Take(MakeRequest(i, 10, 20));
      books.Step({.admit = {{0, 10}}});
    }
    for (int i = 0; i < row.waiting; ++i) books.Take(MakeRequest(100 + i, 10, 20));
    schedule::StepPlan begun;
    for (int32_t i = 0; i < row.begun; ++i) begun.run.push_back({i, 1});
    if (row.begun > 0) books.Begin(begun);
    const schedule::StepView& view = books.choices.View(row.share, 0);
    EXPECT_EQ(view.running.size(), row.in_view);
    EXPECT_EQ(view.elsewhere.size(), row.elsewhere);
    EXPECT_EQ(view.waiting.size(), row.may_admit);
    for (const schedule::RunningView& each : view.running) EXPECT_TRUE(each.decoding);
  }
}

TEST(ChoicesTest, PreemptedOnesWaitFirstAndAreComputedAgain) {
  Books books;
  for (int i = 0; i < 3; ++i) books.Take(MakeRequest(i, 10, 20));
  books.Take(MakeRequest(9, 10, 20));
  books.Step({.admit = {{0, 10}, {1, 10}, {2, 10}}});
  books.CheckTotals();
  books.Step({.preempt = {2, 1}, .run = {{0, 1}}});
  books.CheckTotals();
  EXPECT_EQ(books.choices.stats().preemptions, 2);
  const schedule::StepView& view = books.choices.View(true, 0);
  ASSERT_EQ(view.waiting.size(), 3u);
  // In the order in which they ran, before the one that never did; with the token that each has.
  EXPECT_EQ(view.waiting[0].order, int64_t{1} << 16);
  EXPECT_EQ(view.waiting[1].order, int64_t{2} << 16);
  EXPECT_EQ(view.waiting[2].order, int64_t{9} << 16);
  EXPECT_EQ(view.waiting[0].known_tokens, 11);
  books.Step({.admit = {{0, 11}}});
  EXPECT_EQ(books.choices.stats().recomputed_tokens, 10);
  EXPECT_EQ(books.sequences[1]->known(), 12);
  books.CheckTotals();
  // The first place counts.
  EXPECT_EQ(books.sequences[3]->request->admitted_ns, -1);
  books.Step({.admit = {{1, 10}}});
  EXPECT_EQ(books.sequences[1]->request->admitted_ns, 50);
  EXPECT_EQ(books.sequences[2]->request->admitted_ns, 50);
  EXPECT_EQ(books.sequences[3]->request->admitted_ns, 53);
}

TEST(ChoicesTest, SiblingsWaitForTheirPromptAndShareIt) {
  Books books;
  books.Take(MakeRequest(0, 80, 4, 3));
  EXPECT_EQ(books.choices.View(true, 0).waiting.size(), 1u);
  books.Step({.admit = {{0, 40}}});
  EXPECT_EQ(books.choices.View(true, 0).waiting.size(), 0u);
  books.Step({.run = {{0, 40}}});
  const schedule::StepView& view = books.choices.View(true, 0);
  ASSERT_EQ(view.waiting.size(), 2u);
  EXPECT_EQ(view.waiting[0].cached_tokens, 64);
  EXPECT_EQ(view.waiting[0].held_tokens, 64);
  books.Step({.admit = {{0, 16}}});
  EXPECT_EQ(books.sequences[0]->request->admitted_ns, 50);  // their request's, not a choice's
  // Without sharing nobody waits for anybody.
  ChoicesOptions alone = Options();
  alone.prefix_caching = false;
  Books others(alone);
  others.Take(MakeRequest(0, 80, 4, 3));
  EXPECT_EQ(others.choices.View(true, 0).waiting.size(), 2u);  // rows of one step end there
}

// A prompt that was committed is one no more where it is not in the cache: one choice computes it
// again, and its siblings wait as they did.
TEST(ChoicesTest, APromptThatIsGoneIsComputedOnce) {
  const auto finish = [](Books& books, const char* rule) {
    SCOPED_TRACE(rule);
    books.RunToTheEnd();
    ASSERT_EQ(books.finished.size(), 5u);
    // Four others; the prompt, and what siblings do not share of it; three tokens of each choice.
    EXPECT_EQ(books.choices.stats().computed_tokens, 4 * 13 + 200 + 3 * 8 + 4 * 3);
  };
  ChoicesOptions options = Options(4);
  options.limits.max_num_batched_tokens = 1024;
  options.role = GroupRole::kContext;
  Books context(options);
  options.role = GroupRole::kAll;
  options.steal = {.row_seconds = 1};
  Books giver(options), generation(options), thief(options);
  for (Books* const books : {&generation, &thief}) {
    // All places are taken.
    for (int i = 1; i < 5; ++i) books->Take(MakeRequest(i, 10, 4));
    books->Step({.admit = {{0, 10}, {1, 10}, {2, 10}, {3, 10}}});
  }
  context.Take(MakeRequest(0, 200, 4, 4));
  context.Step({.admit = {{0, 200}}});
  std::vector<Gift> gifts = context.choices.HandOver();
  ASSERT_EQ(gifts.size(), 1u);
  EXPECT_TRUE(generation.choices.Adopt(gifts[0]).empty());
  finish(generation, "handed over without its loan");

  giver.Take(MakeRequest(0, 200, 4, 4));
  giver.Step({.admit = {{0, 200}}});
  for (int i = 5; i < 7; ++i) giver.Take(MakeRequest(i, 10, 490));  // what it keeps is as long
  giver.Step({.preempt = {0}});
  gifts = giver.choices.GiveAway(1);
  const auto gift =
      std::ranges::find_if(gifts, [](const Gift& each) { return each.state->request.id == 0; });
  ASSERT_NE(gift, gifts.end());
  EXPECT_TRUE(thief.choices.Adopt(*gift).empty());
  finish(thief, "stolen");
}

// Two choices in two steps in flight: one of them is in flight at every border.
TEST(ChoicesTest, ARequestOfOverlappingStepsIsCancelled) {
  const auto all = [](int64_t) { return true; };
  for (const int32_t output : {100, 1}) {
    SCOPED_TRACE(output);
    ChoicesOptions options = Options();
    options.steps_in_flight = 2;
    Books books(options);
    books.Take(MakeRequest(0, 20, output, 2));
    books.Begin({.admit = {{0, 10}}});
    books.Begin({.admit = {{0, 20}}});
    books.End();
    books.choices.Cancel(all, &books.finished);
    EXPECT_TRUE(books.finished.empty());
    EXPECT_EQ(books.choices.num_running(), 1u);
    EXPECT_EQ(books.choices.View(true, 0).running.size(), 0u);
    books.End();  // with an output of 1 the other one ends here
    books.choices.Cancel(all, &books.finished);
    ASSERT_EQ(books.finished.size(), 1u);
    EXPECT_EQ(books.finished[0].error_code, "request_cancelled");
    EXPECT_TRUE(books.finished[0].choices.empty());
    EXPECT_TRUE(books.choices.idle());
    EXPECT_EQ(books.choices.stats().requests_finished, 0);
    EXPECT_EQ(books.choices.stats().output_room, 0);
    EXPECT_EQ(books.choices.load().tokens, 0);
    EXPECT_EQ(books.choices.book().held_blocks(), 0);
  }
}

TEST(ChoicesTest, RequestsWithNothingToComputeEndAtOnce) {
  Books books(Options(2));
  books.Take(MakeRequest(0, 10, 0));
  EXPECT_FALSE(books.choices.idle());
  EXPECT_TRUE(books.choices.WantsRequests());
  books.Take(MakeRequest(1, 10, 0));
  EXPECT_FALSE(books.choices.WantsRequests());
  std::vector<RequestResult> finished;
  books.choices.DeliverEnded(&finished);
  ASSERT_EQ(finished.size(), 2u);
  EXPECT_EQ(finished[0].admitted_ns, -1);
  EXPECT_TRUE(books.choices.idle());
  EXPECT_EQ(books.choices.stats().requests_finished, 2);
}

TEST(ChoicesTest, ADrainDropsWhatHasNotBegun) {
  Books books;
  books.Take(MakeRequest(0, 40, 3, 2));
  books.Take(MakeRequest(1, 10, 3));
  books.Step({.admit = {{0, 40}}});
  books.choices.DropUnstarted();
  EXPECT_EQ(books.choices.num_running(), 1u);
  EXPECT_EQ(books.choices.num_waiting(), 1u);  // the sibling of one that has begun
  EXPECT_EQ(books.choices.load().tokens, 3 + 43);
}

// Each position of K and V counts once, in whatever blocks it was when it was let go.
TEST(ChoicesTest, DigestsCountEachPositionOnce) {
  ChoicesOptions options = Options();
  options.kv_reaches = {0, 32};
  std::map<int, std::vector<int>> times;
  Books books(options, [&](int group, std::span<const kv::BlockId>, int64_t begin, int64_t end) {
    times[group].resize(140);
    for (int64_t i = begin; i < end; ++i) ++times[group][static_cast<size_t>(i)];
    return static_cast<uint64_t>(end - begin);
  });
  books.Take(MakeRequest(0, 100, 30));
  books.Step({.admit = {{0, 100}}});
  for (int i = 0; i < 29; ++i) books.Step({.run = {{0, 1}}});
  ASSERT_EQ(books.finished.size(), 1u);
  EXPECT_EQ(books.finished[0].choices[0].digest, 2u * 129);
  for (const auto& [group, counts] : times) {
    for (int i = 0; i < 129; ++i) EXPECT_EQ(counts[i], 1) << "position " << i << " of " << group;
    for (int i = 129; i < 140; ++i) EXPECT_EQ(counts[i], 0) << "position " << i << " of " << group;
  }
}

// A running choice goes to another replica with its KV, which stays where it is until it is pulled.
TEST(ChoicesTest, AGiftTakesItsKvAlong) {
  ChoicesOptions options = Options(4);
  options.steal = {.row_seconds = 1};  // moving always pays
  options.replica = 5;
  Books giver(options);
  options.replica = 1;
  Books thief(options);
  for (int i = 0; i < 2; ++i) giver.Take(MakeRequest(i, 70, 40));
  giver.Step({.admit = {{0, 64}}});
  giver.Step({.run = {{0, 6}}, .admit = {{0, 70}}});
  const int64_t left = giver.choices.load().tokens;

  std::vector<Gift> gifts = giver.choices.GiveAway(1);
  ASSERT_EQ(gifts.size(), 1u);
  ASSERT_EQ(gifts[0].loans.size(), 1u);
  kv::KvLoan& loan = *gifts[0].loans[0];
  EXPECT_EQ(loan.replica, 5);
  EXPECT_EQ(loan.computed, 70);
  EXPECT_EQ(loan.blocks(), 3);
  EXPECT_EQ(giver.choices.num_running(), 1u);
  const schedule::StepView& view = giver.choices.View(true, 0);
  EXPECT_EQ(view.limits.total_blocks, 64 - 3);
  EXPECT_EQ(giver.choices.stats().kv_blocks_used, 6);

  const std::vector<Choices::Adopted> adopted = thief.choices.Adopt(gifts[0]);
  ASSERT_EQ(adopted.size(), 1u);
  EXPECT_EQ(adopted[0].loan, &loan);
  EXPECT_EQ(thief.choices.num_running(), 0u);  // not before its KV is there
  thief.choices.Resume(adopted[0]);
  EXPECT_EQ(thief.choices.num_running(), 1u);
  EXPECT_EQ(adopted[0].sequence->computed, 70);
  EXPECT_EQ(thief.choices.stats().requests_stolen, 1);
  EXPECT_EQ(giver.choices.load().tokens + thief.choices.load().tokens, left);

  giver.choices.loans().Reclaim();
  EXPECT_EQ(giver.choices.loans().count(), 1);
  loan.over = true;
  giver.choices.loans().Reclaim();
  EXPECT_EQ(giver.choices.loans().count(), 0);
  EXPECT_EQ(giver.choices.stats().kv_blocks_used, 3);

  // One that has no place for it computes all again.
  std::vector<Gift> back = giver.choices.GiveAway(1);
  EXPECT_TRUE(back.empty());  // the last one is kept
  Books full(Options(1));
  full.Take(MakeRequest(8, 10, 10));
  full.Step({.admit = {{0, 10}}});
  thief.Take(MakeRequest(9, 20, 10));
  for (Gift& gift : thief.choices.GiveAway(1)) EXPECT_TRUE(full.choices.Adopt(gift).empty());
  EXPECT_EQ(full.choices.num_waiting(), 1u);
}

// Whoever takes a request over leaves it the moment of its first place; one that had none gets it
// from its taker.
TEST(ChoicesTest, AGiftKeepsItsFirstPlace) {
  Books giver, thief;
  giver.now_ns = 20;
  giver.Take(MakeRequest(0, 10, 40));
  giver.Step({.admit = {{0, 10}}});
  giver.Step({.preempt = {0}});
  for (int i = 1; i < 4; ++i) giver.Take(MakeRequest(i, 10, 40));
  std::vector<Gift> gifts = giver.choices.GiveAway(1);
  std::map<int64_t, const RequestState*> taken;
  for (Gift& gift : gifts) {
    taken[gift.state->request.id] = gift.state.get();
    EXPECT_TRUE(thief.choices.Adopt(gift).empty());
  }
  ASSERT_EQ(taken.size(), 2u);
  thief.Step({.admit = {{0, 1}, {1, 1}}});
  for (const auto& [id, state] : taken) EXPECT_EQ(state->admitted_ns, id == 0 ? 20 : 50) << id;
}

// A context replica gives up a request when all its prompts are computed, with the KV of the
// choices that ran; their siblings begin where it goes.
TEST(ChoicesTest, APromptThatIsComputedIsHandedOver) {
  ChoicesOptions options = Options(4);
  options.role = GroupRole::kContext;
  options.replica = 2;
  Books context(options);
  options.role = GroupRole::kGeneration;
  Books generation(options);
  Request request = MakeRequest(0, 70, 40);
  request.n = 3;
  context.Take(std::move(request));
  context.Take(MakeRequest(1, 40, 1));  // ends with its first token
  EXPECT_EQ(context.choices.View(true, 0).waiting[0].remaining_output, 1);
  context.Step({.admit = {{0, 64}}});
  EXPECT_TRUE(context.choices.HandOver().empty());
  context.Step({.run = {{0, 6}}, .admit = {{0, 40}}});
  EXPECT_EQ(context.finished.size(), 1u);

  std::vector<Gift> gifts = context.choices.HandOver();
  ASSERT_EQ(gifts.size(), 1u);
  EXPECT_TRUE(gifts[0].handed_over);
  EXPECT_EQ(gifts[0].from, 2);
  ASSERT_EQ(gifts[0].loans.size(), 1u);
  kv::KvLoan& loan = *gifts[0].loans[0];
  EXPECT_EQ(loan.computed, 70);
  EXPECT_TRUE(loan.offered);
  EXPECT_EQ(gifts[0].state->unfinished, 3);
  EXPECT_TRUE(context.choices.idle());
  EXPECT_EQ(context.choices.book().held_blocks(), 3);

  EXPECT_EQ(generation.choices.room().places, 4);
  const std::vector<Choices::Adopted> adopted = generation.choices.Adopt(gifts[0]);
  ASSERT_EQ(adopted.size(), 1u);
  generation.choices.Resume(adopted[0]);
  loan.over = true;
  context.choices.loans().Reclaim();
  EXPECT_EQ(context.choices.book().held_blocks(), 0);
  EXPECT_EQ(generation.choices.stats().requests_handed_over, 1);
  EXPECT_EQ(generation.choices.stats().requests_stolen, 0);
  EXPECT_EQ(generation.choices.num_waiting(), 2u);
  // The siblings find the prompt's full blocks.
  EXPECT_EQ(adopted[0].sequence->request->admitted_ns, 50);
  const schedule::StepView& view = generation.choices.View(true, 0);
  ASSERT_EQ(view.waiting.size(), 2u);
  EXPECT_EQ(view.waiting[0].cached_tokens, 64);
  EXPECT_EQ(view.running[0].remaining_output, 39);
}

// Nor does it wait for its choices to be in no step at once, which they never are where several are
// in flight.
TEST(ChoicesTest, ChoicesOfOverlappingStepsAreHandedOver) {
  for (const int32_t steps : {2, 3}) {
    SCOPED_TRACE(steps);
    ChoicesOptions options = Options();
    options.role = GroupRole::kContext;
    options.steps_in_flight = steps;
    Books context(options);
    context.Take(MakeRequest(0, 20, 100, 4));  // nothing to share
    context.Take(MakeRequest(1, 300, 1));      // others' rows go on
    std::vector<Gift> gifts;
    schedule::StepPlan plan;
    for (int border = 0; border < 40 && gifts.empty(); ++border) {
      gifts = context.choices.HandOver();
      if (std::ssize(context.steps) < steps) context.Plan(true, &plan);
      if (std::ssize(context.steps) < steps && !(plan.run.empty() && plan.admit.empty())) {
        context.choices.Apply(plan, 50, &context.steps.emplace_back());
        if (std::ssize(context.steps) < steps) continue;
      }
      if (!context.steps.empty()) context.End();
    }
    ASSERT_EQ(gifts.size(), 1u);
    EXPECT_EQ(gifts[0].loans.size(), 4u);
    for (const auto& sequence : gifts[0].state->sequences)
      EXPECT_LE(sequence->generated(), 1 + steps);
  }
}

// The default policy over few blocks, with several steps in flight: all requests come to their end
// once, and totals are the sums of what is there.
TEST(ChoicesTest, RandomJobs) {
  const auto policy = schedule::CreatePolicy("continuous");
  int64_t preemptions = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    base::Rng rng(seed);
    ChoicesOptions options = Options(static_cast<int32_t>(2 + rng.Next() % 8), 20);
    options.steps_in_flight = static_cast<int32_t>(1 + rng.Next() % 3);
    Books books(options);
    const int64_t requests = 1 + static_cast<int64_t>(rng.Next() % 12);
    int64_t taken = 0;
    schedule::StepPlan plan;
    for (int guard = 0; guard < 5000; ++guard) {
      while (taken < requests && books.choices.WantsRequests()) {
        books.Take(MakeRequest(taken++, static_cast<int32_t>(1 + rng.Next() % 120),
                               static_cast<int32_t>(1 + rng.Next() % 60),
                               static_cast<int32_t>(1 + rng.Next() % 3)));
      }
      if (books.choices.idle()) break;
      for (const bool share : {true, false}) {
        if (books.steps.size() == static_cast<size_t>(options.steps_in_flight)) break;
        if (!share && !books.steps.empty()) break;
        const schedule::StepView& view = books.choices.View(share, 0);
        (*policy)->Plan(view, &plan);
        if (plan.run.empty() && plan.admit.empty()) continue;
        schedule::CheckPlan(view, plan);
        books.choices.Apply(plan, 50, &books.steps.emplace_back());
        break;
      }
      ASSERT_FALSE(books.steps.empty());
      if (books.steps.size() == static_cast<size_t>(options.steps_in_flight) ||
          rng.Next() % 2 == 0) {
        books.End();
      }
    }
    EXPECT_TRUE(books.choices.idle());
    EXPECT_EQ(static_cast<int64_t>(books.finished.size()), requests);
    preemptions += books.choices.stats().preemptions;
    EXPECT_EQ(books.choices.stats().kv_blocks_used, 0);
    EXPECT_EQ(books.choices.stats().output_room, 0);
  }
  EXPECT_GT(preemptions, 0);
}

// Which tokens the state in each place stands behind, as kernels would leave it. Choices begin from
// their own state, and so does whoever finds a prefix.
class StatesOf {
 public:
  explicit StatesOf(int32_t places) : behind_(static_cast<size_t>(places)) {}

  void Run(std::span<const ChoiceRows> step) {
    for (const ChoiceRows& rows : step) {
      const Sequence& sequence = *rows.sequence;
      const auto until = [&](int64_t end) {
        return std::vector(sequence.tokens.begin(), sequence.tokens.begin() + end);
      };
      ASSERT_EQ(sequence.state_place < 0, rows.begin == 0);
      if (rows.begin > 0) {
        ASSERT_EQ(At(sequence.state_place), until(rows.begin));
      }
      int64_t begin = rows.begin;
      for (const kv::StatePart& part : sequence.state_parts) {
        ASSERT_GT(part.end, begin);
        At(part.place) = until(begin = part.end);
        parts += part.end < rows.end;
      }
      ASSERT_EQ(begin, rows.end);
    }
  }

  int64_t parts = 0;  // that end before their step does

 private:
  std::vector<int32_t>& At(int32_t place) { return behind_.at(static_cast<size_t>(place)); }

  std::vector<std::vector<int32_t>> behind_;
};

TEST(ChoicesTest, StatesAreWhereTheirChoicesBegin) {
  int64_t found = 0, again = 0, parts = 0, preemptions = 0, evictions = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    base::Rng rng(seed);
    ChoicesOptions options =
        Options(static_cast<int32_t>(2 + rng.Below(6)), static_cast<int32_t>(17 + rng.Below(20)));
    options.keeps_states = true;
    options.kept_states = static_cast<int32_t>(1 + rng.Below(12));
    options.state_every = 32 << rng.Below(3);
    options.steps_in_flight = static_cast<int32_t>(1 + rng.Below(2));
    Books books(options);
    StatesOf states(options.limits.max_num_seqs + options.kept_states);
    int64_t waiting = 12;
    schedule::StepPlan plan;
    for (int guard = 0; guard < 5000 && (waiting > 0 || !books.choices.idle()); ++guard) {
      if (waiting > 0 && rng.Below(3) == 0) {
        // Some begin alike, some are the same.
        Request request = MakeRequest(
            static_cast<int64_t>(rng.Below(3)), static_cast<int32_t>(1 + rng.Below(200)),
            static_cast<int32_t>(1 + rng.Below(150)), rng.Below(4) == 0 ? 2 : 1);
        request.id = --waiting;
        books.Take(request);
      }
      books.Plan(options.steps_in_flight > 1 && !books.steps.empty(), &plan);
      if (!plan.run.empty() || !plan.admit.empty()) {
        books.choices.Apply(plan, 50, &books.steps.emplace_back());
        states.Run(books.steps.back());
      }
      books.choices.state_book().CheckInvariants();
      if (!books.steps.empty() && (std::ssize(books.steps) == options.steps_in_flight ||
                                   rng.Below(2) == 0 || plan.run.empty())) {
        books.End();
      }
    }
    ASSERT_TRUE(books.choices.idle());
    const EngineStats stats = books.choices.stats();
    found += stats.cached_prompt_tokens;
    again += stats.prefix_blocks_hit * kv::kBlockTokens - stats.cached_prompt_tokens;
    preemptions += stats.preemptions;
    parts += states.parts;
    evictions += books.choices.state_book().evictions();
    // Nobody runs, and nobody has forgotten a place.
    kv::StateBook book = books.choices.state_book();
    for (int32_t i = 0; i < options.kept_states; ++i) EXPECT_NE(book.Take(), kv::StateBook::kNone);
  }
  EXPECT_GT(found, 0);
  EXPECT_GT(again, 0) << "siblings, and preempted choices";
  EXPECT_GT(preemptions, 0);
  EXPECT_GT(parts, 0);
  EXPECT_GT(evictions, 0);
}

// Equal steps taken at once come to the same as one after another, in books of each kind of reach
// and with several steps in flight: the policy sees the same afterwards, and all ends the same.
TEST(ChoicesTest, AdvanceIsSoManySingleSteps) {
  int64_t advanced = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    base::Rng rng(seed);
    ChoicesOptions options =
        Options(static_cast<int32_t>(2 + rng.Below(8)), static_cast<int32_t>(17 + rng.Below(20)));
    options.prefix_caching = rng.Below(2) == 0;
    options.steps_in_flight = static_cast<int32_t>(1 + rng.Below(2));
    // Which cached blocks are evicted depends on when others are let go.
    if (!options.prefix_caching && rng.Below(2) == 0) {
      options.kv_reaches = {0, 64};
      if (rng.Below(2) == 0) options.most_kv_blocks = FewOfWindows(options);
    }
    Books singles(options), leaps(options);
    const int64_t requests = 1 + static_cast<int64_t>(rng.Below(12));
    for (int64_t line = 0; line < requests; ++line) {
      Request request = MakeRequest(line, static_cast<int32_t>(1 + rng.Below(120)),
                                    static_cast<int32_t>(1 + rng.Below(200)));
      if (rng.Below(2) == 0) request.ends_after = 1 + static_cast<int32_t>(rng.Below(150));
      singles.Take(request);
      leaps.Take(request);
    }
    schedule::StepPlan plan;
    for (int guard = 0; guard < 20000 && !singles.choices.idle(); ++guard) {
      for (const bool share : {true, false}) {
        if (std::ssize(singles.steps) == options.steps_in_flight) break;
        if (!share && !singles.steps.empty()) break;
        singles.Plan(share, &plan);
        const schedule::StepView& view = leaps.choices.View(share, 0);
        schedule::StepPlan same;
        leaps.policy->Plan(view, &same);
        ASSERT_EQ(plan.preempt, same.preempt);
        ASSERT_EQ(plan.run.size(), same.run.size());
        ASSERT_EQ(plan.admit.size(), same.admit.size());
        if (plan.run.empty() && plan.admit.empty()) continue;
        singles.choices.Apply(plan, 50, &singles.steps.emplace_back());
        leaps.choices.Apply(same, 50, &leaps.steps.emplace_back());
        break;
      }
      ASSERT_FALSE(singles.steps.empty());
      const int64_t most = EqualSteps(leaps.steps.front(), leaps.choices.book(),
                                      leaps.choices.book().available_blocks());
      // The next step of each would have the same choices.
      if (most > 0 && leaps.steps.front().size() == leaps.choices.num_running()) {
        const int64_t steps = 1 + static_cast<int64_t>(rng.Below(static_cast<uint64_t>(most)));
        leaps.choices.Advance(leaps.steps.front(), steps, 1);
        for (int64_t i = 0; i < steps; ++i) {
          const size_t choices = singles.steps.front().size();
          singles.End();
          singles.choices.View(false, 0);
          plan.Begin();
          for (size_t index = 0; index < choices; ++index)
            plan.run.push_back({static_cast<int32_t>(index), 1});
          singles.choices.Apply(plan, 50, &singles.steps.emplace_back());
        }
        advanced += steps;
      }
      singles.End();
      leaps.End();
      const EngineStats one = singles.choices.stats(), other = leaps.choices.stats();
      ASSERT_EQ(one.output_tokens, other.output_tokens);
      ASSERT_EQ(one.output_room, other.output_room);
      ASSERT_EQ(one.computed_tokens, other.computed_tokens);
      ASSERT_EQ(one.recomputed_tokens, other.recomputed_tokens);
      ASSERT_EQ(one.decode_rows, other.decode_rows);
      ASSERT_EQ(one.kv_blocks_used, other.kv_blocks_used);
      ASSERT_EQ(singles.choices.load().tokens, leaps.choices.load().tokens);
      ASSERT_EQ(singles.finished.size(), leaps.finished.size());
    }
    ASSERT_TRUE(leaps.choices.idle());
    for (size_t i = 0; i < singles.finished.size(); ++i) {
      EXPECT_EQ(singles.finished[i].id, leaps.finished[i].id);
      EXPECT_EQ(singles.finished[i].choices[0].tokens, leaps.finished[i].choices[0].tokens);
    }
  }
  EXPECT_GT(advanced, 1000);
}

}  // namespace
}  // namespace forebay::engine
