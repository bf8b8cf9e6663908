#include "engine/choices/streaming.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "kernels/kv_layout.h"

namespace forebay::engine {

Streaming::Streaming(const StreamingOptions& options, const KvDigest& kv_digest, Parking& parking,
                     kv::GroupBooks& book)
    : options_(options),
      kv_digest_(kv_digest),
      parking_(parking),
      book_(book),
      places_(options.places),
      limit_({.places = options.places, .least = std::min(options.least, options.places)}),
      flips_(options.flip_seed) {
  parking_.Spare(places_.room());
}

void Streaming::Observe(double seconds, double waited_seconds) {
  if (options_.flip_seed != 0) {
    if (flips_.Below(3) == 0)
      limit_.Set(static_cast<int32_t>(flips_.Below(static_cast<uint64_t>(taken()) + 4)));
    return;
  }
  const kv::StreamedStep step{
      .seconds = seconds - std::exchange(last_.seconds, seconds),
      .exposed_seconds = waited_seconds - std::exchange(last_.waited_seconds, waited_seconds),
      .blocks = read_};
  // A step waits for what goes below, and the one after it for what came back: of a few blocks that
  // is little, beside many that are read.
  const int64_t few_blocks = std::min<int64_t>(4, read_ / 32);
  const ParkCounters counters = parking_.counters();
  const int64_t moved = counters.tier.stored + counters.blocks_up;
  if (moved - std::exchange(last_.moved_blocks, moved) > few_blocks) last_.settling = 2;
  if (last_.settling > 0) {
    --last_.settling;
  } else if (limit_.Observe(step) && !warned_) {
    Warn();
  }
}

void Streaming::Warn() {
  // Far from it: the prices are others than foreseen, and not the load.
  constexpr double kAsForeseen = 0.8;
  const kv::StreamedStep& seen = limit_.last();
  const double rate = static_cast<double>(seen.blocks) * options_.block_bytes / seen.seconds;
  if (rate >= kAsForeseen * options_.bytes_per_s) return;
  warned_ = true;
  base::Log(
      base::LogLevel::kWarning,
      fmt::format("KV cache comes up at {:.2f} GB/s where {:.2f} were foreseen, and {:.0f} % "
                  "of a step waits for it: at most {} blocks are streamed, not {}, as long "
                  "as that is so",
                  rate * 1e-9, options_.bytes_per_s * 1e-9,
                  100 * seen.exposed_seconds / seen.seconds, limit_.limit(), places_.num_places()));
}

StreamCounters Streaming::counters() const {
  return {.places = places_.num_places(),
          .limit = limit(),
          .least = limit_.lowest(),
          .shrinks = limit_.shrinks()};
}

int64_t Streaming::FirstFull(const Sequence& sequence) const {
  const int64_t first = book_.first_held(0, sequence.id) / kv::kBlockTokens;
  return first < book_.committed(0, sequence.id) / kv::kBlockTokens ? first : -1;
}

int64_t Streaming::Movable(std::span<Sequence* const> running) const {
  if (!on()) return 0;
  // What is held and full; what is not is held by one choice alone.
  int64_t full = book_.held_blocks();
  for (const Sequence* sequence : running) {
    full -= std::ssize(book_.table(0, sequence->id)) -
            book_.committed(0, sequence->id) / kv::kBlockTokens;
  }
  return std::min(room(), full);
}

void Streaming::MakeRoom(const Sequence& sequence, int64_t length,
                         std::span<Sequence* const> running) {
  const int64_t blocks =
      (length + kv::kBlockTokens - 1) / kv::kBlockTokens - std::ssize(book_.table(0, sequence.id));
  // The lowest full block goes, and for all choices that share it: one that still held it would
  // keep it on the device.
  while (on() && book_.available_blocks() < blocks) {
    const Sequence* lowest = nullptr;
    int64_t index = -1;
    for (const Sequence* choice : running) {
      const int64_t first = FirstFull(*choice);
      if (first < 0 || (lowest != nullptr && first >= index)) continue;
      lowest = choice;
      index = first;
    }
    FB_CHECK(lowest != nullptr, "{} blocks are wanted, {} available, and none can be streamed",
             blocks, book_.available_blocks());
    const kv::BlockId block = book_.table(0, lowest->id)[static_cast<size_t>(index)];
    for (Sequence* choice : running) {
      if (FirstFull(*choice) == index &&
          book_.table(0, choice->id)[static_cast<size_t>(index)] == block)
        Stream(choice, index);
    }
  }
}

void Streaming::Stream(Sequence* sequence, int64_t index) {
  const std::span<const kv::BlockId> table = book_.table(0, sequence->id);
  const kv::BlockId below = parking_.Stream(sequence, index, table[static_cast<size_t>(index)]);
  const int32_t place = places_.Take(below);
  parking_.Spare(places_.room());
  const uint64_t digest =
      kv_digest_(0, table, index * kv::kBlockTokens, (index + 1) * kv::kBlockTokens);
  sequence->streamed.push_back({.below = below, .digest = digest});
  sequence->let_go_digest += digest;
  // The table's entry says now that the block comes through the window, and at which place.
  book_.Replace(sequence->id,
                static_cast<kv::BlockId>(kernels::kWindowBit | static_cast<uint32_t>(place)));
  NoteChanged(sequence);
}

void Streaming::BringBack(std::span<Sequence* const> running) {
  while (excess() > 0 && book_.available_blocks() > 0) {
    const auto by_streamed = [](const Sequence* choice) { return choice->streamed.size(); };
    const std::vector<StreamedKv>& most =
        (*std::ranges::max_element(running, {}, by_streamed))->streamed;
    // With all that share it, its place is free.
    const size_t length = most.size();
    const kv::BlockId below = most.back().below;
    for (Sequence* choice : running) {
      if (choice->streamed.size() == length && choice->streamed.back().below == below)
        BringBack(choice);
    }
  }
}

void Streaming::BringBack(Sequence* sequence) {
  const StreamedKv back = sequence->streamed.back();
  sequence->streamed.pop_back();
  sequence->let_go_digest -= back.digest;
  places_.Release(back.below);
  parking_.Spare(places_.room());
  parking_.BringBack(sequence, back.below, book_);
  NoteChanged(sequence);
}

void Streaming::NoteChanged(Sequence* sequence) {
  if (std::ranges::count(changed_, sequence) == 0) changed_.push_back(sequence);
}

void Streaming::Lose(const kv::LostBlocks& lost, std::span<Sequence* const> running,
                     std::vector<Sequence*>* broken) {
  if (!on()) return;
  // A disk that gives nothing back whole would have choices computed for ever.
  constexpr int64_t kMostLost = 64;
  const auto is_lost = [&](const StreamedKv& block) {
    return std::ranges::count(lost.blocks, block.below) > 0;
  };
  for (size_t i = 0; i < running.size() && !lost.blocks.empty(); ++i) {
    const int64_t count = std::ranges::count_if(running[i]->streamed, is_lost);
    lost_ += count;
    if (count > 0 && std::ranges::count(*broken, running[i]) == 0) broken->push_back(running[i]);
  }
  closed_ |= lost_ > kMostLost || (!lost.closed.ok() && parking_.closed());
}

void Streaming::End(Sequence* sequence) {
  // A table that is closed must not be written to the device any more.
  std::erase(changed_, sequence);
  // From the end to the front, so that the children of a prefix are evicted before it.
  for (; !sequence->streamed.empty(); sequence->streamed.pop_back()) {
    places_.Release(sequence->streamed.back().below);
    parking_.Unstream(sequence->streamed.back().below);
  }
  parking_.Spare(places_.room());
}

}  // namespace forebay::engine
