// Numerics classes `mma_*`: the orders in which tensor cores of GPUs add products of bf16.
//
// A step adds `depth` products to a sum in fp32:
//   products and sum are aligned to the greatest exponent among those that are not zero (at least
//   -126), cut towards zero `bits` bits below it, added exactly, and cut towards zero to fp32.
//   A result of zero is +0. Denormals, of operands, sum and result, count as they are. Where an
//   operand or the sum is not finite, the result is that of IEEE: infinity, or NaN as 0x7FFFFFFF.
// A dot product is a chain of steps along K, from +0 on, K padded with +0 to whole steps. A step of
// zeros changes nothing, so that kernels may pad further.
//
// What a class makes of it:
//   linear layers   one chain a leaf; leaves are added in the tree of kernels/linear.h
//   attention       kernels/mma_attention.h
// All else is as in class `pair`, and so are all numbers with --dtype float32.
//
// kK16F25 is what an H100 and an H200 gave, by mma.sync and by wgmma, on 98,304 adversarial values
// each; published models (arXiv 2511.10909, 2512.07004) say the same of Hopper and, of kK8F24, that
// Ampere and Ada sum so. kK8F24 was not tried on hardware.
#pragma once

#include <cstdint>

namespace forebay::kernels {

enum class MmaOrder : uint8_t {
  kK16F25,  // Hopper: 16 products, 25 bits
  kK8F24,   // Ampere, Ada: 8 products, 24 bits
};
inline constexpr MmaOrder kMmaOrders[] = {MmaOrder::kK16F25, MmaOrder::kK8F24};

// "mma_k16f25", ...
constexpr const char* NumericsClassOf(MmaOrder order) {
  return order == MmaOrder::kK16F25 ? "mma_k16f25" : "mma_k8f24";
}

}  // namespace forebay::kernels
