#include "device/cuda/testing/driver_under_test.h"

#include <gtest/gtest.h>

#include "device/cuda/testing/emulated_driver.h"
#include "runtime/real/real_runtime.h"
#include "runtime/virtual/virtual_runtime.h"

namespace forebay::device::testing {
namespace {

const Driver* real = nullptr;

}  // namespace

void SetRealDriver(const Driver* driver) { real = driver; }
const Driver* RealDriver() { return real; }

void OnDriver(int num_seeds,
              const std::function<void(const Driver& driver, runtime::Runtime& runtime)>& body) {
  if (real != nullptr) return body(*real, *runtime::CreateRealRuntime());
  for (int seed = 0; seed < num_seeds && !::testing::Test::HasFailure(); ++seed) {
    EmulatedDriver emulated({.seed = static_cast<uint64_t>(seed)});
    runtime::VirtualRuntime runtime(static_cast<uint64_t>(seed));
    const base::Status status = runtime.Run([&] { body(emulated.driver(), runtime); });
    EXPECT_TRUE(status.ok()) << status.ToString();
    EXPECT_EQ(emulated.Leaks(), "");
    if (::testing::Test::HasFailure()) ADD_FAILURE() << "with seed " << seed;
  }
}

}  // namespace forebay::device::testing
