#include <gtest/gtest.h>

#include "schedule/policy.h"

namespace forebay::schedule {
namespace {

bool HandOut(const QueueView& view) { return (*CreatePolicy("continuous"))->HandOut(view); }

TEST(HandOut, AReplicaHoldsNoMoreThanItsShare) {
  struct Row {
    QueueView view;
    bool expected;
  };
  const Row rows[] = {
      {{.replicas = 1, .remaining = 5, .held = 100, .held_by_all = 100}, true},
      {{.replicas = 8, .remaining = 500, .held = 0, .held_by_all = 0}, true},
      {{.replicas = 8, .remaining = 438, .held = 62, .held_by_all = 62}, true},   // of 500 each gets 62 or 63
      {{.replicas = 8, .remaining = 437, .held = 63, .held_by_all = 63}, false},
      {{.replicas = 2, .remaining = 1, .held = 3, .held_by_all = 4}, false},      // the other one is behind
      {{.replicas = 2, .remaining = 1, .held = 1, .held_by_all = 4}, true},
      {{.replicas = 4, .remaining = 1, .held = 0, .held_by_all = 90}, true},      // holds nothing
      {{.replicas = 4, .remaining = -1, .held = 90, .held_by_all = 90}, true},    // a stream without an end
  };
  for (const Row& row : rows) {
    EXPECT_EQ(HandOut(row.view), row.expected) << row.view.replicas << " " << row.view.remaining << " " << row.view.held;
  }
}

}  // namespace
}  // namespace forebay::schedule
