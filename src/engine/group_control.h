// How the replicas of a group wait for what its rule (engine/group_rule.h) has them do: each asks
// at its step's border, and blocks until it is answered. One a group of replicas in one process, on
// any runtime.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "base/status.h"
#include "engine/group_rule.h"
#include "runtime/runtime.h"

namespace forebay::engine {

inline constexpr base::ErrorCode kGroupFailed{"group_failed"};

// Any replica's control task may call.
class GroupControl {
 public:
  GroupControl(runtime::Runtime& runtime, const GroupOptions& options);

  // What `replica` does next; blocks only if replicas run together, or without rows. The error with
  // which the group failed.
  base::Result<Round> Next(int replica, const StepOffer& offer);
  // As GroupRule has them.
  void Wake(int replica);
  void Leave(int replica);
  // The group cannot go on: each Next returns `why`, of the first call.
  void Fail(const base::Status& why);

 private:
  const runtime::TimeNs look_every_;
  std::mutex mutex_;  // guards the rule and the fault; events are set under it
  std::vector<std::unique_ptr<runtime::Event>> woken_;  // by replica
  GroupRule rule_;
  base::Status fault_;
};

}  // namespace forebay::engine
