#include "kv/book/group_books.h"

#include <algorithm>

#include "base/check.h"

namespace forebay::kv {

GroupBooks::GroupBooks(const BlockBookOptions& options, std::span<const base::Reach> reaches,
                       std::span<const int32_t> most_blocks, bool whole_prefixes)
    : reaches_(reaches.begin(), reaches.end()),
      all_seen_(std::ranges::all_of(reaches, &base::Reach::all)),
      whole_prefixes_(whole_prefixes) {
  FB_CHECK(!reaches.empty(), "books of no group");
  for (size_t i = 0; i < reaches.size(); ++i) {
    BlockBookOptions own = options;
    if (!most_blocks.empty()) own.num_blocks = std::min(own.num_blocks, most_blocks[i]);
    counted_.push_back(own.num_blocks == options.num_blocks);
    books_.emplace_back(own);
  }
  const auto lead = std::ranges::find(counted_, true);
  FB_CHECK(lead != counted_.end(), "no group has {} blocks", options.num_blocks);
  lead_ = static_cast<int>(lead - counted_.begin());
}

SequenceId GroupBooks::Open(std::span<const int32_t> tokens, const KeySalt& salt,
                            int64_t max_cached, std::vector<PrefixKey>* keys) {
  if (num_groups() == 1) return books_[0].Open(tokens, salt, max_cached, keys);
  std::vector<PrefixKey> own_keys;
  if (keys == nullptr) keys = &own_keys;
  const int64_t cached = FindCached(tokens, salt, max_cached, keys).tokens;
  const auto found = std::span(*keys).first(static_cast<size_t>(cached / kBlockTokens));
  SequenceId sequence = -1;
  for (int group = 0; group < num_groups(); ++group) {
    const SequenceId same = counted_[group]
                                ? books_[group].Open(tokens, salt, cached, keys)
                                : books_[group].OpenBehind(found, FirstSeen(group, cached), salt);
    if (group == 0) sequence = same;
    FB_CHECK(same == sequence && books_[group].computed(same) == cached,
             "sequence {} with {} positions, {} with {}", sequence, cached, same,
             books_[group].computed(same));
  }
  return sequence;
}

CachedPrefix GroupBooks::FindCached(std::span<const int32_t> tokens, const KeySalt& salt,
                                    int64_t max_cached, std::vector<PrefixKey>* keys) const {
  std::vector<PrefixKey> own_keys;
  if (keys == nullptr) keys = &own_keys;
  CachedPrefix least = books_[lead_].FindCached(tokens, salt, max_cached, keys);
  for (int group = 0; group < num_groups(); ++group) {
    if (group == lead_ || !counted_[group]) continue;
    const CachedPrefix found = books_[group].FindCached(tokens, salt, least.tokens, keys);
    least.tokens = std::min(least.tokens, found.tokens);
    least.held_tokens = std::min({least.tokens, least.held_tokens, found.held_tokens});
  }
  // A shorter prefix may want blocks of a group that had all of a longer one.
  for (int64_t before = -1; before != least.tokens;) {
    before = least.tokens;
    for (int group = 0; group < num_groups(); ++group) {
      if (counted_[group]) continue;
      const auto found = static_cast<size_t>(least.tokens / kBlockTokens);
      least.tokens = FindSeen(group, std::span(*keys).first(found)) * kBlockTokens;
    }
  }
  least.held_tokens = std::min(least.held_tokens, least.tokens);
  return least;
}

int64_t GroupBooks::FindSeen(int group, std::span<const PrefixKey> keys) const {
  // The index has all blocks from `begin` to `end`.
  for (int64_t end = std::ssize(keys), begin = end; end > 0;) {
    const int64_t first = whole_prefixes_ ? 0 : FirstSeen(group, end * kBlockTokens);
    if (begin <= first) {
      return end;
    } else if (books_[group].Has(keys[static_cast<size_t>(begin - 1)])) {
      --begin;
    } else {
      end = --begin;
    }
  }
  return 0;
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

void GroupBooks::Extend(SequenceId sequence, int64_t length) {
  for (BlockBook& book : books_) {
    FB_CHECK(book.Extend(sequence, length), "sequence {}: no room for {} positions", sequence,
             length);
  }
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
  int32_t least = books_[lead_].available_blocks();
  for (int group = lead_ + 1; group < num_groups(); ++group) {
    if (counted_[group]) least = std::min(least, books_[group].available_blocks());
  }
  return least;
}

int32_t GroupBooks::exclusive_blocks(SequenceId sequence) const {
  int32_t least = books_[lead_].exclusive_blocks(sequence);
  for (int group = lead_ + 1; group < num_groups(); ++group) {
    if (counted_[group]) least = std::min(least, books_[group].exclusive_blocks(sequence));
  }
  return least;
}

int32_t GroupBooks::held_peak() const {
  int32_t most = 0;
  for (int group = lead_; group < num_groups(); ++group) {
    if (counted_[group]) most = std::max(most, books_[group].stats().held_peak);
  }
  return most;
}

int64_t GroupBooks::repeated_blocks() const {
  int64_t least = books_[0].repeated_blocks();
  for (const BlockBook& book : books_) least = std::min(least, book.repeated_blocks());
  return least;
}

}  // namespace forebay::kv
