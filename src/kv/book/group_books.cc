#include "kv/book/group_books.h"

#include <algorithm>

#include "base/check.h"

namespace forebay::kv {

GroupBooks::GroupBooks(const BlockBookOptions& options, std::span<const base::Reach> reaches)
    : reaches_(reaches.begin(), reaches.end()) {
  FB_CHECK(!reaches.empty(), "books of no group");
  for (size_t i = 0; i < reaches.size(); ++i) books_.emplace_back(options);
}

SequenceSlot GroupBooks::Open(std::span<const int32_t> tokens, const KeySalt& salt,
                              int64_t max_cached, std::vector<PrefixKey>* keys) {
  const int64_t cached =
      num_groups() == 1 ? max_cached : FindCached(tokens, salt, max_cached, keys).tokens;
  const SequenceSlot slot = books_[0].Open(tokens, salt, cached, keys);
  for (int group = 1; group < num_groups(); ++group) {
    const SequenceSlot same = books_[group].Open(tokens, salt, cached, keys);
    FB_CHECK(same == slot && books_[group].computed(slot) == computed(slot),
             "slot {} with {} positions, {} with {}", slot, computed(slot), same,
             books_[group].computed(same));
  }
  return slot;
}

CachedPrefix GroupBooks::FindCached(std::span<const int32_t> tokens, const KeySalt& salt,
                                    int64_t max_cached, std::vector<PrefixKey>* keys) const {
  CachedPrefix least = books_[0].FindCached(tokens, salt, max_cached, keys);
  for (int group = 1; group < num_groups(); ++group) {
    const CachedPrefix found = books_[group].FindCached(tokens, salt, least.tokens, keys);
    least.tokens = std::min(least.tokens, found.tokens);
    least.held_tokens = std::min({least.tokens, least.held_tokens, found.held_tokens});
  }
  return least;
}

SequenceSlot GroupBooks::OpenAdopted(std::span<const int32_t> tokens, const KeySalt& salt,
                                     std::span<const int64_t> first_held, int64_t max_cached,
                                     std::vector<PrefixKey>* keys) {
  const bool all_seen = std::ranges::count(first_held, 0) == num_groups();
  const SequenceSlot slot = Open(tokens, salt, all_seen ? max_cached : 0, keys);
  for (int group = 0; group < num_groups() && !all_seen; ++group)
    books_[group].Skip(slot, tokens.first(static_cast<size_t>(first_held[group])));
  return slot;
}

void GroupBooks::FillAdopted(SequenceSlot slot, int64_t length) {
  Reserve(slot, length);
  SetComputed(slot, length);
}

void GroupBooks::CommitAdopted(SequenceSlot slot, std::span<const int32_t> tokens) {
  for (BlockBook& book : books_)
    book.Commit(slot, tokens.subspan(static_cast<size_t>(book.committed(slot))));
}

void GroupBooks::Reserve(SequenceSlot slot, int64_t length) {
  for (BlockBook& book : books_) {
    FB_CHECK(book.Reserve(slot, length, nullptr), "slot {}: no room for {} positions", slot,
             length);
  }
}

void GroupBooks::SetComputed(SequenceSlot slot, int64_t length) {
  for (BlockBook& book : books_) book.SetComputed(slot, length);
}

void GroupBooks::Commit(SequenceSlot slot, std::span<const int32_t> tokens) {
  for (BlockBook& book : books_) book.Commit(slot, tokens);
}

int64_t GroupBooks::LetGoUnseen(int group, SequenceSlot slot) {
  BlockBook& book = books_[group];
  book.LetGo(slot, reaches_[group].First(static_cast<int32_t>(book.committed(slot))));
  return book.first_held(slot);
}

void GroupBooks::Replace(SequenceSlot slot, BlockId entry) {
  FB_CHECK(num_groups() == 1, "a block of one of {} groups is let go", num_groups());
  books_[0].Replace(slot, entry);
}

bool GroupBooks::TakeBack(SequenceSlot slot, const PrefixKey& key) {
  FB_CHECK(num_groups() == 1, "a block of one of {} groups is taken back", num_groups());
  return books_[0].TakeBack(slot, key);
}

void GroupBooks::Close(SequenceSlot slot, int64_t spent_from) {
  for (BlockBook& book : books_) book.Close(slot, spent_from);
}

int32_t GroupBooks::available_blocks() const {
  const auto least = std::ranges::min_element(books_, {}, &BlockBook::available_blocks);
  return least->available_blocks();
}

int32_t GroupBooks::exclusive_blocks(SequenceSlot slot) const {
  int32_t least = books_[0].exclusive_blocks(slot);
  for (const BlockBook& book : books_) least = std::min(least, book.exclusive_blocks(slot));
  return least;
}

int32_t GroupBooks::held_peak() const {
  int32_t most = 0;
  for (const BlockBook& book : books_) most = std::max(most, book.stats().held_peak);
  return most;
}

int64_t GroupBooks::repeated_blocks() const {
  int64_t least = books_[0].repeated_blocks();
  for (const BlockBook& book : books_) least = std::min(least, book.repeated_blocks());
  return least;
}

}  // namespace forebay::kv
