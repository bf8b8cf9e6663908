#include "engine/rank_set.h"

#include <algorithm>
#include <utility>

namespace forebay::engine {
namespace {

// How long a rank is waited for before another one of its replica is looked at.
constexpr runtime::TimeNs kFaultGlance = 200'000'000;

}  // namespace

RankSet::RankSet(runtime::Runtime& runtime, std::vector<std::unique_ptr<Rank>> ranks,
                 runtime::TimeNs timeout, bool enqueue_waits)
    : runtime_(runtime),
      ranks_(std::move(ranks)),
      leader_(std::ranges::find_if(ranks_, [](const auto& rank) { return rank->leads(); })->get()),
      timeout_(timeout) {
  if (size() > 1 && enqueue_waits)
    tasks_ = std::make_unique<RankTasks>(runtime, static_cast<int>(size()));
}

void RankSet::SetTable(const kv::GroupBooks& book, kv::SequenceId sequence, size_t first_block) {
  for (const auto& rank : ranks_) {
    for (int group = 0; group < book.num_groups(); ++group)
      rank->buffers().SetTable(group, sequence, first_block, book.table(group, sequence));
  }
}

void RankSet::EnqueueStep(std::vector<LogitTask>* tasks, const Round& round, int flight) {
  for (const auto& rank : ranks_) {
    if (rank.get() != leader_) rank->buffers(flight).CopyStep(leader_->buffers(flight));
  }
  EachRank(
      [&](Rank& rank) { rank.EnqueueStep(tasks, round.mode, round.rows, round.steps, flight); });
}

void RankSet::EnqueueService(const Round& round) {
  EachRank([&](Rank& rank) { rank.EnqueueService(round.mode, round.rows, round.steps); });
}

void RankSet::EachRank(const std::function<void(Rank&)>& enqueue) {
  if (tasks_ != nullptr) {
    tasks_->Run([&](int rank) { enqueue(*ranks_[static_cast<size_t>(rank)]); });
    return;
  }
  for (const auto& rank : ranks_) enqueue(*rank);
}

base::Status RankSet::WaitStep(int flight) {
  if (ranks_.size() == 1) return leader_->WaitStep(timeout_, flight);
  // A rank whose device fails comes to its step's end; the others wait for it until they are told.
  const runtime::TimeNs deadline = runtime::DeadlineAfter(runtime_.Now(), timeout_);
  base::Status fault;
  pending_.clear();
  for (const auto& rank : ranks_) pending_.push_back(rank.get());
  for (size_t next = 0; !pending_.empty(); ++next) {
    Rank* const rank = pending_[next % pending_.size()];
    const runtime::TimeNs left = deadline - runtime_.Now();
    const runtime::TimeNs glance = pending_.size() > 1 ? std::min(left, kFaultGlance) : left;
    // The ranks are looked at in turns: the one that fails need not be the first in line, and the
    // others wait for it on the device until they are aborted.
    if (!rank->StepEnded(std::max<runtime::TimeNs>(0, glance), flight) && left > 0) continue;
    const base::Status done = rank->WaitStep(0, flight);
    if (fault.ok() && !done.ok()) {
      fault = done;
      rank->Abort(done);
    }
    std::erase(pending_, rank);
  }
  return fault;
}

base::Result<uint64_t> RankSet::PullLoan(const kv::KvLoan& loan, const kv::GroupBooks& book,
                                         kv::SequenceId sequence) {
  std::vector<kv::Cache::Move> moves;
  for (int group = 0; group < book.num_groups(); ++group) {
    // What the giver's windows had let go is nowhere, and nobody sees it.
    const auto first = static_cast<size_t>(loan.first_held[group] / kv::kBlockTokens);
    moves.push_back(
        {std::span(loan.tables[group]).subspan(first), book.table(group, sequence).subspan(first)});
  }
  if (loan.state_place >= 0)
    moves.push_back({std::span(&loan.state_place, 1), std::span(&sequence, 1)});
  // All ranks pull at once; the waits come behind.
  for (const auto& rank : ranks_) FB_RETURN_IF_ERROR(rank->EnqueueKvPull(loan, moves));
  uint64_t bytes = 0;
  for (const auto& rank : ranks_) {
    FB_RETURN_IF_ERROR(rank->kv().WaitPull(timeout_));
    bytes += rank->kv().pull_bytes();
  }
  return bytes;
}

base::Result<uint64_t> RankSet::PullBelow(const kv::KvLoan& loan, const RankSet& giver,
                                          const kv::GroupBooks& book, kv::SequenceId sequence) {
  std::vector<kv::TierMove> moves;
  const int64_t end = loan.first_block + std::ssize(loan.below);
  for (int group = 0; group < book.num_groups(); ++group) {
    for (int64_t block = loan.first_held[static_cast<size_t>(group)] / kv::kBlockTokens;
         block < end; ++block) {
      moves.push_back({.group = group,
                       .device = book.table(group, sequence)[static_cast<size_t>(block)],
                       .below = loan.below[static_cast<size_t>(block - loan.first_block)]});
    }
  }
  kv::AddStateMoves(book.num_groups(), sequence, loan.state_below, &moves);
  uint64_t bytes = 0;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    kv::Tier& tier = *ranks_[i]->tier();
    bytes -= tier.bytes_up();
    tier.UpFrom(*giver.ranks_[i]->tier()->store().near(), moves);
    bytes += tier.bytes_up();
  }
  for (const auto& rank : ranks_) FB_RETURN_IF_ERROR(WaitUp(*rank->tier()));
  return bytes;
}

base::Status RankSet::WaitUp(kv::Tier& tier) const {
  if (tier.WaitUp(timeout_)) return {};
  return {kStepTimeout, fmt::format("KV cache did not come up from below the device in {}",
                                    base::FormatDuration(runtime::SecondsOf(timeout_)))};
}

void RankSet::MoveKv(const kv::TierMoves& moves) {
  // What goes on from one level below to the next has been counted.
  kv_blocks_down_ +=
      std::ranges::count_if(moves.down, [](const kv::TierMove& move) { return move.from < 0; });
  kv_blocks_up_ += std::ssize(moves.up);
  for (const auto& rank : ranks_) {
    if (!rank->tier()) continue;
    const kv::Window* const window = rank->window();
    rank->tier()->BeginStep(moves, window != nullptr && window->Reads(moves.down));
  }
}

base::Result<kv::LostBlocks> RankSet::LostBelow() {
  for (const auto& rank : ranks_) {
    kv::Tier* const tier = rank->tier();
    if (tier == nullptr) continue;
    // A block that is streamed takes its digest along, which the plan reads where it lies now: one
    // that has just come back must have it.
    const bool reads_digests =
        rank->window() != nullptr && rank->kv().view().groups.front().digests != nullptr;
    if (!tier->store().can_lose() && !reads_digests) continue;
    FB_RETURN_IF_ERROR(WaitUp(*tier));
  }
  return TakeLost();
}

kv::LostBlocks RankSet::TakeLost() {
  kv::LostBlocks all;
  for (const auto& rank : ranks_) {
    if (rank->tier() == nullptr) continue;
    const kv::LostBlocks lost = rank->tier()->store().TakeLost();
    all.blocks.insert(all.blocks.end(), lost.blocks.begin(), lost.blocks.end());
    if (all.closed.ok()) all.closed = lost.closed;
  }
  return all;
}

void RankSet::BeginStreaming(std::span<const kv::StreamedBlock> blocks) {
  for (const auto& rank : ranks_) {
    if (rank->window()) rank->window()->BeginStep(blocks);
  }
}

RankSet::TierTraffic RankSet::tier_traffic() const {
  TierTraffic sum;
  for (const auto& rank : ranks_) {
    const kv::Tier* const tier = rank->tier();
    if (tier == nullptr) continue;
    sum.down += tier->bytes_down();
    sum.up += tier->bytes_up();
    sum.core_seconds += tier->core_seconds();
    sum.in_file |= tier->store().can_lose();
    sum.in_both = sum.in_file && tier->store().near() != nullptr;
    sum.written += tier->store().bytes_written();
    sum.read += tier->store().bytes_read();
    if (rank->window() == nullptr) continue;
    sum.streamed += rank->window()->bytes();
    sum.block_steps = rank->window()->block_steps();
  }
  return sum;
}

uint64_t RankSet::KvDigest(int group, std::span<const kv::BlockId> table, int64_t begin,
                           int64_t end) const {
  uint64_t sum = 0;
  for (const auto& rank : ranks_) sum += rank->kv().DigestOf(group, table, begin, end);
  return sum;
}

uint64_t RankSet::StateDigest(int32_t place, int64_t positions) const {
  uint64_t sum = 0;
  for (const auto& rank : ranks_) sum += rank->StateDigest(place, positions);
  return sum;
}

uint64_t RankSet::bytes_pulled() const {
  uint64_t sum = 0;
  for (const auto& rank : ranks_) sum += rank->bytes_pulled();
  return sum;
}

WaitSeconds RankSet::waits() const {
  WaitSeconds sum;
  for (const auto& rank : ranks_) sum.Add(rank->compute_time().waits);
  return sum;
}

RankSet::Counts RankSet::Count() const {
  Counts sum{.waits = waits(), .kv_blocks_down = kv_blocks_down_, .kv_blocks_up = kv_blocks_up_};
  for (const auto& rank : ranks_) {
    if (rank->pool()) sum.bytes_wanted += rank->pool()->bytes_wanted();
    const kernels::RoutingCounters* const routed = rank->routed();
    if (routed == nullptr) continue;
    sum.rows_routed += routed->rows;
    sum.experts_touched += routed->experts;
    sum.expert_busiest_rows += routed->busiest_rows;
    sum.expert_groups += routed->groups;
    sum.experts_in_groups += routed->experts_in_groups;
  }
  return sum;
}

void RankSet::TakeCounts(StepRecord* record) {
  const Counts now = Count(), before = std::exchange(counted_, now);
  record->waits = now.waits;
  record->waits.Add(before.waits, -1);
  record->bytes_pulled += static_cast<uint64_t>(now.bytes_wanted - before.bytes_wanted);
  record->rows_routed = now.rows_routed - before.rows_routed;
  record->experts_touched = now.experts_touched - before.experts_touched;
  record->expert_busiest_rows = now.expert_busiest_rows - before.expert_busiest_rows;
  record->expert_imbalance = ExpertImbalance(record->expert_busiest_rows, record->rows_routed,
                                             now.experts_in_groups - before.experts_in_groups,
                                             now.expert_groups - before.expert_groups);
  record->kv_blocks_down = now.kv_blocks_down - before.kv_blocks_down;
  record->kv_blocks_up = now.kv_blocks_up - before.kv_blocks_up;
}

}  // namespace forebay::engine
