// A task a rank, for calls that may wait for what other ranks are yet to enqueue.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "runtime/runtime.h"

namespace forebay::engine {

// Used by one task at a time.
class RankTasks {
 public:
  // `count`: >= 1.
  RankTasks(runtime::Runtime& runtime, int count);
  ~RankTasks();
  RankTasks(const RankTasks&) = delete;

  // body(i) for each i in [0, count), 0 on the calling task, the others each on its own; until all
  // have returned.
  void Run(const std::function<void(int)>& body);

 private:
  struct Further {
    std::unique_ptr<runtime::Event> begun, ended;
    std::unique_ptr<runtime::Task> task;
  };

  const std::function<void(int)>* body_ = nullptr;  // null: tasks end
  std::vector<Further> further_;                    // [count - 1]
};

}  // namespace forebay::engine
