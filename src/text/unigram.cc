#include "text/unigram.h"

#include <fmt/core.h>

#include <algorithm>
#include <deque>

#include "text/unicode/unicode.h"

namespace forebay::text {

PrefixTrie::PrefixTrie(const Vocabulary& vocabulary) : nodes_(1) {
  std::vector<int32_t> sorted;
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    if (!vocabulary[id].empty() && vocabulary.Find(vocabulary[id]) == id) sorted.push_back(id);
  }
  std::ranges::sort(sorted, {}, [&](int32_t id) { return vocabulary[id]; });
  // Tokens [begin, end) of the order go through the node, which has `depth` bytes.
  struct Open {
    uint32_t node;
    size_t begin, end, depth;
  };
  std::deque<Open> open = {{0, 0, sorted.size(), 0}};
  for (; !open.empty(); open.pop_front()) {
    auto [node, begin, end, depth] = open.front();
    if (begin < end && vocabulary[sorted[begin]].size() == depth) nodes_[node].id = sorted[begin++];
    nodes_[node].first_child = static_cast<uint32_t>(nodes_.size());
    while (begin < end) {
      const auto label = static_cast<uint8_t>(vocabulary[sorted[begin]][depth]);
      size_t behind = begin;
      while (behind < end && static_cast<uint8_t>(vocabulary[sorted[behind]][depth]) == label)
        ++behind;
      open.push_back({static_cast<uint32_t>(nodes_.size()), begin, behind, depth + 1});
      nodes_.push_back({.label = label});
      ++nodes_[node].children;
      begin = behind;
    }
  }
}

uint32_t PrefixTrie::Child(uint32_t node, uint8_t label) const {
  const Node& parent = nodes_[node];
  const auto begin = nodes_.begin() + parent.first_child, end = begin + parent.children;
  const auto found = std::lower_bound(
      begin, end, label, [](const Node& child, uint8_t wanted) { return child.label < wanted; });
  return found != end && found->label == label ? static_cast<uint32_t>(found - nodes_.begin()) : 0;
}

UnigramModel::UnigramModel(const TokenizerSpec& spec, const Vocabulary& vocabulary)
    : vocabulary_(&vocabulary),
      trie_(vocabulary),
      scores_([&] {
        std::vector<double> scores = spec.scores;
        scores.resize(static_cast<size_t>(vocabulary.size()));
        return scores;
      }()),
      byte_fallback_(spec.byte_fallback),
      unk_(spec.unk.value_or(-1)) {
  constexpr double kUnknownPenalty = 10;
  const auto least = std::ranges::min_element(spec.scores);
  unk_score_ = (least == spec.scores.end() ? 0 : *least) - kUnknownPenalty;
  for (int b = 0; b < 256; ++b) byte_ids_[b] = vocabulary.Find(fmt::format("<0x{:02X}>", b));
}

void UnigramModel::FindWays(std::string_view word, WordScratch* scratch) const {
  std::vector<WordScratch::Arrival>& arrivals = scratch->arrivals;
  arrivals.assign(word.size() + 1, {.score = 0, .from = -1, .id = -1});
  for (size_t begin = 0; begin < word.size();) {
    const double here = arrivals[begin].score;
    const auto arrive = [&](size_t length, double score, int32_t id) {
      WordScratch::Arrival& at = arrivals[begin + length];
      if (at.from < 0 || here + score > at.score)
        at = {here + score, static_cast<int64_t>(begin), id};
    };
    size_t next = begin;
    DecodeUtf8(word, &next);
    bool known = false;  // the character is a token
    trie_.ForEachPrefix(word.substr(begin), [&](size_t length, int32_t id) {
      arrive(length, scores_[static_cast<size_t>(id)], id);
      known |= length == next - begin;
    });
    if (!known) arrive(next - begin, unk_score_, unk_);
    begin = next;
  }
}

void UnigramModel::Encode(std::string_view word, WordScratch* scratch,
                          std::vector<int32_t>* ids) const {
  FindWays(word, scratch);
  // From the end to the begin; neighbouring unknown characters are one.
  std::vector<int32_t>& ends = scratch->ids;
  ends.clear();
  for (size_t end = word.size(); end > 0; end = static_cast<size_t>(scratch->arrivals[end].from))
    ends.push_back(static_cast<int32_t>(end));
  size_t begin = 0, unknown = 0;  // the unknown text is [unknown, begin)
  for (auto end = ends.rbegin(); end != ends.rend(); ++end) {
    const int32_t id = scratch->arrivals[static_cast<size_t>(*end)].id;
    if (id != unk_) {
      AddUnknown(word.substr(unknown, begin - unknown), ids);
      ids->push_back(id);
      unknown = static_cast<size_t>(*end);
    }
    begin = static_cast<size_t>(*end);
  }
  AddUnknown(word.substr(unknown), ids);
}

void UnigramModel::AddUnknown(std::string_view text, std::vector<int32_t>* ids) const {
  if (text.empty()) return;
  if (const int32_t id = vocabulary_->Find(text); id >= 0) return ids->push_back(id);
  const auto byte_id = [&](char c) { return byte_ids_[static_cast<unsigned char>(c)]; };
  if (byte_fallback_ && std::ranges::all_of(text, [&](char c) { return byte_id(c) >= 0; })) {
    for (const char c : text) ids->push_back(byte_id(c));
  } else if (unk_ >= 0) {
    ids->push_back(unk_);
  }
}

}  // namespace forebay::text
