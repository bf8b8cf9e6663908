// The KV cache of a running choice, and its layers' states, that one replica lends to another.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#include "kv/book/block_book.h"

namespace forebay::kv {

// KV as far as the choice's rows still see it, in the memory of the replica that gave it, or in the
// host's below it, where the choice was parked. Its blocks stay open in the giver's book, and so as
// they are, until the one that got it says that it is over.
struct KvLoan {
  int replica = 0;                           // that lends it, among the job's
  int32_t choice = 0;                        // the request's
  SequenceId sequence = -1;                  // in its book
  int64_t computed = 0;                      // positions
  std::vector<std::vector<BlockId>> tables;  // by KV group; none: it lies below
  std::vector<int64_t> first_held;           // by KV group: positions before it are not lent
  int64_t first_block = 0;                   // of a table, that below[0] holds
  std::vector<BlockId> below;                // in the tier
  int32_t state_place = -1;                  // of its layers' states; -1: they keep none, or below
  std::vector<BlockId> state_below;          // parts of these in the tier
  std::atomic<bool> offered{false};          // no replica has taken the request yet
  std::atomic<bool> over{false};             // the last reader has finished

  // The blocks of the KV group that has most.
  int32_t blocks() const {
    auto most = static_cast<int64_t>(below.size());
    for (size_t group = 0; group < tables.size(); ++group) {
      most = std::max(
          most, static_cast<int64_t>(tables[group].size()) - first_held[group] / kBlockTokens);
    }
    return static_cast<int32_t>(most);
  }
};

}  // namespace forebay::kv
