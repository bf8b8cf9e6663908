#include "engine/choices/open_loans.h"

#include <algorithm>
#include <numeric>

namespace forebay::engine {

std::shared_ptr<kv::KvLoan> OpenLoans::Lend(Sequence* sequence) {
  auto loan = std::make_shared<kv::KvLoan>();
  loan->replica = replica_;
  loan->choice = sequence->choice_index;
  loan->sequence = sequence->id;
  loan->computed = sequence->computed;
  loan->state_place = states_.Lend(sequence);
  for (int group = 0; group < book_.num_groups(); ++group) {
    const auto table = book_.table(group, sequence->id);
    loan->tables.emplace_back(table.begin(), table.end());
    loan->first_held.push_back(book_.first_held(group, sequence->id));
  }
  loans_.push_back(loan);
  return loan;
}

void OpenLoans::Reclaim() {
  std::erase_if(loans_, [&](const std::shared_ptr<kv::KvLoan>& loan) {
    const bool over = loan->over.load(std::memory_order_acquire);
    if (!over) return false;
    // Only now: until it was pulled others must not get its blocks.
    states_.TakeBack(loan->state_place);
    book_.Close(loan->sequence);
    return true;
  });
}

int64_t OpenLoans::blocks() const {
  return std::accumulate(loans_.begin(), loans_.end(), int64_t{0},
                         [](int64_t sum, const auto& loan) { return sum + loan->blocks(); });
}

bool OpenLoans::offered() const {
  return std::ranges::any_of(loans_, [](const auto& loan) { return loan->offered.load(); });
}

}  // namespace forebay::engine
