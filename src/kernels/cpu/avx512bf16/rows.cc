#define FB_SET avx512bf16
#include "kernels/cpu/rows_of_set.h"
