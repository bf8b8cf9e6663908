// Which full blocks of running choices give their place on the device to others: they go below
// once, and pass through the window layer by layer in every step from then on (kv/tier/window.h).
// No device: the replica moves the data.
//
// Of a choice its first blocks go first, so that what it holds on the device is the end of its
// table. Of all choices the block at the lowest position goes, with all that share it: so each
// place of the window frees one block, and every full block can go.
//
// Not thread-safe: the replica's control task calls.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/parking.h"
#include "engine/sequence.h"
#include "kv/book/group_books.h"
#include "kv/book/stream_book.h"

namespace forebay::engine {

class Streaming {
 public:
  // Sum of the digests of K and V at positions [begin, end) of a table of a KV group.
  using KvDigest = std::function<uint64_t(int group, std::span<const kv::BlockId> table,
                                          int64_t begin, int64_t end)>;
  // `blocks`: places of the window; 0: nothing is streamed. The others outlive it.
  Streaming(int32_t blocks, const KvDigest& kv_digest, Parking& parking, kv::GroupBooks& book);

  bool on() const { return places_.num_places() > 0; }
  // Blocks that more can be streamed of, sooner or later, and at most now.
  int64_t room() const { return places_.room(); }
  int64_t Movable(std::span<Sequence* const> running) const;

  // Streams blocks of the running choices until those are available that the choice lacks for its
  // positions before `length`. REQUIRES: they are, with Movable(running).
  void MakeRoom(const Sequence& sequence, int64_t length, std::span<Sequence* const> running);
  // The choice runs no more, or not here; before its slot is closed.
  void End(Sequence* sequence);

  // What the next step reads through the window.
  std::span<const kv::StreamedBlock> blocks() { return places_.blocks(); }
  // Those whose tables MakeRoom has changed, until the caller clears it.
  std::vector<Sequence*>& changed() { return changed_; }

 private:
  // The index of the first block that the choice holds on the device; -1: it is not full.
  int64_t FirstFull(const Sequence& sequence) const;
  void Stream(Sequence* sequence, int64_t index);

  const KvDigest& kv_digest_;
  Parking& parking_;
  kv::GroupBooks& book_;
  kv::StreamBook places_;
  std::vector<Sequence*> changed_;
};

}  // namespace forebay::engine
