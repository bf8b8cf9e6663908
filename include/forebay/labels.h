// The output of a model's classification head for a text: a number for each label.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace forebay {

struct Labels {
  // How numbers become scores: e^x / sum of all e^x, 1 / (1 + e^-x), or unchanged.
  enum class Rule : uint8_t { kSoftmax, kSigmoid, kIdentity };
  std::vector<std::string> names;  // at least one
  Rule rule = Rule::kSoftmax;
  friend bool operator==(const Labels&, const Labels&) = default;
};

}  // namespace forebay
