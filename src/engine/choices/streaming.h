// Which full blocks of running choices give their place on the device to others: they go below
// once, and pass through the window layer by layer in every step from then on (kv/tier/window.h).
// No device: the replica moves the data.
//
// A choice's first blocks go first, so that what it holds on the device is the end of its table.
// The block at the lowest position of all choices goes, with all that share it: so each
// place of the window frees one block, and every full block can go.
//
// Where steps are measured, fewer places are used than there are as long as copies are not hidden
// behind the step (kv/book/stream_limit.h). What is streamed beyond that comes back to the device,
// the blocks at the highest positions first, as blocks are free; until then nobody is admitted, and
// whoever finds none free has the latest choice preempted.
//
// Not thread-safe: the replica's control task calls.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/rng.h"
#include "engine/choices/parking.h"
#include "engine/choices/sequence.h"
#include "kv/book/group_books.h"
#include "kv/book/stream_book.h"
#include "kv/book/stream_limit.h"

namespace forebay::engine {

struct StreamingOptions {
  int32_t places = 0;  // in the window; 0: nothing is streamed
  int32_t least = 0;   // that a choice of full length needs
  // Bytes of a block, and the rate at which they are foreseen to come up; 0: steps are not
  // measured.
  double block_bytes = 0, bytes_per_s = 0;
  // For trials: draws the limit anew every few steps; 0: it is not drawn.
  uint64_t flip_seed = 0;
};

struct StreamCounters {
  int32_t places = 0;            // 0: nothing is streamed
  int32_t limit = 0, least = 0;  // places that are used at most: now, and at the fewest
  int64_t shrinks = 0;           // times that it became less
};

class Streaming {
 public:
  // Sum of the digests of K and V at positions [begin, end) of a table of a KV group.
  using KvDigest = std::function<uint64_t(int group, std::span<const kv::BlockId> table,
                                          int64_t begin, int64_t end)>;
  // The others outlive it.
  Streaming(const StreamingOptions& options, const KvDigest& kv_digest, Parking& parking,
            kv::GroupBooks& book);

  bool on() const { return places_.num_places() > 0; }
  bool measures() const { return on() && (options_.bytes_per_s > 0 || options_.flip_seed != 0); }
  // The most blocks that may be streamed (limit); how many more may be, in time (room) and
  // now.
  int32_t limit() const { return closed_ ? 0 : limit_.limit(); }
  int64_t room() const { return std::max<int64_t>(0, limit() - taken()); }
  int64_t Movable(std::span<Sequence* const> running) const;
  // Those that are streamed and should not be.
  int64_t excess() const { return std::max<int64_t>(0, taken() - limit()); }
  // The step that has read what blocks() said last has ended. All steps so far took so long, of
  // which compute waited so much. REQUIRES: measures().
  void Observe(double seconds, double waited_seconds);
  StreamCounters counters() const;

  // Streams blocks of the running choices until those are available that the choice lacks for its
  // positions before `length`. REQUIRES: they are, with Movable(running).
  void MakeRoom(const Sequence& sequence, int64_t length, std::span<Sequence* const> running);
  // Brings back what should not be streamed, as far as blocks are available: after all others of
  // the step have theirs.
  void BringBack(std::span<Sequence* const> running);
  // Blocks below are lost: appends to `broken` those of the running choices that read them. Where
  // nothing goes below any more, or too much is lost there, no more is streamed.
  void Lose(const kv::LostBlocks& lost, std::span<Sequence* const> running,
            std::vector<Sequence*>* broken);
  // The choice runs no more, or not here; before it leaves the book.
  void End(Sequence* sequence);

  // What the next step reads through the window.
  std::span<const kv::StreamedBlock> blocks() {
    const std::span<const kv::StreamedBlock> blocks = places_.blocks();
    read_ = std::ssize(blocks);
    return blocks;
  }
  // Choices with tables that MakeRoom or BringBack changed; the caller clears the list.
  std::vector<Sequence*>& changed() { return changed_; }

 private:
  // The index of the first block that the choice holds on the device; -1: it is not full.
  int64_t FirstFull(const Sequence& sequence) const;
  void Stream(Sequence* sequence, int64_t index);
  void BringBack(Sequence* sequence);
  void NoteChanged(Sequence* sequence);
  int64_t taken() const { return places_.num_places() - places_.room(); }
  // Says once that copies come more slowly than was foreseen, if they do.
  void Warn();

  const StreamingOptions options_;
  const KvDigest& kv_digest_;
  Parking& parking_;
  kv::GroupBooks& book_;
  kv::StreamBook places_;
  kv::StreamLimit limit_;
  base::Rng flips_;   // seeded by flip_seed
  int64_t read_ = 0;  // blocks, by the last step
  bool warned_ = false;
  int64_t lost_ = 0;     // blocks that were read
  bool closed_ = false;  // no further ones are streamed
  // When the last step was observed, and steps to come that wait for blocks that were moved.
  struct {
    double seconds = 0, waited_seconds = 0;
    int64_t moved_blocks = 0;
    int settling = 0;
  } last_;
  std::vector<Sequence*> changed_;
};

}  // namespace forebay::engine
