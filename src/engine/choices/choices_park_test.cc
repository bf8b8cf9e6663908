// Preempted choices wait below and come back, without a device: what moves is a list.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "base/rng.h"
#include "engine/choices/choices.h"
#include "engine/testing/make_request.h"
#include "kv/tier/block_file.h"
#include "schedule/policy.h"

namespace forebay::engine {
namespace {

constexpr int64_t kTieredContext = 512;

// Choices, and what the memory of device and tier would hold: by block, who wrote each position
// and what. A block that is read must have what its choice has put there.
class TieredBooks {
 public:
  explicit TieredBooks(const ChoicesOptions& options)
      : tier(options.tier), state_parts(options.state_blocks), choices(options, {}) {}

  void Take(const Request& request) {
    auto state = MakeRequestState(request, {.max_model_len = kTieredContext});
    for (const auto& sequence : state->sequences) {
      sequences.push_back(sequence.get());
      rows += sequence->known();
    }
    choices.Take(std::move(state));
  }

  // Plans a step by the policy; false: nothing was planned.
  bool Begin(const schedule::Policy& policy, bool share = false) {
    LoseSome();
    const schedule::StepView& view = choices.View(share, 0);
    policy.Plan(view, &plan);
    if (plan.run.empty() && plan.admit.empty()) return false;
    schedule::CheckPlan(view, plan);
    std::vector<ChoiceRows> rows;
    choices.Apply(plan, 50, &rows);
    Move();
    for (const Sequence* sequence : choices.returning()) SetTable(*sequence, 0);
    for (const Sequence* sequence : choices.streaming().changed()) SetTable(*sequence, 0);
    choices.streaming().changed().clear();
    if (rows.empty()) return Begin(policy, share);
    in_window.clear();
    for (const auto& block : choices.streaming().blocks()) in_window[block.place] = block.below;
    block_steps += std::ssize(in_window);
    for (const ChoiceRows& each : rows) Compute(each);
    steps.push_back(std::move(rows));
    return true;
  }

  void End() {
    for (const ChoiceRows& rows : steps.front()) {
      choices.Commit(rows);
      Sequence* const sequence = rows.sequence;
      if (rows.end == sequence->known() && sequence->max_generated > 0)
        choices.Append(sequence, static_cast<int32_t>(sequence->facts.job_order % 1000), 77);
      choices.CloseIfEnded(rows, &finished);
    }
    steps.pop_front();
    if (!choices.streaming().measures()) return;
    waited += 0.1 * static_cast<double>(losses->Below(3));
    choices.streaming().Observe(static_cast<double>(++ended), waited);
  }

  // Once all have ended: what was computed is what was not found, and what was computed again. Of
  // what is found the first choice of a prompt counts, and as it first begins.
  void ExpectRows(bool caching) const {
    const EngineStats stats = choices.stats();
    int64_t wanted = rows + stats.recomputed_tokens;
    for (const RequestResult& result : finished) {
      for (const Choice& choice : result.choices) wanted += std::ssize(choice.tokens) - 1;
    }
    EXPECT_LE(stats.computed_tokens + stats.cached_prompt_tokens, wanted);
    if (!caching) {
      EXPECT_EQ(stats.computed_tokens, wanted);
    }
  }

  // Memory loses nothing.
  bool MayLose(kv::BlockId block) const { return tier.far() == 0 || block >= tier.near(); }

  using Block = std::vector<uint64_t>;
  static uint64_t& At(std::map<std::pair<int, kv::BlockId>, Block>& memory, int group,
                      kv::BlockId block, int64_t position) {
    Block& content = memory[{group, block}];
    content.resize(kv::kBlockTokens);
    return content[static_cast<size_t>(position % kv::kBlockTokens)];
  }

  // Some of the blocks are lost that came up for the last plan, and some of those that went down.
  void LoseSome() {
    kv::LostBlocks lost{.blocks = std::exchange(lost_on_read, {}), .closed = {}};
    for (const kv::TierMove& move : std::exchange(last_moves.up, {})) {
      if (!loses || !MayLose(move.below) || losses->Below(8) != 0) continue;
      lost.blocks.push_back(move.below);
      for (uint64_t& content : device[{move.group, move.device}]) content = 0;
    }
    for (const kv::TierMove& move : std::exchange(last_moves.down, {})) {
      if (!loses || !MayLose(move.below) || losses->Below(16) != 0) continue;
      lost.blocks.push_back(move.below);
      unreadable.insert(move.below);
    }
    if (loses && losses->Below(400) == 0) lost.closed = {kv::kKvFileIo, "planted"};
    num_lost += std::ssize(lost.blocks);
    choices.LoseBelow(lost);
  }

  void Move() {
    last_moves = choices.tier_moves();
    // What moves below does so before it is written over.
    for (const kv::TierMove& move : choices.tier_moves().down) {
      if (move.from < 0) continue;
      unreadable.erase(move.below);
      below[{move.group, move.below}] = below[{move.group, move.from}];
      ++demoted;
    }
    for (const kv::TierMove& move : choices.tier_moves().down) {
      if (move.from >= 0) continue;
      unreadable.erase(move.below);
      below[{move.group, move.below}] = device[{move.group, move.device}];
      ++down;
    }
    for (const kv::TierMove& move : choices.tier_moves().up) {
      ASSERT_TRUE(below.contains({move.group, move.below})) << "nothing was put there";
      device[{move.group, move.device}] = below[{move.group, move.below}];
      ++up;
    }
    // What could not be written is found out at the latest when it is read.
    for (const kv::TierMove& move : choices.tier_moves().up) {
      if (unreadable.contains(move.below)) lost_on_read.push_back(move.below);
    }
    choices.tier_moves().Clear();
  }

  // What the device is told of a table.
  void SetTable(const Sequence& sequence, size_t first_block) {
    auto& known = tables[sequence.id];
    known.resize(static_cast<size_t>(choices.book().num_groups()));
    for (size_t group = 0; group < known.size(); ++group) {
      const auto table = choices.book().table(static_cast<int>(group), sequence.id);
      known[group].resize(std::max(known[group].size(), table.size()));
      std::copy(table.begin() + static_cast<int64_t>(first_block), table.end(),
                known[group].begin() + static_cast<int64_t>(first_block));
    }
  }

  // Rows go on from their choice's state, of which all parts lie in its place, and leave it where
  // their parts end.
  void ComputeStates(const ChoiceRows& rows) {
    const Sequence& sequence = *rows.sequence;
    const auto content = [&](int64_t end, int32_t part) {
      auto content = static_cast<uint64_t>(1 + part);
      for (int64_t i = 0; i < end; ++i) {
        content = base::Combine64(content,
                                  static_cast<uint64_t>(sequence.tokens[static_cast<size_t>(i)]));
      }
      return content;
    };
    for (int32_t part = 0; part < state_parts; ++part) {
      const int group = choices.book().num_groups() + part;
      if (rows.begin > 0) {
        ASSERT_EQ(At(device, group, sequence.state_place, 0), content(rows.begin, part))
            << "part " << part;
      }
      for (const kv::StatePart& end : sequence.state_parts)
        At(device, group, end.place, 0) = content(end.end, part);
    }
  }

  // Rows see what is held before them, and write theirs.
  void Compute(const ChoiceRows& rows) {
    const Sequence& sequence = *rows.sequence;
    ComputeStates(rows);
    if (choices.book().table(0, sequence.id).size() > rows.first_block)
      SetTable(sequence, rows.first_block);
    for (int group = 0; group < choices.book().num_groups(); ++group) {
      const std::vector<kv::BlockId>& table = tables[sequence.id][static_cast<size_t>(group)];
      const int64_t held = choices.book().first_held(group, sequence.id);
      // What is at a position: all tokens up to it.
      uint64_t content = 1;
      for (int64_t first = 0; first < rows.end; first += kv::kBlockTokens) {
        const int64_t end = std::min<int64_t>(first + kv::kBlockTokens, rows.end);
        const kv::BlockId block = table[static_cast<size_t>(first / kv::kBlockTokens)];
        ASSERT_TRUE(block >= 0 || end <= rows.begin) << "a row is written into the window";
        const bool streamed = block < 0 && first / kv::kBlockTokens < std::ssize(sequence.streamed);
        const auto place = static_cast<int32_t>(block & INT32_MAX);
        ASSERT_TRUE(!streamed || in_window.contains(place)) << "position " << first;
        Block& memory = streamed ? below[{group, in_window[place]}] : device[{group, block}];
        memory.resize(kv::kBlockTokens);
        for (int64_t i = first; i < end; ++i) {
          content = base::Combine64(content,
                                    static_cast<uint64_t>(sequence.tokens[static_cast<size_t>(i)]));
          uint64_t& at = memory[static_cast<size_t>(i - first)];
          if (i >= rows.begin) {
            at = content;
          } else if (streamed || i >= held) {
            ASSERT_EQ(at, content) << "position " << i;
          }
        }
      }
    }
  }

  const kv::TierBlocks tier;
  const int32_t state_parts;
  base::Rng* losses = nullptr;  // by which blocks are lost, and steps wait
  bool loses = false;
  int64_t num_lost = 0, ended = 0;
  double waited = 0;
  kv::TierMoves last_moves;
  std::set<kv::BlockId> unreadable;
  std::vector<kv::BlockId> lost_on_read;
  Choices choices;
  std::vector<Sequence*> sequences;
  std::deque<std::vector<ChoiceRows>> steps;
  std::vector<RequestResult> finished;
  schedule::StepPlan plan;
  std::map<std::pair<int, kv::BlockId>, Block> device, below;
  std::map<kv::SequenceId, std::vector<std::vector<kv::BlockId>>> tables;  // by KV group
  std::map<int32_t, kv::BlockId> in_window;  // by place, the block below
  int64_t down = 0, up = 0, demoted = 0, block_steps = 0;
  int64_t rows = 0;  // of the prompts, for each choice
};

ChoicesOptions TierOptions(int32_t blocks, int32_t tier_blocks) {
  return {.limits = {.max_num_seqs = 8, .max_num_batched_tokens = 128, .total_blocks = blocks},
          .max_blocks_per_sequence = kTieredContext / kv::kBlockTokens,
          .tier = {.in_memory = tier_blocks},
          .park = {.row_seconds = 1}};
}

// A request whose first tokens, `shared` at most, are those of all such requests.
Request BeginAlike(Request request, size_t shared) {
  std::vector<int32_t>& prompt = request.prompts[0];
  std::iota(prompt.begin(), prompt.begin() + static_cast<int64_t>(std::min(shared, prompt.size())),
            0);
  return request;
}

// Takes random requests, and runs steps, several in flight, until all have ended.
void RunRandomRequests(const schedule::Policy& policy, int64_t requests, int32_t steps_in_flight,
                       base::Rng* rng, TieredBooks* books) {
  int64_t taken = 0;
  for (int guard = 0; guard < 5000; ++guard) {
    while (taken < requests && books->choices.WantsRequests()) {
      const auto choices = static_cast<int32_t>(1 + rng->Below(3)),
                 bound = static_cast<int32_t>(1 + rng->Below(90)),
                 prompt = static_cast<int32_t>(1 + rng->Below(120));
      Request request = MakeRequest(taken++, prompt, bound, choices);
      if (rng->Below(2) == 0) request = BeginAlike(std::move(request), 70);
      books->Take(request);
    }
    if (books->choices.idle()) break;
    const auto most = static_cast<size_t>(steps_in_flight);
    if (books->steps.size() < most && !books->Begin(policy, true) && books->steps.empty()) {
      ASSERT_TRUE(books->Begin(policy, false));
    }
    ASSERT_FALSE(testing::Test::HasFatalFailure());
    books->choices.state_book().CheckInvariants();
    if (books->steps.size() == most || rng->Below(2) == 0) books->End();
  }
  EXPECT_TRUE(books->choices.idle());
  EXPECT_EQ(std::ssize(books->finished), requests);
  EXPECT_EQ(books->choices.stats().kv_blocks_used, 0);
}

TEST(ChoicesPark, AChoiceWaitsBelowAndNoRowIsComputedAgain) {
  const auto policy = *schedule::CreatePolicy("continuous");
  TieredBooks books(TierOptions(9, 32));
  books.Take(MakeRequest(0, 60, 120));
  books.Take(MakeRequest(1, 60, 120));
  bool seen_parked = false;
  while (!books.choices.idle()) {
    ASSERT_TRUE(books.Begin(*policy));
    for (const Sequence* sequence : books.sequences) {
      if (books.finished.empty() && sequence->parked) {
        seen_parked = true;
        EXPECT_EQ(sequence->phase, Phase::kWaiting);
        EXPECT_EQ(sequence->parked->computed, sequence->known() - 1);
      }
    }
    books.End();
  }
  EXPECT_TRUE(seen_parked);
  const EngineStats stats = books.choices.stats();
  const ParkCounters parked = books.choices.park_counters();
  EXPECT_GT(stats.preemptions, 0);
  EXPECT_EQ(stats.recomputed_tokens, 0);
  EXPECT_EQ(stats.computed_tokens, 2 * 179);
  EXPECT_EQ(parked.parks, stats.preemptions);
  EXPECT_EQ(parked.returns, parked.parks);
  EXPECT_EQ(parked.tier.stored, books.down);
  EXPECT_EQ(parked.blocks_up, books.up);
  EXPECT_GT(books.up, 0);
  EXPECT_EQ(stats.kv_blocks_used, 0);
}

TEST(ChoicesPark, WithoutRoomOrWorthIsComputedAgain) {
  const auto policy = *schedule::CreatePolicy("continuous");
  for (const bool worth : {true, false}) {
    ChoicesOptions options = TierOptions(9, worth ? 1 : 32);
    if (!worth) options.park = {};
    TieredBooks books(options);
    for (int i = 0; i < 2; ++i) books.Take(MakeRequest(i, 60, 120));
    testing::internal::CaptureStderr();
    while (!books.choices.idle()) {
      ASSERT_TRUE(books.Begin(*policy));
      books.End();
    }
    const std::string said = testing::internal::GetCapturedStderr();
    const std::string full = "the 1 blocks of --kv-offloading-size are full";
    EXPECT_EQ(said.find(full) != std::string::npos, worth) << said;
    EXPECT_EQ(said.find(full), said.rfind(full)) << "it is said once";
    const ParkCounters parked = books.choices.park_counters();
    EXPECT_EQ(parked.parks, 0);
    EXPECT_EQ(parked.refused, worth ? books.choices.stats().preemptions : 0);
    EXPECT_EQ(parked.recomputed, worth ? 0 : books.choices.stats().preemptions);
    // What the cache gives up may lie where the choice had no room.
    EXPECT_EQ(parked.prefix_blocks_hit > 0, worth);
    EXPECT_EQ(books.choices.stats().recomputed_tokens > 0, !worth);
  }
}

// What the cache gives up goes below, once, and comes back to whoever begins alike.
TEST(ChoicesPark, AnEvictedPrefixIsFoundBelow) {
  const auto policy = *schedule::CreatePolicy("continuous");
  for (const bool worth : {true, false}) {
    ChoicesOptions options = TierOptions(9, 32);
    options.park.preempted = false;
    if (!worth) options.park.block_seconds = 64;
    TieredBooks books(options);
    // The second prompt takes two of the first one's three full blocks.
    for (const auto& [line, prompt] : {std::pair{0, 100}, {1, 250}, {0, 100}, {1, 250}, {0, 100}}) {
      books.Take(MakeRequest(line, prompt, 4));
      while (!books.choices.idle()) {
        ASSERT_TRUE(books.Begin(*policy));
        books.End();
      }
    }
    const EngineStats stats = books.choices.stats();
    const ParkCounters parked = books.choices.park_counters();
    EXPECT_EQ(parked.prefix_blocks_hit > 0, worth);
    EXPECT_EQ(parked.prefix_blocks_hit, books.up);
    EXPECT_EQ(parked.blocks_up, books.up);
    EXPECT_EQ(parked.evicted, books.down);
    EXPECT_EQ(parked.tier.stored, books.down);
    EXPECT_EQ(parked.parks + parked.returns, 0);
    EXPECT_EQ(stats.computed_tokens + stats.cached_prompt_tokens, 3 * 103 + 2 * 253);
    EXPECT_EQ(stats.cached_prompt_tokens,
              kv::kBlockTokens * (stats.prefix_blocks_hit + parked.prefix_blocks_hit));
    if (worth) {
      EXPECT_EQ(parked.prefix_blocks_hit, 6);
      EXPECT_EQ(parked.tier.stored, 4) << "each block goes down once";
      EXPECT_EQ(stats.cached_prompt_tokens, 2 * 96 + 224);
    }
  }
}

// What leaves the replica leaves the tier, at once or when another one has read it.
TEST(ChoicesPark, AParkedChoiceThatIsCancelledOrGivenAwayIsForgotten) {
  const auto policy = *schedule::CreatePolicy("continuous");
  for (const bool cancel : {true, false}) {
    TieredBooks books(TierOptions(24, 32));
    for (int i = 0; i < 4; ++i) books.Take(MakeRequest(i, 60, i < 3 ? 300 : 140));
    while (books.choices.park_counters().parks == 0) {
      ASSERT_TRUE(books.Begin(*policy));
      books.End();
    }
    ASSERT_EQ(books.choices.num_waiting(), 1u);
    if (cancel) {
      std::vector<RequestResult> gone;
      books.choices.Cancel([](int64_t id) { return id == 3; }, &gone);
      EXPECT_EQ(gone.size(), 1u);
    } else {
      std::vector<Gift> gifts = books.choices.GiveAway(1);
      ASSERT_EQ(gifts.size(), 1u);
      // What it has below goes along, and stays there until it is read.
      ASSERT_EQ(gifts[0].loans.size(), 1u);
      EXPECT_GE(std::ssize(gifts[0].loans[0]->below) * kv::kBlockTokens,
                gifts[0].loans[0]->computed);
      EXPECT_GT(gifts[0].loans[0]->computed, 0);
      gifts[0].loans[0]->over = true;
      EXPECT_EQ(gifts[0].state->sequences[0]->parked, nullptr);
      EXPECT_EQ(gifts[0].state->sequences[0]->computed, 0);
    }
    EXPECT_EQ(books.choices.num_waiting(), 0u);
    books.sequences.clear();
    while (!books.choices.idle()) {
      ASSERT_TRUE(books.Begin(*policy));
      books.End();
    }
    EXPECT_EQ(books.choices.park_counters().returns, books.choices.park_counters().parks - 1);
  }
}

// Random jobs over few blocks and a tier that is often full, with prefixes that are shared or not,
// windows, siblings and steps in flight: each position that a row sees holds what it should.
TEST(ChoicesPark, RandomJobs) {
  // It foresees no growth, and preempts much.
  const auto policy = *schedule::CreatePolicy("sarathi");
  int64_t returns = 0, refused = 0, found = 0, preemptions = 0, prefixes = 0, demoted = 0,
          up_far = 0, few_of_windows = 0;
  for (uint64_t seed = 0; seed < 600; ++seed) {
    SCOPED_TRACE(seed);
    base::Rng rng(seed);
    ChoicesOptions options = TierOptions(20, static_cast<int32_t>(1 + rng.Below(24)));
    if (seed % 2 == 1) options.tier.in_file = static_cast<int32_t>(1 + rng.Below(16));
    options.limits.max_num_seqs = static_cast<int32_t>(2 + rng.Below(8));
    options.steps_in_flight = static_cast<int32_t>(1 + rng.Below(3));
    options.prefix_caching = rng.Below(3) > 0;
    if (rng.Below(3) == 0) {
      options.kv_reaches = {0, 64};
      // As the memory plan has it.
      const schedule::Limits& limits = options.limits;
      options.most_kv_blocks = {
          INT32_MAX, limits.max_num_seqs * 4 +
                         limits.max_num_batched_tokens * options.steps_in_flight / 32 + 1};
      few_of_windows += options.most_kv_blocks[1] < limits.total_blocks;
    }
    TieredBooks books(options);
    const auto requests = static_cast<int64_t>(1 + rng.Below(12));
    RunRandomRequests(*policy, requests, options.steps_in_flight, &rng, &books);
    ASSERT_FALSE(HasFatalFailure());
    books.ExpectRows(options.prefix_caching);
    const ParkCounters parked = books.choices.park_counters();
    EXPECT_EQ(parked.returns, parked.parks);
    preemptions += books.choices.stats().preemptions;
    returns += parked.returns;
    refused += parked.refused;
    found += parked.tier.found;
    prefixes += parked.prefix_blocks_hit;
    EXPECT_EQ(parked.blocks_up, books.up);
    demoted += books.demoted;
    up_far += parked.blocks_up_far;
  }
  EXPECT_GT(few_of_windows, 10);
  EXPECT_GT(returns, 100);
  EXPECT_GT(demoted, 100);
  EXPECT_GT(up_far, 100);
  EXPECT_GT(refused, 20);
  EXPECT_GT(found, 50);
  EXPECT_GT(prefixes, 20);
  EXPECT_GE(preemptions, returns + refused);
}

// The same where layers keep states, which go along, from kept places too; some blocks are lost.
TEST(ChoicesPark, RandomJobsWithStates) {
  const auto policy = *schedule::CreatePolicy("sarathi");
  int64_t returns = 0, refused = 0, hit = 0, demoted = 0, lost = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    base::Rng rng(seed);
    ChoicesOptions options = TierOptions(20, static_cast<int32_t>(1 + rng.Below(30)));
    if (seed % 2 == 1) options.tier.in_file = static_cast<int32_t>(1 + rng.Below(20));
    const bool loses = seed % 4 == 3;
    if (loses) options.tier = {.in_memory = 2, .in_file = 38};
    options.limits.max_num_seqs = static_cast<int32_t>(2 + rng.Below(8));
    options.steps_in_flight = loses ? 1 : static_cast<int32_t>(1 + rng.Below(3));
    options.keeps_states = true;
    options.state_blocks = static_cast<int32_t>(1 + rng.Below(4));
    options.kept_states = static_cast<int32_t>(rng.Below(8));
    options.prefix_caching = options.kept_states > 0;
    options.state_every = options.prefix_caching ? 32 << rng.Below(3) : 0;
    TieredBooks books(options);
    books.losses = &rng;
    books.loses = loses;
    const auto requests = static_cast<int64_t>(1 + rng.Below(12));
    RunRandomRequests(*policy, requests, options.steps_in_flight, &rng, &books);
    ASSERT_FALSE(HasFatalFailure());
    const ParkCounters parked = books.choices.park_counters();
    EXPECT_EQ(parked.returns, parked.parks);
    EXPECT_EQ(parked.prefix_blocks_hit, 0) << "nobody begins behind a prefix without its state";
    EXPECT_EQ(parked.blocks_up, books.up);
    returns += parked.returns;
    refused += parked.refused;
    hit += books.choices.stats().prefix_blocks_hit;
    demoted += books.demoted;
    lost += books.num_lost;
    kv::StateBook book = books.choices.state_book();
    for (int32_t i = 0; i < options.kept_states; ++i) EXPECT_NE(book.Take(), kv::StateBook::kNone);
  }
  EXPECT_GT(returns, 100);
  EXPECT_GT(refused, 20);
  EXPECT_GT(hit, 50);
  EXPECT_GT(demoted, 10);
  EXPECT_GT(lost, 20);
}

// The same where running choices are streamed: also choices that the device does not hold, under
// every policy, with some that are given up on the way.
TEST(ChoicesPark, RandomJobsThatAreStreamed) {
  int64_t streamed = 0, preemptions = 0, parks = 0, longer = 0, shrinks = 0;
  for (uint64_t seed = 0; seed < 600; ++seed) {
    SCOPED_TRACE(seed);
    base::Rng rng(seed);
    const char* const names[] = {"continuous",   "sarathi", "vllm",     "adaptive",
                                 "static_batch", "whole",   "makespan", "packed"};
    const auto policy = *schedule::CreatePolicy(names[seed % std::size(names)]);
    ChoicesOptions options = TierOptions(static_cast<int32_t>(4 + rng.Below(16)), 0);
    options.streaming.places = static_cast<int32_t>(12 + rng.Below(10));
    // Often with hardly a block more than what is streamed needs.
    const uint64_t more = rng.Below(2) == 0 ? 30 : 4;
    options.tier.in_memory = options.streaming.places + static_cast<int32_t>(rng.Below(more));
    if (seed % 2 == 1) options.tier.in_file = static_cast<int32_t>(1 + rng.Below(30));
    // Steps that wait for copies at random.
    if (rng.Below(3) == 0) {
      options.streaming.least =
          static_cast<int32_t>(kTieredContext / kv::kBlockTokens) - options.limits.total_blocks;
      options.streaming.bytes_per_s = 1;
    }
    options.limits.max_num_seqs = static_cast<int32_t>(1 + rng.Below(8));
    options.prefix_caching = rng.Below(3) > 0;
    options.park.preempted = rng.Below(3) > 0;
    TieredBooks books(options);
    books.losses = &rng;
    const auto requests = static_cast<int64_t>(1 + rng.Below(12));
    const size_t shared = rng.Below(2) == 0 ? 170 : 320;
    int64_t taken = 0;
    std::vector<RequestResult> cancelled;
    for (int guard = 0; guard < 8000; ++guard) {
      while (taken < requests && books.choices.WantsRequests()) {
        const auto choices = static_cast<int32_t>(1 + rng.Below(3));
        const auto bound = static_cast<int32_t>(1 + rng.Below(rng.Below(2) == 0 ? 90 : 160));
        const auto prompt = static_cast<int32_t>(1 + rng.Below(350));
        Request request = MakeRequest(taken++, prompt, bound, choices);
        if (rng.Below(2) == 0) request = BeginAlike(std::move(request), shared);
        longer += std::ssize(request.prompts[0]) / kv::kBlockTokens > options.limits.total_blocks;
        books.Take(request);
      }
      if (books.choices.idle()) break;
      ASSERT_TRUE(books.Begin(*policy));
      ASSERT_FALSE(HasFatalFailure());
      books.End();
      if (rng.Below(50) == 0) {
        const auto gone = static_cast<int64_t>(rng.Below(12));
        books.choices.Cancel([gone](int64_t id) { return id == gone; }, &cancelled);
      }
    }
    EXPECT_TRUE(books.choices.idle());
    EXPECT_EQ(std::ssize(books.finished) + std::ssize(cancelled), requests);
    EXPECT_EQ(books.choices.stats().kv_blocks_used, 0);
    if (cancelled.empty()) books.ExpectRows(options.prefix_caching);
    const StreamCounters limits = books.choices.streaming().counters();
    EXPECT_EQ(books.choices.streaming().room(), limits.limit);
    EXPECT_GE(limits.least, std::min(options.streaming.least, limits.places));
    shrinks += limits.shrinks;
    const ParkCounters parked = books.choices.park_counters();
    EXPECT_EQ(parked.tier.stored, books.down);
    EXPECT_EQ(parked.blocks_up, books.up);
    preemptions += books.choices.stats().preemptions;
    parks += parked.parks;
    streamed += books.block_steps;
  }
  EXPECT_GT(streamed, 10'000);
  EXPECT_GT(shrinks, 100);
  EXPECT_GT(preemptions, 100);
  EXPECT_GT(parks, 20);
  EXPECT_GT(longer, 20);
}

// Small jobs where choices of one long prefix are streamed and parked at once, under every policy,
// with hardly a block below to spare: what is promised to streams is there when they want it.
TEST(ChoicesPark, RandomJobsThatShareWhatIsStreamed) {
  int64_t streamed = 0, parks = 0, refused = 0;
  for (uint64_t seed = 0; seed < 250; ++seed) {
    SCOPED_TRACE(seed);
    base::Rng rng(seed);
    const char* const names[] = {"continuous",   "sarathi", "vllm",     "adaptive",
                                 "static_batch", "whole",   "makespan", "packed"};
    const auto policy = *schedule::CreatePolicy(names[seed % std::size(names)]);
    ChoicesOptions options = TierOptions(static_cast<int32_t>(8 + rng.Below(5)), 0);
    options.streaming.places = static_cast<int32_t>(8 + rng.Below(5));
    options.tier.in_memory = options.streaming.places + static_cast<int32_t>(2 + rng.Below(5));
    TieredBooks books(options);
    const auto requests = static_cast<int64_t>(3 + rng.Below(3));
    const size_t shared = 96 + rng.Below(96);
    for (int64_t id = 0; id < requests; ++id) {
      const auto prompt = static_cast<int32_t>(130 + rng.Below(100));
      const auto bound = static_cast<int32_t>(60 + rng.Below(200));
      Request request = MakeRequest(id, prompt, bound);
      if (rng.Below(3) > 0) request = BeginAlike(std::move(request), shared);
      books.Take(request);
    }
    while (!books.choices.idle()) {
      ASSERT_TRUE(books.Begin(*policy));
      ASSERT_FALSE(HasFatalFailure());
      books.End();
    }
    EXPECT_EQ(std::ssize(books.finished), requests);
    streamed += books.block_steps;
    parks += books.choices.park_counters().parks;
    refused += books.choices.park_counters().refused;
  }
  EXPECT_GT(streamed, 25'000);
  EXPECT_GT(parks, 0);
  EXPECT_GT(refused, 25);
}

// A parked choice needs blocks below that another streams as well. When that one ends its places in
// the window are free, but nothing below is.
TEST(ChoicesPark, BlocksThatAParkedChoiceNeedsTooAreNotPromisedTwice) {
  const auto policy = *schedule::CreatePolicy("continuous");
  ChoicesOptions options = TierOptions(9, 13);
  options.streaming.places = 10;
  TieredBooks books(options);
  books.Take(MakeRequest(0, 180, 240));
  Request shorter = MakeRequest(1, 183, 78), longer = MakeRequest(2, 168, 236);
  std::copy_n(shorter.prompts[0].begin(), 160, longer.prompts[0].begin());
  books.Take(shorter);
  books.Take(longer);
  while (!books.choices.idle()) {
    ASSERT_TRUE(books.Begin(*policy));
    ASSERT_FALSE(HasFatalFailure());
    books.End();
  }
  EXPECT_EQ(books.finished.size(), 3u);
  // There was room for it only as long as both ran.
  EXPECT_GT(books.choices.park_counters().refused, 0);
}

// Where blocks below are lost, or nothing goes there any more, choices are computed again and get
// what they would have got. That nothing goes there is said once.
TEST(ChoicesPark, WhatIsLostBelowIsComputedAgain) {
  int64_t lost = 0, returns = 0, recomputed = 0, closed = 0;
  for (uint64_t seed = 0; seed < 360; ++seed) {
    SCOPED_TRACE(seed);
    base::Rng rng(seed);
    const auto policy = *schedule::CreatePolicy(seed % 2 == 0 ? "continuous" : "vllm");
    ChoicesOptions options = TierOptions(static_cast<int32_t>(17 + rng.Below(16)), 40);
    if (seed % 3 == 0) options.tier = {.in_memory = 2, .in_file = 38};
    options.prefix_caching = rng.Below(3) > 0;
    if (rng.Below(4) == 0 && options.prefix_caching) options.keeps_tier = true;
    TieredBooks books(options);
    books.losses = &rng;
    books.loses = true;
    for (int64_t i = 0; i < 8; ++i) {
      Request request = MakeRequest(i, static_cast<int32_t>(1 + rng.Below(250)),
                                    static_cast<int32_t>(1 + rng.Below(120)));
      if (rng.Below(2) == 0) request = BeginAlike(std::move(request), 170);
      books.Take(request);
    }
    testing::internal::CaptureStderr();
    for (int guard = 0; guard < 8000 && !books.choices.idle(); ++guard) {
      ASSERT_TRUE(books.Begin(*policy));
      ASSERT_FALSE(HasFatalFailure());
      books.End();
    }
    const std::string said = testing::internal::GetCapturedStderr();
    const size_t warned = said.find("[kv_file_io]");
    closed += warned != std::string::npos;
    EXPECT_EQ(warned, said.rfind("[kv_file_io]")) << said;
    EXPECT_TRUE(books.choices.idle());
    EXPECT_EQ(std::ssize(books.finished), 8);
    EXPECT_EQ(books.choices.stats().kv_blocks_used, 0);
    books.ExpectRows(options.prefix_caching);
    EXPECT_EQ(books.choices.park_counters().failed, books.num_lost);
    lost += books.num_lost;
    returns += books.choices.park_counters().returns;
    recomputed += books.choices.stats().recomputed_tokens;
  }
  EXPECT_GT(lost, 300);
  EXPECT_GT(returns, 100);
  EXPECT_GT(recomputed, 1000);
  EXPECT_GT(closed, 20);
}

}  // namespace
}  // namespace forebay::engine
