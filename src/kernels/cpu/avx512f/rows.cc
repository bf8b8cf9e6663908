#define FB_SET avx512f
#include "kernels/cpu/rows_of_set.h"
