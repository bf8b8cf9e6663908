#include "device/copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "device/lone_worker.h"

namespace forebay::device {
namespace {

void RunAlone(const Operation& operation) {
  const LoneWorker worker;
  operation.run(operation.args.data(), worker);
}

TEST(CopyTest, EveryByteAndNoOtherFromAnyPlaceToAnyPlace) {
  constexpr uint64_t kMost = 2 * kLeastPastCaches, kGuard = 64;
  std::vector<std::byte> source(kMost + kGuard);
  base::Rng rng(5);
  for (std::byte& byte : source) byte = static_cast<std::byte>(rng.Next() % 255 + 1);
  for (const CopyUse use : {CopyUse::kSoon, CopyUse::kLater}) {
    for (const uint64_t bytes : {uint64_t{0}, uint64_t{1}, uint64_t{63}, kLeastPastCaches - 1,
                                 kLeastPastCaches, kLeastPastCaches + 77, kMost}) {
      for (const auto& [shift_to, shift_from] : {std::pair{0, 0}, {0, 1}, {1, 0}, {63, 16}}) {
        std::vector<std::byte> destination(kMost + 2 * kGuard);
        std::byte* const to = destination.data() + shift_to;
        const std::byte* const from = source.data() + shift_from;
        RunAlone(MakeCopy("copy", to, from, bytes, use));
        std::vector<std::byte> expected(destination.size());
        std::copy_n(from, bytes, expected.begin() + (to - destination.data()));
        ASSERT_EQ(destination, expected)
            << bytes << " bytes, shifted by " << shift_from << " to " << shift_to;
      }
    }
  }
}

}  // namespace
}  // namespace forebay::device
