// Collectives of ranks on their streams. No call blocks, and ranks exchange only counters'
// values. Data stay in the writer's published staging region, and the others read them in
// place.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fabric/fabric.h"

namespace forebay::fabric {

// The users of the counters' channels.
inline constexpr int kTensorChannel = 0;  // ranks of one stage of a replica
// rows for the next stage; kTakenChannel: the staging is free again
inline constexpr int kStageChannel = 1;
inline constexpr int kTakenChannel = 2;
inline constexpr int kSequenceChannel = 3;   // ranks that cut a step's rows among them
inline constexpr int kHeadChannel = 4;       // all ranks of one stage, where rows are cut
inline constexpr int kPoolChannel = 5;       // ranks of one pool; and the next
inline constexpr int kFirstModeChannel = 7;  // two for each further mode of ranks that cut rows

// The ranks of a communicator meet repeatedly, each at its own pace: a rank writes its part, all
// wait for all, then each reads all parts. Two buffers per rank, used in turns, are enough: a rank
// that writes part m has met m - 1, so every rank has read part m - 2.
//
// The rule of reuse: this holds for ranks that always meet the same ranks. So
//  1. a staging region belongs to the exchange of one communicator: ranks that meet in two kinds of
//     groups have a region and a channel for each kind;
//  2. an operation of two meetings, such as an all-reduce that scatters and gathers, takes both
//     from one exchange, one half each: the sums read before the second lie in the other half;
//  3. if a region serves exchanges of several modes in turn, all ranks that may read it meet
//     between the last meeting of one mode and the first of the next.
// collectives_test.cc breaks 1 and 3 under the hazard checker, and sees it.
class Exchange {
 public:
  static constexpr int kMaxRanks = 8;    // whose parts one collective reads
  static constexpr int kMostRanks = 64;  // that may meet

  // Bytes of staging for parts of up to `part_bytes`.
  static uint64_t StagingBytes(uint64_t part_bytes);
  // `staging` is this rank's region; regions of that name of all ranks are published.
  // kUnknownRegion; kInvalidArgument: more than kMostRanks ranks. A `channel` has one exchange a
  // communicator. Collectives REQUIRE kMaxRanks at most.
  static base::Result<Exchange> Create(Fabric& fabric, const Communicator& communicator,
                                       const device::Region& staging, int channel);

  int num_ranks() const { return static_cast<int>(communicator_.ranks.size()); }
  int my_index() const { return communicator_.my_index; }
  uint64_t part_bytes() const { return halves_[my_index()].bytes; }
  // Where this rank's part of the next meeting belongs. It is written by operations of the stream
  // that meets.
  std::byte* mine() const { return halves_[my_index()].data[meetings_ % 2]; }
  // After this, operations of `stream` may read the parts that all ranks wrote before their call.
  // They are enqueued before the next Meet.
  void Meet(device::Stream& stream) {
    Post(stream);
    Await(stream);
  }
  // The two halves of a meeting: this rank's part is written; all others' parts are. Between them
  // `stream` may do other work, and other streams of the rank may await the meeting too. REQUIRES:
  // `stream` begins the next meeting only when no rank reads this one's parts.
  void Post(device::Stream& stream);
  void Await(device::Stream& stream);
  uint64_t meetings() const { return meetings_; }
  // Operations enqueued before hold `meetings` meetings (device::Stream::EndRepeat).
  void Skip(uint64_t meetings) { meetings_ += meetings; }
  // What rank `index` brought to the last meeting.
  const std::byte* part(int index) const { return halves_[index].data[(meetings_ + 1) % 2]; }

 private:
  struct Halves {
    std::byte* data[2];
    uint64_t bytes;
  };

  Exchange(Fabric& fabric, Communicator communicator, int channel)
      : fabric_(&fabric), communicator_(std::move(communicator)), channel_(channel) {}

  Fabric* fabric_;
  Communicator communicator_;
  int channel_;
  std::vector<Halves> halves_;  // [ranks]
  uint64_t meetings_ = 0;
};

// A rank's part of a matrix: `bytes` bytes from `offset` on of each of `rows` rows from `row` on.
// Staging holds the rows packed.
struct GatherBlock {
  int64_t row = 0, rows = 0;
  uint64_t offset = 0, bytes = 0;
  uint64_t from = 0;  // where in its staging the rank put them
  int holder = -1;    // index of the rank in whose staging they lie; -1: the one whose part it is
};

// Meets, and copies the parts of all ranks into `out`, a matrix with `row_stride` bytes a row.
// blocks[i] is the part of the rank with index i, which may be empty; a broadcast is a gather with
// one block. `label` is a literal.
void AllGather(device::Stream& stream, Exchange& exchange, const char* label,
               std::span<const GatherBlock> blocks, std::byte* out, uint64_t row_stride);

// The same for the parts that each rank staged for this one. `behind`: each block's rows have a
// part in a second matrix, stored in staging after the block.
struct MatrixBehind {
  std::byte* out = nullptr;  // [rows, row_bytes]
  uint64_t row_bytes = 0;
};
void AllToAll(device::Stream& stream, Exchange& exchange, const char* label,
              std::span<const GatherBlock> blocks, std::byte* out, uint64_t row_stride,
              const MatrixBehind& behind = {});
// Copies, of what the ranks brought to the last meeting, further blocks: an all-to-all without a
// meeting of its own. `out` may be this rank's part of the next meeting.
void TakeBlocks(device::Stream& stream, Exchange& exchange, const char* label,
                std::span<const GatherBlock> blocks, std::byte* out, uint64_t row_stride);
// What the three bring from other ranks, in bytes.
uint64_t BytesFromOthers(const Exchange& exchange, std::span<const GatherBlock> blocks,
                         const MatrixBehind& behind = {});

// A matrix to which the rank with index i contributes the rows [offsets[borders[i]],
// offsets[borders[i + 1]]), each at its place in staging. Data decide their number.
struct RowsByOffset {
  const int32_t* offsets = nullptr;  // control memory; read when the rows are copied
  int32_t borders[Exchange::kMaxRanks + 1] = {};
  int64_t most_rows = 0;
  uint64_t row_bytes = 0;
};
// Meets, and copies the rows of all ranks into `out`.
void AllGather(device::Stream& stream, Exchange& exchange, const char* label,
               const RowsByOffset& rows, std::byte* out);

// From one rank to another, in order: the sender is at most two messages ahead.
class Handover {
 public:
  static uint64_t StagingBytes(uint64_t message_bytes) {
    return Exchange::StagingBytes(message_bytes);
  }
  // The sender's published region `staging_name` holds the messages. Made by both ranks;
  // kUnknownRegion.
  static base::Result<Handover> Create(Fabric& fabric, int from, int to,
                                       std::string_view staging_name);

  // The next message; operations enqueued on `stream` after this call may overwrite `source`.
  // REQUIRES: it fits.
  void Send(device::Stream& stream, const std::byte* source, uint64_t bytes);
  // REQUIRES: as many bytes as were sent.
  void Receive(device::Stream& stream, std::byte* destination, uint64_t bytes);

 private:
  Handover(Fabric& fabric, int from, int to, const device::Region& staging)
      : fabric_(&fabric), from_(from), to_(to), staging_(&staging) {}
  std::byte* Buffer(uint64_t bytes) const;

  Fabric* fabric_;
  int from_, to_;
  const device::Region* staging_;
  uint64_t messages_ = 0;
};

}  // namespace forebay::fabric
