// The policies by name. A new one: its file beside this one, and a line in FOREBAY_POLICIES.
#include "schedule/policy.h"

// X(name, function that makes it)
#define FOREBAY_POLICIES(X)              \
  X("adaptive", MakeAdaptive)            \
  X("continuous", MakeContinuous)        \
  X("interactive", MakeInteractive)      \
  X("makespan", MakeMakespan)            \
  X("packed", MakePacked)                \
  X("sarathi", MakeSarathi)              \
  X("static_batch", MakeStaticBatch)     \
  X("vasuki-printed", MakeVasukiPrinted) \
  X("vllm", MakeVllm)                    \
  X("whole", MakeWhole)

namespace forebay::schedule {

#define FOREBAY_DECLARE(name, make) std::unique_ptr<Policy> make();
FOREBAY_POLICIES(FOREBAY_DECLARE)
#undef FOREBAY_DECLARE

const PolicyKind* DefaultPolicy() {
  static const PolicyKind* const policy = *FindPolicy("continuous");
  return policy;
}

base::Result<const PolicyKind*> FindPolicy(std::string_view name) {
#define FOREBAY_ENTRY(name, make) {name, &make},
  static constexpr PolicyKind kKinds[] = {FOREBAY_POLICIES(FOREBAY_ENTRY)};
#undef FOREBAY_ENTRY
  std::string names;
  for (const PolicyKind& kind : kKinds) {
    if (name == kind.name) return &kind;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", kind.name);
  }
  return base::Status(kUnknownPolicy,
                      fmt::format("policy '{}' is unknown; there are: {}", name, names));
}

base::Result<std::unique_ptr<Policy>> CreatePolicy(std::string_view name) {
  FB_ASSIGN_OR_RETURN(const PolicyKind* kind, FindPolicy(name));
  return kind->make();
}

}  // namespace forebay::schedule
