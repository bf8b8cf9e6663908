// Class `amx` on machines that have no tiles: its loop on model tiles, and its oracle. For tests;
// no name chooses them.
#pragma once

#include <tuple>
#include <utility>
#include <vector>

#include "kernels/kernel_set.h"
#include "kernels/linear_sets.h"
#include "kernels/tile_attention.h"

namespace forebay::kernels::testing {

// `set`, with linear layers of class `amx`.
inline KernelSet WithTiles(KernelSet set, const char* name, TileOrder order, LinearFunction linear,
                           ExpertsFunction experts) {
  set.name = name;
  set.numerics_class = NumericsClassOf(order);
  set.linear = linear;
  set.experts = experts;
  return set;
}
inline KernelSet OracleOfTiles(TileOrder order) {
  return WithTiles(RefKernels(), "ref of amx", order, ref::TileLinear(order),
                   ref::TileExperts(order));
}
inline KernelSet ModelTileKernels(TileOrder order) {
  const KernelSet fastest_pair =
      **ChooseKernels(__builtin_cpu_supports("avx512f") ? "avx512f" : "avx2");
  return WithTiles(fastest_pair, "amx on model tiles", order, amx::LinearOnModelTiles(order),
                   amx::ExpertsOnModelTiles(order));
}
// The same of class `amx_*_p1024`, which attends on tiles too.
inline KernelSet WithParts(KernelSet set, TileOrder order, AttentionFunction attention) {
  set.numerics_class = PartClassOf(order);
  set.attention = attention;
  return set;
}
inline KernelSet OracleOfParts(TileOrder order) {
  return WithParts(OracleOfTiles(order), order, ref::TileAttention(order));
}
inline KernelSet ModelPartKernels(TileOrder order) {
  return WithParts(ModelTileKernels(order), order, amx::AttentionOnModelTiles(order));
}
inline bool HasModelTiles() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

// What this machine can run, each with the oracle of its class.
inline std::vector<std::pair<KernelSet, KernelSet>> SetsWithOracles() {
  std::vector<std::pair<KernelSet, KernelSet>> sets;
  for (const KernelSet* set : AvailableKernels()) {
    sets.emplace_back(*set,
                      set->isa == Isa::kAmx ? OracleOfTiles(HardwareTileOrder()) : RefKernels());
    // What older CPUs multiply codes of int8 with.
    for (const auto& [isa, linear, experts] :
         {std::tuple(Isa::kAvx2, &avx2::Linear, &avx2::Experts),
          std::tuple(Isa::kAvx512f, &avx512f::Linear, &avx512f::Experts)}) {
      if (set->isa != isa || set->linear == linear) continue;
      KernelSet plain = *set;
      plain.name = "without VNNI";
      plain.linear = linear;
      plain.experts = experts;
      sets.emplace_back(plain, RefKernels());
    }
  }
  for (const TileOrder order : kTileOrders) {
    if (HasModelTiles()) sets.emplace_back(ModelTileKernels(order), OracleOfTiles(order));
  }
  return sets;
}

}  // namespace forebay::kernels::testing
