#include "choose/job_forecast.h"

#include <algorithm>
#include <cmath>
#include <deque>

#include "base/check.h"
#include "schedule/packing.h"

namespace forebay::choose {
namespace {

// Waiting choices that a step of a stage is shown at most: more do not fit into one.
constexpr size_t kMostWaiting = 64;
constexpr int64_t kMostStepsAhead = 8;
constexpr double kBackToPull = 1.25;  // times the threshold, as in GroupControl

struct ChoiceForecast {
  layout::ChoiceShape shape;
  int64_t known = 0, computed = 0, blocks = 0;

  int64_t generated() const { return known - shape.prompt; }
  int64_t remaining() const { return shape.output - generated(); }
  bool decoding() const { return known - computed == 1 && generated() > 0; }
};

class ReplicaForecast {
 public:
  explicit ReplicaForecast(const ForecastQuestion& question) : question_(question) {
    view_.limits = question.limits;
  }

  void Give(const layout::ChoiceShape& shape) {
    waiting_.push_back({.shape = shape, .known = shape.prompt});
  }
  bool works() const { return !running_.empty() || !waiting_.empty(); }
  // Rows of its latest step.
  int64_t rows() const { return works() ? load_.rows() : 0; }

  // Plans the next step where it is not planned yet. Returns how many equal steps come, at most.
  int64_t Plan() {
    if (!planned_) Look(), question_.policy->Plan(view_, &plan_), Count();
    planned_ = true;
    return equal_steps_;
  }
  const price::StepLoad& load() const { return load_; }
  // The step that comes `later` equal steps after the planned one.
  price::StepLoad LoadAfter(int64_t later) const {
    price::StepLoad load = load_;
    load.sums.decode_context += later * load.sums.decode_rows;
    return load;
  }
  // Takes so many of the equal steps.
  void Take(int64_t steps, JobForecast* total);

  double clock = 0;
  double latest_seconds = 0;  // what its latest step took

 private:
  void Look();
  void Count();
  void Compute(ChoiceForecast& choice, int64_t rows) {
    choice.computed += rows;
    choice.blocks = std::max(choice.blocks, schedule::BlocksFor(choice.computed, question_.limits));
  }

  const ForecastQuestion& question_;
  std::vector<ChoiceForecast> running_;
  std::deque<ChoiceForecast> waiting_;
  schedule::StepView view_;
  schedule::StepPlan plan_;
  price::StepLoad load_;
  int64_t equal_steps_ = 1;
  int64_t ended_ = 0, ended_tokens_ = 0;
  bool planned_ = false;
};

void ReplicaForecast::Look() {
  view_.running.clear();
  view_.waiting.clear();
  view_.available_blocks = question_.limits.total_blocks;
  if (ended_ > 0)
    view_.mean_tokens = static_cast<double>(ended_tokens_) / static_cast<double>(ended_);
  for (const ChoiceForecast& choice : running_) {
    view_.available_blocks -= choice.blocks;
    view_.running.push_back({.known_tokens = choice.known,
                             .generated = choice.generated(),
                             .computed_tokens = choice.computed,
                             .reserved_blocks = choice.blocks,
                             .exclusive_blocks = choice.blocks,
                             .remaining_output = choice.shape.bound - choice.generated(),
                             .decoding = choice.decoding()});
  }
  const size_t shown = kMostWaiting * static_cast<size_t>(question_.stages);
  for (size_t i = 0; i < std::min(shown, waiting_.size()); ++i) {
    const ChoiceForecast& choice = waiting_[i];
    view_.waiting.push_back({.known_tokens = choice.known,
                             .remaining_output = choice.shape.bound - choice.generated()});
  }
}

// The load of the planned step, and how many steps repeat it: steps that only decode, until a
// choice ends or the blocks do. What could not be admitted cannot be before.
void ReplicaForecast::Count() {
  FB_CHECK(!plan_.run.empty() || !plan_.admit.empty(), "{} plans nothing while {} choices wait",
           question_.policy->name(), waiting_.size());
  load_ = {};
  const auto add = [&](const ChoiceForecast& choice, int64_t rows) {
    load_.sums.Add(choice.computed, rows);
    load_.sampled += choice.computed + rows == choice.known ? 1 : 0;
  };
  for (const schedule::RowsOf& entry : plan_.run) add(running_[entry.index], entry.rows);
  for (const schedule::RowsOf& entry : plan_.admit) add(waiting_[entry.index], entry.rows);
  equal_steps_ = 1;
  const bool only_decodes = plan_.preempt.empty() && plan_.admit.empty() &&
                            plan_.run.size() == running_.size() && load_.sums.prefill_rows == 0;
  if (!only_decodes) return;
  int64_t steps = running_.front().remaining();
  for (const ChoiceForecast& choice : running_) steps = std::min(steps, choice.remaining());
  const auto missing = [&](int64_t taken) {
    int64_t blocks = 0;
    for (const ChoiceForecast& choice : running_)
      blocks += schedule::MissingBlocks(choice.computed + taken, choice.blocks, question_.limits);
    return blocks;
  };
  // Halved, not searched: steps that are taken too few cost one more look.
  while (steps > 1 && missing(steps) > view_.available_blocks) steps /= 2;
  equal_steps_ = std::max<int64_t>(1, steps);
}

void ReplicaForecast::Take(int64_t steps, JobForecast* total) {
  planned_ = false;
  std::vector<ChoiceForecast> preempted;
  for (const int32_t index : plan_.preempt) {
    ChoiceForecast choice = running_[index];
    total->recomputed_tokens += choice.computed;
    ++total->preemptions;
    choice.computed = choice.blocks = 0;
    preempted.push_back(choice);
  }
  for (const schedule::RowsOf& entry : plan_.run) Compute(running_[entry.index], entry.rows);
  std::ranges::sort(plan_.preempt, std::ranges::greater());
  for (const int32_t index : plan_.preempt) running_.erase(running_.begin() + index);
  for (const schedule::RowsOf& entry : plan_.admit) {
    FB_CHECK(entry.index == &entry - plan_.admit.data(), "choices are admitted in order");
    running_.push_back(waiting_.front());
    waiting_.pop_front();
    Compute(running_.back(), entry.rows);
  }
  for (const ChoiceForecast& choice : preempted) waiting_.push_front(choice);
  for (ChoiceForecast& choice : running_) {
    // Its prompt is not through: no token of it comes yet.
    if (choice.computed < choice.known) continue;
    choice.known += steps;
    total->output_tokens += steps;
    if (steps > 1) Compute(choice, steps - 1);
  }
  std::erase_if(running_, [&](const ChoiceForecast& choice) {
    if (choice.remaining() > 0) return false;
    ++ended_;
    ended_tokens_ += choice.known;
    return true;
  });
}

class GroupForecast {
 public:
  explicit GroupForecast(const ForecastQuestion& question) : question_(question) {
    replicas_.reserve(static_cast<size_t>(question.replicas));
    for (int i = 0; i < question.replicas; ++i) replicas_.emplace_back(question);
    std::vector<int64_t> tokens(replicas_.size());
    for (const layout::ChoiceShape& shape : question.job) {
      // Replicas are kept level.
      const auto least = std::ranges::min_element(tokens) - tokens.begin();
      tokens[least] += shape.prompt + shape.output;
      replicas_[least].Give(shape);
    }
  }

  JobForecast Run() {
    while (std::ranges::any_of(replicas_, &ReplicaForecast::works)) {
      MeetsNow() ? TakeRound() : TakeStep(Next());
    }
    for (const ReplicaForecast& replica : replicas_)
      total_.seconds = std::max(total_.seconds, replica.clock);
    return total_;
  }

 private:
  // Who is furthest behind among those that have something to do.
  ReplicaForecast& Next() {
    ReplicaForecast* next = nullptr;
    for (ReplicaForecast& replica : replicas_) {
      if (replica.works() && (next == nullptr || replica.clock < next->clock)) next = &replica;
    }
    return *next;
  }

  // Rows of all replicas' latest steps, over those of the threshold. The rows of a round are those
  // of the steps on all stages.
  double Load() const {
    double rows = 0;
    for (const ReplicaForecast& replica : replicas_) rows += static_cast<double>(replica.rows());
    return rows /
           (question_.group.threshold * static_cast<double>(replicas_.size()) * question_.stages);
  }

  // Whether all take the next step together, or meet at least to find that they do not. The rule is
  // GroupControl's.
  bool MeetsNow() {
    const layout::GroupOptions& group = question_.group;
    if (group.num_replicas < 2 || !group.by_load) return group.num_replicas >= 2;
    if (together_) {
      for (ReplicaForecast& replica : replicas_) {
        if (replica.works()) replica.Plan();
      }
      if (Load() <= kBackToPull) return true;
      together_ = false;
      calm_steps_ = 0;
    }
    return together_ = calm_steps_ >= group.patience * working();
  }
  int64_t working() const { return std::ranges::count_if(replicas_, &ReplicaForecast::works); }

  // What steps that begin with `load` and end `steps` later take.
  template <typename Price>
  double Sum(int64_t steps, const Price& price) {
    const double first = price(0);
    return steps == 1 ? first : (first + price(steps - 1)) / 2 * static_cast<double>(steps);
  }

  // What the stages stand idle where steps become longer: of those under way that read prompts each
  // waits, on every stage, until the one before it has passed.
  double Bubble(const ReplicaForecast& replica, double seconds) const {
    const int64_t prompts = replica.load().sums.prefill_sequences;
    const auto behind = static_cast<double>(std::min<int64_t>(question_.stages, prompts) - 1);
    return std::max(0.0, behind) / question_.stages *
           std::max(0.0, seconds - replica.latest_seconds);
  }

  void TakeStep(ReplicaForecast& replica) {
    int64_t steps = replica.Plan();
    if (const layout::GroupOptions& group = question_.group; group.num_replicas > 1) {
      // None runs ahead of those that it may meet.
      steps = std::min(steps, std::clamp<int64_t>(group.patience, 1, kMostStepsAhead));
      // The steps that all are in when the load becomes low count.
      calm_steps_ = Load() < 1 ? std::max(calm_steps_ + steps * question_.stages, working()) : 0;
      if (MeetsNow()) return;  // in place of this step
    }
    const auto price = [&](int64_t later) { return question_.alone(replica.LoadAfter(later)); };
    replica.clock += Bubble(replica, price(0)) + Sum(steps, price);
    replica.latest_seconds = price(steps - 1);
    total_.steps += steps;
    replica.Take(steps, &total_);
  }

  void TakeRound() {
    int64_t steps = INT64_MAX, most = 0, most_prefill = 0;
    price::RowsOfAll all;
    double begin = 0;
    for (ReplicaForecast& replica : replicas_) {
      begin = std::max(begin, replica.clock);
      if (!replica.works()) continue;
      steps = std::min(steps, replica.Plan());
      all.rows += replica.rows();
      ++all.ranks;
      most = std::max(most, replica.rows());
      const kernels::ContextSums& sums = replica.load().sums;
      const int64_t apart = std::clamp<int64_t>(sums.prefill_sequences, 1, question_.stages);
      most_prefill = std::max(most_prefill, sums.prefill_rows / apart);
    }
    const layout::GroupOptions& group = question_.group;
    const bool ships = most <= int64_t{group.most_rows} * question_.stages &&
                       !(group.by_load && static_cast<double>(most_prefill) > group.threshold);
    // Who meets waits for the slowest, which has the most rows or the longest contexts.
    double seconds = 0;
    for (ReplicaForecast& replica : replicas_) {
      if (!replica.works()) continue;
      seconds = std::max(seconds, Sum(steps, [&](int64_t later) {
                           const price::StepLoad load = replica.LoadAfter(later);
                           return ships ? question_.together(load, all) : question_.alone(load);
                         }));
    }
    for (ReplicaForecast& replica : replicas_) {
      replica.clock = begin + seconds;
      if (!replica.works()) continue;
      total_.steps += steps;
      total_.steps_together += ships ? steps : 0;
      replica.Take(steps, &total_);
    }
  }

  const ForecastQuestion& question_;
  std::vector<ReplicaForecast> replicas_;
  JobForecast total_;
  bool together_ = false;
  int64_t calm_steps_ = 0;  // of all replicas, in a row, with a load below the threshold
};

}  // namespace

JobForecast ForecastJob(const ForecastQuestion& question) { return GroupForecast(question).Run(); }

JobForecast JobForecast::Times(double times) const {
  const auto more = [&](int64_t count) { return std::llround(static_cast<double>(count) * times); };
  return {.seconds = seconds * times,
          .output_tokens = more(output_tokens),
          .steps = more(steps),
          .steps_together = more(steps_together),
          .preemptions = more(preemptions),
          .recomputed_tokens = more(recomputed_tokens)};
}

JobSample SampleJob(std::span<const layout::ChoiceShape> job, int64_t most_choices) {
  JobSample sample;
  const auto count = static_cast<int64_t>(job.size());
  const int64_t taken = std::min(count, most_choices);
  for (int64_t i = 0; i < taken; ++i) sample.job.push_back(job[i * count / taken]);
  if (taken > 0) sample.times = static_cast<double>(count) / static_cast<double>(taken);
  return sample;
}

}  // namespace forebay::choose
