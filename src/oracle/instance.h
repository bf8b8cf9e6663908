// A packing problem: requests whose KV must fit into so many tokens at every step, and the moment
// at which the last of them ends. Steps are equal; what a request holds at each step of its stay is
// known. Pure. (Vasuki, appendix A, and two forms that come nearer to what an engine does.)
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"

namespace forebay::oracle {

inline constexpr base::ErrorCode kPackInvalid{"pack_invalid"};

// What a request holds while it stays.
//   kPrinted: prompt + output, from its first step to its last, as the paper's formulation has it
//   kGrown:   prompt + 1 at its first step, one more at each that follows
//   kChunked: chunk by chunk of its prompt first, a step each, then as kGrown
enum class Form : uint8_t { kPrinted, kGrown, kChunked };
base::Result<Form> ParseForm(std::string_view name);
std::string_view Name(Form form);

struct Lengths {
  int64_t prompt = 0, output = 0;  // tokens; both at least 1
};

// A request's holdings in tokens, one a step of its stay; never empty.
using Profile = std::vector<int64_t>;

struct Instance {
  std::vector<Profile> requests;
  int64_t capacity = 0;  // tokens that fit at once
};

// kPackInvalid: no capacity or chunk, lengths below 1, or a request that does not fit alone (it and
// both numbers are named).
base::Result<Instance> MakeInstance(std::span<const Lengths> requests, int64_t capacity, Form form,
                                    int64_t chunk);

// When each request begins: a step, by request.
struct Packing {
  std::vector<int64_t> begin;
  int64_t makespan = 0;  // steps until the last one has ended
};

// A packing is valid if every request has a step and no step holds more than the capacity;
// FB_CHECK.
void CheckPacking(const Instance& instance, const Packing& packing);

// No packing is shorter: the longest stay, all holdings over the capacity, and the stays of
// requests of which no two ever fit together.
int64_t LowerBound(const Instance& instance);

}  // namespace forebay::oracle
