#include "engine/engine.h"

#include <algorithm>
#include <cmath>

#include "base/log.h"
#include "engine/refusal.h"
#include "schedule/step_mode.h"

namespace forebay::engine {
namespace {

// Sums of what `stats` counts; times are those of the replica that was busy longest.
void AddReplica(const EngineStats& stats, EngineStats* sum) {
  int64_t EngineStats::*const kSums[] = {&EngineStats::requests_finished,
                                         &EngineStats::prompt_tokens,
                                         &EngineStats::output_tokens,
                                         &EngineStats::computed_tokens,
                                         &EngineStats::recomputed_tokens,
                                         &EngineStats::cached_prompt_tokens,
                                         &EngineStats::prefix_blocks_hit,
                                         &EngineStats::preemptions,
                                         &EngineStats::requests_stolen,
                                         &EngineStats::kv_bytes_stolen,
                                         &EngineStats::requests_handed_over,
                                         &EngineStats::kv_bytes_handed_over,
                                         &EngineStats::steps,
                                         &EngineStats::decode_rows,
                                         &EngineStats::prefill_rows,
                                         &EngineStats::choices_running,
                                         &EngineStats::choices_waiting,
                                         &EngineStats::output_room,
                                         &EngineStats::output_allowed,
                                         &EngineStats::kv_blocks_used,
                                         &EngineStats::kv_blocks_total,
                                         &EngineStats::kv_blocks_used_peak};
  for (int64_t EngineStats::*const member : kSums) sum->*member += stats.*member;
  sum->step_seconds = std::max(sum->step_seconds, stats.step_seconds);
}

// What ranks that meet in their steps did: of a replica's steps the first rank of its first stage
// tells.
void AddExchanges(const Rank& rank, std::map<std::string, int64_t>* counters) {
  const model::ReplicaCut& cut = rank.cut();
  const bool tells = cut.sp > 1 && cut.first_stage() && cut.block() == 0;
  for (const auto& [degrees, decoder, exchanged] : rank.modes().all()) {
    if (exchanged->meetings > 0) {
      (*counters)["meetings"] += exchanged->meetings;
      (*counters)["bytes_all_reduce"] += exchanged->bytes_all_reduce;
      (*counters)["bytes_head"] += exchanged->bytes_head;
      if (exchanged->bytes_expert_rows > 0)
        (*counters)["bytes_expert_rows"] += exchanged->bytes_expert_rows;
      if (cut.sp > 1) (*counters)["bytes_all_to_all"] += exchanged->bytes_all_to_all;
    }
    if (!tells) continue;
    (*counters)[schedule::DegreesCounter(degrees)] += exchanged->steps;
    (*counters)["sp_pad_rows"] += exchanged->pad_rows;
  }
  if (tells) (*counters)["shift_switches"] += rank.modes().switches();
}

// What held the rank's compute stream, where others could.
void AddWaits(const Rank& rank, std::map<std::string, int64_t>* counters) {
  const WaitSeconds waits = rank.compute_time().waits;
  if (rank.pool() == nullptr && rank.window() == nullptr && waits.total() == 0) return;
  (*counters)["compute_waited_us"] += std::llround(waits.total() * 1e6);
  for (int i = 0; i < kNumWaitCauses; ++i) {
    const auto cause = static_cast<WaitCause>(i);
    (*counters)[fmt::format("waited_{}_us", Name(cause))] += std::llround(waits[cause] * 1e6);
  }
}

// How the rank reached weights that it shares.
void AddModes(const Rank& rank, std::map<std::string, int64_t>* counters) {
  AddExchanges(rank, counters);
  if (const kernels::RoutingCounters* const routed = rank.routed()) {
    (*counters)["rows_routed"] += routed->rows;
    (*counters)["experts_touched"] += routed->experts;
    (*counters)["expert_groups"] += routed->groups;
    (*counters)["experts_in_groups"] += routed->experts_in_groups;
    (*counters)["expert_busiest_rows"] += routed->busiest_rows;
  }
  AddWaits(rank, counters);
  if (rank.pool() == nullptr) return;
  const share::WeightPool& pool = *rank.pool();
  (*counters)["bytes_pulled"] += static_cast<int64_t>(rank.bytes_pulled()) + pool.bytes_wanted();
  (*counters)["bytes_pulled_ahead"] += static_cast<int64_t>(pool.bytes_ahead());
  if (pool.pools_experts()) (*counters)["merge_bytes"] += static_cast<int64_t>(pool.bytes_merged());
  if (pool.bytes_wanted() > 0) (*counters)["bytes_routed"] += pool.bytes_wanted();
  if (pool.bytes_unused() > 0) (*counters)["pulled_unused_bytes"] += pool.bytes_unused();
  for (const StepMode& mode : schedule::AllModes()) {
    const bool pulls = mode.ffn == FfnMode::kPull;
    // All that a rank lacks comes in steps that gather, too.
    const int64_t steps = pulls ? pool.steps() : rank.modes().steps(mode.ffn);
    if (steps > 0 || pulls || (rank.ship() && rank.ship()->mode().ffn == mode.ffn))
      (*counters)[schedule::StepsCounter(mode)] += steps;
  }
  (*counters)["copy_core_us"] += std::llround(rank.copy_time().core * 1e6);
  if (rank.ship() == nullptr) return;
  const share::ShipCounters& shipped = rank.ship()->counters();
  (*counters)["rows_shipped"] += shipped.rows;
  (*counters)["rows_skipped"] += shipped.rows_skipped;
  (*counters)["bytes_shipped"] += shipped.bytes + shipped.experts.bytes;
  (*counters)["ship_meetings"] += shipped.meetings;
  // Who gathers rows counts them, and who gets them back.
  if (shipped.experts.rows_sent == 0 && shipped.experts.rows_returned == 0) return;
  (*counters)["expert_rows_sent"] += shipped.experts.rows_sent;
  (*counters)["expert_rows_returned"] += shipped.experts.rows_returned;
}

// What went below the device and came back.
void AddTier(const Replica::Published& replica, std::map<std::string, int64_t>* counters) {
  const auto add = [&](const char* name, int64_t count) { (*counters)[name] += count; };
  add("kv_parks", replica.park.parks);
  add("kv_returns", replica.park.returns);
  add("kv_parked_gifts", replica.park.gifts);
  add("kv_parks_refused", replica.park.refused);
  add("kv_parks_not_worth_it", replica.park.recomputed);
  add("kv_blocks_stored", replica.park.tier.stored);
  add("kv_blocks_found_below", replica.park.tier.found);
  add("kv_blocks_up", replica.park.blocks_up);
  add("kv_blocks_evicted_down", replica.park.evicted);
  add("prefix_blocks_hit_below", replica.park.prefix_blocks_hit);
  add("kv_blocks_lost", replica.park.tier.evicted);
  add("kv_bytes_down", static_cast<int64_t>(replica.tier.down));
  add("kv_bytes_up", static_cast<int64_t>(replica.tier.up));
  if (replica.tier.in_file) {
    add("kv_blocks_failed", replica.park.failed);
    add("kv_blocks_kept", replica.park.kept);
    add("kv_file_bytes_written", static_cast<int64_t>(replica.tier.written));
    add("kv_file_bytes_read", static_cast<int64_t>(replica.tier.read));
  }
  if (replica.tier.in_both) {
    add("kv_blocks_to_file", replica.park.tier.demoted);
    add("kv_blocks_up_from_file", replica.park.blocks_up_far);
  }
  if (replica.streaming.places > 0) {
    add("kv_stream_places", replica.streaming.places);
    add("kv_stream_limit", replica.streaming.limit);
    add("kv_stream_limit_least", replica.streaming.least);
    add("kv_stream_shrinks", replica.streaming.shrinks);
    add("kv_blocks_brought_back", replica.park.brought_back);
    add("kv_blocks_streamed", replica.tier.block_steps);
    add("kv_bytes_streamed", static_cast<int64_t>(replica.tier.streamed));
  }
  add("kv_copy_core_us", std::llround(replica.tier.core_seconds * 1e6));
}

ReplicaStats StatsOf(const Replica& replica) {
  const auto [stats, mode, park, tier, streaming, meters] = replica.published();
  return {.role = replica.role(),
          .steps = stats.steps,
          .tokens = stats.computed_tokens,
          .choices_running = stats.choices_running,
          .choices_waiting = stats.choices_waiting,
          .busy_seconds = stats.step_seconds,
          .mode = mode};
}

// What a pipeline stage did while a step was in flight. Idle: it had no rows, or waited for other
// ranks.
void AddStage(const Rank& rank, double step_seconds, std::map<std::string, int64_t>* counters) {
  if (rank.cut().pp == 1) return;
  const double busy = rank.compute_time().busy;
  const std::string stage = fmt::format("stage{}_", rank.cut().stage);
  (*counters)[stage + "busy_ms"] += std::lround(1e3 * busy);
  (*counters)[stage + "idle_ms"] += std::lround(1e3 * std::max(0.0, step_seconds - busy));
}

}  // namespace

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
  const std::unique_ptr<HandOverBoard> hand_over = NewHandOver();
  EngineRun run(runtime_, {.replicas = num_replicas(),
                           .most_ahead = parts_.most_ahead,
                           .source = source,
                           .sink = sink,
                           .control = control,
                           .replay = replay_,
                           .cancellations = cancellations_,
                           .prefix_salt = prefix_salt_,
                           .facts = parts_.facts,
                           .context = parts_.context,
                           .observer = observer_,
                           .first_result_seconds = first_result_seconds_,
                           .hand_over = hand_over.get()});
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
  for (const Replica* replica : replicas_) {
    // They get their requests from context replicas, and must not have a share in the queue's.
    if (replica->role() == GroupRole::kGeneration) run.queue().Leave(replica->index());
  }
  std::vector<RunEnd> ends(seats.size(), RunEnd::kComplete);
  const auto run_replica = [&](size_t i) { ends[i] = seats[i].group->Run(seats[i].replica, run); };
  std::vector<std::unique_ptr<runtime::Task>> tasks;
  for (size_t i = 1; i < seats.size(); ++i) {
    tasks.push_back(runtime_.Spawn({.name = fmt::format("replica {}", i)},
                                   [&run_replica, i] { run_replica(i); }));
  }
  run_replica(0);
  for (const auto& task : tasks) task->Join();
  for (const auto& group : parts_.groups) group->End();
  cancellations_.Clear();
  SayWhatWasNotUsed();
  // What made the others stop comes before their stopping.
  for (const RunEnd end :
       {RunEnd::kSinkFailed, RunEnd::kStalled, RunEnd::kAborted, RunEnd::kDrained}) {
    if (std::ranges::count(ends, end) > 0) return end;
  }
  return RunEnd::kComplete;
}

void LocalEngine::Learn(std::span<const schedule::EarlierAnswer> answers) {
  if (parts_.earlier) parts_.earlier->insert(parts_.earlier->end(), answers.begin(), answers.end());
}

EngineStats LocalEngine::stats() const {
  EngineStats sum = replicas_[0]->published().stats;
  for (size_t i = 1; i < replicas_.size(); ++i) AddReplica(replicas_[i]->published().stats, &sum);
  sum.first_result_seconds = first_result_seconds_;
  sum.mode_counters = {{"steps." + parts_.isa, sum.steps},
                       {"rows_decode", sum.decode_rows},
                       {"rows_prefill", sum.prefill_rows}};
  if (num_replicas() > 1) {
    sum.mode_counters["requests_stolen"] = sum.requests_stolen;
    sum.mode_counters["kv_bytes_stolen"] = sum.kv_bytes_stolen;
  }
  if (replicas_[0]->role() != GroupRole::kAll) {
    sum.mode_counters["requests_handed_over"] = sum.requests_handed_over;
    sum.mode_counters["kv_bytes_handed_over"] = sum.kv_bytes_handed_over;
  }
  if (replicas_[0]->ranks()[0]->pool() != nullptr)
    sum.mode_counters["pool_layers"] = parts_.pool_layers;
  if (parts_.expected_ms > 0) sum.mode_counters["expected_ms"] = parts_.expected_ms;
  if (parts_.least_steps > 0) sum.mode_counters["least_steps"] = parts_.least_steps;
  for (const Replica* replica : replicas_) {
    for (const auto& rank : replica->ranks()) {
      AddModes(*rank, &sum.mode_counters);
      AddStage(*rank, replica->published().stats.step_seconds, &sum.mode_counters);
    }
    if (replica->ranks()[0]->tier() != nullptr) AddTier(replica->published(), &sum.mode_counters);
    if (num_replicas() > 1) sum.replicas.push_back(StatsOf(*replica));
  }
  if (parts_.forced_offload != nullptr)
    sum.mode_counters["kv_offload_unused"] = sum.mode_counters["kv_blocks_streamed"] == 0;
  return sum;
}

Meters LocalEngine::meters() const {
  Meters sum;
  for (const Replica* replica : replicas_) sum.Add(replica->published().meters);
  return sum;
}

void LocalEngine::SayWhatWasNotUsed() const {
  if (parts_.forced_offload == nullptr) return;
  const EngineStats all = stats();
  if (all.steps == 0 || all.mode_counters.at("kv_offload_unused") == 0) return;
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
    const auto found = all.mode_counters.find(counter);
    if (found != all.mode_counters.end() && found->second > 0) continue;
    const bool roles = parts_.facts.context_ranks < parts_.facts.ranks;
    return {kModeNotTaken,
            fmt::format("{} {}: none of {} steps was taken so ({} is 0); expected one at least",
                        roles ? "--mode or --generation-mode" : "--mode", schedule::Name(mode),
                        all.steps, counter)};
  }
  if (parts_.forced_offload != nullptr && all.mode_counters.at("kv_offload_unused") > 0) {
    return {kOffloadUnused,
            fmt::format("--kv-offload {}: none of {} steps streamed a block (kv_blocks_streamed is "
                        "0); expected one at least, or auto",
                        parts_.forced_offload, all.steps)};
  }
  const auto routed = all.mode_counters.find("rows_routed");  // none: there are no experts
  if (routed == all.mode_counters.end() || routed->second > 0) return {};
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
