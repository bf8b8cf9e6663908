#include "engine/choice_lists.h"

#include <algorithm>

namespace forebay::engine {

ReplicaLoad ChoiceLists::load(int64_t step_rows) const {
  ReplicaLoad load{.tokens = tokens_left_,
                   .choices = static_cast<int64_t>(waiting_.size() + running_.size())};
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
  waiting_rows_ += expected_rows;
  CountLeft(*sequence);
  waiting_.push_back(sequence);
}

void ChoiceLists::LeaveQueue(Sequence* sequence) {
  waiting_rows_ -= sequence->expected_rows;
  std::erase(waiting_, sequence);
}

void ChoiceLists::StartRunning(Sequence* sequence) {
  sequence->phase = Phase::kRunning;
  running_.push_back(sequence);
  output_room_ += sequence->room();
}

void ChoiceLists::StopRunning(Sequence* sequence) {
  output_room_ -= sequence->room();
  std::erase(running_, sequence);
}

void ChoiceLists::QueuePreempted(std::span<Sequence* const> preempted) {
  for (const Sequence* sequence : preempted) waiting_rows_ += sequence->expected_rows;
  waiting_.insert(waiting_.begin(), preempted.rbegin(), preempted.rend());
}

}  // namespace forebay::engine
