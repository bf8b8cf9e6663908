// Where the states of a replica's choices lie, in models whose layers keep them: a running choice
// has the place of its id in the book of blocks, and further places keep states for whoever begins
// alike, or begins again. Choices find a prefix up to a position whose state is kept.
//
// A state is kept where the prefix ends that choices of a prompt share, and at each multiple of
// `every`: the step's rows are cut there, go on from the place that is kept, and end in the
// choice's own. Choices whose last row was kept stay there until their next step.
//
// Not thread-safe: the replica's control task calls.
#pragma once

#include <cstdint>
#include <span>
#include <utility>

#include "engine/choices/sequence.h"
#include "kv/book/block_book.h"
#include "kv/book/state_book.h"

namespace forebay::engine {

class StatePlaces {
 public:
  // `own`: places of running choices; `kept`: further ones. off: layers keep no states, and nothing
  // below does anything.
  StatePlaces(bool on, int32_t own, int32_t kept, int64_t every)
      : on_(on), every_(every), book_(own, kept) {}

  bool on() const { return on_; }
  // What of a cached prefix the sequence can begin behind. REQUIRES: its prefix_keys have it.
  kv::CachedPrefix Within(const Sequence& sequence, kv::CachedPrefix found) const;
  // The sequence begins behind its `computed` positions, which Within has found.
  void Open(Sequence* sequence);
  // The state behind its positions comes to its own place, from the tier or another replica.
  void Return(Sequence* sequence) {
    if (on_) sequence->state_place = sequence->id;
  }
  // Its state is lent, and stays in the place that is returned until TakeBack.
  int32_t Lend(Sequence* sequence) { return std::exchange(sequence->state_place, -1); }
  void TakeBack(int32_t place) { Unpin(place); }
  // Says where its state goes in the step with its rows [begin, end).
  void Plan(Sequence* sequence, int64_t begin, int64_t end);
  // They were computed: what they have kept can be found.
  void Commit(Sequence* sequence);
  // The sequence leaves the book.
  void Leave(Sequence* sequence);
  // Blocks were evicted.
  void Forget(std::span<const kv::EvictedBlock> blocks);

  const kv::StateBook& book() const { return book_; }

 private:
  // The next position behind `after` at which its state is to be kept.
  int64_t NextKept(const Sequence& sequence, int64_t after) const;
  void Unpin(int32_t place) {
    if (book_.Has(place)) book_.Unpin(place);
  }

  const bool on_;
  const int64_t every_;
  kv::StateBook book_;
};

}  // namespace forebay::engine
