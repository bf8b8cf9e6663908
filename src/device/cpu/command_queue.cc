#include "device/cpu/command_queue.h"

namespace forebay::device {

CommandQueue::CommandQueue() { write_chunk_ = read_chunk_ = TakeChunk(); }

CommandQueue::Chunk* CommandQueue::TakeChunk() {
  const std::lock_guard lock(mutex_);
  if (free_.empty()) {
    free_.reserve(all_.size() + 1);  // giving one back allocates nothing
    return all_.emplace_back(new Chunk).get();
  }
  Chunk* const chunk = free_.back();
  free_.pop_back();
  return chunk;
}

Command& CommandQueue::Back() {
  if (write_index_ == kChunkCommands) {
    write_chunk_->next = TakeChunk();
    write_chunk_ = write_chunk_->next;
    write_index_ = 0;
  }
  return write_chunk_->commands[write_index_];
}

void CommandQueue::Push() {
  ++write_index_;
  pushed_.store(pushed_.load(std::memory_order_relaxed) + 1);
}

Command& CommandQueue::Front() {
  if (read_index_ == kChunkCommands) {
    Chunk* const done = read_chunk_;
    read_chunk_ = done->next;
    read_index_ = 0;
    const std::lock_guard lock(mutex_);
    free_.push_back(done);
  }
  return read_chunk_->commands[read_index_];
}

}  // namespace forebay::device
