// Both ends of a linear layer in every CPU set: where a row of x lies, and what becomes of finished
// sums (bias, output mode, rounding).
#pragma once

#include "kernels/cpu/simd.h"
#include "kernels/linear.h"

namespace forebay::kernels {
namespace {

struct Rows {
  int64_t begin, end;
};
// One of `parts` nearly equal parts.
FB_INLINE Rows Part(int64_t total, int64_t i, int64_t parts) {
  return {total * i / parts, total * (i + 1) / parts};
}

// Row `row` of the layer's input.
template <int64_t kElement>
FB_INLINE const std::byte* XRow(const LinearArgs& args, int64_t row) {
  return args.x + (args.x_rows == nullptr ? row : args.x_rows[row]) * args.x_stride * kElement;
}

template <LinearOutput kOutput>
FB_INLINE Vector GatedProduct(Vector gate, Vector up) {
  if constexpr (kOutput == LinearOutput::kGeluMul) return Gelu(gate) * up;
  if constexpr (kOutput == LinearOutput::kErfGeluMul) return ErfGelu(gate) * up;
  if constexpr (kOutput == LinearOutput::kClampedSiluMul) return ClampedSilu(gate) * ClampedUp(up);
  return Silu(gate) * up;
}

// 16 finished sums of a row; n of them go to y.
template <typename T, LinearOutput kOutput>
FB_INLINE void FinishLanes(const float* sums, const float* bias, std::byte* y, int64_t n) {
  Vector sum = Vector::Load(sums);
  if (bias != nullptr) sum = sum + Vector::Load(bias);
  T* const out = reinterpret_cast<T*>(y);
  switch (kOutput) {
    case LinearOutput::kF32:
    case LinearOutput::kPartial: StorePart(reinterpret_cast<float*>(y), sum, n); break;
    case LinearOutput::kRounded: StorePart(out, sum, n); break;
    case LinearOutput::kResidual: StorePart(out, sum + LoadPart(out, n), n); break;
    case LinearOutput::kErfGelu: StorePart(out, ErfGelu(sum), n); break;
    case LinearOutput::kReluSquared: StorePart(out, ReluSquared(sum), n); break;
    case LinearOutput::kSiluMul:
    case LinearOutput::kGeluMul:
    case LinearOutput::kErfGeluMul:
    case LinearOutput::kClampedSiluMul: {
      Vector up = Vector::Load(sums + kPanelColumns / 2);
      if (bias != nullptr) up = up + Vector::Load(bias + kPanelColumns / 2);
      StorePart(out, GatedProduct<kOutput>(sum, up), n);
    }
  }
}

template <typename T, LinearOutput kOutput>
void FinishRows(const LinearArgs& args, Rows rows, int64_t panel, int64_t plane,
                const float* sums) {
  constexpr bool kIsF32 = kOutput == LinearOutput::kF32 || kOutput == LinearOutput::kPartial;
  constexpr int64_t kElement = kIsF32 ? sizeof(float) : sizeof(T);
  constexpr int kWidth = IsGated(kOutput) ? kPanelColumns / 2 : kPanelColumns;
  const PanelColumns columns = args.weight.panels[panel];
  const float* const bias = kOutput == LinearOutput::kPartial || args.weight.bias == nullptr
                                ? nullptr
                                : args.weight.bias + panel * kPanelColumns;
  std::byte* y =
      args.y + ((plane * args.rows + rows.begin) * args.y_stride + columns.column) * kElement;
  for (int64_t row = rows.begin; row < rows.end;
       ++row, sums += kPanelColumns, y += args.y_stride * kElement) {
    if (columns.width == kWidth) {
#pragma GCC unroll 4
      for (int c = 0; c < kWidth; c += kLanes) {
        FinishLanes<T, kOutput>(sums + c, bias == nullptr ? nullptr : bias + c, y + c * kElement,
                                kLanes);
      }
    } else {
      for (int c = 0; c < columns.width; c += kLanes) {
        FinishLanes<T, kOutput>(sums + c, bias == nullptr ? nullptr : bias + c, y + c * kElement,
                                columns.width - c);
      }
    }
  }
}

// Prefetches, for kResidual, the lines of y to which the sums of rows [begin, end) will be added.
template <typename T>
FB_INLINE void PrefetchY(const LinearArgs& args, Rows rows, int64_t panel) {
  const PanelColumns columns = args.weight.panels[panel];
  const int64_t stride = args.y_stride * static_cast<int64_t>(sizeof(T));
  const int64_t bytes = columns.width * static_cast<int64_t>(sizeof(T));
  const char* y = reinterpret_cast<const char*>(args.y) + rows.begin * stride +
                  columns.column * static_cast<int64_t>(sizeof(T));
  for (int64_t row = rows.begin; row < rows.end; ++row, y += stride) {
    for (int64_t at = 0; at < bytes; at += 64) _mm_prefetch(y + at, _MM_HINT_T0);
  }
}

// sums: of rows [begin, end), [rows][64].
template <typename T>
FB_INLINE void FinishTile(const LinearArgs& args, Rows rows, int64_t panel, int64_t plane,
                          const float* sums) {
  switch (args.output) {
    case LinearOutput::kF32:
      return FinishRows<T, LinearOutput::kF32>(args, rows, panel, plane, sums);
    case LinearOutput::kRounded:
      return FinishRows<T, LinearOutput::kRounded>(args, rows, panel, plane, sums);
    case LinearOutput::kResidual:
      return FinishRows<T, LinearOutput::kResidual>(args, rows, panel, plane, sums);
    case LinearOutput::kSiluMul:
      return FinishRows<T, LinearOutput::kSiluMul>(args, rows, panel, plane, sums);
    case LinearOutput::kPartial:
      return FinishRows<T, LinearOutput::kPartial>(args, rows, panel, plane, sums);
    case LinearOutput::kGeluMul:
      return FinishRows<T, LinearOutput::kGeluMul>(args, rows, panel, plane, sums);
    case LinearOutput::kClampedSiluMul:
      return FinishRows<T, LinearOutput::kClampedSiluMul>(args, rows, panel, plane, sums);
    case LinearOutput::kErfGelu:
      return FinishRows<T, LinearOutput::kErfGelu>(args, rows, panel, plane, sums);
    case LinearOutput::kReluSquared:
      return FinishRows<T, LinearOutput::kReluSquared>(args, rows, panel, plane, sums);
    case LinearOutput::kErfGeluMul:
      return FinishRows<T, LinearOutput::kErfGeluMul>(args, rows, panel, plane, sums);
  }
}

}  // namespace
}  // namespace forebay::kernels
