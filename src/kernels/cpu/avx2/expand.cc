#include "kernels/cpu/expand_inl.h"

namespace forebay::kernels::avx2 {
void Expand(const TilePart& part) { ExpandTile(part); }
}  // namespace forebay::kernels::avx2
