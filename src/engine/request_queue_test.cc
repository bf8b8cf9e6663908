#include "engine/request_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "base/rng.h"
#include "runtime/real/real_runtime.h"
#include "runtime/virtual/virtual_runtime.h"

namespace forebay::engine {
namespace {

// Says that it has ended only once it was asked for more than it has, `late` times in vain.
class LateSource final : public RequestSource {
 public:
  LateSource(int64_t requests, int late) : left_(requests), late_(late) {}
  std::optional<Request> Next(bool) override {
    if (left_ == 0) {
      ended_ = --late_ < 0;
      return std::nullopt;
    }
    Request request{.id = --left_, .prompts = {{1, 2, 3}}};
    request.sampling.max_tokens = 1 + static_cast<int32_t>(left_);
    return request;
  }
  bool ended() const override { return ended_; }
  int64_t remaining() const override { return left_; }

 private:
  int64_t left_;
  int late_;
  bool ended_ = false;
};

class NoSink final : public ResultSink {
 public:
  bool Finish(RequestResult) override { return true; }
};

TEST(RequestQueue, EndsWhateverItHasReadAheadWhenItsSourceEnds) {
  const auto runtime = runtime::CreateRealRuntime();
  const auto policy = schedule::CreatePolicy("continuous");
  ASSERT_TRUE(policy.ok());
  for (const int64_t requests : {1, 3, 4, 5, 8, 9}) {
    for (const int late : {0, 2}) {
      LateSource source(requests, late);
      NoSink sink;
      RequestQueue queue(*runtime, 1, 4, source, sink);
      int64_t taken = 0;
      for (int asked = 0; asked < 40 && !queue.ended(0); ++asked)
        taken += queue.Next(0, asked, **policy, true).has_value();
      EXPECT_EQ(taken, requests);
      EXPECT_TRUE(queue.ended(0)) << requests << " requests, " << late;
    }
  }
}

// The longest comes last. A job's last requests go out longest first, those that come over time as
// they came, and the end is found as well.
TEST(RequestQueue, HandsOutInOrderOfArrivalToTheEnd) {
  class ShortestFirst final : public RequestSource {
   public:
    explicit ShortestFirst(bool in_order) : in_order_(in_order) {}
    std::optional<Request> Next(bool) override {
      if (ended()) return std::nullopt;
      Request request{.id = next_++, .prompts = {{1, 2, 3}}};
      request.sampling.max_tokens = 10 * static_cast<int32_t>(next_);
      return request;
    }
    bool ended() const override { return next_ == 6; }
    int64_t remaining() const override { return 6 - next_; }
    bool in_order() const override { return in_order_; }

   private:
    const bool in_order_;
    int64_t next_ = 0;
  };
  const auto runtime = runtime::CreateRealRuntime();
  const auto policy = schedule::CreatePolicy("continuous");
  ASSERT_TRUE(policy.ok());
  for (const bool in_order : {false, true}) {
    ShortestFirst source(in_order);
    NoSink sink;
    RequestQueue queue(*runtime, 2, 16, source, sink);
    std::vector<int64_t> ids;
    for (int64_t step = 0; step < 40 && !queue.ended(0); ++step) {
      for (const int replica : {0, 1}) {
        queue.SetLoad(replica, {.tokens = 50, .choices = 20, .longest_output = 1});
        if (const auto taken = queue.Next(replica, step, **policy, false))
          ids.push_back(taken->request.id);
      }
    }
    EXPECT_TRUE(queue.ended(1));
    EXPECT_EQ(ids.size(), 6u);
    EXPECT_EQ(std::ranges::is_sorted(ids), in_order);
  }
}

// Before the source has ended and after, when what remains is dealt.
TEST(RequestQueue, WhatIsGivenUpGoesToNobody) {
  const auto runtime = runtime::CreateRealRuntime();
  const auto policy = schedule::CreatePolicy("continuous");
  ASSERT_TRUE(policy.ok());
  for (const int64_t requests : {4, 40}) {
    SCOPED_TRACE(requests);
    LateSource source(requests, 0);
    NoSink sink;
    RequestQueue queue(*runtime, 2, 4, source, sink);
    const auto take = [&](int replica) { return queue.Next(replica, 0, **policy, false); };
    const int64_t last = requests - 1;  // comes first
    const auto first = take(0);
    ASSERT_TRUE(first);
    ASSERT_EQ(first->request.id, last);
    // One that was taken is its replica's to end.
    const auto cancelled = [&](int64_t id) { return id == last || id == last - 2 || id == 1; };
    const std::vector<int64_t> withdrawn = queue.Withdraw(1, cancelled);
    EXPECT_EQ(withdrawn, std::vector<int64_t>{last - 2});
    EXPECT_TRUE(queue.Withdraw(0, cancelled).empty());
    EXPECT_TRUE(queue.Finish(1, {.id = last - 2}));
    for (int64_t left = requests - 2; left > 1; --left) {
      const auto next = take(0);
      ASSERT_TRUE(next);
      EXPECT_NE(next->request.id, last - 2);
      EXPECT_FALSE(queue.ended(0));
    }
    // Without the last one nothing can come.
    EXPECT_EQ(queue.Withdraw(0, [](int64_t) { return true; }).size(), 1u);
    EXPECT_TRUE(queue.ended(0));
    EXPECT_FALSE(take(1));
  }
}

// Steps of all replicas end at one time: who asks first knows of the others what they told before
// these.
TEST(RequestQueue, WhoAsksFirstTakesNoMoreThanItsShare) {
  constexpr int64_t kPrompt = 64, kOutput = 16, kMostInAStep = 16;
  class Alike final : public RequestSource {
   public:
    std::optional<Request> Next(bool) override {
      if (left_ == 0) return std::nullopt;
      Request request{.id = --left_, .prompts = {std::vector<int32_t>(kPrompt)}};
      request.sampling.max_tokens = kOutput;
      return request;
    }
    bool ended() const override { return left_ == 0; }
    int64_t remaining() const override { return left_; }

   private:
    int64_t left_ = 100;
  };
  const auto runtime = runtime::CreateRealRuntime();
  const auto policy = schedule::CreatePolicy("continuous");
  ASSERT_TRUE(policy.ok());
  Alike source;
  NoSink sink;
  std::array<int64_t, 4> taken{};
  RequestQueue queue(*runtime, std::ssize(taken), 256, source, sink);
  for (int64_t step = 0; step < 2; ++step) {
    for (int replica = 0; replica < std::ssize(taken); ++replica) {
      int64_t& held = taken[static_cast<size_t>(replica)];
      const int64_t computed = held;  // prompts
      const auto tell = [&] {
        queue.SetLoad(replica, {.tokens = held * (kPrompt + kOutput) - computed * kPrompt,
                                .choices = held,
                                .step_tokens = (held - computed) * kPrompt});
      };
      for (tell(); held - computed < kMostInAStep && queue.Next(replica, step, **policy, false);) {
        ++held;
        tell();
      }
    }
  }
  EXPECT_THAT(taken, testing::Each(25));
}

// Requests come in bursts, for as long as the source is open.
class OpenSource final : public RequestSource {
 public:
  explicit OpenSource(runtime::Runtime& runtime) : some_(runtime.NewEvent("requests")) {}
  void Put(std::vector<Request> requests) {
    for (Request& request : requests) requests_.push_back(std::move(request));
    some_->Set();
  }
  void Close() {
    closed_ = true;
    some_->Set();
  }
  std::optional<Request> Next(bool wait) override {
    if (wait) some_->Wait(runtime::kGlance);
    if (requests_.empty()) {
      if (!closed_) some_->Reset();
      return std::nullopt;
    }
    Request request = std::move(requests_.front());
    requests_.pop_front();
    return request;
  }
  bool ended() const override { return closed_ && requests_.empty(); }

 private:
  const std::unique_ptr<runtime::Event> some_;
  std::deque<Request> requests_;
  bool closed_ = false;
};

// What replicas took of one burst.
struct Levelness {
  std::vector<int64_t> tokens, requests;  // by replica
  int64_t largest = 0;                    // tokens of a request
};

// One burst at a time, each when the one before has been computed. Steps differ in time, and
// compute once all of the burst is taken: until then what replicas hold only grows.
std::vector<Levelness> TakeBursts(uint64_t seed, bool alike) {
  base::Rng rng(seed);
  const auto below = [&](uint64_t count) { return static_cast<int64_t>(rng.Next() % count); };
  const int replicas = static_cast<int>(2 + below(3));
  std::vector<Levelness> bursts;
  runtime::VirtualRuntime runtime(seed);
  const auto policy = schedule::CreatePolicy("continuous");
  const base::Status status = runtime.Run([&] {
    OpenSource source(runtime);
    NoSink sink;
    RequestQueue queue(runtime, replicas, 64, source, sink);
    int64_t unfinished = 0, untaken = 0;
    const auto run = [&](int replica, uint64_t pace) {
      base::Rng own(pace);
      std::deque<int64_t> held;  // tokens left of each
      const auto tell = [&] {
        int64_t tokens = 0;
        for (const int64_t each : held) tokens += each;
        queue.SetLoad(replica, {.tokens = tokens, .choices = std::ssize(held)});
      };
      for (int64_t step = 0; !queue.ended(replica); ++step) {
        tell();
        while (auto taken = queue.Next(replica, step, **policy, held.empty())) {
          const Request& request = taken->request;
          held.push_back(std::ssize(request.prompts[0]) + request.sampling.max_tokens);
          bursts.back().tokens[static_cast<size_t>(replica)] += held.back();
          ++bursts.back().requests[static_cast<size_t>(replica)];
          --untaken;
          tell();
        }
        if (held.empty()) continue;
        runtime.Sleep(static_cast<runtime::TimeNs>(1 + own.Next() % 1000));
        if (untaken > 0) continue;
        for (int64_t& tokens : held) tokens -= std::min<int64_t>(tokens, 40);
        unfinished -= static_cast<int64_t>(std::erase(held, 0));
      }
    };
    std::vector<std::unique_ptr<runtime::Task>> tasks;
    for (int replica = 0; replica < replicas; ++replica) {
      tasks.push_back(runtime.Spawn({.name = fmt::format("replica {}", replica)},
                                    [&run, replica, pace = rng.Next()] { run(replica, pace); }));
    }
    for (int burst = 0; burst < 3; ++burst) {
      Levelness& level = bursts.emplace_back();
      level.tokens.resize(static_cast<size_t>(replicas));
      level.requests.resize(static_cast<size_t>(replicas));
      std::vector<Request> requests(static_cast<size_t>(1 + below(24)));
      for (Request& request : requests) {
        request.prompts = {std::vector<int32_t>(static_cast<size_t>(alike ? 50 : 1 + below(100)))};
        request.sampling.max_tokens = static_cast<int32_t>(alike ? 50 : 1 + below(100));
        level.largest = std::max<int64_t>(
            level.largest, std::ssize(request.prompts[0]) + request.sampling.max_tokens);
      }
      unfinished = untaken = std::ssize(requests);
      source.Put(std::move(requests));
      while (unfinished > 0) runtime.Sleep(100);
    }
    source.Close();
    for (const auto& task : tasks) task->Join();
  });
  EXPECT_TRUE(status.ok()) << status.ToString();
  return bursts;
}

TEST(RequestQueue, ReplicasOfAnOpenSourceStayLevelWithinOneRequest) {
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    const bool alike = seed % 2 == 0;
    for (const auto& [tokens, requests, largest] : TakeBursts(seed, alike)) {
      ASSERT_LE(std::ranges::max(tokens) - std::ranges::min(tokens), largest) << seed;
      if (alike) {
        ASSERT_LE(std::ranges::max(requests) - std::ranges::min(requests), 1) << seed;
      }
    }
  }
}

// Of a request that was handed out, new or given back; -1: none was.
int64_t IdOf(const std::optional<TakenRequest>& taken) {
  if (!taken) return -1;
  return taken->returned ? taken->returned->request.id : taken->request.id;
}

// A batch that was there first, people who come later, and a deadline.
class PeopleSource final : public RequestSource {
 public:
  std::optional<Request> Next(bool) override {
    if (next_ == 6) return std::nullopt;
    Request request{.id = next_++, .prompts = {{1, 2, 3}}};
    if (request.id == 4) request.deadline_seconds = 9;
    return request;
  }
  std::optional<Request> NextOf(Service service) override {
    if (service == Service::kBatch || people_ == 0) return std::nullopt;
    return Request{.id = 10 + --people_, .prompts = {{1, 2, 3}}, .service = Service::kInteractive};
  }
  bool ended() const override { return next_ == 6 && people_ == 0 && done_; }
  int64_t remaining() const override { return 6 - next_ + people_; }
  bool in_order() const override { return true; }

  int64_t people_ = 0;
  bool done_ = false;

 private:
  int64_t next_ = 0;
};

TEST(RequestQueue, ABatchRequestPassesPeopleForWhoHoldsNone) {
  const auto runtime = runtime::CreateRealRuntime();
  const auto policy = schedule::CreatePolicy("interactive");
  PeopleSource source;
  NoSink sink;
  std::atomic<int64_t> choices_ahead = 0;
  RequestQueue queue(*runtime, 1, 2, source, sink, nullptr, &choices_ahead);
  EXPECT_FALSE(queue.NextBatch(0).has_value()) << "it has its turn";
  source.people_ = 9;
  for (const int64_t id : {0, 1, 2, 4, 3, 5}) {
    const auto taken = queue.NextBatch(0);
    ASSERT_TRUE(taken.has_value());
    EXPECT_EQ(taken->request.id, id);
  }
  EXPECT_FALSE(queue.NextBatch(0).has_value()) << "none is left";
  const auto person = queue.Next(0, 0, **policy, false);
  ASSERT_TRUE(person.has_value());
  EXPECT_EQ(person->request.service, Service::kInteractive);
  // The people who are read ahead, but for one.
  EXPECT_GT(choices_ahead, 0);
  EXPECT_EQ(choices_ahead, 9 - source.people_ - 1);
  queue.Withdraw(0, [](int64_t) { return true; });
  EXPECT_EQ(choices_ahead, 0);
}

// More people than are read ahead, all of whom came before a batch.
class CrowdSource final : public RequestSource {
 public:
  CrowdSource(int64_t prompt, int64_t batch) : prompt_(prompt), batch_(batch) {}
  std::optional<Request> Next(bool) override {
    return people_ > 0 ? NextOf(Service::kInteractive) : NextOf(Service::kBatch);
  }
  std::optional<Request> NextOf(Service service) override {
    int64_t& left = service == Service::kInteractive ? people_ : batch_;
    if (left == 0) return std::nullopt;
    ++given_;
    return Request{.id = --left,
                   .prompts = {std::vector<int32_t>(static_cast<size_t>(prompt_))},
                   .service = service};
  }
  bool ended() const override { return people_ + batch_ == 0; }
  int64_t remaining() const override { return people_ + batch_; }
  bool in_order() const override { return true; }
  int64_t given() const { return given_; }

 private:
  const int64_t prompt_;
  int64_t people_ = 1000, batch_, given_ = 0;
};

TEST(RequestQueue, ABatchBehindACrowdIsReadAndTheCrowdIsNot) {
  const auto runtime = runtime::CreateRealRuntime();
  const auto policy = schedule::CreatePolicy("interactive");
  constexpr int64_t kAhead = 8;
  // Short prompts, and such as fill what may be read ahead by themselves.
  for (const int64_t prompt : {int64_t{3}, RequestQueue::kMostPromptTokensAhead}) {
    const int64_t batches = prompt > 3 ? 4 : 20;
    CrowdSource source(prompt, batches);
    NoSink sink;
    RequestQueue queue(*runtime, 1, kAhead, source, sink);
    for (int64_t i = 0; i < batches; ++i) {
      const auto batch = queue.NextBatch(0);
      ASSERT_TRUE(batch.has_value()) << i;
      EXPECT_EQ(batch->request.service, Service::kBatch);
      EXPECT_LE(source.given() - 2 * i - 1, prompt > 3 ? 2 : 2 * kAhead) << "read ahead";
      const auto person = queue.Next(0, i, **policy, false);
      ASSERT_TRUE(person.has_value());
      EXPECT_EQ(person->request.service, Service::kInteractive);
    }
    EXPECT_FALSE(queue.NextBatch(0).has_value()) << "none is left";
  }
}

// What is due of what is read ahead, by replica; of what comes over time nothing else is known.
TEST(RequestQueue, SaysWhatIsDue) {
  const auto runtime = runtime::CreateRealRuntime();
  const auto policy = schedule::CreatePolicy("interactive");
  PeopleSource source;
  NoSink sink;
  RequestQueue queue(*runtime, 2, 8, source, sink);
  EXPECT_EQ(queue.Due().size(), 0u) << "nothing is read";
  source.people_ = 1;
  const auto next = [&](double due_by) { return IdOf(queue.Next(0, 0, **policy, false, due_by)); };
  EXPECT_EQ(next(schedule::kNoDeadline), 10);
  const std::vector<schedule::DueWork> due = queue.Due();
  ASSERT_EQ(due.size(), 1u);
  EXPECT_EQ(due[0].deadline, 9);
  EXPECT_GT(due[0].tokens, 1.5);  // half of its prompt and an output
  EXPECT_EQ(next(8), -1) << "nothing is due by then";
  EXPECT_EQ(next(9), 4);
  EXPECT_EQ(next(1e9), -1) << "the others have no deadline";
  EXPECT_EQ(queue.Due().size(), 0u);
  EXPECT_EQ(next(schedule::kNoDeadline), 0);
}

TEST(RequestQueue, PeopleGoFirstWhateverIsReadAhead) {
  const auto runtime = runtime::CreateRealRuntime();
  const auto policy = schedule::CreatePolicy("interactive"),
             blind = schedule::CreatePolicy("continuous");
  PeopleSource source;
  NoSink sink;
  RequestQueue queue(*runtime, 2, 8, source, sink);
  const auto next = [&](int replica, const schedule::Policy& of, bool interactive_only) {
    return IdOf(queue.Next(replica, 0, of, false,
                           interactive_only ? -schedule::kNoDeadline : schedule::kNoDeadline));
  };
  queue.SetLoad(0, {.tokens = 5, .choices = 1});
  queue.SetLoad(1, {.tokens = 5, .choices = 1});
  EXPECT_EQ(next(0, **policy, true), -1) << "nobody waits";
  EXPECT_EQ(next(0, **policy, false), 4) << "the batch's deadline comes first";
  source.people_ = 2;
  EXPECT_EQ(next(0, **blind, false), 0) << "who does not know them takes what came first";
  EXPECT_EQ(next(0, **policy, true), 11);
  queue.SetLoad(0, {.tokens = 5, .choices = 2, .interactive = 1});
  EXPECT_EQ(next(0, **policy, false), -1) << "the other replica has none";
  source.people_ = 1;
  queue.SetLoad(1, {.tokens = 5, .choices = 1, .full_of_people = true});
  EXPECT_EQ(next(0, **policy, false), 10) << "and takes none now";
  queue.SetLoad(1, {.tokens = 5, .choices = 1});
  EXPECT_EQ(next(1, **policy, false), 10);
  EXPECT_EQ(next(1, **policy, false), 1);
}

// A person who comes last of a job's lines, which are all there.
class LinesSource final : public RequestSource {
 public:
  std::optional<Request> Next(bool) override {
    if (ended()) return std::nullopt;
    Request request{.id = next_++, .prompts = {{1, 2, 3}}};
    if (ended()) request.service = Service::kInteractive;
    return request;
  }
  bool ended() const override { return next_ == 7; }
  int64_t remaining() const override { return 7 - next_; }

 private:
  int64_t next_ = 0;
};

// The end's last requests are dealt when nobody waits: a batch's take no place that people gave up.
TEST(RequestQueue, ABatchDoesNotPassForPeopleAtTheEnd) {
  const auto runtime = runtime::CreateRealRuntime();
  const auto policy = schedule::CreatePolicy("interactive");
  LinesSource source;
  NoSink sink;
  RequestQueue queue(*runtime, 2, 16, source, sink);
  const auto next = [&](int replica, double due_by) {
    return IdOf(queue.Next(replica, 0, **policy, false, due_by));
  };
  EXPECT_EQ(next(1, -schedule::kNoDeadline), 6);
  for (const int replica : {0, 1}) EXPECT_EQ(next(replica, -schedule::kNoDeadline), -1);
  int64_t taken = 0;
  while (next(0, schedule::kNoDeadline) >= 0) ++taken;
  EXPECT_GT(taken, 0);
  while (next(1, schedule::kNoDeadline) >= 0) ++taken;
  EXPECT_EQ(taken, 6);
  EXPECT_TRUE(queue.ended(0));
}

TEST(RequestQueue, WhatADeadReplicaHeldKeepsItsService) {
  const auto runtime = runtime::CreateRealRuntime();
  const auto policy = schedule::CreatePolicy("interactive");
  PeopleSource source;
  NoSink sink;
  RequestQueue queue(*runtime, 2, 8, source, sink);
  const auto next = [&](double due_by) { return IdOf(queue.Next(0, 0, **policy, false, due_by)); };
  std::vector<std::unique_ptr<RequestState>> held;
  for (const Request& request :
       {Request{.id = 20, .prompts = {{1, 2, 3}}},
        Request{.id = 21, .prompts = {{1, 2, 3}}, .deadline_seconds = 9},
        Request{.id = 22, .prompts = {{1, 2, 3}}, .service = Service::kInteractive}})
    held.push_back(MakeRequestState(request, {.max_model_len = 64}));
  queue.Return(-1, std::move(held));
  EXPECT_EQ(next(-schedule::kNoDeadline), 22) << "batches give way to who comes from there, too";
  EXPECT_EQ(next(-schedule::kNoDeadline), -1);
  source.people_ = 1;
  EXPECT_EQ(next(schedule::kNoDeadline), 10) << "nor does what was given back pass people";
  EXPECT_EQ(next(9), 21);
  source.people_ = 1;
  EXPECT_EQ(IdOf(queue.NextBatch(0)), 20) << "but a batch never stands still";
  EXPECT_EQ(next(schedule::kNoDeadline), 10);
  EXPECT_EQ(next(schedule::kNoDeadline), 4);
}

}  // namespace
}  // namespace forebay::engine
