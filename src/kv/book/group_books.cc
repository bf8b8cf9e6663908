#include "kv/book/group_books.h"

#include <algorithm>

#include "base/check.h"

namespace forebay::kv {

GroupBooks::GroupBooks(const BlockBookOptions& options, std::span<const base::Reach> reaches)
    : reaches_(reaches.begin(), reaches.end()) {
  FB_CHECK(!reaches.empty(), "books of no group");
  for (size_t i = 0; i < reaches.size(); ++i) books_.emplace_back(options);
}

SequenceId GroupBooks::Open(std::span<const int32_t> tokens, const KeySalt& salt,
                            int64_t max_cached, std::vector<PrefixKey>* keys) {
  const int64_t cached =
      num_groups() == 1 ? max_cached : FindCached(tokens, salt, max_cached, keys).tokens;
  const SequenceId sequence = books_[0].Open(tokens, salt, cached, keys);
  for (int group = 1; group < num_groups(); ++group) {
    const SequenceId same = books_[group].Open(tokens, salt, cached, keys);
    FB_CHECK(same == sequence && books_[group].computed(sequence) == computed(sequence),
             "sequence {} with {} positions, {} with {}", sequence, computed(sequence), same,
             books_[group].computed(same));
  }
  return sequence;
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

SequenceId GroupBooks::OpenAdopted(std::span<const int32_t> tokens, const KeySalt& salt,
                                   std::span<const int64_t> first_held, int64_t max_cached,
                                   std::vector<PrefixKey>* keys) {
  const bool all_seen = std::ranges::count(first_held, 0) == num_groups();
  const SequenceId sequence = Open(tokens, salt, all_seen ? max_cached : 0, keys);
  for (int group = 0; group < num_groups() && !all_seen; ++group)
    books_[group].Skip(sequence, tokens.first(static_cast<size_t>(first_held[group])));
  return sequence;
}

void GroupBooks::FillAdopted(SequenceId sequence, int64_t length) {
  Reserve(sequence, length);
  SetComputed(sequence, length);
}

void GroupBooks::CommitAdopted(SequenceId sequence, std::span<const int32_t> tokens) {
  for (BlockBook& book : books_)
    book.Commit(sequence, tokens.subspan(static_cast<size_t>(book.committed(sequence))));
}

void GroupBooks::Reserve(SequenceId sequence, int64_t length) {
  for (BlockBook& book : books_) {
    FB_CHECK(book.Reserve(sequence, length), "sequence {}: no room for {} positions", sequence,
             length);
  }
}

void GroupBooks::SetComputed(SequenceId sequence, int64_t length) {
  for (BlockBook& book : books_) book.SetComputed(sequence, length);
}

void GroupBooks::Commit(SequenceId sequence, std::span<const int32_t> tokens) {
  for (BlockBook& book : books_) book.Commit(sequence, tokens);
}

int64_t GroupBooks::LetGoUnseen(int group, SequenceId sequence) {
  BlockBook& book = books_[group];
  book.LetGo(sequence, reaches_[group].First(static_cast<int32_t>(book.committed(sequence))));
  return book.first_held(sequence);
}

void GroupBooks::Replace(SequenceId sequence, BlockId entry) {
  FB_CHECK(num_groups() == 1, "a block of one of {} groups is let go", num_groups());
  books_[0].Replace(sequence, entry);
}

bool GroupBooks::TakeBack(SequenceId sequence, const PrefixKey& key) {
  FB_CHECK(num_groups() == 1, "a block of one of {} groups is taken back", num_groups());
  return books_[0].TakeBack(sequence, key);
}

void GroupBooks::Close(SequenceId sequence, int64_t spent_from) {
  for (BlockBook& book : books_) book.Close(sequence, spent_from);
}

int32_t GroupBooks::available_blocks() const {
  const auto least = std::ranges::min_element(books_, {}, &BlockBook::available_blocks);
  return least->available_blocks();
}

int32_t GroupBooks::exclusive_blocks(SequenceId sequence) const {
  int32_t least = books_[0].exclusive_blocks(sequence);
  for (const BlockBook& book : books_) least = std::min(least, book.exclusive_blocks(sequence));
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
