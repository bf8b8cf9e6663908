// The commands of a stream, from one control task to the stream's task. Pushing never blocks;
// memory grows to the longest backlog and is then reused.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "device/cpu/progress.h"
#include "device/operation.h"
#include "forebay/waits.h"

namespace forebay::device {

class CpuCounter;

struct Command {
  enum class Kind : uint8_t { kRun, kWait, kPost, kAwait, kStop };

  Kind kind;
  Progress* awaited;    // kWait: until this stream ...
  CpuCounter* counter;  // kPost, kAwait
  uint64_t position;    // ... has completed this many commands; the counter's value
  int32_t layer;        // Stream::SetLayer
  WaitCause cause;      // kWait, kAwait
  Operation operation;  // kRun
};

// Single producer, single consumer.
class CommandQueue {
 public:
  CommandQueue();

  // Producer: fill Back(), then Push() it.
  Command& Back();
  void Push();
  // Commands pushed since the beginning. Any thread.
  uint64_t pushed() const { return pushed_.load(); }

  // Consumer. Front and Pop REQUIRE !empty(); the front stays where it is until Pop.
  bool empty() const { return popped_ == pushed_.load(); }
  Command& Front();
  void Pop() {
    ++read_index_;
    ++popped_;
  }

 private:
  // 16 commands of less than 1 KiB: the lock below is taken once in 16.
  static constexpr int kChunkCommands = 16;
  struct Chunk {
    std::array<Command, kChunkCommands> commands;
    Chunk* next = nullptr;
  };

  Chunk* TakeChunk();

  Chunk* write_chunk_;
  int write_index_ = 0;
  alignas(64) std::atomic<uint64_t> pushed_{0};
  alignas(64) Chunk* read_chunk_;
  int read_index_ = 0;
  uint64_t popped_ = 0;
  alignas(64) std::mutex mutex_;
  std::vector<Chunk*> free_;
  std::vector<std::unique_ptr<Chunk>> all_;
};

}  // namespace forebay::device
