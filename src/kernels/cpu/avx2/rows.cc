#define FB_SET avx2
#include "kernels/cpu/rows_of_set.h"
