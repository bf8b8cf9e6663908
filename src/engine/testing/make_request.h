// Requests for tests of the engine's books.
#pragma once

#include <cstdint>
#include <vector>

#include "forebay/request.h"

namespace forebay::engine {

// A request of one prompt of so many tokens, which no other line has.
inline Request MakeRequest(int64_t line, int32_t prompt, int32_t output, int32_t n = 1) {
  Request request;
  request.id = request.line = line;
  request.prompts = {std::vector<int32_t>(static_cast<size_t>(prompt))};
  for (int32_t i = 0; i < prompt; ++i)
    request.prompts[0][i] = static_cast<int32_t>(line * 1000 + i);
  request.n = n;
  request.sampling.max_tokens = output;
  return request;
}

}  // namespace forebay::engine
