#include "kernels/cpu/expand_inl.h"

namespace forebay::kernels::avx512bf16 {
void Expand(const TilePart& part) { ExpandTile(part); }
}  // namespace forebay::kernels::avx512bf16
