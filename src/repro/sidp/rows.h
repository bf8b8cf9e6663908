// The scenarios of SiDP's rows, and what a value of a row is known by where a GroupSetting is not
// enough; the table is in claims.cc.
#pragma once

#include "repro/claim.h"
#include "repro/lab.h"

namespace forebay::repro {

// SiDP against DP, and what a figure of throughput says of both (K tok/s).
struct Gain {
  GroupSetting setting;
  bool over_shortest = false;  // the gain over that at 1K
  double claimed_dp = 0, claimed_sidp = 0;
};
// A step and a fetch that a figure shows (ms).
struct ShownStep {
  GroupSetting setting;
  double step_ms = 0, fetch_ms = 0;
};
// Two jobs of one model, and what a figure says of them (tok/s).
struct JobsCompared {
  std::string model;
  bool switching = false;  // pulling and shipping over pulling; else pulling over vLLM
  double claimed_above = 0, claimed_below = 0;
  int64_t requests = 800;
  int64_t output = 0;  // as in JobSetting
};
// A job with batches as large as the length of finished choices allows, against batches that fill
// the cache.
struct Batching {
  JobSetting job;
  bool pools = false;  // SiDP; else the best of DP+TP
};
// Peak shifting against none; K tok/s that the figure shows.
struct Shifting {
  GroupSetting setting;
  double claimed_shifted = 0, claimed_as_used = 0;
};
using Shiftings = std::vector<Shifting>;  // the first's gain, over the second's where there is one
// Settings of one device; a quick run takes the first.
using Cells = std::vector<GroupSetting>;

// Memory.
FindingOr KvCapacity(const GroupSetting& key, double claimed, Lab& lab);
FindingOr KvTokens(const GroupSetting& key, double claimed, Lab& lab);
FindingOr KvMillions(const GroupSetting& key, double claimed, Lab& lab);
FindingOr KvByLayout(const GroupSetting& key, double claimed, Lab& lab);
// Decoding in a steady state.
FindingOr BatchScaling(const int& batch, double claimed, Lab& lab);
FindingOr BatchScalingTp(const GroupSetting& key, double claimed, Lab& lab);
FindingOr LessMemory(const GroupSetting& key, double claimed, Lab& lab);
FindingOr Throughput(const Gain& key, double claimed, Lab& lab);
FindingOr FfnOverPrefetch(const int64_t& rows, double claimed, Lab& lab);
FindingOr PrefetchOfALayer(const GroupSetting& key, double claimed, Lab& lab);
FindingOr StepAgainstFetch(const ShownStep& key, double claimed, Lab& lab);
FindingOr FetchOfAllLayers(const GroupSetting& key, double claimed, Lab& lab);
FindingOr PeakShifting(const Shiftings& key, double claimed, Lab& lab);
FindingOr StepMs(const GroupSetting& key, double claimed, Lab& lab);
// Whole jobs and their tails.
FindingOr ModeSwitch(const JobsCompared& key, double claimed, Lab& lab);
FindingOr WholeJob(const JobSetting& key, double claimed, Lab& lab);
FindingOr BatchingStrategy(const Batching& key, double claimed, Lab& lab);
FindingOr TailSeconds(const GroupSetting& key, double claimed, Lab& lab);
FindingOr TailOverLocal(const GroupSetting& key, double claimed, Lab& lab);
FindingOr ShareOfPulling(const JobSetting& key, double claimed, Lab& lab);
FindingOr Threshold(const GroupSetting& key, double claimed, Lab& lab);
// What the paper lacks: some layers pooled.
FindingOr PoolChoice(const GroupSetting& key, double claimed, Lab& lab);
FindingOr PoolGains(const std::vector<Cells>& grids, double claimed, Lab& lab);

}  // namespace forebay::repro
