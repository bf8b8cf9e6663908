// The part of a request's life that the replicas of a group serve.
#pragma once

#include <cstdint>

namespace forebay {

//   kAll         they compute prompts and generate answers
//   kContext     they compute prompts, draw first tokens, and hand the requests over
//   kGeneration  they continue requests that were handed over
enum class GroupRole : uint8_t { kAll, kContext, kGeneration };

inline const char* Name(GroupRole role) {
  constexpr const char* kNames[] = {"all", "context", "generation"};
  return kNames[static_cast<int>(role)];
}

}  // namespace forebay
