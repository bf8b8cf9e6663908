// The ranks of a replica as one: they take the same step over the same rows, each with its part of
// the model, and each of the last stage draws the tokens of its share of the rows.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "engine/group_control.h"
#include "engine/rank.h"
#include "engine/rank_tasks.h"
#include "engine/steal_board.h"
#include "forebay/engine.h"
#include "kv/book/group_books.h"

namespace forebay::engine {

class RankSet {
 public:
  // `ranks`: one, or the stages' sp x tp ranks one behind the other. `timeout`: of whatever is
  // waited for. `enqueue_waits`: Backend.
  RankSet(runtime::Runtime& runtime, std::vector<std::unique_ptr<Rank>> ranks,
          runtime::TimeNs timeout, bool enqueue_waits);

  std::span<const std::unique_ptr<Rank>> all() const { return ranks_; }
  size_t size() const { return ranks_.size(); }
  // The last stage's first: a step's batch is built in its buffers.
  Rank& leader() { return *leader_; }
  bool digests_on() const { return leader_->digests_on(); }

  // The blocks of a sequence from the `first_block`-th on, in all tables.
  void SetTable(const kv::GroupBooks& book, kv::SequenceId sequence, size_t first_block);
  // The step in the leader's buffers, on all ranks, as the round has it.
  void EnqueueStep(std::vector<LogitTask>* tasks, const Round& round, int flight);
  // The replica's part in a step that the others of its group take.
  void EnqueueService(const Round& round);
  // Until the step has ended on all ranks. Errors: kStepTimeout, or the first fault of a device.
  base::Status WaitStep(int flight);

  // Pulls what was lent into the blocks of `sequence` and its place, and waits for it; returns the
  // bytes.
  base::Result<uint64_t> PullLoan(const kv::KvLoan& loan, const kv::GroupBooks& book,
                                  kv::SequenceId sequence);
  // The same for blocks in the tiers of `giver`. REQUIRES: its ranks have the same cut.
  base::Result<uint64_t> PullBelow(const kv::KvLoan& loan, const RankSet& giver,
                                   const kv::GroupBooks& book, kv::SequenceId sequence);
  // Before a step is enqueued: what moves between the devices and the tier below, and then what
  // the step reads through the window.
  void MoveKv(const kv::TierMoves& moves);
  void BeginStreaming(std::span<const kv::StreamedBlock> blocks);
  // Before a step is planned: what was found lost below since the last call, once what came up is
  // there. Errors: kStepTimeout.
  base::Result<kv::LostBlocks> LostBelow();
  // The blocks that are known to be lost now, without waiting.
  kv::LostBlocks TakeLost();
  // Bytes of all ranks that went down and came up, and processor time of their copies.
  struct TierTraffic {
    uint64_t down = 0, up = 0, streamed = 0;
    bool in_file = false, in_both = false;  // a file, and beside it memory
    uint64_t written = 0, read = 0;         // bytes of files
    int64_t block_steps = 0;                // one rank's: all have the same
    double core_seconds = 0;
  };
  TierTraffic tier_traffic() const;
  // The digest of the group's layers on all ranks.
  uint64_t KvDigest(int group, std::span<const kv::BlockId> table, int64_t begin,
                    int64_t end) const;
  // And of layers' states in a place, on all ranks.
  uint64_t StateDigest(int32_t place, int64_t positions) const;
  // Sums over the ranks: weights that were asked of others when steps were enqueued, and time that
  // compute streams were held.
  uint64_t bytes_pulled() const;
  WaitSeconds waits() const;
  // To the record of the step that ended: what streams waited, which weights came because experts
  // had rows, which rows these were, and how much KV went below and came back, since the last call.
  void TakeCounts(StepRecord* record);

 private:
  void EachRank(const std::function<void(Rank&)>& enqueue);

  struct Counts {
    WaitSeconds waits;
    int64_t bytes_wanted = 0, rows_routed = 0, experts_touched = 0, expert_busiest_rows = 0;
    int64_t expert_groups = 0, experts_in_groups = 0;
    int64_t kv_blocks_down = 0, kv_blocks_up = 0;
  };
  Counts Count() const;
  // Until what comes up is there: kStepTimeout.
  base::Status WaitUp(kv::Tier& tier) const;

  runtime::Runtime& runtime_;
  const std::vector<std::unique_ptr<Rank>> ranks_;
  Rank* const leader_;  // one of ranks_
  const runtime::TimeNs timeout_;
  std::unique_ptr<RankTasks> tasks_;               // where enqueuing may wait for another rank
  std::vector<Rank*> pending_;                     // not at the step's end; kept for its capacity
  Counts counted_;                                 // by the last TakeCounts
  int64_t kv_blocks_down_ = 0, kv_blocks_up_ = 0;  // that moved from and to each rank
};

}  // namespace forebay::engine
