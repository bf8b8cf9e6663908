#include <algorithm>
#include <cstring>

#include "kernels/expand.h"
#include "kernels/norm.h"
#include "kernels/sets.h"
#include "tensor/bf16.h"

namespace forebay::kernels::ref {
namespace {

// The panel that holds output `column`, or -1 (another rank's vocabulary shard).
int FindPanel(const PackedWeight& weight, int32_t column) {
  int low = 0, high = weight.num_panels;
  while (low < high) {
    const int middle = (low + high) / 2;
    const PanelColumns& panel = weight.panels[middle];
    if (column < panel.column) {
      high = middle;
    } else if (column >= panel.column + panel.width) {
      low = middle + 1;
    } else {
      return middle;
    }
  }
  return -1;
}

// Row `token` of the packed matrix, pair by pair; zeros where it is not here.
template <typename T>
void GatherRow(const EmbedArgs& args, int32_t token, T* out) {
  const int panel = FindPanel(args.packed, token);
  if (panel < 0) {
    std::fill_n(out, args.columns, T{});
    return;
  }
  const int32_t column = token - args.packed.panels[panel].column;
  if (args.packed.FormOf(panel) != TileForm::kExpanded) {
    return ExpandColumn(PartOf(args.packed, 0, panel, reinterpret_cast<std::byte*>(out)), column);
  }
  const T* tile = reinterpret_cast<const T*>(args.packed.tiles[panel]);
  const T* pair = tile + column * 2;
  for (int32_t j = 0; j < args.columns; j += 2, pair += kPanelColumns * 2) {
    out[j] = pair[0];
    if (j + 1 < args.columns) out[j + 1] = pair[1];
  }
}

template <typename T>
void AddPosition(const EmbedArgs& args, int64_t row, T* out) {
  const int32_t position = args.batch.positions[row];
  const int64_t of_row = args.batch.types ? args.batch.types[row] : 0;
  const T* type =
      args.types ? reinterpret_cast<const T*>(args.types) + of_row * args.columns : nullptr;
  const T* learned = reinterpret_cast<const T*>(args.positions) +
                     int64_t{position + args.position_offset} * args.columns;
  for (int32_t j = 0; j < args.columns; ++j) {
    const float typed = tensor::ToFloat(out[j]) + (type ? tensor::ToFloat(type[j]) : 0.0f);
    out[j] = tensor::RoundTo<T>(typed + tensor::ToFloat(learned[j]));
  }
}

template <typename T>
void EmbedRows(const EmbedArgs& args, device::Range rows) {
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const int32_t entry = args.batch.tokens[row];
    const int32_t token = entry >= 0 ? entry : args.batch.sampled[~entry];
    T* out = reinterpret_cast<T*>(args.out) + row * args.columns;
    if (args.table == nullptr) {
      GatherRow(args, token, out);
    } else {
      const T* from =
          reinterpret_cast<const T*>(args.table) + static_cast<int64_t>(token) * args.columns;
      std::memcpy(out, from, static_cast<size_t>(args.columns) * sizeof(T));
    }
    if (args.positions != nullptr) AddPosition(args, row, out);
    if (args.factor == 1.0f) continue;
    for (int32_t j = 0; j < args.columns; ++j)
      out[j] = tensor::RoundTo<T>(tensor::ToFloat(out[j]) * args.factor);
  }
}

}  // namespace

void Embed(const EmbedArgs& args, const device::WorkerContext& context) {
  const device::Range rows = StaticPart(context, args.batch.num_rows);
  args.dtype == tensor::DType::kF32 ? EmbedRows<float>(args, rows)
                                    : EmbedRows<tensor::BF16>(args, rows);
}

}  // namespace forebay::kernels::ref
