// What a replica has lent of its KV cache: the sequences of choices that others have taken over,
// which stay open in its book, and take places, until their blocks are read by nobody any more.
//
// Not thread-safe: the replica's control task calls. Who has got a loan says by its atomics that it
// is over.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/choices/sequence.h"
#include "engine/choices/state_places.h"
#include "kv/book/group_books.h"
#include "kv/loan.h"

namespace forebay::engine {

class OpenLoans {
 public:
  // `replica`: that lends, among the job's. The books outlive it.
  OpenLoans(int replica, kv::GroupBooks& book, StatePlaces& states)
      : replica_(replica), book_(book), states_(states) {}

  // Lends what the choice holds; its sequence in the book is the loan's from here on.
  std::shared_ptr<kv::KvLoan> Lend(Sequence* sequence);
  // Takes back the blocks of ended loans.
  void Reclaim();

  int64_t count() const { return std::ssize(loans_); }
  int64_t blocks() const;
  // Whether nobody has taken the request of one of them yet.
  bool offered() const;

 private:
  const int replica_;
  kv::GroupBooks& book_;
  StatePlaces& states_;
  std::vector<std::shared_ptr<kv::KvLoan>> loans_;
};

}  // namespace forebay::engine
