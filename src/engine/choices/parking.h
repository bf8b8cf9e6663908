// What lies below the device instead of being computed again: what each preempted choice has in the
// tier, prefixes that the device's cache had to give up, and which blocks move at the next step's
// border. No device: the replica moves the data.
//
// A full block lies below under the key of its prefix, so that it goes down once, whoever has it.
// Where prefixes are not shared, or windows let go of a choice's first blocks, keys are the
// choice's own. The open block goes along each time, as do the parts of layers' states, and no row
// is computed again.
//
// Not thread-safe: the replica's control task calls.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/choices/sequence.h"
#include "kv/book/group_books.h"
#include "kv/book/tier_book.h"
#include "kv/loan.h"
#include "kv/tier/store.h"
#include "schedule/park.h"

namespace forebay::engine {

struct ParkingOptions {
  kv::TierBlocks blocks;  // the tier's
  schedule::ParkPrices prices;
  int32_t state_blocks = 0;  // that a choice's states take below
  // Blocks' keys are; else a choice's own. REQUIRES: with states they are not, since nobody begins
  // behind a prefix without its state.
  bool shared_keys = true;
  bool streams = false;  // rows see all of a choice, some of it below
  bool keeps = false;    // the tier is kept for the next job, which asks for prompts
  // Other replicas read blocks in memory; blocks that go there are whole when a plan begins.
  bool lends = false;
  const char* size_flag = "--kv-offloading-size";  // which says how many blocks
};

struct ParkCounters {
  int64_t parks = 0, returns = 0;
  int64_t refused = 0;     // preempted choices for which the tier had no room
  int64_t recomputed = 0;  // those that were cheaper to compute again
  int64_t gifts = 0;       // parked choices of other replicas that came with their blocks
  int64_t blocks_up = 0;
  int64_t brought_back = 0;       // those of them that running choices had below
  int64_t blocks_up_far = 0;      // those of them from the far level
  int64_t evicted = 0;            // blocks of the device's cache that went below
  int64_t prefix_blocks_hit = 0;  // that were found below instead of being computed
  int64_t failed = 0;             // blocks that could not be written, or read as written
  int64_t kept = 0;               // that were below before the job
  kv::TierBookStats tier;
};

class Parking {
 public:
  explicit Parking(const ParkingOptions& options)
      : options_(options), tier_(options.blocks.near(), options.blocks.far()) {}

  bool on() const { return options_.blocks.all() > 0; }
  // Before the choice leaves the book: puts what it has computed below, if there is room and it
  // pays. False: it has nothing there and is computed again.
  bool Park(Sequence* sequence, const kv::GroupBooks& book);
  // Keeps `blocks` blocks of the tier free for streaming.
  void Spare(int64_t blocks) { spared_ = blocks; }
  // Puts a full block of a running choice below, which lies in `device`, if it is not there: it
  // stays there until Unstream. REQUIRES: one that is spared.
  kv::BlockId Stream(Sequence* sequence, int64_t block, kv::BlockId device);
  void Unstream(kv::BlockId below) { tier_.ReleaseNear(below); }
  // The choice takes its last streamed block, which lies `below`, back to the device: the next step
  // finds it there.
  void BringBack(Sequence* sequence, kv::BlockId below, kv::GroupBooks& book);
  // How many of the choice's positions after the first `cached`, which the device has, are below
  // and come up in less time than it takes to compute them: whole blocks, before `most`.
  int64_t FindPrefix(Sequence* sequence, int64_t cached, int64_t most);
  // The choice, which the book does not have yet, takes these as if it had been parked. False:
  // there are none.
  bool TakePrefix(Sequence* sequence, const kv::GroupBooks& book, int64_t cached, int64_t most);
  // Puts below what the book has noted as evicted since a plan was begun, as far as there is room.
  void StoreEvicted(kv::GroupBooks& book);
  bool stores_evicted() const;
  bool closed() const { return closed_; }  // nothing goes down any more
  // What moved for the last plan is under way; what came up may be given up by the tier.
  void BeginPlan(kv::GroupBooks& book);
  // The choice is in the book again; its blocks from committed() on are filled from below.
  void Return(Sequence* sequence, const kv::GroupBooks& book);
  // Those that have come back since CommitReturned: nobody shares their blocks before they are
  // filled, and no step that is begun later runs before that.
  std::span<Sequence* const> returning() const { return returning_; }
  void CommitReturned(kv::GroupBooks& book);
  // The choice is given up. Returns whether it was one of them.
  bool StopReturning(Sequence* sequence) { return std::erase(returning_, sequence) > 0; }
  // Puts the full blocks of the choice's prompt below for the next job, where the tier is kept
  // (seals).
  bool seals() const { return options_.keeps && !closed_; }
  void Seal(Sequence* sequence, const kv::GroupBooks& book);
  // Lends what the choice has below to another replica; null: it has nothing in memory. The choice
  // has nothing here from then on.
  std::shared_ptr<kv::KvLoan> Lend(Sequence* sequence, int replica);
  // So many blocks came up that another replica has lent of its tier.
  void CountGift(int64_t blocks) {
    ++counters_.gifts;
    counters_.blocks_up += blocks;
  }
  // What the choice has below is needed no more.
  void Forget(Sequence* sequence);
  // Blocks that are below already, before anything else.
  void Keep(std::span<const kv::KeptBlock> blocks);
  // Blocks below are lost. Appends to `broken` the choices that came back for the last plan, or
  // took blocks back, and lack some of these: nobody shares them any more.
  void Lose(const kv::LostBlocks& lost, kv::GroupBooks& book, std::vector<Sequence*>* broken);
  // Blocks that move before the step that is planned now.
  kv::TierMoves& moves() { return moves_; }
  bool shared_keys() const { return options_.shared_keys; }
  ParkCounters counters() const;

 private:
  // Keys of the full blocks [first, first + count).
  std::span<const kv::PrefixKey> Keys(Sequence* sequence, int64_t first, int64_t count);
  // What others may find the block under.
  kv::PrefixKey SharedKey(const kv::PrefixKey& key) const {
    return options_.shared_keys ? key : kv::PrefixKey{};
  }

  // Moves what the tier's near level had to give up for blocks that were held just now.
  void Demote(int num_groups);
  // Moves the full block that was held just now down if it is new; `device`: where it lies, by
  // group. False: there was no room for it.
  bool MoveDown(std::optional<kv::TierStay> held, const kv::PrefixKey& key,
                std::span<const kv::BlockId> device);

  const ParkingOptions options_;
  kv::TierBook tier_;
  kv::TierMoves moves_;
  ParkCounters counters_;
  std::vector<Sequence*> returning_;
  int64_t spared_ = 0;
  int64_t next_id_ = 1;                  // marks the keys that are the next choice's own
  std::vector<kv::PrefixKey> own_keys_;  // kept for their capacity
  std::vector<int32_t> fresh_;
  std::vector<kv::BlockId> device_;
  // Blocks that move for the plan in hand: nobody may write over them before that.
  struct Moving {
    kv::TierStay stay;
    Sequence* sequence = nullptr;   // that they come back to; null: blocks alone move
    kv::BlockId brought_back = -1;  // where the one that lies on the device from now on does
  };
  std::vector<Moving> moving_;
  struct Lent {
    std::shared_ptr<kv::KvLoan> loan;
    kv::TierStay stay;
  };
  std::vector<Lent> lent_;
  bool closed_ = false;        // nothing goes down any more
  bool lossy_closed_ = false;  // nor where blocks can be lost
};

}  // namespace forebay::engine
