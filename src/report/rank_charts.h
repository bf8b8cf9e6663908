// What a report draws of ranks: where each one's time went (as DWDP's figures 1 and 4 have it),
// which experts had the rows, and what went from rank to rank.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"

namespace forebay::report {

// Time of a compute stream. kSlowed: what kernels took longer beside copies than alone, where that
// was simulated; kPull and what follows: its waits, in the order of WaitCause.
enum class TimeKind : uint8_t {
  kAttention,
  kGrouped,
  kDense,
  kOthers,
  kCommunication,
  kSlowed,
  kPull,
  kPeer,
  kStaging,
  kKv
};
inline constexpr int kNumTimeKinds = 10;
using TimeByKind = std::array<double, kNumTimeKinds>;  // seconds

// Zeros without a profile.
TimeByKind TimesOf(const engine::RankReport& rank);

// A bar a rank; "": nothing was profiled.
std::string DrawRankTimes(std::span<const engine::RankReport> ranks);
std::string RankTimesLegend();

struct ExpertLoad {
  std::vector<double> by_mean;  // rows of each expert, of all ranks, by their mean
  double busiest = 0;           // the greatest; 0: no rows, or no experts
};
ExpertLoad ExpertLoadOf(std::span<const engine::RankReport> ranks);

// A table; "": nothing went from rank to rank, or nobody knows.
std::string DrawLinkUse(std::span<const engine::RankReport> ranks);

}  // namespace forebay::report
