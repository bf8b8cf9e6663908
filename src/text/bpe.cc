#include "text/bpe.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>

#include <fmt/core.h>

#include "base/rng.h"
#include "text/unicode/unicode.h"

namespace forebay::text {
namespace {

// Up to here all pairs lie on the stack and the next merge is found by looking at each; longer
// words use a heap.
constexpr size_t kShortWord = 48;
// Longer words are cut: offsets inside a word have 32 bits.
constexpr size_t kLongestWord = size_t{1} << 30;
constexpr uint32_t kNoRank = std::numeric_limits<uint32_t>::max();

uint64_t PairHash(int32_t left, int32_t right) {
  return base::Mix64(static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 |
                     static_cast<uint32_t>(right));
}

}  // namespace

MergeTable::MergeTable(const std::vector<Merge>& merges)
    : slots_(std::bit_ceil(merges.size() + merges.size() / 2 + 1)) {
  for (const Merge& merge : merges) {
    uint64_t slot = PairHash(merge.left, merge.right);
    for (;; ++slot) {
      const Entry& entry = slots_[slot &= slots_.size() - 1];
      if (entry.left < 0 || (entry.left == merge.left && entry.right == merge.right)) break;
    }
    slots_[slot] = {merge.left, merge.right, merge.result, merge.rank};
  }
}

const MergeTable::Entry* MergeTable::Find(int32_t left, int32_t right) const {
  for (uint64_t slot = PairHash(left, right);; ++slot) {
    const Entry& entry = slots_[slot &= slots_.size() - 1];
    if (entry.left < 0) return nullptr;
    if (entry.left == left && entry.right == right) return &entry;
  }
}

BpeModel::BpeModel(const TokenizerSpec& spec, const Vocabulary& vocabulary, bool byte_level)
    : vocabulary_(&vocabulary),
      merges_(spec.merges),
      byte_level_(byte_level),
      ignore_merges_(spec.ignore_merges),
      byte_fallback_(spec.byte_fallback),
      fuse_unk_(spec.fuse_unk),
      unk_(spec.unk.value_or(-1)),
      whole_(std::make_unique<std::atomic<Whole>[]>(vocabulary.size())) {
  for (int b = 0; b < 256; ++b) {
    const char byte = static_cast<char>(b);
    byte_ids_[b] =
        vocabulary.Find(byte_level ? std::string(1, byte) : fmt::format("<0x{:02X}>", b));
  }
  splits_at_metaspace_ = !byte_level && !ignore_merges_ && vocabulary.Find(kMetaspace) >= 0;
  for (const Merge& merge : spec.merges) {
    const std::string_view left = vocabulary[merge.left], right = vocabulary[merge.right];
    if (right.starts_with(kMetaspace) && !left.ends_with(kMetaspace)) splits_at_metaspace_ = false;
  }
}

void BpeModel::Encode(std::string_view word, WordScratch* scratch,
                      std::vector<int32_t>* ids) const {
  if (!splits_at_metaspace_) return EncodeWord(word, scratch, ids);
  constexpr size_t kSize = sizeof(kMetaspace) - 1;
  while (!word.empty()) {
    size_t end = 0;
    while (word.substr(end).starts_with(kMetaspace)) end += kSize;
    end = std::min(word.find(kMetaspace, end), word.size());
    EncodeWord(word.substr(0, end), scratch, ids);
    word.remove_prefix(end);
  }
}

void BpeModel::EncodeWord(std::string_view word, WordScratch* scratch,
                          std::vector<int32_t>* ids) const {
  const int32_t token = vocabulary_->Find(word);
  if (token >= 0 &&
      (ignore_merges_ || whole_[token].load(std::memory_order_relaxed) == Whole::kYes)) {
    ids->push_back(token);
    return;
  }
  const size_t first = ids->size();
  for (; !word.empty(); word.remove_prefix(std::min(word.size(), kLongestWord))) {
    scratch->ids.clear();
    InitialSymbols(word.substr(0, kLongestWord), &scratch->ids);
    if (scratch->ids.size() <= kShortWord) {
      MergeShort(&scratch->ids);
    } else {
      MergeLong(scratch);
    }
    ids->insert(ids->end(), scratch->ids.begin(), scratch->ids.end());
  }
  if (token < 0) return;
  const bool whole = ids->size() == first + 1 && ids->back() == token;
  whole_[token].store(whole ? Whole::kYes : Whole::kNo, std::memory_order_relaxed);
}

// As the reference does it: an unknown character that waits to be fused comes after the byte tokens
// that follow it.
void BpeModel::InitialSymbols(std::string_view word, std::vector<int32_t>* ids) const {
  const auto byte_id = [&](char c) { return byte_ids_[static_cast<unsigned char>(c)]; };
  const auto begins_symbol = [&](char c) {
    return byte_level_ || (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  };
  ids->reserve(std::count_if(word.begin(), word.end(), begins_symbol));
  bool unk_waits = false;
  const auto flush = [&] {
    if (unk_waits) ids->push_back(unk_);
    unk_waits = false;
  };
  for (size_t i = 0; i < word.size();) {
    const size_t begin = i;
    byte_level_ ? void(++i) : void(DecodeUtf8(word, &i));
    const std::string_view character = word.substr(begin, i - begin);
    const int32_t id = byte_level_ ? byte_id(word[begin]) : vocabulary_->Find(character);
    if (id >= 0) {
      flush();
      ids->push_back(id);
    } else if (byte_fallback_ && std::all_of(character.begin(), character.end(),
                                             [&](char c) { return byte_id(c) >= 0; })) {
      for (const char c : character) ids->push_back(byte_id(c));
    } else if (unk_ >= 0) {
      if (!fuse_unk_) flush();
      unk_waits = true;
    }
  }
  flush();
}

void BpeModel::MergeShort(std::vector<int32_t>* ids) const {
  const MergeTable::Entry* pairs[kShortWord];  // pairs[i]: the merge of ids[i] and ids[i + 1]
  int32_t* id = ids->data();
  size_t count = ids->size();
  for (size_t i = 0; i + 1 < count; ++i) pairs[i] = merges_.Find(id[i], id[i + 1]);
  while (count > 1) {
    size_t best = 0;
    uint32_t rank = kNoRank;
    for (size_t i = 0; i + 1 < count; ++i) {
      if (pairs[i] != nullptr && pairs[i]->rank < rank) {
        best = i;
        rank = pairs[i]->rank;
      }
    }
    if (rank == kNoRank) break;
    id[best] = pairs[best]->result;
    std::copy(id + best + 2, id + count, id + best + 1);
    std::copy(pairs + best + 1, pairs + count - 1, pairs + best);
    --count;
    if (best > 0) pairs[best - 1] = merges_.Find(id[best - 1], id[best]);
    if (best + 1 < count) pairs[best] = merges_.Find(id[best], id[best + 1]);
  }
  ids->resize(count);
}

// Symbols are spans of the initial ones. The id of a span stands at its first place (elsewhere -1),
// its length at its first and its last place, so that both neighbours are found. The heap holds
// (rank, place) of pairs; one that merges have changed since it was pushed is recognised when it is
// popped.
void BpeModel::MergeLong(WordScratch* scratch) const {
  std::vector<int32_t>& ids = scratch->ids;
  std::vector<uint32_t>& lengths = scratch->lengths;
  std::vector<uint64_t>& heap = scratch->heap;
  const size_t count = ids.size();
  lengths.assign(count, 1);
  heap.clear();
  heap.reserve(count);

  const auto find = [&](size_t place) -> const MergeTable::Entry* {
    const size_t next = place + lengths[place];
    return next < count ? merges_.Find(ids[place], ids[next]) : nullptr;
  };
  const auto is_current = [&](uint64_t entry) {
    const size_t place = static_cast<uint32_t>(entry);
    if (ids[place] < 0) return false;
    const MergeTable::Entry* merge = find(place);
    return merge != nullptr && merge->rank == entry >> 32;
  };
  const auto push = [&](size_t place) {
    const MergeTable::Entry* merge = find(place);
    if (merge == nullptr) return;
    if (heap.size() == count) {
      heap.erase(std::remove_if(heap.begin(), heap.end(),
                                [&](uint64_t entry) { return !is_current(entry); }),
                 heap.end());
      std::make_heap(heap.begin(), heap.end(), std::greater<>());
    }
    heap.push_back(static_cast<uint64_t>(merge->rank) << 32 | place);
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };

  for (size_t i = 0; i + 1 < count; ++i) {
    if (const MergeTable::Entry* merge = find(i))
      heap.push_back(static_cast<uint64_t>(merge->rank) << 32 | i);
  }
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  while (!heap.empty()) {
    const uint64_t entry = heap.front();
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    heap.pop_back();
    if (!is_current(entry)) continue;
    const size_t place = static_cast<uint32_t>(entry);
    const size_t next = place + lengths[place];
    const uint32_t length = lengths[place] + lengths[next];
    ids[place] = find(place)->result;
    ids[next] = -1;
    lengths[place] = lengths[place + length - 1] = length;
    if (place > 0) push(place - lengths[place - 1]);
    push(place);
  }
  std::erase_if(ids, [](int32_t id) { return id < 0; });
}

}  // namespace forebay::text
