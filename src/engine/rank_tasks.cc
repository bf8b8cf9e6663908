#include "engine/rank_tasks.h"

#include <fmt/core.h>

namespace forebay::engine {

RankTasks::RankTasks(runtime::Runtime& runtime, int count)
    : further_(static_cast<size_t>(count - 1)) {
  for (int i = 1; i < count; ++i) {
    Further& further = further_[static_cast<size_t>(i - 1)];
    further.begun = runtime.NewEvent(fmt::format("something to enqueue on rank {}", i));
    further.ended = runtime.NewEvent(fmt::format("rank {} has enqueued", i));
    further.task = runtime.Spawn({.name = fmt::format("rank {} enqueues", i)}, [this, i, &further] {
      while (further.begun->Wait()) {
        further.begun->Reset();
        if (body_ == nullptr) return;
        (*body_)(i);
        further.ended->Set();
      }
    });
  }
}

RankTasks::~RankTasks() {
  for (Further& further : further_) further.begun->Set();
  for (Further& further : further_) further.task->Join();
}

void RankTasks::Run(const std::function<void(int)>& body) {
  body_ = &body;
  for (Further& further : further_) further.begun->Set();
  body(0);
  for (Further& further : further_) {
    further.ended->Wait();
    further.ended->Reset();
  }
  body_ = nullptr;
}

}  // namespace forebay::engine
