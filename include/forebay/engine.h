// The public interface of the engine: it takes requests and gives each exactly one result.
// engine/compose.h builds an engine (engine::CreateEngine); job/ drives it.
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

// The source of requests. The engine calls it from one thread at a time, when it has room for more.
// A source may stay open, without requests, for as long as it likes.
class RequestSource {
 public:
  virtual ~RequestSource() = default;
  // The next request; none if the source has ended, or no request is ready yet. Blocks only if
  // `wait`, and then no longer than a run may take to notice that it is told to end. After a drain
  // the engine does not call it again.
  virtual std::optional<Request> Next(bool wait) = 0;
  // True once Next can return no further request.
  virtual bool ended() const = 0;
  // The next request of one service, even if requests of the other come before it; none if no such
  // request is ready, or the source does not tell services apart. Never blocks.
  virtual std::optional<Request> NextOf(Service service) { return std::nullopt; }
  // The most requests that may still come; -1: not known. Any thread may call it.
  virtual int64_t remaining() const { return -1; }
  // True if requests come over time and must be handed out in their order, to the end.
  virtual bool in_order() const { return false; }
};

// Takes the results: one call for each request, in completion order, from one thread at a time.
class ResultSink {
 public:
  virtual ~ResultSink() = default;
  // Returns false if the result could not be kept (a full disk, for example). Then the run stops at
  // once; results finished before stay.
  virtual bool Finish(RequestResult result) = 0;
  // The new piece of a streaming request's choice, after each step that gave the choice a token;
  // the last one comes before the request's Finish. Must not block.
  virtual void Progress(ChoicePiece piece) {}
};

// Flags that tell a run to end early. Any thread or signal handler may set them.
struct RunControl {
  // Take no more requests, and finish running ones until the deadline.
  std::atomic<bool> drain{false};
  // Stop at the next step's border; unfinished requests get no result.
  std::atomic<bool> abort{false};
};

// Counters and state of one replica.
struct ReplicaStats {
  GroupRole role = GroupRole::kAll;
  int64_t steps = 0;
  int64_t tokens = 0;           // rows that went through the model
  int64_t choices_running = 0;  // now
  int64_t choices_waiting = 0;  // now
  double busy_seconds = 0;      // inside steps
  StepMode mode;                // the latest step's
};

// Counters of a run; every mode that a user can ask for proves here that it ran. They never fall,
// except those marked "now".
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
  // computed rows of generated tokens, one for a choice in a step; prefill_rows has all others
  int64_t decode_rows = 0;
  int64_t prefill_rows = 0;
  int64_t interactive_rows = 0;  // those of both that interactive requests had
  int64_t choices_running = 0;   // now
  int64_t choices_waiting = 0;   // now, admitted to the engine's queue but not running
  int64_t output_room = 0;       // now: tokens that the running choices may still generate
  // the most tokens that the finished choices were allowed to generate
  int64_t output_allowed = 0;
  int64_t kv_blocks_used = 0;  // now, without evictable ones
  int64_t kv_blocks_total = 0;
  int64_t kv_blocks_used_peak = 0;
  double step_seconds = 0;                       // with a step in flight
  double first_result_seconds = -1;              // since Run began; -1: none yet
  std::map<std::string, int64_t> mode_counters;  // e.g. "rows_decode", "steps.avx512bf16"
  std::vector<ReplicaStats> replicas;            // one for each of several replicas

  // One of mode_counters; none if the run has no such counter.
  std::optional<int64_t> counter(const std::string& name) const {
    const auto found = mode_counters.find(name);
    return found == mode_counters.end() ? std::nullopt : std::optional(found->second);
  }
};

// The integer members of EngineStats, by name. A job's values are the sums over its replicas.
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

// The largest value of a replica over the mean of all. 1: level, or all values are 0.
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

// Rows of a layer's busiest expert over the mean of its experts, from sums over groups of rows
// (one group for each layer of a rank's step); 0 if there were no rows.
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
  int64_t context_tokens = 0;  // sum over rows of the positions that they attend to
  // the same with each sequence counted once, by the positions that its last row attends to
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
  // Blocks of KV: moved below the device, and back, since the last step ended; read from below by
  // this step; and the most that it might read from there.
  int64_t kv_blocks_down = 0, kv_blocks_up = 0, kv_blocks_streamed = 0, kv_stream_limit = 0;
  WaitSeconds waits;  // of its compute streams, for events of other streams or ranks
  // Sums over layers with experts: rows of all experts, experts that had rows, and rows of the
  // expert that had most.
  int64_t rows_routed = 0, experts_touched = 0, expert_busiest_rows = 0;
  double expert_imbalance = 0;  // ExpertImbalance of the same layers
};

// The replica's control task calls it after each step. Calls of several replicas do not overlap.
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
  int32_t vector_width = 0;        // numbers of a pooled prompt, after a head; 0: does not pool
  bool normalizes = false;         // its vectors are scaled to length 1
  std::string numerics_class;      // e.g. "pair-bf16-kvbf16"; system_fingerprint carries it
  uint64_t model_fingerprint = 0;  // content of config and weights
  bool random_weights = false;
  std::string device_profile;  // the profile by whose prices the engine decides
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
  // None if the request can run; else the error result for its line, with http_status and error_*
  // filled: it is too long for the context, has a token id outside the vocabulary, or can never fit
  // the KV cache.
  virtual std::optional<RequestResult> Refusal(const Request& request) const = 0;
  // Runs requests from `source` until it ends. Every request taken gets one Finish, except after
  // an abort, a drain past its deadline, or a stall of all replicas.
  virtual RunEnd Run(RequestSource& source, ResultSink& sink, RunControl& control) = 0;
  // Cancels a request at the next step border, wherever it is: its choices end, its memory is
  // freed, and its Finish has the error `request_cancelled`, unless it finished before. Any thread.
  // REQUIRES: its Finish has not returned; the engine has the request or is being given it.
  virtual void Cancel(int64_t id) = 0;
  // A copy of the counters. Any thread may call it, also during Run.
  virtual EngineStats stats() const = 0;
  // `observer` gets every later step; null: no observer. REQUIRES: no Run is in progress.
  virtual void SetStepObserver(StepObserver* observer) = 0;
};

}  // namespace forebay
