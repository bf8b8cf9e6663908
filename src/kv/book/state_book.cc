#include "kv/book/state_book.h"

#include <algorithm>

#include "base/check.h"

namespace forebay::kv {

StateBook::StateBook(int32_t first, int32_t count)
    : first_(first), places_(static_cast<size_t>(count)), evictable_(count), index_(count) {
  free_.reserve(places_.size());
  for (int32_t place = count - 1; place >= 0; --place) free_.push_back(place);
}

StateBook::Place& StateBook::At(int32_t place) {
  FB_CHECK(Has(place) && place - first_ < std::ssize(places_), "place {} is none of {} from {} on",
           place, places_.size(), first_);
  return places_[static_cast<size_t>(place - first_)];
}

int32_t StateBook::Find(const PrefixKey& key) const {
  const BlockId found = index_.Find(key);
  return found < 0 ? kNone : first_ + found;
}

int32_t StateBook::Take() {
  int32_t taken = evictable_.oldest();
  if (!free_.empty()) {
    taken = free_.back();
    free_.pop_back();
  } else if (taken >= 0) {
    evictable_.Remove(taken);
    Drop(taken);
    ++evictions_;
  } else {
    return kNone;
  }
  places_[static_cast<size_t>(taken)].pins = 1;
  return first_ + taken;
}

void StateBook::Keep(int32_t place, const PrefixKey& key) {
  Place& kept = At(place);
  FB_CHECK(kept.pins > 0 && !kept.kept, "place {} is kept with {} pins", place, kept.pins);
  if (index_.Find(key) >= 0) return;
  index_.Insert(key, place - first_);
  kept.key = key;
  kept.kept = true;
}

void StateBook::Forget(const PrefixKey& key) {
  const BlockId found = index_.Find(key);
  if (found < 0) return;
  Drop(found);
  if (places_[static_cast<size_t>(found)].pins > 0) return;
  evictable_.Remove(found);
  free_.push_back(found);
}

void StateBook::Pin(int32_t place) {
  Place& pinned = At(place);
  FB_CHECK(pinned.kept || pinned.pins > 0, "free place {} is pinned", place);
  if (pinned.pins++ == 0) evictable_.Remove(place - first_);
}

void StateBook::Unpin(int32_t place) {
  Place& pinned = At(place);
  FB_CHECK(pinned.pins > 0, "place {} is not pinned", place);
  if (--pinned.pins > 0) return;
  if (pinned.kept) return evictable_.AddNewest(place - first_);
  free_.push_back(place - first_);
}

void StateBook::Drop(int32_t place) {
  Place& dropped = places_[static_cast<size_t>(place)];
  index_.Erase(dropped.key);
  dropped.kept = false;
}

void StateBook::CheckInvariants() const {
  int32_t kept = 0, loose = 0, evictable = 0;
  for (size_t i = 0; i < places_.size(); ++i) {
    const Place& place = places_[i];
    const auto number = static_cast<int32_t>(i);
    kept += place.kept;
    loose += !place.kept && place.pins > 0;
    evictable += place.kept && place.pins == 0;
    FB_CHECK(!place.kept || index_.Find(place.key) == number, "place {} is not where its key is",
             number);
    FB_CHECK((std::ranges::count(free_, number) > 0) == (!place.kept && place.pins == 0),
             "place {} with {} pins, kept {}", number, place.pins, place.kept);
  }
  evictable_.ForEach([&](BlockId id) {
    const Place& place = places_[static_cast<size_t>(id)];
    FB_CHECK(place.kept && place.pins == 0, "place {} with {} pins can be evicted", id, place.pins);
  });
  FB_CHECK(evictable_.size() == evictable && index_.size() == kept,
           "{} places can be evicted and {} are kept, counted {} and {}", evictable_.size(),
           index_.size(), evictable, kept);
  FB_CHECK(std::ssize(free_) + kept + loose == std::ssize(places_),
           "{} free, {} kept and {} loose places of {}", free_.size(), kept, loose, places_.size());
}

}  // namespace forebay::kv
