#include <vector>

#include "base/rng.h"
#include "bench/gpu/figures.h"
#include "kernels/cuda/launch/kernel_sets.h"
#include "kernels/draw.h"
#include "kernels/kernel_set.h"

namespace forebay::bench {

// Draws from 64 rows of Qwen3's vocabulary: logits about normal, and 40 tokens far above where the
// row is peaked.
void PrintDrawRates(Gpu& gpu) {
  constexpr int kRows = 64, kVocab = 151936, kLikely = 40;
  constexpr size_t kRowBytes = kVocab * sizeof(float);
  cu::DevicePtr logits = 0, drawn = 0;
  void* pinned = nullptr;
  gpu.Do(gpu.driver().MemAlloc(&logits, kRows * kRowBytes), "cuMemAlloc");
  gpu.Do(gpu.driver().MemAlloc(&drawn, 2 * kRows * sizeof(int32_t)), "cuMemAlloc");
  gpu.Do(gpu.driver().MemHostAlloc(&pinned, kRows * sizeof(kernels::DrawRow), cu::kHostPortable),
         "cuMemHostAlloc");
  auto* const rows = static_cast<kernels::DrawRow*>(pinned);
  auto* const tokens = reinterpret_cast<int32_t*>(drawn);
  const GpuLaunch context(gpu);
  for (const bool peaked : {true, false}) {
    std::vector<float> row(kVocab);
    base::Rng rng(3);
    for (float& x : row) {
      double sum = 0;
      for (int i = 0; i < 12; ++i) sum += rng.Uniform();
      x = static_cast<float>(sum - 6);
    }
    for (int i = 0; peaked && i < kLikely; ++i)
      row[rng.Below(kVocab)] = 14 + 4 * static_cast<float>(rng.Uniform());
    for (size_t i = 0; i < kRows; ++i) {
      gpu.Do(gpu.driver().MemcpyAsync(logits + i * kRowBytes,
                                      reinterpret_cast<cu::DevicePtr>(row.data()), kRowBytes,
                                      gpu.stream),
             "cuMemcpyAsync");
    }
    if (const base::Status status = gpu.Wait(); !status.ok()) Gpu::Exit(status);
    const auto print = [&](const char* what, const kernels::DrawRow& draw) {
      for (int i = 0; i < kRows; ++i) {
        rows[i] = draw;
        rows[i].unit = (i + 0.5) / kRows;
        rows[i].row = rows[i].sequence = i;
      }
      const kernels::DrawRowsArgs args{.logits = reinterpret_cast<const float*>(logits),
                                       .stride = kVocab,
                                       .vocab = kVocab,
                                       .num_draws = kRows,
                                       .weighed_draws = draw.temperature > 0 ? kRows : 0,
                                       .draws = rows,
                                       .drawn = tokens,
                                       .sampled = tokens + kRows};
      const double seconds =
          OnStream(gpu, [&] { kernels::cuda::PairKernels().draw_rows(args, context); });
      PrintFigure(
          fmt::format("draws of 64 {} rows of {}: {}", peaked ? "peaked" : "flat", kVocab, what),
          seconds * 1e6, "us");
    };
    print("greedy", {});
    print("temperature", {.temperature = 1});
    print("min_p", {.temperature = 1, .min_p = 0.05f});
    print("top_k", {.temperature = 1, .top_k = 20});
    print("top_k and top_p", {.temperature = 1, .top_p = 0.95f, .top_k = 20});
    print("top_p", {.temperature = 1, .top_p = 0.95f});
  }
}

}  // namespace forebay::bench
