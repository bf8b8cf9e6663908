#include "kernels/cpu/expand_inl.h"

namespace forebay::kernels::avx512f {
void Expand(const TilePart& part) { ExpandTile(part); }
}  // namespace forebay::kernels::avx512f
