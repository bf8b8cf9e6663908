// Runs a test's body on the real runtime, and on the virtual one over many seeds.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "runtime/real/real_runtime.h"
#include "runtime/virtual/virtual_runtime.h"

namespace forebay::runtime {

enum class RuntimeKind { kReal, kVirtual };

class OnBothRuntimes : public testing::TestWithParam<RuntimeKind> {
 protected:
  bool is_virtual() const { return GetParam() == RuntimeKind::kVirtual; }

  void Run(const std::function<void(Runtime&)>& body, int num_seeds = 50) {
    if (!is_virtual()) return body(*CreateRealRuntime());
    for (int seed = 0; seed < num_seeds && !HasFailure(); ++seed) {
      VirtualRuntime runtime(seed);
      const base::Status status = runtime.Run([&] { body(runtime); });
      EXPECT_TRUE(status.ok()) << status.ToString();
      if (HasFailure()) ADD_FAILURE() << "with seed " << seed;
    }
  }
};

inline std::string NameOf(const testing::TestParamInfo<RuntimeKind>& info) {
  return info.param == RuntimeKind::kReal ? "Real" : "Virtual";
}

// Instantiates a test suite that derives from OnBothRuntimes.
#define FB_ON_BOTH_RUNTIMES(suite)                                                     \
  INSTANTIATE_TEST_SUITE_P(, suite,                                                    \
                           testing::Values(::forebay::runtime::RuntimeKind::kReal,     \
                                           ::forebay::runtime::RuntimeKind::kVirtual), \
                           ::forebay::runtime::NameOf)

}  // namespace forebay::runtime
