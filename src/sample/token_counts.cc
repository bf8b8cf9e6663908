#include <algorithm>

#include "base/rng.h"
#include "sample/sampler.h"

namespace forebay::sample {

void TokenCounts::AddPrompt(std::span<const int32_t> tokens) {
  for (const int32_t token : tokens) Find(token);
}

void TokenCounts::AddOutput(int32_t token) { ++Find(token).output_count; }

TokenCounts::Entry& TokenCounts::Find(int32_t token) {
  if (2 * entries_.size() >= index_.size()) Grow();
  int32_t& place = index_[Probe(token)];
  if (place < 0) {
    place = static_cast<int32_t>(entries_.size());
    entries_.push_back({token, 0});
  }
  return entries_[place];
}

// Where `token` is in the table, or the empty place that ends its probe.
size_t TokenCounts::Probe(int32_t token) const {
  const size_t mask = index_.size() - 1;
  size_t i = base::Mix64(static_cast<uint32_t>(token)) & mask;
  while (index_[i] >= 0 && entries_[index_[i]].token != token) i = (i + 1) & mask;
  return i;
}

void TokenCounts::Grow() {
  index_.assign(std::max<size_t>(64, index_.size() * 2), -1);
  for (size_t i = 0; i < entries_.size(); ++i)
    index_[Probe(entries_[i].token)] = static_cast<int32_t>(i);
}

}  // namespace forebay::sample
