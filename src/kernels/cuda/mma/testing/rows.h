// What tests of kernels of class mma_k16f25 share: rows of bf16 in either form, and launches whose
// output shall be that of ref/.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "base/rng.h"
#include "kernels/cuda/launch/mma.h"
#include "kernels/cuda/registry.h"
#include "kernels/cuda/testing/launcher.h"
#include "kernels/packed_form.h"
#include "kernels/testing/team.h"
#include "tensor/bf16.h"

namespace forebay::kernels::cuda::testing {

using tensor::BF16;
using Bytes = std::vector<std::byte>;

inline constexpr std::byte kPoison{0xFF};  // NaN

// Those that run ref/: on a GPU's machine with large shapes.
inline kernels::testing::Team& Oracle() {
  static kernels::testing::Team team(TheLauncher().fast() ? 16 : 1);
  return team;
}

// Launches the plan in every schedule; `out`, poisoned before each, shall be `expected` behind.
template <typename Params>
void ExpectBytes(const std::string& what, const KernelPlan& plan, const Params& params,
                 const Bytes& expected, Bytes& out) {
  for (int launch = 0; launch < TheLauncher().launches(); ++launch) {
    std::ranges::fill(out, kPoison);
    const base::Status status =
        TheLauncher().Run(launch, [&](const device::LaunchContext& context) {
          context.Launch(KernelNamed(plan.kernel), plan.shape, params);
        });
    ASSERT_TRUE(status.ok()) << what << ", launch " << launch << ": " << status.ToString();
    const auto [ours, theirs] = std::ranges::mismatch(expected, out);
    ASSERT_EQ(ours - expected.begin(), std::ssize(expected))
        << what << " by " << plan.kernel << ", launch " << launch
        << ": the first byte that differs";
  }
}

// Values of bf16 [rows, columns], as fp32.
inline std::vector<float> RandomMatrix(base::Rng& rng, int rows, int columns) {
  std::vector<float> values(static_cast<size_t>(rows) * static_cast<size_t>(columns));
  for (float& value : values)
    value = tensor::ToFloat(tensor::ToBF16(static_cast<float>(rng.Uniform() * 2 - 1)));
  return values;
}

// Puts rows of bf16, `stride` elements apart, where they lie in the form.
inline void PutRows(RowForm form, const std::byte* rows, int num_rows, int columns, int64_t stride,
                    Bytes* to) {
  for (int row = 0; row < num_rows; ++row) {
    for (int column = 0; column < columns; ++column) {
      std::memcpy(to->data() + InRows(form, row, column, columns),
                  rows + (row * stride + column) * int64_t{sizeof(BF16)}, sizeof(BF16));
    }
  }
}
// A buffer of such rows: the others are poison.
inline Bytes FormedRows(RowForm form, const std::byte* rows, int num_rows, int columns,
                        int64_t stride) {
  Bytes formed(static_cast<size_t>(RoomForRows(form, num_rows) * columns) * sizeof(BF16), kPoison);
  PutRows(form, rows, num_rows, columns, stride, &formed);
  return formed;
}

}  // namespace forebay::kernels::cuda::testing
