#include "engine/engine.h"

#include <algorithm>

#include "base/log.h"
#include "engine/counters.h"
#include "engine/refusal.h"
#include "forebay/counter_names.h"
#include "schedule/step_mode.h"

namespace forebay::engine {
LocalEngine::LocalEngine(runtime::Runtime& runtime, EngineParts parts)
    : runtime_(runtime), parts_(std::move(parts)) {
  for (const auto& group : parts_.groups) {
    for (const auto& replica : group->replicas()) replicas_.push_back(replica.get());
  }
}

// Ranks of one group may read the memory of another's.
LocalEngine::~LocalEngine() {
  for (const auto& group : parts_.groups) group->Quiesce();
}

std::unique_ptr<HandOverBoard> LocalEngine::NewHandOver() const {
  if (replicas_[0]->role() == GroupRole::kAll) return nullptr;
  std::vector<HandOverBoard::Seat> seats;
  for (const Replica* replica : replicas_)
    seats.push_back({replica->role(), replica->choices().room()});
  return std::make_unique<HandOverBoard>(runtime_, seats);
}

std::optional<RequestResult> LocalEngine::Refusal(const Request& request) const {
  return RefusalOf(request, parts_.facts);
}

RunEnd LocalEngine::Run(RequestSource& source, ResultSink& sink, RunControl& control) {
  first_result_seconds_ = -1;
  const runtime::TimeNs start = runtime_.Now();
  const auto takes = [&](size_t replica) {
    return replicas_[replica]->role() != GroupRole::kGeneration;
  };
  std::vector<RunEnd> ends(replicas_.size(), RunEnd::kComplete);
  std::vector<std::unique_ptr<RequestState>> returned;
  bool goes_on = true, lives = true;
  while (goes_on) {
    returned = RunOnce({.source = source, .sink = sink, .control = control, .start = start},
                       std::move(returned), &ends);
    goes_on = lives = false;
    for (size_t replica = 0; replica < ends.size(); ++replica) {
      lives |= takes(replica) && ends[replica] != RunEnd::kStalled;
      // It had come to its end before another one failed: it goes on with what that one held.
      goes_on |= !returned.empty() && replay_ == nullptr && takes(replica) &&
                 ends[replica] == RunEnd::kComplete;
    }
  }
  failed_ = std::ranges::count(ends, RunEnd::kStalled) > 0;
  cancellations_.Clear();
  SayWhatWasNotUsed();
  // What made the others stop comes before their stopping. Where others have done all that a
  // replica which failed has left, nothing is missing.
  const bool missing = !returned.empty() || !lives;
  for (const RunEnd end :
       {RunEnd::kSinkFailed, RunEnd::kStalled, RunEnd::kAborted, RunEnd::kDrained}) {
    if (std::ranges::count(ends, end) > 0 && (end != RunEnd::kStalled || missing)) return end;
  }
  return RunEnd::kComplete;
}

std::vector<std::unique_ptr<RequestState>> LocalEngine::RunOnce(
    const RunParts& parts, std::vector<std::unique_ptr<RequestState>> returned,
    std::vector<RunEnd>* ends) {
  const std::unique_ptr<HandOverBoard> hand_over = NewHandOver();
  EngineRun run(runtime_, {.replicas = num_replicas(),
                           .most_ahead = parts_.most_ahead,
                           .source = parts.source,
                           .sink = parts.sink,
                           .control = parts.control,
                           .replay = replay_,
                           .choices_ahead = choices_ahead_,
                           .cancellations = cancellations_,
                           .prefix_salt = prefix_salt_,
                           .facts = parts_.facts,
                           .context = parts_.context,
                           .observer = observer_,
                           .first_result_seconds = first_result_seconds_,
                           .hand_over = hand_over.get(),
                           .start = parts.start});
  run.queue().Return(-1, std::move(returned));
  struct Seat {
    Group* group;
    int replica;
  };
  std::vector<Seat> seats;  // by replica
  for (const auto& group : parts_.groups) {
    group->Begin();
    for (size_t replica = 0; replica < group->replicas().size(); ++replica)
      seats.push_back({group.get(), static_cast<int>(replica)});
  }
  const auto run_replica = [&](size_t i) {
    const auto& [group, replica] = seats[i];
    if ((*ends)[i] == RunEnd::kStalled) return;
    (*ends)[i] = group->Run(replica, run);
  };
  std::vector<std::unique_ptr<runtime::Task>> tasks;
  for (size_t i = 0; i < seats.size(); ++i) {
    if ((*ends)[i] == RunEnd::kStalled) seats[i].group->Leave(seats[i].replica, run);
    // They get their requests from context replicas, and must not have a share in the queue's.
    if (replicas_[i]->role() == GroupRole::kGeneration) run.queue().Leave(static_cast<int>(i));
  }
  for (size_t i = 1; i < seats.size(); ++i) {
    tasks.push_back(runtime_.Spawn({.name = fmt::format("replica {}", i)},
                                   [&run_replica, i] { run_replica(i); }));
  }
  run_replica(0);
  for (const auto& task : tasks) task->Join();
  returned = run.TakeReturned();
  choices_ahead_ = 0;
  for (const auto& group : parts_.groups) group->End();
  return returned;
}

void LocalEngine::Learn(std::span<const schedule::EarlierAnswer> answers) {
  if (parts_.earlier) parts_.earlier->insert(parts_.earlier->end(), answers.begin(), answers.end());
}

EngineStats LocalEngine::stats() const {
  EngineStats stats = ReadStats({.replicas = replicas_,
                                 .isa = parts_.isa,
                                 .pool_layers = parts_.pool_layers,
                                 .expected = parts_.expected,
                                 .least_steps = parts_.least_steps,
                                 .forced_offload = parts_.forced_offload != nullptr});
  stats.first_result_seconds = first_result_seconds_;
  return stats;
}

Meters LocalEngine::meters() const {
  Meters sum{.choices_ahead = choices_ahead_};
  for (const Replica* replica : replicas_) sum.Add(replica->published().meters);
  return sum;
}

void LocalEngine::SayWhatWasNotUsed() const {
  if (parts_.forced_offload == nullptr) return;
  const EngineStats all = stats();
  if (all.steps == 0 || all.counter(counter_names::kOffloadUnused) == 0) return;
  // All of them fitted, else some would have been.
  base::Log(
      base::LogLevel::kWarning,
      fmt::format("--kv-offload {}: nothing was streamed in {} steps, since running choices "
                  "never held more than {} of the device's {} blocks of KV cache",
                  parts_.forced_offload, all.steps, all.kv_blocks_used_peak, all.kv_blocks_total));
}

base::Status LocalEngine::CheckCounters() const {
  const EngineStats all = stats();
  if (all.steps == 0) return {};
  for (const StepMode& mode : parts_.forced_modes) {
    const std::string counter = schedule::StepsCounter(mode);
    if (all.counter(counter).value_or(0) > 0) continue;
    const bool roles = parts_.facts.context_ranks < parts_.facts.ranks;
    return {kModeNotTaken,
            fmt::format("{} {}: none of {} steps was taken so ({} is 0); expected one at least",
                        roles ? "--mode or --generation-mode" : "--mode", schedule::Name(mode),
                        all.steps, counter)};
  }
  if (all.counter(counter_names::kOffloadUnused).value_or(0) > 0) {
    return {kOffloadUnused,
            fmt::format("--kv-offload {}: none of {} steps streamed a block (kv_blocks_streamed is "
                        "0); expected one at least, or auto",
                        parts_.forced_offload, all.steps)};
  }
  // A model without experts has no such counter.
  if (all.counter(counter_names::kRowsRouted).value_or(1) > 0) return {};
  return {kExpertsNotReached,
          fmt::format("{}: {} rows were computed and none went through an expert (rows_routed is "
                      "0); expected each to go through those that its routers chose",
                      parts_.facts.name, all.computed_tokens)};
}

std::vector<device::OpProfile> LocalEngine::Profile() const {
  std::vector<device::OpProfile> all;
  for (const Replica* replica : replicas_) {
    for (const auto& rank : replica->ranks()) {
      for (const device::OpProfile& op : rank->device().Profile()) device::AddCalls(op, &all);
    }
  }
  return all;
}

std::vector<RankReport> LocalEngine::Reports() const {
  std::vector<RankReport> reports;
  std::vector<const device::Device*> devices;
  for (const Replica* replica : replicas_) {
    for (const auto& rank : replica->ranks()) {
      device::Device& device = rank->device();
      reports.push_back({.replica = replica->index(),
                         .role = replica->role(),
                         .time = rank->compute_time(),
                         .profile = device.ProfileOf(device.compute())});
      if (const kernels::RoutingCounters* const routed = rank->routed())
        reports.back().expert_rows.assign(routed->rows_of.begin(), routed->rows_of.end());
      devices.push_back(&device);
    }
  }
  for (size_t rank = 0; rank < reports.size(); ++rank) {
    for (const device::Device* const peer : devices)
      reports[rank].bytes_from.push_back(devices[rank]->BytesFrom(*peer));
  }
  return reports;
}

}  // namespace forebay::engine
