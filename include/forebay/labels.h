// What a model's head says of a text: a number for each label.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace forebay {

struct Labels {
  // What makes scores of the numbers: e^x / sum of all e^x, 1 / (1 + e^-x), or nothing.
  enum class Rule : uint8_t { kSoftmax, kSigmoid, kIdentity };
  std::vector<std::string> names;  // at least one
  Rule rule = Rule::kSoftmax;
  friend bool operator==(const Labels&, const Labels&) = default;
};

}  // namespace forebay
