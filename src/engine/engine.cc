#include "engine/engine.h"

#include <algorithm>
#include <cmath>

#include "base/log.h"

namespace forebay::engine {
namespace {

// How long a replica without work takes to notice that the run ends.
constexpr runtime::TimeNs kGlance = 50'000'000;
constexpr runtime::TimeNs kLoanGlance = 1'000'000;

RequestResult BadRequest(const Request& request, std::string code, std::string param, std::string message) {
  RequestResult result;
  result.line = request.line;
  result.http_status = 400;
  result.error_type = "invalid_request_error";
  result.error_code = std::move(code);
  result.error_param = std::move(param);
  result.error_message = std::move(message);
  return result;
}

// Sums of what `stats` counts; times are those of the replica that was busy longest.
void AddReplica(const EngineStats& stats, EngineStats* sum) {
  int64_t EngineStats::* const kSums[] = {
      &EngineStats::requests_finished, &EngineStats::prompt_tokens, &EngineStats::output_tokens, &EngineStats::computed_tokens,
      &EngineStats::recomputed_tokens, &EngineStats::cached_prompt_tokens, &EngineStats::prefix_blocks_hit,
      &EngineStats::preemptions, &EngineStats::requests_stolen, &EngineStats::kv_bytes_stolen, &EngineStats::steps,
      &EngineStats::decode_rows, &EngineStats::prefill_rows, &EngineStats::choices_running, &EngineStats::choices_waiting,
      &EngineStats::output_room, &EngineStats::output_allowed, &EngineStats::kv_blocks_used, &EngineStats::kv_blocks_total,
      &EngineStats::kv_blocks_used_peak};
  for (int64_t EngineStats::* const member : kSums) sum->*member += stats.*member;
  sum->step_seconds = std::max(sum->step_seconds, stats.step_seconds);
}

// How the rank reached weights that it shares.
void AddModes(const Rank& rank, std::map<std::string, int64_t>* counters) {
  if (rank.pool() == nullptr) return;
  (*counters)["bytes_pulled"] += static_cast<int64_t>(rank.bytes_pulled());
  (*counters)["bytes_pulled_ahead"] += static_cast<int64_t>(rank.pool()->bytes_ahead());
  (*counters)["steps_pull"] += rank.pool()->steps();
  (*counters)["compute_waited_us"] += std::llround(rank.compute_time().waited * 1e6);
  (*counters)["copy_core_us"] += std::llround(rank.copy_time().core * 1e6);
  if (rank.ship() == nullptr) return;
  const model::ShipCounters& shipped = rank.ship()->counters();
  (*counters)[rank.ship()->gathers() ? "steps_gather" : "steps_ship"] += shipped.steps;
  (*counters)["rows_shipped"] += shipped.rows;
  (*counters)["rows_skipped"] += shipped.rows_skipped;
  (*counters)["bytes_shipped"] += shipped.bytes;
}

ReplicaStats StatsOf(const Replica& replica) {
  const EngineStats stats = replica.stats();
  return {.steps = stats.steps,
          .tokens = stats.computed_tokens,
          .choices_running = stats.choices_running,
          .choices_waiting = stats.choices_waiting,
          .busy_seconds = stats.step_seconds,
          .mode = replica.mode()};
}

// What a pipeline stage did while a step was in flight. Idle: it had no rows, or waited for other ranks.
void AddStage(const Rank& rank, double step_seconds, std::map<std::string, int64_t>* counters) {
  if (rank.cut().pp == 1) return;
  const double busy = rank.compute_time().busy;
  const std::string stage = fmt::format("stage{}_", rank.cut().stage);
  (*counters)[stage + "busy_ms"] += std::lround(1e3 * busy);
  (*counters)[stage + "idle_ms"] += std::lround(1e3 * std::max(0.0, step_seconds - busy));
}

}  // namespace

LocalEngine::~LocalEngine() {
  // Copies read the memory of other ranks: nobody's goes before all are done.
  for (const auto& replica : parts_.replicas) {
    for (const auto& rank : replica->ranks()) rank->Quiesce();
  }
}

std::optional<RequestResult> LocalEngine::Refusal(const Request& request) const {
  for (const std::vector<int32_t>& prompt : request.prompts) {
    if (prompt.empty()) return BadRequest(request, "prompt_empty", "prompt", "the prompt has no tokens; expected at least one");
    for (const int32_t token : prompt) {
      if (token >= 0 && token < parts_.facts.vocab_size) continue;
      return BadRequest(request, "token_out_of_vocabulary", "prompt",
                        fmt::format("token id {} is outside the vocabulary of {}", token, parts_.facts.vocab_size));
    }
    const auto length = static_cast<int64_t>(prompt.size());
    const int64_t asked = request.sampling.max_tokens;
    const int64_t least = asked == 0 ? 0 : 1;
    if (length + std::max(asked, least) <= parts_.facts.max_model_len) continue;
    const std::string wanted = asked > 0 ? fmt::format(" and {} tokens of output", asked) : "";
    return BadRequest(request, "context_length_exceeded", asked > 0 ? "max_tokens" : "prompt",
                      fmt::format("This model's maximum context length is {} tokens. However, the prompt has {} tokens{}. "
                                  "Shorten the prompt or lower max_tokens.",
                                  parts_.facts.max_model_len, length, wanted));
  }
  for (const auto& [token, bias] : request.sampling.logit_bias) {
    if (token >= 0 && token < parts_.facts.vocab_size) continue;
    return BadRequest(request, "token_out_of_vocabulary", "logit_bias",
                      fmt::format("logit_bias names token id {}, outside the vocabulary of {}", token, parts_.facts.vocab_size));
  }
  return std::nullopt;
}

void LocalEngine::TakeRequests(Replica& replica, RequestQueue& queue) {
  while (!queue.ended(replica.index()) && replica.WantsRequests() && !stop_) {
    // While choices run the device must not wait for a slow line, nor others for this replica.
    queue.SetLoad(replica.index(), replica.load());
    std::optional<TakenRequest> taken = queue.Next(replica.index(), replica.steps(), replica.policy(), replica.idle() && groups_.empty());
    if (!taken) return;
    if (std::optional<RequestResult> refusal = Refusal(taken->request)) {
      queue.Finish(replica.index(), std::move(*refusal));
      continue;
    }
    replica.Take(MakeRequestState(std::move(taken->request), parts_.context, taken->expected_output));
  }
}

void LocalEngine::GiveAway(Replica& replica, Shared& run) {
  const std::optional<int> to = run.board.Claim(replica.index());
  if (!to) return;
  std::vector<Gift> gifts = replica.GiveAway(1 + run.board.askers(replica.index()));
  for (size_t i = 0; i < gifts.size(); ++i) run.queue.Move(replica.index(), *to);
  const bool any = !gifts.empty();
  run.board.Give(*to, std::move(gifts));
  GroupControl* const group = GroupOf(static_cast<size_t>(*to));
  if (any && group) group->Wake(*to % parts_.replicas_per_group);
}

base::Status LocalEngine::Receive(Replica& replica, Shared& run) {
  base::Status status;
  for (Gift& gift : run.board.Collect(replica.index())) {
    const base::Status adopted = replica.Adopt(std::move(gift));
    if (status.ok()) status = adopted;
  }
  return status;
}

bool LocalEngine::Deliver(const Replica& replica, std::vector<RequestResult>* finished, RequestQueue& queue) {
  if (!finished->empty() && first_result_seconds_ < 0) {
    first_result_seconds_ = static_cast<double>(runtime_.Now() - run_start_) * 1e-9;
  }
  for (RequestResult& result : *finished) queue.Finish(replica.index(), std::move(result));
  finished->clear();
  return !queue.sink_failed();
}

void LocalEngine::Observe(StepRecord record) {
  const double start = static_cast<double>(run_start_) * 1e-9;
  record.begin_seconds -= start;
  record.end_seconds -= start;
  const std::lock_guard lock(observer_mutex_);
  observer_->OnStep(record);
}

RunEnd LocalEngine::RunReplica(Replica& replica, Shared& run) {
  auto& [queue, board, control, failed] = run;
  std::vector<RequestResult> finished;
  while (true) {
    if (control.abort || stop_) return RunEnd::kAborted;
    if (failed[FateOf(replica)]) return RunEnd::kStalled;
    replica.ReclaimLoans();
    if (const base::Status received = Receive(replica, run); !received.ok()) return Stalled(replica, received.ToString(), run);
    const bool draining = control.drain;
    if (draining) {
      replica.DropUnstarted();
    } else {
      TakeRequests(replica, queue);
      if (queue.ended(replica.index()) && board.askers(replica.index()) > 0) GiveAway(replica, run);
    }
    const bool ended = draining || queue.ended(replica.index());
    if (!groups_.empty() && replica.idle()) {
      if (ended && parts_.steal) board.Ask(replica.index());
      const base::Result<Turn> turn = replica.StepIdle(ended);
      if (!turn.ok()) return Stalled(replica, turn.status().ToString(), run);
      if (*turn == Turn::kDone) return control.drain ? RunEnd::kDrained : RunEnd::kComplete;
      continue;
    }
    StepRecord record;
    const StepEnd end = replica.Step(&finished, observer_ ? &record : nullptr);
    if (!Deliver(replica, &finished, queue)) return RunEnd::kSinkFailed;
    if (end == StepEnd::kStalled) return Stalled(replica, replica.what_stalled(), run);
    if (end == StepEnd::kStepped && observer_) Observe(record);
    if (end == StepEnd::kLending) runtime_.Sleep(kLoanGlance);
    if (!groups_.empty() || end != StepEnd::kIdle || !(draining || queue.ended(replica.index()))) continue;
    if (!parts_.steal || board.Await(replica.index(), kGlance) == StealBoard::Answer::kDone) {
      return control.drain ? RunEnd::kDrained : RunEnd::kComplete;
    }
  }
}

size_t LocalEngine::FateOf(const Replica& replica) const {
  return static_cast<size_t>(replica.index() / parts_.replicas_per_fate);
}

GroupControl* LocalEngine::GroupOf(size_t replica) const {
  return groups_.empty() ? nullptr : groups_[replica / static_cast<size_t>(parts_.replicas_per_group)].get();
}

RunEnd LocalEngine::Stalled(const Replica& replica, const std::string& what, Shared& run) {
  // The others only say what this one has said.
  if (run.failed[FateOf(replica)].exchange(true)) return RunEnd::kStalled;
  base::Log(base::LogLevel::kError, fmt::format("replica {} stalled: {}", replica.index(), what));
  const auto index = static_cast<size_t>(replica.index());
  const base::Status why(kGroupFailed, fmt::format("replica {} failed: {}", replica.index(), what));
  if (GroupControl* const group = GroupOf(index)) group->Fail(why);
  if (parts_.replicas_per_fate > 1) parts_.fabrics[index * replica.ranks().size()]->Abort(why);
  return RunEnd::kStalled;
}

RunEnd LocalEngine::Run(RequestSource& source, ResultSink& sink, RunControl& control) {
  run_start_ = runtime_.Now();
  first_result_seconds_ = -1;
  stop_ = false;
  const auto count = static_cast<size_t>(num_replicas());
  Shared shared{.queue = {runtime_, num_replicas(), parts_.most_ahead, source, sink, replay_},
                .board = {runtime_, num_replicas(), parts_.replicas_per_group},
                .control = control,
                .failed = std::vector<std::atomic<bool>>(count)};
  groups_.clear();
  for (int first = 0; parts_.group && first < num_replicas(); first += parts_.replicas_per_group) {
    groups_.push_back(std::make_unique<GroupControl>(runtime_, *parts_.group));
  }
  for (const auto& replica : parts_.replicas) {
    replica->Join(GroupOf(static_cast<size_t>(replica->index())), replica->index() % parts_.replicas_per_group);
  }
  std::vector<RunEnd> ends(parts_.replicas.size(), RunEnd::kComplete);
  const auto run = [&](size_t i) {
    ends[i] = RunReplica(*parts_.replicas[i], shared);
    if (ends[i] == RunEnd::kSinkFailed || ends[i] == RunEnd::kAborted) stop_ = true;
    if (GroupControl* const group = GroupOf(i)) group->Leave(static_cast<int>(i) % parts_.replicas_per_group);
    shared.board.Leave(static_cast<int>(i));
    shared.queue.Leave(static_cast<int>(i));
  };
  std::vector<std::unique_ptr<runtime::Task>> tasks;
  for (size_t i = 1; i < ends.size(); ++i) {
    tasks.push_back(runtime_.Spawn({.name = fmt::format("replica {}", i)}, [&run, i] { run(i); }));
  }
  run(0);
  for (const auto& task : tasks) task->Join();
  for (const auto& replica : parts_.replicas) replica->ReclaimLoans();
  // What made the others stop comes before their stopping.
  for (const RunEnd end : {RunEnd::kSinkFailed, RunEnd::kStalled, RunEnd::kAborted, RunEnd::kDrained}) {
    if (std::ranges::count(ends, end) > 0) return end;
  }
  return RunEnd::kComplete;
}

EngineStats LocalEngine::stats() const {
  EngineStats sum = parts_.replicas[0]->stats();
  for (size_t i = 1; i < parts_.replicas.size(); ++i) AddReplica(parts_.replicas[i]->stats(), &sum);
  sum.first_result_seconds = first_result_seconds_;
  sum.mode_counters = {{"steps." + parts_.isa, sum.steps}, {"rows_decode", sum.decode_rows}, {"rows_prefill", sum.prefill_rows}};
  if (num_replicas() > 1) {
    sum.mode_counters["requests_stolen"] = sum.requests_stolen;
    sum.mode_counters["kv_bytes_stolen"] = sum.kv_bytes_stolen;
  }
  if (parts_.replicas[0]->ranks()[0]->pool() != nullptr) sum.mode_counters["pool_layers"] = parts_.pool_layers;
  for (const auto& replica : parts_.replicas) {
    for (const auto& rank : replica->ranks()) {
      AddModes(*rank, &sum.mode_counters);
      AddStage(*rank, replica->stats().step_seconds, &sum.mode_counters);
    }
    if (num_replicas() > 1) sum.replicas.push_back(StatsOf(*replica));
  }
  return sum;
}

std::vector<device::OpProfile> LocalEngine::Profile() const {
  std::vector<device::OpProfile> all;
  for (const auto& replica : parts_.replicas) {
    for (const auto& rank : replica->ranks()) {
      for (const device::OpProfile& op : rank->device().Profile()) device::AddCalls(op, &all);
    }
  }
  return all;
}

}  // namespace forebay::engine
