#include "weights/book/pool_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "base/rng.h"
#include "weights/book/testing/tiles.h"

namespace forebay::weights {
namespace {

using testing::ElementsAre;

PoolBook ScheduledBook(const char* placement, int members, int64_t layers, int64_t pooled,
                       int pieces = 1) {
  PlacementGroup group{.num_members = members,
                       .pool_index = SpreadPool(layers, pooled),
                       .kinds = {FfnTiles(8, 2, 3)}};
  if (pieces == 1) {
    group.kinds[0].num_pieces = 1;
    for (TileRun& run : group.kinds[0].runs) run.piece = 0;
  }
  return PoolBook(FindPlacement(placement)->Make(), group);
}

std::vector<int64_t> Layers(const PoolBook& book, int member, FetchOrder order,
                            int64_t slots = 100) {
  std::vector<int64_t> layers;
  const PoolSchedule schedule = *PoolSchedule::Create(book, member, order, slots);
  for (const Fetch& fetch : schedule.fetches()) layers.push_back(fetch.layer);
  return layers;
}

TEST(PoolSchedule, PeakShiftingIsThePapers) {
  const PoolBook book = ScheduledBook("by_layer", 4, 10, 10);
  EXPECT_THAT(Layers(book, 0, FetchOrder::kPeakShifted), ElementsAre(1, 2, 3, 5, 6, 7, 9));
  EXPECT_THAT(Layers(book, 1, FetchOrder::kPeakShifted), ElementsAre(2, 3, 0, 6, 7, 4, 8));
  EXPECT_THAT(Layers(book, 2, FetchOrder::kPeakShifted), ElementsAre(3, 0, 1, 7, 4, 5, 8, 9));
  EXPECT_THAT(Layers(book, 3, FetchOrder::kPeakShifted), ElementsAre(0, 1, 2, 4, 5, 6, 9, 8));
  EXPECT_THAT(Layers(book, 2, FetchOrder::kAsUsed), ElementsAre(0, 1, 3, 4, 5, 7, 8, 9));
  // Two members have nothing to shift.
  EXPECT_THAT(Layers(ScheduledBook("by_layer", 2, 4, 4), 1, FetchOrder::kPeakShifted),
              ElementsAre(0, 2));
  // Cycles are of pooled layers: 1, 3, 5, 7 of 8.
  EXPECT_THAT(Layers(ScheduledBook("by_layer", 4, 8, 4), 1, FetchOrder::kPeakShifted),
              ElementsAre(5, 7, 1));
}

// At each moment of a full cycle, the members that keep pace fetch from different owners.
TEST(PoolSchedule, PeakShiftingSpreadsTheOwners) {
  const PoolBook book = ScheduledBook("by_layer", 8, 32, 32);
  for (int64_t fetch = 0; fetch < 28; ++fetch) {
    std::vector<int> load(8, 0);
    for (int member = 0; member < 8; ++member) {
      const auto schedule = PoolSchedule::Create(book, member, FetchOrder::kPeakShifted, 7);
      ++load[schedule->fetches()[fetch].layer % 8];
    }
    EXPECT_THAT(load, testing::Each(1)) << "fetch " << fetch;
  }
}

TEST(PoolSchedule, SlotsAreAFunctionOfThePhase) {
  const auto schedule =
      PoolSchedule::Create(ScheduledBook("striped", 4, 6, 6), 2, FetchOrder::kAsUsed, 4);
  EXPECT_EQ(schedule->num_fetches(), 6);
  EXPECT_EQ(schedule->FetchOf(3, 0), 3);
  EXPECT_EQ(schedule->SlotOf(3, 0), 3);
  EXPECT_EQ(schedule->NextPhase(0), 2);
  EXPECT_EQ(schedule->SlotOf(3, 2), 1);
  EXPECT_EQ(schedule->NextPhase(2), 0);
  EXPECT_EQ(schedule->num_phases(), 2);
  EXPECT_EQ(PoolSchedule::Create(ScheduledBook("by_layer", 4, 6, 6), 1, FetchOrder::kAsUsed, 2)
                ->FetchOf(1, 0),
            -1);
}

TEST(PoolSchedule, TooFewSlotsAreRefused) {
  const PoolBook book = ScheduledBook("by_layer", 8, 32, 32);
  EXPECT_EQ(PoolSchedule::MinSlots(book, 0, FetchOrder::kPeakShifted), 1);
  // layer 0 comes last of seven
  EXPECT_EQ(PoolSchedule::MinSlots(book, 1, FetchOrder::kPeakShifted), 7);
  EXPECT_EQ(PoolSchedule::MinSlots(book, 4, FetchOrder::kAsUsed), 1);
  EXPECT_EQ(
      PoolSchedule::MinSlots(ScheduledBook("by_layer", 8, 32, 32, 2), 1, FetchOrder::kPeakShifted),
      14);
  const base::Status status = PoolSchedule::Create(book, 1, FetchOrder::kPeakShifted, 6).status();
  EXPECT_EQ(status.code(), kTooFewSlots);
  EXPECT_THAT(status.message(),
              testing::HasSubstr("rank 1 has 6 weight slots, its order of fetches needs 7"));
}

TEST(PoolSchedule, SlotsFollowTheSettings) {
  const PoolBook book = ScheduledBook("by_layer", 4, 12, 12, 2);
  const uint64_t slot = book.SlotBytes(0);
  EXPECT_EQ(*ChooseSlots(book, 0, FetchOrder::kAsUsed, {}), 18);
  EXPECT_EQ(*ChooseSlots(book, 0, FetchOrder::kAsUsed, {.budget_bytes = 5 * slot + 1}), 5);
  // 260 bytes in slots of 100, and one
  EXPECT_EQ(*ChooseSlots(book, 0, FetchOrder::kAsUsed, {.look_ahead_layers = 2}), 3);
  EXPECT_EQ(*ChooseSlots(book, 0, FetchOrder::kAsUsed, {.look_ahead_bytes = 3 * slot}), 4);
  EXPECT_EQ(*ChooseSlots(book, 3, FetchOrder::kPeakShifted, {.look_ahead_layers = 1}), 2);
  // the order's least
  EXPECT_EQ(*ChooseSlots(book, 1, FetchOrder::kPeakShifted, {.look_ahead_layers = 1}), 6);
  EXPECT_EQ(*ChooseSlots(book, 3, FetchOrder::kPeakShifted, {.least = 6, .look_ahead_layers = 1}),
            6);
  EXPECT_EQ(*ChooseSlots(ScheduledBook("by_layer", 1, 4, 4), 0, FetchOrder::kAsUsed, {}), 1);
  const base::Status status =
      ChooseSlots(book, 1, FetchOrder::kPeakShifted, {.budget_bytes = 4 * slot}).status();
  EXPECT_EQ(status.code(), kTooFewSlots);
  EXPECT_THAT(status.message(), testing::HasSubstr("holds 4 slots"));
}

// The two streams of a member, with events as the device has them: a record marks a place in its
// stream, a wait enqueued after it holds the other stream until that place is reached. Which stream
// moves is drawn; a copy and a kernel overlap.
class SlotLife {
 public:
  SlotLife(const PoolSchedule& schedule, uint64_t seed, bool consumed_too_early)
      : rng_(seed),
        early_(consumed_too_early),
        ready_(schedule.num_slots()),
        consumed_(schedule.num_slots()),
        content_(schedule.num_slots(), -1) {}

  void Copy(int64_t slot, int64_t number) {
    copies_.push_back({slot, number, consumed_[slot]});
    ready_[slot] = static_cast<int64_t>(copies_.size());
    Move(static_cast<int>(rng_.Below(4)));
  }
  void Kernel(int64_t slot, int64_t number) {
    kernels_.push_back({slot, number, ready_[slot]});
    consumed_[slot] = static_cast<int64_t>(kernels_.size()) - (early_ ? 1 : 0);
    Move(static_cast<int>(rng_.Below(4)));
  }
  void Finish() {
    while (Move(1)) {
    }
    stuck_ = copies_done_ < copies_.size() || kernels_done_ < kernels_.size();
  }

  bool right() const { return !wrong_ && !stuck_; }
  bool stuck() const { return stuck_; }

 private:
  struct Command {
    int64_t slot, number, waits_for;  // for so many commands of the other stream
    bool running = false;
  };

  bool Move(int moves) {
    bool moved = false;
    for (; moves > 0; --moves) {
      const bool copy_first = rng_.Below(2) == 0;
      moved = (copy_first ? MoveCopies() || MoveKernels() : MoveKernels() || MoveCopies());
    }
    return moved;
  }

  bool MoveCopies() {
    if (copies_done_ == copies_.size()) return false;
    Command& copy = copies_[copies_done_];
    if (copy.running) {
      content_[copy.slot] = copy.number;
      ++copies_done_;
      return true;
    }
    if (static_cast<int64_t>(kernels_done_) < copy.waits_for) return false;
    copy.running = true;
    content_[copy.slot] = -1;  // torn
    return true;
  }

  bool MoveKernels() {
    if (kernels_done_ == kernels_.size()) return false;
    Command& kernel = kernels_[kernels_done_];
    if (!kernel.running && static_cast<int64_t>(copies_done_) < kernel.waits_for) return false;
    wrong_ |= content_[kernel.slot] != kernel.number;  // when it begins and when it ends
    if (kernel.running) ++kernels_done_;
    kernel.running = true;
    return true;
  }

  base::Rng rng_;
  const bool early_;
  std::vector<int64_t> ready_, consumed_;  // [slots] place of the last record
  std::vector<int64_t> content_;           // [slots] number of the fetch
  std::vector<Command> copies_, kernels_;
  size_t copies_done_ = 0, kernels_done_ = 0;
  bool wrong_ = false, stuck_ = false;
};

// What a pool does: before each use it enqueues fetches while slots allow, sometimes no more than
// it must.
SlotLife RunSteps(const PoolBook& book, const PoolSchedule& schedule, uint64_t seed,
                  bool consumed_too_early = false) {
  base::Rng rng(seed);
  SlotLife life(schedule, seed + 1, consumed_too_early);
  FetchWindow window(schedule);
  int64_t phase = 0;
  std::vector<int64_t> number(static_cast<size_t>(schedule.num_fetches()));
  for (int step = 0; step < 4; ++step) {
    EXPECT_EQ(window.phase(), phase);
    for (int64_t layer = 0; layer < book.group().num_layers(); ++layer) {
      for (int32_t piece = 0; piece < book.group().layer(layer).num_pieces; ++piece) {
        const int64_t fetch = schedule.FetchOf(layer, piece);
        if (fetch < 0) continue;
        while (window.CanFetch() && (!window.Fetched(fetch) || rng.Below(4) > 0)) {
          const FetchWindow::Next next = window.TakeFetch();
          EXPECT_LE(window.ahead(), schedule.num_slots());
          life.Copy(next.slot, next.number);
        }
        EXPECT_TRUE(window.Fetched(fetch)) << "the copies wait for kernels that wait for them";
        if (!window.Fetched(fetch)) return life;
        const int64_t slot = window.SlotOf(fetch);
        EXPECT_EQ(slot, schedule.SlotOf(fetch, phase));
        life.Kernel(slot, step * schedule.num_fetches() + fetch);
        window.Use(fetch);
      }
    }
    window.EndStep();
    phase = schedule.NextPhase(phase);
  }
  life.Finish();
  return life;
}

struct RandomCase {
  PoolBook book;
  PoolSchedule schedule;
};
RandomCase Draw(base::Rng& rng) {
  const char* const placements[] = {"by_layer", "striped", "sharded"};
  const auto members = static_cast<int>(2 + rng.Below(7));
  const auto layers = static_cast<int64_t>(1 + rng.Below(20)),
             pooled = static_cast<int64_t>(1 + rng.Below(layers));
  PoolBook book = ScheduledBook(placements[rng.Below(3)], members, layers, pooled,
                                static_cast<int>(1 + rng.Below(2)));
  const auto member = static_cast<int>(rng.Below(members));
  const FetchOrder order = rng.Below(2) == 0 ? FetchOrder::kAsUsed : FetchOrder::kPeakShifted;
  const int64_t slots =
      PoolSchedule::MinSlots(book, member, order) + static_cast<int64_t>(rng.Below(6));
  PoolSchedule schedule = *PoolSchedule::Create(book, member, order, slots);
  return {std::move(book), std::move(schedule)};
}

TEST(PoolSchedule, NoSlotIsOverwrittenBeforeItWasConsumed) {
  base::Rng rng(7);
  for (int round = 0; round < 3000 && !testing::Test::HasFailure(); ++round) {
    const RandomCase drawn = Draw(rng);
    EXPECT_TRUE(RunSteps(drawn.book, drawn.schedule, rng.Next()).right()) << "round " << round;
  }
}

TEST(PoolSchedule, ConsumedTooEarlyIsFound) {
  base::Rng rng(8);
  int found = 0;
  for (int round = 0; round < 300; ++round) {
    const RandomCase drawn = Draw(rng);
    const SlotLife life = RunSteps(drawn.book, drawn.schedule, rng.Next(), true);
    EXPECT_FALSE(life.stuck());
    found += !life.right();
  }
  EXPECT_GT(found, 50);
}

}  // namespace
}  // namespace forebay::weights
