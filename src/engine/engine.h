// The engine: one queue of requests, groups that pull from it, results in completion order.
#pragma once

#include <atomic>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/rng.h"
#include "engine/backend/backend.h"
#include "engine/choices/cancellations.h"
#include "engine/group.h"
#include "engine/request_queue.h"
#include "forebay/engine.h"
#include "layout/job_plan.h"
#include "runtime/runtime.h"
#include "schedule/lengths.h"
#include "schedule/step_mode.h"

namespace forebay::engine {

inline constexpr base::ErrorCode kModeNotTaken{"mode_not_taken"};
inline constexpr base::ErrorCode kOffloadUnused{"kv_offload_unused"};
inline constexpr base::ErrorCode kExpertsNotReached{"experts_not_reached"};

// What compose.cc puts together. Destroyed from the end: groups before the machine that they run
// on.
struct EngineParts {
  std::unique_ptr<Backend> backend;
  // One a device, through which KV goes from group to group; empty: it does not.
  std::vector<std::unique_ptr<fabric::Fabric>> kv_fabrics;
  std::vector<std::unique_ptr<Group>> groups;
  size_t most_ahead = 0;  // requests that are read ahead: a batch of all replicas
  ModelFacts facts;
  SequenceContext context;
  int64_t pool_layers = 0;  // layers of the model that ranks share
  // Where they share some: the modes that were asked for, by role; none: the load decides.
  std::vector<StepMode> forced_modes;
  layout::ExpectedJob expected;
  std::string layout;             // as --layout has it; of roles the first's
  double target_itl_seconds = 0;  // of the role whose steps are longest; 0: there is no bound
  int64_t least_steps = 0;        // choose::LeastSteps of the whole job; 0: not known
  const char* forced_offload = nullptr;  // what --kv-offload has running choices do; null: auto
  // Where lengths are foreseen, the answers of earlier runs, as the replicas are told them; else
  // null.
  std::shared_ptr<std::vector<schedule::EarlierAnswer>> earlier;
  std::string isa;  // the kernels' set, or the name of the simulated machine
};

// What a rank did so far.
struct RankReport {
  int replica = 0;
  GroupRole role = GroupRole::kAll;
  device::StreamTime time;                 // its compute stream's
  std::vector<device::OpProfile> profile;  // the same stream's; empty: profiling is off
  std::vector<int64_t> expert_rows;        // [experts]: rows that it computed, in all layers
  std::vector<uint64_t> bytes_from;        // [ranks]: Device::BytesFrom
};

class LocalEngine : public Engine {
 public:
  LocalEngine(runtime::Runtime& runtime, EngineParts parts);
  ~LocalEngine() override;

  const ModelFacts& facts() const override { return parts_.facts; }
  std::optional<RequestResult> Refusal(const Request& request) const override;
  RunEnd Run(RequestSource& source, ResultSink& sink, RunControl& control) override;
  void Cancel(int64_t id) override { cancellations_.Add(id); }
  // Requests that a replica takes from here on find no KV that was computed before. Any thread may
  // call, also while Run runs. By chance, since a kept file has what earlier processes computed.
  void ForgetPrefixes() { prefix_salt_ = base::Combine64(prefix_salt_, std::random_device{}()); }
  EngineStats stats() const override;
  // Sums over replicas; from any thread, also while Run runs.
  Meters meters() const;
  void SetStepObserver(StepObserver* observer) override { observer_ = observer; }
  // Runs from here on hand out requests as the log says. REQUIRES: it is of the same job on as many
  // replicas; nobody steals.
  void ReplayHandOut(const HandOutLog* log) { replay_ = log; }
  // Answers that the job has from earlier runs, from which lengths are foreseen. REQUIRES: Run was
  // not called.
  void Learn(std::span<const schedule::EarlierAnswer> answers);
  const std::string& isa() const { return parts_.isa; }
  const std::string& layout() const { return parts_.layout; }
  // Between an interactive choice's tokens, by prices where the user names none; 0: no bound.
  double target_itl_seconds() const { return parts_.target_itl_seconds; }
  // That are read ahead of the replicas, at most: of the last ones that they choose.
  int64_t requests_ahead() const { return static_cast<int64_t>(parts_.most_ahead); }
  // A replica has failed in the last run. Its device may hang, so that nobody should wait for it.
  bool failed() const { return failed_; }
  // Replicas of all groups, by the job's number.
  int num_replicas() const { return static_cast<int>(replicas_.size()); }
  const Replica& replica(int index) const { return *replicas_[static_cast<size_t>(index)]; }
  // Whether steps did what the answers cannot show. kModeNotTaken: none was taken in the mode that
  // was asked for where weights are pooled. kOffloadUnused: no block was streamed though that was
  // forced. kExpertsNotReached: no row went through an expert of a model that has some.
  base::Status CheckCounters() const;
  // Time by operation, where profiling is on: of all replicas.
  std::vector<device::OpProfile> Profile() const;
  // One for each rank, group by group.
  std::vector<RankReport> Reports() const;

 private:
  struct RunParts {
    RequestSource& source;
    ResultSink& sink;
    RunControl& control;
    runtime::TimeNs start;
  };
  // Runs the replicas that have not failed until each has come to its end: `returned` are requests
  // that failed ones have given back, and `ends` is by replica. Returns what nobody has taken.
  std::vector<std::unique_ptr<RequestState>> RunOnce(
      const RunParts& parts, std::vector<std::unique_ptr<RequestState>> returned,
      std::vector<RunEnd>* ends);

  runtime::Runtime& runtime_;
  const EngineParts parts_;
  // The groups' replicas by role and room, where the job has roles.
  std::unique_ptr<HandOverBoard> NewHandOver() const;
  // Names modes that were asked for and did nothing.
  void SayWhatWasNotUsed() const;

  std::vector<const Replica*> replicas_;  // the groups', in their order
  StepObserver* observer_ = nullptr;
  const HandOutLog* replay_ = nullptr;
  Cancellations cancellations_;
  std::atomic<uint64_t> prefix_salt_{0};
  std::atomic<double> first_result_seconds_{-1};
  std::atomic<int64_t> choices_ahead_{0};
  std::atomic<bool> failed_{false};
};

}  // namespace forebay::engine
