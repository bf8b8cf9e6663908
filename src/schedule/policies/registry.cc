// The policies by name. A new one: its file beside this one, and a line in FOREBAY_POLICIES.
#include "schedule/policy.h"

// X(name, function that makes it)
#define FOREBAY_POLICIES(X)          \
  X("adaptive", MakeAdaptive)        \
  X("continuous", MakeContinuous)    \
  X("makespan", MakeMakespan)        \
  X("sarathi", MakeSarathi)          \
  X("static_batch", MakeStaticBatch) \
  X("vllm", MakeVllm)                \
  X("whole", MakeWhole)

namespace forebay::schedule {

#define FOREBAY_DECLARE(name, make) std::unique_ptr<Policy> make();
FOREBAY_POLICIES(FOREBAY_DECLARE)
#undef FOREBAY_DECLARE

base::Result<std::unique_ptr<Policy>> CreatePolicy(std::string_view name) {
  std::string names;
#define FOREBAY_MATCH(policy_name, make)  \
  if (name == policy_name) return make(); \
  names += names.empty() ? policy_name : ", " policy_name;
  FOREBAY_POLICIES(FOREBAY_MATCH)
#undef FOREBAY_MATCH
  return base::Status(kUnknownPolicy,
                      fmt::format("policy '{}' is unknown; there are: {}", name, names));
}

}  // namespace forebay::schedule
