// What tests of kernels against ref/ share: outputs that are compared whole, gaps too, and random
// inputs.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "base/rng.h"
#include "kernels/cuda/testing/launcher.h"
#include "kernels/packed_weight.h"
#include "kernels/testing/pack_rounded.h"
#include "kernels/testing/team.h"
#include "tensor/bf16.h"

namespace forebay::kernels::cuda::testing {

using tensor::DType;

inline constexpr DType kTypes[] = {DType::kBF16, DType::kF32};

// Memory of a kernel on the heap, of the exact size.
using Bytes = std::vector<std::byte>;

struct Output {
  std::byte* data;
  size_t bytes;
};
inline Output Of(Bytes& bytes) { return {bytes.data(), bytes.size()}; }
template <typename T>
Output Of(std::vector<T>& values) {
  return {reinterpret_cast<std::byte*>(values.data()), values.size() * sizeof(T)};
}

// Runs both from what the outputs hold now; they hold it again behind.
inline void ExpectSameBytes(const std::string& what,
                            const std::function<void(const device::WorkerContext&)>& ref,
                            const std::function<void(const device::LaunchContext&)>& cuda,
                            const std::vector<Output>& outputs) {
  static kernels::testing::Team team(1);
  std::vector<Bytes> before, expected;
  for (const Output& output : outputs) before.emplace_back(output.data, output.data + output.bytes);
  const auto restore = [&] {
    for (size_t i = 0; i < outputs.size(); ++i)
      std::copy(before[i].begin(), before[i].end(), outputs[i].data);
  };
  team.Run(ref);
  for (const Output& output : outputs)
    expected.emplace_back(output.data, output.data + output.bytes);
  for (int launch = 0; launch < TheLauncher().launches(); ++launch) {
    restore();
    const base::Status status = TheLauncher().Run(launch, cuda);
    ASSERT_TRUE(status.ok()) << what << ", launch " << launch << ": " << status.ToString();
    for (size_t i = 0; i < outputs.size(); ++i) {
      const auto [ours, theirs] =
          std::mismatch(expected[i].begin(), expected[i].end(), outputs[i].data);
      ASSERT_EQ(ours - expected[i].begin(), std::ssize(expected[i]))
          << what << ", launch " << launch << ", output " << i << ": the first byte that differs";
    }
  }
  restore();
}

template <typename Args>
void ExpectRefBytes(const std::string& what, void (*ref)(const Args&, const device::WorkerContext&),
                    void (*cuda)(const Args&, const device::WorkerContext&), const Args& args,
                    const std::vector<Output>& outputs) {
  ExpectSameBytes(
      what, [&](const device::WorkerContext& context) { ref(args, context); },
      [&](const device::LaunchContext& context) { cuda(args, context); }, outputs);
}

// Keeps what is enqueued.
class KeepingStream final : public device::Stream {
 public:
  void Enqueue(const device::Operation& operation) override { kept = operation; }
  void Record(device::DeviceEvent&) override {}
  void Wait(const device::DeviceEvent&) override {}
  void Post(device::Counter&, uint64_t) override {}
  void Await(device::Counter&, uint64_t) override {}

  device::Operation kept;
};

// The code of a plain operation against what it launches.
inline void ExpectCodesBytes(const device::Operation& operation,
                             const std::vector<Output>& outputs) {
  ASSERT_NE(operation.launch, nullptr);
  ExpectSameBytes(
      operation.desc.label,
      [&](const device::WorkerContext& context) { operation.run(operation.args.data(), context); },
      [&](const device::LaunchContext& context) {
        operation.launch(operation.args.data(), context);
      },
      outputs);
}

class Source {
 public:
  explicit Source(uint64_t seed) : rng_(seed) {}
  int Below(int n) { return static_cast<int>(rng_.Below(static_cast<uint64_t>(n))); }
  float Value(float scale = 1) { return scale * static_cast<float>(rng_.Uniform() * 2 - 1); }
  std::vector<float> Floats(size_t n, float scale = 1) {
    std::vector<float> values(n);
    for (float& value : values) value = Value(scale);
    return values;
  }
  // Values of `dtype`.
  Bytes Elements(DType dtype, size_t n, float scale = 1) {
    Bytes bytes(n * tensor::SizeOf(dtype));
    for (size_t i = 0; i < n; ++i) {
      const float value = Value(scale);
      const tensor::BF16 rounded = tensor::ToBF16(value);
      if (dtype == DType::kF32) {
        std::memcpy(&bytes[i * 4], &value, 4);
      } else {
        std::memcpy(&bytes[i * 2], &rounded, 2);
      }
    }
    return bytes;
  }
  // A tile of `width` columns that are used.
  Bytes Tile(DType dtype, int k, int width, bool gated, float scale) {
    std::vector<std::vector<float>> columns(kPanelColumns);
    const float* rows[kPanelColumns] = {};
    for (int c = 0; c < kPanelColumns; ++c) {
      if ((gated ? c % (kPanelColumns / 2) : c) >= width) continue;
      columns[static_cast<size_t>(c)] = Floats(static_cast<size_t>(k), scale);
      rows[c] = columns[static_cast<size_t>(c)].data();
    }
    Bytes tile(static_cast<size_t>((k + 1) / 2 * kPanelColumns * 2) * tensor::SizeOf(dtype));
    kernels::testing::PackRounded(dtype, k, rows, tile.data());
    return tile;
  }

 private:
  base::Rng rng_;
};

inline Bytes Poison(size_t bytes) { return Bytes(bytes, std::byte{0xFF}); }

// A weight of random tiles.
struct Weight {
  Weight(Source& source, DType dtype, const std::vector<int>& borders,
         const std::vector<int>& widths, bool gated, bool bias, float scale = 1) {
    weight.dtype = dtype;
    weight.k = borders.back();
    weight.leaves.num_leaves = static_cast<int>(borders.size()) - 1;
    std::ranges::copy(borders, weight.leaves.begin);
    weight.num_panels = static_cast<int>(widths.size());
    for (int leaf = 0; leaf < weight.leaves.num_leaves; ++leaf) {
      for (const int width : widths) {
        tiles.push_back(source.Tile(
            dtype, borders[static_cast<size_t>(leaf) + 1] - borders[static_cast<size_t>(leaf)],
            width, gated, scale));
      }
    }
    for (const Bytes& tile : tiles) pointers.push_back(tile.data());
    for (const int width : widths) {
      panels.push_back({weight.n, width});
      weight.n += width;
    }
    if (bias) biases = source.Floats(widths.size() * kPanelColumns);
    weight.tiles = pointers.data();
    weight.panels = panels.data();
    weight.bias = bias ? biases.data() : nullptr;
  }
  PackedWeight weight;
  std::vector<Bytes> tiles;
  std::vector<const std::byte*> pointers;
  std::vector<PanelColumns> panels;
  std::vector<float> biases;
};

}  // namespace forebay::kernels::cuda::testing
