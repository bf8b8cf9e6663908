// Settings that would do nothing in the layout that is asked for. In a batch nobody is there to
// notice, so they are refused. Pure.
#pragma once

#include <span>
#include <string_view>

#include "base/status.h"
#include "layout/options.h"

namespace forebay::settings {

struct RunOptions;

// The layout of the ranks of one role, and how they reach what they share.
struct Role {
  layout::Layout layout;
  schedule::WantedMode mode;
};

// What a setting is about.
struct Subject {
  // Is it there in a job of these roles? The last role is the one that generates.
  bool (*is_there)(std::span<const Role> roles);
  std::string_view missing;  // Otherwise: what is not there, and what would make it so.
};
extern const Subject kSharedWeights, kSharedWeightsOfGeneration, kSeveralPeers, kSharedExperts,
    kShippedExperts, kPulledExperts, kChosenMode, kReplicas;

// When a setting is mute: it was given (its value is not the default, or is `value` where that is
// named), and its subject is not there.
struct Mute {
  constexpr Mute() = default;
  constexpr Mute(const Subject* about, std::string_view only = {}) : subject(about), value(only) {}

  const Subject* subject = nullptr;  // Null: the setting is never mute.
  std::string_view value;
};

// kInvalidArgument names the first setting of the table that is mute, the layout, and what would
// give it a meaning. `compared`: layouts instead of that of the options; a setting is for those
// that it suits, and so it is where the job chooses the layout.
base::Status CheckMute(const RunOptions& options, std::span<const layout::Layout> compared = {});

}  // namespace forebay::settings
