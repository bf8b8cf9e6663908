// Context replicas hand requests over to generation replicas, with every interleaving replayable:
// no request is lost or done twice, nobody waits for ever, and no KV stays lent, whoever cancels or
// dies meanwhile.
#include "engine/hand_over_board.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/rng.h"
#include "runtime/real/real_runtime.h"
#include "runtime/virtual/virtual_runtime.h"

namespace forebay::engine {
namespace {

constexpr int kBlocks = 12;  // of each replica

// A job of fake replicas. A request's prompt takes as many blocks as its line says, in either role.
class FakeJob {
 public:
  FakeJob(runtime::Runtime& runtime, uint64_t seed) : runtime_(runtime), rng_(seed) {
    contexts_ = static_cast<int>(1 + rng_.Next() % 3);
    replicas_ = contexts_ + static_cast<int>(1 + rng_.Next() % 3);
    std::vector<HandOverBoard::Seat> seats;
    for (int replica = 0; replica < replicas_; ++replica) {
      seeds_.push_back(rng_.Next());
      seats.push_back({replica < contexts_ ? GroupRole::kContext : GroupRole::kGeneration,
                       {.free_blocks = kBlocks, .places = 3}});
    }
    board_ = std::make_unique<HandOverBoard>(runtime, seats);
    requests_ = static_cast<int64_t>(rng_.Next() % 40);
    if (rng_.Next() % 3 == 0)
      dies_ = static_cast<int>(rng_.Next() % static_cast<uint64_t>(replicas_));
    dies_at_ = static_cast<int>(rng_.Next() % 30);
    cancels_ = rng_.Next() % 3 == 0;
  }

  void Run() {
    std::vector<std::unique_ptr<runtime::Task>> tasks;
    for (int replica = 0; replica < replicas_; ++replica) {
      tasks.push_back(runtime_.Spawn({.name = fmt::format("replica {}", replica)}, [this, replica] {
        replica < contexts_ ? RunContext(replica) : RunGeneration(replica);
        board_->Leave(replica);
      }));
    }
    for (const auto& task : tasks) task->Join();
    if (died_) return;
    EXPECT_TRUE(board_->done());
    EXPECT_EQ(static_cast<int64_t>(done_.size()), requests_);
    EXPECT_EQ(lent_, 0);
  }

  int64_t taken() const { return taken_; }
  int64_t withdrawn() const { return withdrawn_; }
  int64_t waited() const { return waited_; }  // for room, in a context replica
  bool died() const { return died_; }
  bool lost() const { return lost_; }

 private:
  static int32_t BlocksOf(int64_t line) { return static_cast<int32_t>(1 + line * 7 % 5); }

  bool Dies(int replica, int step) {
    if (replica != dies_ || step < dies_at_) return false;
    died_ = true;
    return true;
  }

  void Done(int64_t line) {
    const std::lock_guard lock(mutex_);
    EXPECT_TRUE(done_.insert(line).second) << "line " << line;
  }

  void Cancel() {
    if (!cancels_) return;
    for (const Gift& gift : board_->Withdraw([](int64_t id) { return id % 5 == 0; })) {
      Done(gift.state->request.id);
      for (const auto& loan : gift.loans) loan->over = true;
      ++withdrawn_;
    }
  }

  void RunContext(int replica) {
    base::Rng rng(seeds_[static_cast<size_t>(replica)]);
    std::vector<std::shared_ptr<kv::KvLoan>> loans;
    int32_t free = kBlocks;
    for (int step = 0;; ++step) {
      if (Dies(replica, step)) return;
      if (board_->lost()) {
        lost_ = true;
        return;
      }
      std::erase_if(loans, [&](const auto& loan) {
        if (!loan->over) return false;
        free += loan->blocks();
        --lent_;
        return true;
      });
      Cancel();
      const int64_t line = next_;
      if (line >= requests_) return WaitForLoans(replica, loans);
      if (BlocksOf(line) > free || rng.Next() % 3 == 0) {
        if (BlocksOf(line) > free) ++waited_;
        runtime_.Sleep(100);
        continue;
      }
      int64_t expected = line;
      if (!next_.compare_exchange_strong(expected, line + 1)) continue;
      runtime_.Sleep(static_cast<runtime::TimeNs>(rng.Next() % 500));
      Gift gift{.from = replica, .state = std::make_unique<RequestState>(), .handed_over = true};
      gift.state->request.id = line;
      gift.state->unfinished = static_cast<int32_t>(1 + rng.Next() % 2);
      auto loan = std::make_shared<kv::KvLoan>();
      loan->tables = {std::vector<kv::BlockId>(static_cast<size_t>(BlocksOf(line)))};
      loan->first_held = {0};
      loan->offered = true;
      free -= loan->blocks();
      ++lent_;
      loans.push_back(loan);
      gift.loans = {std::move(loan)};
      std::vector<Gift> gifts;
      gifts.push_back(std::move(gift));
      board_->Put(std::move(gifts));
    }
  }

  // Its own run is over; what it lent is waited for here, to count it.
  void WaitForLoans(int replica, std::vector<std::shared_ptr<kv::KvLoan>>& loans) {
    board_->Leave(replica);
    while (!loans.empty() && !died_) {
      std::erase_if(loans, [&](const auto& loan) {
        const bool over = loan->over;  // once: another thread sets it
        if (over) --lent_;
        return over;
      });
      runtime_.Sleep(100);
    }
  }

  void RunGeneration(int replica) {
    base::Rng rng(seeds_[static_cast<size_t>(replica)]);
    struct Held {
      int64_t line;
      int32_t blocks;
      int64_t choices;
    };
    std::vector<Held> held;
    for (int step = 0;; ++step) {
      schedule::TakerView room{.free_blocks = kBlocks, .places = 3};
      for (const Held& each : held) {
        room.free_blocks -= each.blocks;
        room.places -= each.choices;
        room.running += each.choices;
      }
      if (Dies(replica, step)) return;
      for (Gift& gift : board_->Take(replica, room)) {
        if (Dies(replica, step)) return;
        runtime_.Sleep(static_cast<runtime::TimeNs>(rng.Next() % 300));
        for (const auto& loan : gift.loans) {
          EXPECT_FALSE(loan->offered);
          loan->over = true;
        }
        held.push_back(
            {gift.state->request.id, BlocksOf(gift.state->request.id), gift.state->unfinished});
        ++taken_;
      }
      if (held.empty()) {
        if (board_->done()) return;
        board_->Await(replica, 5000);
        continue;
      }
      runtime_.Sleep(static_cast<runtime::TimeNs>(rng.Next() % 1000));
      if (rng.Next() % 2 == 0) continue;
      Done(held.front().line);
      held.erase(held.begin());
    }
  }

  runtime::Runtime& runtime_;
  base::Rng rng_;
  std::vector<uint64_t> seeds_;
  std::unique_ptr<HandOverBoard> board_;
  int contexts_ = 0, replicas_ = 0, dies_ = -1, dies_at_ = 0;
  bool cancels_ = false;
  int64_t requests_ = 0;
  std::mutex mutex_;
  std::set<int64_t> done_;  // lines
  std::atomic<int64_t> next_{0}, taken_{0}, withdrawn_{0}, waited_{0}, lent_{0};
  std::atomic<bool> died_{false}, lost_{false};
};

TEST(HandOverBoard, TenThousandInterleavings) {
  int64_t taken = 0, withdrawn = 0, waited = 0, died = 0, lost = 0;
  for (uint64_t seed = 0; seed < 10'000; ++seed) {
    runtime::VirtualRuntime runtime(seed);
    const base::Status status = runtime.Run([&] {
      FakeJob job(runtime, seed);
      job.Run();
      taken += job.taken();
      withdrawn += job.withdrawn();
      waited += job.waited();
      died += job.died();
      lost += job.lost();
    });
    ASSERT_TRUE(status.ok()) << "seed " << seed << ": " << status.ToString();
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
  EXPECT_GT(taken, 50'000);
  EXPECT_GT(withdrawn, 500);
  EXPECT_GT(waited, 1000);
  EXPECT_GT(died, 500);
  EXPECT_GT(lost, 50);
}

TEST(HandOverBoard, RealThreads) {
  const auto runtime = runtime::CreateRealRuntime();
  for (uint64_t seed = 0; seed < 40; ++seed) FakeJob(*runtime, seed).Run();
}

}  // namespace
}  // namespace forebay::engine
