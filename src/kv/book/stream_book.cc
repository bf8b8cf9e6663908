#include "kv/book/stream_book.h"

#include <algorithm>

#include "base/check.h"

namespace forebay::kv {

StreamBook::StreamBook(int32_t num_places) : num_places_(num_places) {
  for (int32_t place = num_places - 1; place >= 0; --place) free_.push_back(place);
}

int32_t StreamBook::Take(BlockId below) {
  const auto [found, is_new] = readers_.try_emplace(below);
  Readers& readers = found->second;
  if (is_new) {
    FB_CHECK(!free_.empty(), "all {} places of the window are taken", num_places_);
    readers.place = free_.back();
    free_.pop_back();
    readers.number = ++taken_;
    changed_ = true;
  }
  ++readers.count;
  return readers.place;
}

void StreamBook::Release(BlockId below) {
  const auto found = readers_.find(below);
  FB_CHECK(found != readers_.end(), "block {} of the tier is not streamed", below);
  if (--found->second.count > 0) return;
  free_.push_back(found->second.place);
  readers_.erase(found);
  changed_ = true;
}

std::span<const StreamedBlock> StreamBook::blocks() {
  if (!changed_) return blocks_;
  changed_ = false;
  blocks_.clear();
  for (const auto& [below, readers] : readers_)
    blocks_.push_back({readers.place, below, readers.number});
  std::ranges::sort(blocks_, {}, &StreamedBlock::place);
  return blocks_;
}

}  // namespace forebay::kv
