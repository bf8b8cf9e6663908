// What a replica gives to one that has run out of work: waiting requests, and running ones where
// moving their KV pays. Pure.
#pragma once

#include <cstdint>
#include <vector>

namespace forebay::schedule {

// What a running choice costs, by the device's profile.
struct StealPrices {
  double row_seconds = 0;            // added to a step by one more row
  double context_token_seconds = 0;  // by one more token that a row sees
  double kv_token_seconds = 0;       // to pull the KV of a token from a peer
  double move_seconds = 0;           // to move a choice at all, its layers' states too
};

// A request of the one that gives.
struct HeldView {
  int64_t tokens_left = 0;  // rows that it still has to compute, as far as is known
  int64_t kv_tokens = 0;    // positions in the KV cache; 0: it waits
  bool movable = true;
};

struct StealView {
  std::vector<HeldView> held;
  int askers = 1;            // replicas without work
  int64_t most = INT32_MAX;  // requests that the one which asks can take
};

// Whether the choice takes more from the steps to come than its KV takes to move.
bool MovePays(const HeldView& held, const StealPrices& prices);

// Overwrites `gifts` with indices of `held`: an equal share, for one of the askers, of the tokens
// that are left. Waiting requests first, since they take nothing along; the longest first, so that
// few move. At least one request is kept.
void ChooseGifts(const StealView& view, const StealPrices& prices, std::vector<int32_t>* gifts);

}  // namespace forebay::schedule
