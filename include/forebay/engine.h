// The public face of the engine: requests in, results out, each exactly once.
// engine/compose.h builds one (engine::CreateEngine); job/ drives it.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "forebay/group_role.h"
#include "forebay/request.h"
#include "forebay/step_mode.h"
#include "forebay/waits.h"

namespace forebay {

// Where requests come from. Called from one thread at a time, when the engine has room for more. A
// source may stay open for as long as it likes and have nothing for hours.
class RequestSource {
 public:
  virtual ~RequestSource() = default;
  // The next request, or nothing: the job has ended, or none is ready yet. Blocks only if `wait`,
  // and then for no longer than a run may take to notice that it is to end. After a drain it is not
  // called again.
  virtual std::optional<Request> Next(bool wait) = 0;
  // True once Next can have nothing more.
  virtual bool ended() const = 0;
  // The next request of one service, whatever of the other comes before it, or nothing: none is
  // ready, or the source does not tell them apart. Never blocks.
  virtual std::optional<Request> NextOf(Service service) { return std::nullopt; }
  // How many requests may still come, at most; -1: not known. From any thread.
  virtual int64_t remaining() const { return -1; }
  // Requests come over time, and are handed out in that order to the end.
  virtual bool in_order() const { return false; }
};

// Where results go: once for each request, in completion order, from one thread at a time.
class ResultSink {
 public:
  virtual ~ResultSink() = default;
  // False: the result could not be kept (say, the disk is full); the run stops at once, keeping
  // what was finished.
  virtual bool Finish(RequestResult result) = 0;
  // The pieces of a request that streams, after each step that gave one of its choices a token, the
  // last time before its Finish. Must not block.
  virtual void Progress(ChoicePiece piece) {}
};

// How a run is told to end early, from any thread or a signal handler.
struct RunControl {
  // Take no more requests, and finish running ones until the deadline.
  std::atomic<bool> drain{false};
  // Stop at the next step's border; unfinished requests get no result.
  std::atomic<bool> abort{false};
};

// What one replica has done and holds.
struct ReplicaStats {
  GroupRole role = GroupRole::kAll;
  int64_t steps = 0;
  int64_t tokens = 0;           // rows that went through the model
  int64_t choices_running = 0;  // now
  int64_t choices_waiting = 0;  // now
  double busy_seconds = 0;      // inside steps
  StepMode mode;                // the latest step's
};

// Counters of a run; every mode that can be asked for proves here that it ran. Monotonic unless
// said.
struct EngineStats {
  int64_t requests_finished = 0;
  int64_t prompt_tokens = 0;         // finished requests'
  int64_t output_tokens = 0;         // generated so far, by all choices
  int64_t computed_tokens = 0;       // rows that went through the model
  int64_t recomputed_tokens = 0;     // rows computed again after a preemption
  int64_t cached_prompt_tokens = 0;  // prompt tokens taken from the prefix index
  int64_t prefix_blocks_hit = 0;
  int64_t preemptions = 0;
  int64_t requests_stolen = 0;  // taken over from another replica at the job's end
  int64_t kv_bytes_stolen = 0;  // pulled with them
  // taken over from a context replica, and pulled with them
  int64_t requests_handed_over = 0;
  int64_t kv_bytes_handed_over = 0;
  int64_t requests_returned = 0;  // taken over from a replica that failed
  int64_t steps = 0;
  // computed rows of one generated token, alone in their step; the others are prefill
  int64_t decode_rows = 0;
  int64_t prefill_rows = 0;
  int64_t interactive_rows = 0;  // those of both that interactive requests had
  int64_t choices_running = 0;   // now
  int64_t choices_waiting = 0;   // now, admitted to the engine's queue but not running
  int64_t output_room = 0;       // now: tokens that the running choices may still generate
  // tokens that the finished choices might have generated at most
  int64_t output_allowed = 0;
  int64_t kv_blocks_used = 0;  // now, without evictable ones
  int64_t kv_blocks_total = 0;
  int64_t kv_blocks_used_peak = 0;
  double step_seconds = 0;                       // with a step in flight
  double first_result_seconds = -1;              // since Run began; -1: none yet
  std::map<std::string, int64_t> mode_counters;  // e.g. "rows_decode", "steps.avx512bf16"
  std::vector<ReplicaStats> replicas;            // one for each of several replicas

  // One of mode_counters; nothing: the run has no such counter.
  std::optional<int64_t> counter(const std::string& name) const {
    const auto found = mode_counters.find(name);
    return found == mode_counters.end() ? std::nullopt : std::optional(found->second);
  }
};

// The whole numbers of EngineStats, by name. Those of a job are the sums over its replicas.
struct EngineCounter {
  const char* name;
  int64_t EngineStats::*member;
  bool in_summary = true;  // in its `engine`; the others are levels, or stand in mode_counters
};
inline constexpr EngineCounter kEngineCounters[] = {
    {"requests_finished", &EngineStats::requests_finished},
    {"prompt_tokens", &EngineStats::prompt_tokens},
    {"output_tokens", &EngineStats::output_tokens},
    {"computed_tokens", &EngineStats::computed_tokens},
    {"recomputed_tokens", &EngineStats::recomputed_tokens},
    {"cached_prompt_tokens", &EngineStats::cached_prompt_tokens},
    {"prefix_blocks_hit", &EngineStats::prefix_blocks_hit},
    {"preemptions", &EngineStats::preemptions},
    {"requests_stolen", &EngineStats::requests_stolen},
    {"kv_bytes_stolen", &EngineStats::kv_bytes_stolen},
    {"requests_handed_over", &EngineStats::requests_handed_over},
    {"kv_bytes_handed_over", &EngineStats::kv_bytes_handed_over},
    {"steps", &EngineStats::steps},
    {"kv_blocks_total", &EngineStats::kv_blocks_total},
    {"kv_blocks_used_peak", &EngineStats::kv_blocks_used_peak},
    {"requests_returned", &EngineStats::requests_returned, false},
    {"decode_rows", &EngineStats::decode_rows, false},
    {"prefill_rows", &EngineStats::prefill_rows, false},
    {"interactive_rows", &EngineStats::interactive_rows, false},
    {"choices_running", &EngineStats::choices_running, false},
    {"choices_waiting", &EngineStats::choices_waiting, false},
    {"output_room", &EngineStats::output_room, false},
    {"output_allowed", &EngineStats::output_allowed, false},
    {"kv_blocks_used", &EngineStats::kv_blocks_used, false},
};

// The largest replica's share over the mean of all: 1 is level, and also the value of nothing.
inline double Imbalance(const std::vector<ReplicaStats>& replicas,
                        double (*of)(const ReplicaStats&)) {
  double sum = 0, most = 0;
  for (const ReplicaStats& replica : replicas) {
    sum += of(replica);
    most = of(replica) > most ? of(replica) : most;
  }
  return sum > 0 ? most * static_cast<double>(replicas.size()) / sum : 1;
}
inline double BusyImbalance(const EngineStats& stats) {
  return Imbalance(stats.replicas,
                   [](const ReplicaStats& replica) { return replica.busy_seconds; });
}
inline double TokenImbalance(const EngineStats& stats) {
  return Imbalance(stats.replicas,
                   [](const ReplicaStats& replica) { return static_cast<double>(replica.tokens); });
}

// Rows of the busiest of a layer's experts by the mean of all of them, from sums over groups of
// rows (a layer of a rank's step each); 0: there were no rows.
inline double ExpertImbalance(int64_t busiest_rows, int64_t rows, int64_t experts_in_groups,
                              int64_t groups) {
  if (rows <= 0 || groups <= 0) return 0;
  return static_cast<double>(busiest_rows) / static_cast<double>(rows) *
         static_cast<double>(experts_in_groups) / static_cast<double>(groups);
}

// One step of one replica, for observers (`--steps`, the report, replays).
struct StepRecord {
  int32_t replica = 0;
  GroupRole role = GroupRole::kAll;  // its group's
  int64_t step = 0;                  // counted by its replica, from 0
  double begin_seconds = 0;  // since Run began; where steps overlap, when the one before ended
  double end_seconds = 0;
  int32_t decode_rows = 0;
  int32_t prefill_rows = 0;
  int32_t interactive_decode_rows = 0, interactive_prefill_rows = 0;  // interactive requests' part
  int64_t context_tokens = 0;  // sum over rows of the positions they see
  // the same with a sequence's rows counted once: positions that its last row sees
  int64_t kv_tokens = 0;
  int32_t logit_rows = 0;
  int32_t running = 0;  // choices, after the step was planned
  int32_t waiting = 0;
  int32_t admitted = 0;
  int32_t preempted = 0;
  int32_t finished = 0;        // choices that the step ended
  int32_t kv_blocks_used = 0;  // after the step
  std::vector<int64_t> taken;  // ids that its replica took since the last step, in order
  // The hash of its rows in order: id, choice, first position, rows, blocks held.
  uint64_t plan_hash = 0;
  StepMode mode;
  uint64_t bytes_pulled = 0;  // by its ranks from others, counted when asked for
  // Blocks of KV that went below the device and that came back since the last step ended, that
  // this one read from below, and that it might read at most.
  int64_t kv_blocks_down = 0, kv_blocks_up = 0, kv_blocks_streamed = 0, kv_stream_limit = 0;
  WaitSeconds waits;  // its compute streams held by events of other streams or ranks
  // Sums over layers with experts: rows of all experts, experts that had rows, and rows of the
  // expert that had most.
  int64_t rows_routed = 0, experts_touched = 0, expert_busiest_rows = 0;
  double expert_imbalance = 0;  // ExpertImbalance of the same layers
};

// Called from the replica's control task after each step. Calls of several replicas do not overlap.
class StepObserver {
 public:
  virtual ~StepObserver() = default;
  virtual void OnStep(const StepRecord& record) = 0;
};

// How a run ended.
enum class RunEnd : uint8_t { kComplete, kDrained, kAborted, kSinkFailed, kStalled };

// Facts about a loaded model that a job needs before it runs.
struct ModelFacts {
  std::string name;  // the model path's last part, or --served-model-name
  int32_t vocab_size = 0;
  int32_t max_model_len = 0;       // prompt and output together
  bool generates = true;           // false: an encoder; its prompts become vectors
  int32_t vector_width = 0;        // of a pooled prompt, behind a head; 0: the model does not pool
  bool normalizes = false;         // its vectors are to have length 1
  std::string numerics_class;      // e.g. "pair-bf16-kvbf16"; system_fingerprint carries it
  uint64_t model_fingerprint = 0;  // content of config and weights
  bool random_weights = false;
  std::string device_profile;  // gives the prices by which the engine decides
  // The form in which partial sums travel between ranks: "exact" (fp32), or "bf16", which only
  // simulated devices price.
  std::string tp_wire = "exact";
  int64_t kv_capacity_tokens = 0;
  int32_t ranks = 0;
  int32_t context_ranks = 0;  // the ranks among them that read prompts
  uint64_t weight_bytes = 0, kv_bytes = 0, workspace_bytes = 0;
  // Bytes of the matrices of one copy of the model, by how they are stored: "bf16", "q4_k", ...
  std::map<std::string, uint64_t> weight_forms;
};

// The engine as a job sees it. Implementations: engine/ (real), tests' fakes.
class Engine {
 public:
  virtual ~Engine() = default;
  virtual const ModelFacts& facts() const = 0;
  // Would this request run? Otherwise the error to report for its line (http_status, error_*
  // filled): too long for the context, token id outside the vocabulary, can never fit in the KV
  // cache.
  virtual std::optional<RequestResult> Refusal(const Request& request) const = 0;
  // Runs requests from `source` until it ends. Every request that was taken gets one Finish, but
  // for aborts, drains past their deadline, and a stall of all replicas.
  virtual RunEnd Run(RequestSource& source, ResultSink& sink, RunControl& control) = 0;
  // Gives up a request at the next step's border, wherever it is: its choices end, its memory is
  // free, and its Finish says `request_cancelled`, unless it was finished by then. From any thread.
  // REQUIRES: its Finish has not returned; the request is the engine's or is being given to it.
  virtual void Cancel(int64_t id) = 0;
  // A copy of the counters; from any thread, also while Run runs.
  virtual EngineStats stats() const = 0;
  // The observer is told of every later step; null: none. REQUIRES: Run does not run.
  virtual void SetStepObserver(StepObserver* observer) = 0;
};

}  // namespace forebay
