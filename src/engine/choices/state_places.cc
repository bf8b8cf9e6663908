#include "engine/choices/state_places.h"

#include <algorithm>

#include "base/check.h"

namespace forebay::engine {
namespace {

// Of the prefix of so many positions, whole blocks.
const kv::PrefixKey& KeyBehind(Sequence* sequence, int64_t positions) {
  const int64_t blocks = positions / kv::kBlockTokens;
  kv::ExtendKeys(sequence->tokens, sequence->salt, blocks, &sequence->prefix_keys);
  return sequence->prefix_keys[static_cast<size_t>(blocks) - 1];
}

}  // namespace

kv::CachedPrefix StatePlaces::Within(const Sequence& sequence, kv::CachedPrefix found) const {
  if (!on_) return found;
  int64_t blocks = book_.kept() == 0 ? 0 : found.tokens / kv::kBlockTokens;
  while (blocks > 0 &&
         book_.Find(sequence.prefix_keys[static_cast<size_t>(blocks) - 1]) == kv::StateBook::kNone)
    --blocks;
  found.tokens = blocks * kv::kBlockTokens;
  found.held_tokens = std::min(found.held_tokens, found.tokens);
  return found;
}

void StatePlaces::Open(Sequence* sequence) {
  if (!on_ || sequence->computed == 0) return;
  sequence->state_place = book_.Find(KeyBehind(sequence, sequence->computed));
  FB_CHECK(sequence->state_place != kv::StateBook::kNone,
           "a choice begins behind {} positions, whose state is not kept", sequence->computed);
  book_.Pin(sequence->state_place);
}

int64_t StatePlaces::NextKept(const Sequence& sequence, int64_t after) const {
  const int64_t multiple = (after / every_ + 1) * every_,
                shared =
                    sequence.request->prefixes[static_cast<size_t>(sequence.prefix_index)].tokens;
  return shared > after ? std::min(shared, multiple) : multiple;
}

void StatePlaces::Plan(Sequence* sequence, int64_t begin, int64_t end) {
  if (!on_) return;
  std::vector<kv::StatePart>& parts = sequence->state_parts;
  for (int64_t at = every_ > 0 ? NextKept(*sequence, begin) : end + 1; at <= end;
       at = NextKept(*sequence, at)) {
    if (book_.Find(KeyBehind(sequence, at)) != kv::StateBook::kNone) continue;
    const int32_t place = book_.Take();
    if (place != kv::StateBook::kNone) parts.push_back({at, place});
  }
  if (parts.empty() || parts.back().end < end) parts.push_back({end, sequence->id});
}

void StatePlaces::Commit(Sequence* sequence) {
  if (!on_) return;
  Unpin(sequence->state_place);
  std::vector<kv::StatePart>& parts = sequence->state_parts;
  for (const kv::StatePart& part : parts) {
    if (!book_.Has(part.place)) continue;
    book_.Keep(part.place, KeyBehind(sequence, part.end));
    // Where it goes on from the place stays its own.
    if (part != parts.back()) book_.Unpin(part.place);
  }
  sequence->state_place = parts.back().place;
  parts.clear();
}

void StatePlaces::Leave(Sequence* sequence) {
  Unpin(sequence->state_place);
  for (const kv::StatePart& part : sequence->state_parts) Unpin(part.place);
  sequence->state_place = -1;
  sequence->state_parts.clear();
}

void StatePlaces::Forget(std::span<const kv::EvictedBlock> blocks) {
  for (const kv::EvictedBlock& block : blocks) book_.Forget(block.key);
}

}  // namespace forebay::engine
