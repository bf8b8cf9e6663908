// The scenarios of DWDP's rows, and what a value of a row is known by; the table is in claims.cc.
#pragma once

#include "repro/claim.h"
#include "repro/dwdp/context_steps.h"

namespace forebay::repro {

// `pulls` of a group of `ranks` meet at one source.
struct Meeting {
  int ranks = 0, pulls = 0;
};
// A category of Table 1.
struct StepPart {
  bool ships = false;  // DEP4; else DWDP4
  double ContextTimes::*part = nullptr;
};
// What DEP4 loses to others in its step, or what DWDP4 gains over it.
enum class GainOf : uint8_t { kStep, kMeetings };
// Peer after peer, and slices in turns.
struct SliceSetting {
  double ratio = 0;
  int64_t rows = 0;
};
// A context group's queue.
struct QueueSetting {
  int32_t prompt = 8192;  // tokens
  int32_t rows = 32768;   // a step has at most
  double deviation = 0;   // how far prompts' lengths spread
  double ratio = 1;       // the shortest by the longest, where they do not deviate
  int ranks = 4;          // in DWDP's group
};
// Tokens a second and user.
struct UserRange {
  double low = 0, high = 0;
};

// Percent of the pulls that meet so many at their source.
FindingOr PullContention(const Meeting& key, double claimed, Lab& lab);
// Milliseconds of a step.
FindingOr PartOfStep(const StepPart& key, double claimed, Lab& lab);
// Percent of DEP4's step.
FindingOr GainOfStep(const GainOf& key, double claimed, Lab& lab);
// Percent of DEP4's step that it waits, by the deviation of the ranks' lengths.
FindingOr WaitingByLengths(const double& rank_cv, double claimed, Lab& lab);
// Tokens a second and rank, DWDP of so many ranks over DEP4.
FindingOr GainByRanks(const int& ranks, double claimed, Lab& lab);
// Percent of DWDP4's step that merging experts takes.
FindingOr MergeTakes(const int& ranks, double claimed, Lab& lab);
// Tokens a second, with slices of 1 MB in turns over peer after peer.
FindingOr GainOfSlices(const SliceSetting& key, double claimed, Lab& lab);
// The same where a source's copies are a queue.
FindingOr GainOfSlicesInQueues(const SliceSetting& key, double claimed, Lab& lab);
// DWDP over DEP4, of context groups that always have requests waiting: DEP4's median time to first
// token over DWDP's, tokens a second and rank, and the latter by the latter with equal lengths.
FindingOr FirstTokenInQueue(const QueueSetting& key, double claimed, Lab& lab);
FindingOr TokensInQueue(const QueueSetting& key, double claimed, Lab& lab);
FindingOr RiseInQueue(const QueueSetting& key, double claimed, Lab& lab);
// DWDP over DEP with generation behind it: output tokens a second and GPU, of all GPUs; tokens a
// second and user; median time to first token.
FindingOr OutputOfGpu(const UserRange& range, double claimed, Lab& lab);
// Tokens a second and rank of a generation group (DEP) of so many ranks over one of eight, with
// eight answers a rank.
FindingOr GenerationByRanks(const int& ranks, double claimed, Lab& lab);
FindingOr TokensOfUser(const UserRange& range, double claimed, Lab& lab);
FindingOr FirstTokenEndToEnd(const UserRange& range, double claimed, Lab& lab);

}  // namespace forebay::repro
