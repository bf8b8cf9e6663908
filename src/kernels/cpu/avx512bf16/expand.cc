#include "kernels/cpu/expand_inl.h"

namespace forebay::kernels::avx512bf16 {
void Expand(const TilePart& part) { ExpandTile(part); }
void MultiplyPart(const RowsByPart& rows) { MultiplyRowsByPart(rows); }
}  // namespace forebay::kernels::avx512bf16
