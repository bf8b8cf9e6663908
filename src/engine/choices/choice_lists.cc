#include "engine/choices/choice_lists.h"

#include <algorithm>
#include <iterator>

namespace forebay::engine {

ChoiceLists::Count& ChoiceLists::CountOf(const Sequence& sequence) {
  return sequence.service() == Service::kInteractive ? interactive_ : batch_;
}

bool ChoiceLists::Before(const Sequence& a, const Sequence& b) const {
  if (!by_service_) return false;
  if (a.service() != b.service()) return a.service() == Service::kInteractive;
  return a.facts.deadline < b.facts.deadline;
}

ReplicaLoad ChoiceLists::load(int64_t step_rows) const {
  ReplicaLoad load{.tokens = tokens_left_,
                   .choices = static_cast<int64_t>(waiting_.size() + running_.size()),
                   .interactive = interactive_.running + interactive_.waiting};
  int64_t rows = 0;
  const auto add = [&](const Sequence* sequence) {
    rows += sequence->new_rows();
    if (sequence->bounded)
      load.longest_output = std::max(load.longest_output, sequence->output_left());
  };
  std::ranges::for_each(waiting_, add);
  std::ranges::for_each(running_, add);
  load.step_tokens = std::min({rows, step_rows, load.tokens});
  return load;
}

void ChoiceLists::Queue(Sequence* sequence, int64_t expected_rows) {
  sequence->expected_rows = expected_rows;
  ++CountOf(*sequence).waiting;
  CountOf(*sequence).waiting_rows += expected_rows;
  CountLeft(*sequence);
  auto at = waiting_.end();
  while (at != waiting_.begin() && Before(*sequence, **std::prev(at))) --at;
  waiting_.insert(at, sequence);
}

void ChoiceLists::LeaveQueue(Sequence* sequence) {
  --CountOf(*sequence).waiting;
  CountOf(*sequence).waiting_rows -= sequence->expected_rows;
  std::erase(waiting_, sequence);
}

void ChoiceLists::StartRunning(Sequence* sequence) {
  sequence->phase = Phase::kRunning;
  ++CountOf(*sequence).running;
  running_.push_back(sequence);
  output_room_ += sequence->room();
}

void ChoiceLists::StopRunning(Sequence* sequence) {
  output_room_ -= sequence->room();
  --CountOf(*sequence).running;
  std::erase(running_, sequence);
}

void ChoiceLists::QueuePreempted(std::span<Sequence* const> preempted) {
  for (Sequence* sequence : preempted) {
    ++CountOf(*sequence).waiting;
    CountOf(*sequence).waiting_rows += sequence->expected_rows;
    auto at = waiting_.begin();
    while (at != waiting_.end() && Before(**at, *sequence)) ++at;
    waiting_.insert(at, sequence);
  }
}

}  // namespace forebay::engine
