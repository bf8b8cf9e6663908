// Equal steps of decoding, taken at once.
#include <algorithm>
#include <limits>

#include "base/check.h"
#include "engine/choices/choices.h"

namespace forebay::engine {
namespace {

// Tokens that the choice will yet generate, as the one who made the request knows.
int64_t TokensLeft(const Sequence& sequence) {
  const int64_t ends_after = sequence.facts.ends_after;
  return ends_after > 0 ? std::min(sequence.room(), ends_after - sequence.generated())
                        : sequence.room();
}

}  // namespace

int64_t BlocksTaken(std::span<const ChoiceRows> step, const kv::GroupBooks& book, int64_t steps) {
  int64_t sum = 0;
  for (const ChoiceRows& rows : step) {
    const int64_t wanted = (rows.end + steps + kv::kBlockTokens - 1) / kv::kBlockTokens;
    sum += wanted - std::ssize(book.table(0, rows.sequence->id));
  }
  return sum;
}

int64_t EqualSteps(std::span<const ChoiceRows> step, const kv::GroupBooks& book, int64_t blocks,
                   int64_t state_every) {
  int64_t steps = step.empty() ? 0 : std::numeric_limits<int32_t>::max();
  for (const ChoiceRows& rows : step) {
    if (!rows.is_decode() || rows.end != rows.sequence->known()) return 0;
    steps = std::min(steps, TokensLeft(*rows.sequence) - 1);
    if (state_every > 0) steps = std::min(steps, state_every - 1 - rows.end % state_every);
  }
  if (BlocksTaken(step, book, steps) <= blocks) return steps;
  int64_t fits = 0;
  while (steps - fits > 1) {
    const int64_t middle = fits + (steps - fits) / 2;
    (BlocksTaken(step, book, middle) <= blocks ? fits : steps) = middle;
  }
  return fits;
}

void Choices::Advance(std::span<ChoiceRows> step, int64_t steps, int32_t token) {
  for (ChoiceRows& rows : step) {
    Sequence* const sequence = rows.sequence;
    FB_CHECK(rows.is_decode() && steps < TokensLeft(*sequence) && !streaming_.on() &&
                 !sequence->detokenizer && !sequence->facts.uses_counts && !sequence->facts.stream,
             "a choice of {} tokens is advanced by {} steps", sequence->known(), steps);
    sequence->AddTokens(steps, token);
    const ChoiceRows taken{
        .sequence = sequence, .begin = rows.begin, .end = rows.begin + steps, .first_block = 0};
    // Block by block: what no row sees any more makes room for the next one.
    while (rows.begin < taken.end) {
      const int64_t count = std::min<int64_t>(taken.end - rows.begin, kv::kBlockTokens);
      book_.Extend(sequence->id, rows.end + count);
      book_.Commit(sequence->id,
                   std::span(sequence->tokens)
                       .subspan(static_cast<size_t>(rows.begin), static_cast<size_t>(count)));
      rows.begin += count;
      rows.end += count;
      sequence->computed = rows.begin;
      if (!book_.all_seen()) LetGoUnseen(sequence);
    }
    CountRows(taken);
    stats_.decode_rows += steps;
    stats_.output_tokens += steps;
    lists_.CountTokens(steps);
  }
}

}  // namespace forebay::engine
