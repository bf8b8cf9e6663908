// What a user puts in the place of a paper's model and devices: `forebay repro --set`.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace forebay::repro {

// Empty members leave the paper's own.
struct Substitutes {
  std::string model;    // A built-in configuration.
  std::string device;   // A profile.
  std::string numbers;  // Of the device, as they follow its name: ":link_bytes_per_s=5e10".

  bool any() const { return !model.empty() || !device.empty() || !numbers.empty(); }
};

// "model=Qwen2.5-72B,device=b200,link=5e10": `link` stands for link_bytes_per_s, other names for
// the profile's numbers. Errors: kInvalidArgument (no NAME=VALUE), and those of models, profiles
// and their numbers.
base::Result<Substitutes> ParseSubstitutes(std::string_view text);

}  // namespace forebay::repro
