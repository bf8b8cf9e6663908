#include "engine/choices/open_loans.h"

#include <algorithm>
#include <numeric>

namespace forebay::engine {

std::shared_ptr<kv::KvLoan> OpenLoans::Lend(const Sequence& sequence) {
  auto loan = std::make_shared<kv::KvLoan>();
  loan->replica = replica_;
  loan->num_blocks = book_.num_blocks();
  loan->choice = sequence.choice_index;
  loan->sequence = sequence.id;
  loan->computed = sequence.computed;
  for (int group = 0; group < book_.num_groups(); ++group) {
    const auto table = book_.table(group, sequence.id);
    loan->tables.emplace_back(table.begin(), table.end());
    loan->first_held.push_back(book_.first_held(group, sequence.id));
  }
  loans_.push_back(loan);
  return loan;
}

void OpenLoans::Reclaim() {
  std::erase_if(loans_, [&](const std::shared_ptr<kv::KvLoan>& loan) {
    const bool over = loan->over.load(std::memory_order_acquire);
    // Only now: until it was pulled others must not get its blocks.
    if (over) book_.Close(loan->sequence);
    return over;
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
