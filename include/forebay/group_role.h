// What the replicas of a group do of a request's life.
#pragma once

#include <cstdint>

namespace forebay {

//   kAll         they read prompts and write answers
//   kContext     they read prompts and draw first tokens, and hand the requests over
//   kGeneration  they go on with requests that were handed over
enum class GroupRole : uint8_t { kAll, kContext, kGeneration };

inline const char* Name(GroupRole role) {
  constexpr const char* kNames[] = {"all", "context", "generation"};
  return kNames[static_cast<int>(role)];
}

}  // namespace forebay
