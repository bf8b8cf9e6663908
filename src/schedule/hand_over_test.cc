#include "schedule/hand_over.h"

#include <gtest/gtest.h>

#include <vector>

namespace forebay::schedule {
namespace {

TEST(HandOver, ChooseTaker) {
  struct Row {
    const char* rule;
    std::vector<TakerView> takers;
    HandedView request;
    int taker;
  };
  const TakerView busy{.free_blocks = 20, .places = 3, .running = 5};
  const auto with = [&](auto change) {
    TakerView view = busy;
    change(view);
    return view;
  };
  const Row rows[] = {
      {"nobody is there", {}, {}, -1},
      {"the one with more free blocks", {busy, with([](auto& v) { v.free_blocks = 21; })}, {4}, 1},
      {"the lower one on a tie", {busy, busy}, {4}, 0},
      {"one block more for each that runs then", {busy}, {14, 1}, 0},
      {"and not fewer", {busy}, {15, 1}, -1},
      {"a place for each choice", {busy}, {4, 3}, 0},
      {"and not fewer", {busy}, {4, 4}, -1},
      {"those that wait come first",
       {with([](auto& v) { v.waiting = 1, v.free_blocks = 99; }), busy},
       {4},
       1},
      {"one that has left", {with([](auto& v) { v.takes = false; })}, {1}, -1},
      {"an empty one takes what fits nowhere else",
       {with([](auto& v) { v.running = 0, v.free_blocks = 10; }), busy},
       {40, 9},
       0},
      {"one that has lent is not empty",
       {with([](auto& v) { v.running = 0, v.lent = 1, v.free_blocks = 10; })},
       {10, 1},
       -1},
      {"more room counts, not an empty one",
       {with([](auto& v) { v.running = 0, v.free_blocks = 10; }), busy},
       {4},
       1},
  };
  for (const Row& row : rows)
    EXPECT_EQ(ChooseTaker(row.takers, row.request), row.taker) << row.rule;
}

}  // namespace
}  // namespace forebay::schedule
