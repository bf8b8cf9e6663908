#include "job/lease_book.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <queue>
#include <random>
#include <string>
#include <tuple>

namespace forebay::job {
namespace {

using Kind = LeaseAction::Kind;

LeaseBook MakeBook(const std::vector<bool>& done, LeaseOptions options = {}) {
  return LeaseBook([](int64_t) { return 1; }, done, options);
}
LeaseBook MakeBook(size_t lines, LeaseOptions options = {}) {
  return MakeBook(std::vector<bool>(lines), options);
}
// Lines are so long.
LeaseBook MakeBook(const std::vector<uint32_t>& lengths, const std::vector<bool>& done,
                   LeaseOptions options) {
  return LeaseBook([lengths](int64_t line) { return lengths[static_cast<size_t>(line)]; }, done,
                   options);
}

TEST(LeaseBook, LeasesAreConsecutiveAndGetSmallerAtTheEnd) {
  LeaseBook book = MakeBook(10'000);
  book.Ask(1, 0);
  size_t most = 0, leases = 0;
  std::vector<size_t> sizes;
  while (!book.complete()) {
    const auto actions = book.Ask(1, 0);
    ASSERT_EQ(actions[0].kind, Kind::kLease);
    const auto& lines = actions[0].lines;
    sizes.push_back(lines.size());
    most = std::max(most, lines.size());
    for (size_t i = 1; i < lines.size() && book.num_lines() - lines.back() > 1000; ++i)
      EXPECT_EQ(lines[i], lines[i - 1] + 1);
    for (const int64_t line : lines) book.Finish(1, line, 0);
    if (leases++ == 0) {
      for (int64_t line = 0; line < 256; ++line) book.Finish(1, line, 0);
    }
    book.CheckInvariants();
  }
  EXPECT_EQ(most, 256u);
  EXPECT_EQ(sizes.back(), 1u);
}

TEST(LeaseBook, TheLongestComeFirstAtTheEnd) {
  std::vector<uint32_t> lengths(100, 5);
  lengths[71] = 900;
  lengths[13] = 800;
  LeaseBook book = MakeBook(lengths, std::vector<bool>(100), {.least_lines = 4});
  const auto actions = book.Ask(0, 0);
  EXPECT_EQ(actions[0].lines.size(), 4u);
  EXPECT_EQ(actions[0].lines[0], 13);
  EXPECT_NE(std::ranges::find(actions[0].lines, 71), actions[0].lines.end());
}

// Workers with places for all that is left: each gets its part of it, whoever asks first.
TEST(LeaseBook, NobodyTakesAllThatIsLeft) {
  LeaseBook book = MakeBook(256);
  for (const int64_t worker : {0, 1}) book.Join(worker, 0);
  for (const int64_t worker : {0, 1}) {
    while (book.Ask(worker, 0)[0].kind == Kind::kLease) {
    }
    EXPECT_EQ(book.held(worker), 128);
  }
  book.CheckInvariants();
  // What comes back of one that leaves goes to the other.
  const auto actions = book.Leave(1, 1);
  ASSERT_FALSE(actions.empty());
  EXPECT_EQ(actions[0].worker, 0);
  while (book.Ask(0, 1)[0].kind == Kind::kLease) {
  }
  EXPECT_EQ(book.held(0), 256);
}

TEST(LeaseBook, DoneLinesAreNotLeased) {
  std::vector<bool> done(100);
  for (size_t i = 0; i < 100; i += 2) done[i] = true;
  LeaseBook book = MakeBook(done);
  int64_t leased = 0;
  for (auto actions = book.Ask(0, 0); actions[0].kind == Kind::kLease; actions = book.Ask(0, 0)) {
    for (const int64_t line : actions[0].lines) EXPECT_EQ(line % 2, 1);
    leased += static_cast<int64_t>(actions[0].lines.size());
  }
  EXPECT_EQ(leased, 50);
}

TEST(LeaseBook, ASilentWorkersLinesGoToOthersAndItsLateResultsAreCompared) {
  LeaseBook book = MakeBook(8, {.silent_after_ns = 100});
  const auto first = book.Ask(1, 0)[0].lines;
  ASSERT_FALSE(first.empty());
  const int64_t line = first[0];
  EXPECT_TRUE(book.Tick(100).empty());
  EXPECT_EQ(book.Tick(101)[0].kind, Kind::kGiveUp);
  book.CheckInvariants();
  std::vector<int64_t> again;
  while (!std::ranges::count(again, line)) again = book.Ask(2, 102)[0].lines;
  EXPECT_EQ(book.Finish(2, line, 103)[0].kind, Kind::kKeep);
  EXPECT_EQ(book.Finish(1, line, 104)[0].kind, Kind::kCompare);
  // Once more, or of a line that it never had: refused.
  EXPECT_EQ(book.Finish(1, line, 104)[0].kind, Kind::kRefuse);
  EXPECT_EQ(book.Finish(3, line, 104)[0].kind, Kind::kRefuse);
  EXPECT_EQ(book.Finish(2, 1 << 20, 104)[0].kind, Kind::kRefuse);
  book.CheckInvariants();
}

TEST(LeaseBook, IdleWorkersTakeWhatOthersAreLateWith) {
  LeaseBook book = MakeBook(4, {.least_lines = 4, .end_lines = 0});
  ASSERT_EQ(book.Ask(1, 0)[0].lines.size(), 4u);
  const auto late = book.Ask(2, 1);
  ASSERT_EQ(late[0].kind, Kind::kLease);
  EXPECT_EQ(late[0].lines, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(book.Finish(1, 3, 2)[0].kind, Kind::kKeep);
  EXPECT_EQ(book.Finish(2, 3, 2)[0].kind, Kind::kCompare);
  book.CheckInvariants();
}

TEST(LeaseBook, ALineAtWhichThreeDiedIsAnErrorAndItsNeighboursAreNot) {
  constexpr int64_t kPoison = 37;
  LeaseBook book = MakeBook(200);
  std::vector<int64_t> failed;
  int64_t deaths = 0;
  for (int64_t worker = 0; !book.complete(); ++worker) {
    ASSERT_LT(worker, 1000);
    bool dead = false;
    while (!dead && !book.complete()) {
      const auto actions = book.Ask(worker, 0);
      if (actions[0].kind != Kind::kLease) break;
      for (const int64_t line : actions[0].lines) {
        dead = dead || line == kPoison;
        if (!dead) book.Finish(worker, line, 0);
      }
    }
    if (!dead) break;
    ++deaths;
    for (const LeaseAction& action : book.Die(worker, 0)) {
      if (action.kind == Kind::kFail) failed.push_back(action.line);
    }
    book.CheckInvariants();
  }
  EXPECT_EQ(failed, std::vector<int64_t>{kPoison});
  EXPECT_EQ(deaths, LeaseBook::kMostDeaths);
  EXPECT_TRUE(book.complete());
}

// Workers that ask, answer, die, fall silent, come back, and answer what they should not.
TEST(LeaseBook, RandomEvents) {
  int64_t events = 0, compared = 0, refused = 0, given_up = 0, failed = 0;
  for (uint64_t seed = 0; events < 100'000; ++seed) {
    std::mt19937_64 random(seed);
    const auto below = [&](uint64_t n) { return static_cast<int64_t>(random() % n); };
    const auto lines = static_cast<size_t>(1 + below(600));
    std::vector<uint32_t> lengths(lines);
    std::vector<bool> done(lines), has_result(lines);
    for (size_t i = 0; i < lines; ++i) {
      lengths[i] = static_cast<uint32_t>(below(1000));
      has_result[i] = done[i] = below(5) == 0;
    }
    LeaseBook book = MakeBook(lengths, done,
                              {.least_lines = 1 + below(16),
                               .most_lines = 20 + below(60),
                               .silent_after_ns = 50,
                               .end_lines = below(40)});
    int64_t now = 0, next_worker = 0;
    std::map<int64_t, std::set<int64_t>> given;  // by worker, what it has not answered
    std::vector<int64_t> alive;
    const auto take = [&](const std::vector<LeaseAction>& actions) {
      for (const LeaseAction& action : actions) {
        const auto line = static_cast<size_t>(action.line);
        switch (action.kind) {
          case Kind::kLease:
            for (const int64_t each : action.lines) {
              ASSERT_FALSE(has_result[static_cast<size_t>(each)]);
              given[action.worker].insert(each);
            }
            break;
          case Kind::kKeep:
          case Kind::kFail:
            ASSERT_FALSE(has_result[line]) << "a second first result";
            has_result[line] = true;
            failed += action.kind == Kind::kFail;
            break;
          case Kind::kCompare:
            ASSERT_TRUE(has_result[line]);
            ++compared;
            break;
          case Kind::kRefuse: ++refused; break;
          case Kind::kGiveUp: ++given_up; break;
          case Kind::kWait: break;
        }
      }
    };
    for (int i = 0; i < 1500 && !book.complete(); ++i, ++events) {
      now += below(4);
      if (alive.empty() || below(25) == 0) alive.push_back(next_worker++);
      const int64_t worker = alive[static_cast<size_t>(below(alive.size()))];
      const std::set<int64_t>& held = given[worker];
      switch (below(12)) {
        case 0:
        case 1:
        case 2: take(book.Ask(worker, now)); break;
        case 3: take(book.Tick(now)); break;
        case 4: take(book.Hear(worker, now)); break;
        case 5: take(book.Finish(worker, below(lines), now)); break;  // perhaps not its own
        case 6:
          if (below(3) != 0) break;
          take(below(2) == 0 ? book.Die(worker, now) : book.Leave(worker, now));
          given.erase(worker);
          std::erase(alive, worker);
          break;
        default: {
          if (held.empty()) break;
          auto at = held.begin();
          std::advance(at, below(held.size()));
          const int64_t line = *at;
          given[worker].erase(line);
          take(book.Finish(worker, line, now));
        }
      }
      book.CheckInvariants();
      if (HasFatalFailure()) return;
    }
    // Whatever happened: one worker that lives ends the job.
    for (const int64_t worker : alive) take(book.Die(worker, now));
    const int64_t last = next_worker++;
    for (int i = 0; !book.complete(); ++i) {
      ASSERT_LT(i, 5000) << "seed " << seed;
      take(book.Ask(last, now));
      for (const int64_t line : std::set<int64_t>(std::exchange(given[last], {})))
        take(book.Finish(last, line, now));
    }
    book.CheckInvariants();
    EXPECT_EQ(std::ranges::count(has_result, false), 0);
  }
  EXPECT_GT(compared, 100);
  EXPECT_GT(refused, 1000);
  EXPECT_GT(given_up, 100);
  EXPECT_GT(failed, 0);
}

// Workers of 16 places that take as long for a line as it is; each likes to hold a quarter more
// than it has places for.
TEST(LeaseBook, SixtyFourWorkersAreBusyToTheEnd) {
  constexpr size_t kWorkers = 64, kPlaces = 16, kLiked = 20;
  const char* const asked = std::getenv("FOREBAY_LEASE_LINES");  // tools/soak.sh: ten million
  const size_t num_lines = asked ? std::stoul(asked) : 100'000;
  std::mt19937_64 random(7);
  std::exponential_distribution<double> of_mean_100(0.01);
  std::vector<uint32_t> lengths(num_lines);
  for (uint32_t& length : lengths)
    length = static_cast<uint32_t>(std::clamp(of_mean_100(random), 1.0, 500.0));
  LeaseBook book = MakeBook(lengths, std::vector<bool>(num_lines), {.least_lines = kPlaces / 2});

  struct Running {
    int64_t end, begin, worker, line;
    bool operator>(const Running& other) const {
      return std::tie(end, worker, line) > std::tie(other.end, other.worker, other.line);
    }
  };
  struct Worker {
    std::deque<int64_t> waiting;
    size_t running = 0;
  };
  std::priority_queue<Running, std::vector<Running>, std::greater<>> running;
  std::vector<Worker> workers(kWorkers);
  std::vector<std::pair<int64_t, int64_t>> useful;  // when a place computed a result that was kept
  int64_t now = 0;
  const auto obey = [&](const std::vector<LeaseAction>& actions) {
    for (const LeaseAction& action : actions) {
      if (action.kind != Kind::kLease) continue;
      Worker& worker = workers[static_cast<size_t>(action.worker)];
      worker.waiting.insert(worker.waiting.end(), action.lines.begin(), action.lines.end());
      for (; worker.running < kPlaces && !worker.waiting.empty(); ++worker.running) {
        const int64_t line = worker.waiting.front();
        worker.waiting.pop_front();
        running.push({now + lengths[static_cast<size_t>(line)], now, action.worker, line});
      }
    }
  };
  for (size_t worker = 0; worker < kWorkers; ++worker)
    obey(book.Ask(static_cast<int64_t>(worker), 0));
  while (!book.complete()) {
    ASSERT_FALSE(running.empty());
    const Running done = running.top();
    running.pop();
    now = done.end;
    Worker& worker = workers[static_cast<size_t>(done.worker)];
    --worker.running;
    for (const LeaseAction& action : book.Finish(done.worker, done.line, now)) {
      if (action.kind == Kind::kKeep) {
        useful.emplace_back(done.begin, done.end);
      } else {
        obey({action});
      }
    }
    obey({{Kind::kLease, done.worker}});  // the place that is free takes what waits
    while (worker.running + worker.waiting.size() < kLiked) {
      const auto actions = book.Ask(done.worker, now);
      if (actions[0].kind == Kind::kWait) break;
      obey(actions);
    }
  }
  book.CheckInvariants();
  EXPECT_EQ(useful.size(), num_lines);
  const int64_t begin = now - now / 20;
  int64_t busy = 0;
  for (const auto& [from, to] : useful) busy += std::max<int64_t>(0, to - std::max(from, begin));
  const double share =
      static_cast<double>(busy) / static_cast<double>((now - begin) * int64_t{kWorkers * kPlaces});
  RecordProperty("busy", std::to_string(share));
  EXPECT_GE(share, 0.9);
  EXPECT_LE(share, 1.0);
}

}  // namespace
}  // namespace forebay::job
