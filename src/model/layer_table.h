// What a layer is made of: its kinds of blocks, and the matrices and vectors that these need, each
// with the role that it has. Layers of a model may differ in all of it. The table drives planning,
// loading and sharing alike.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/part.h"
#include "weights/book/placement.h"
#include "weights/loader.h"

namespace forebay::model {

struct AttentionKind;
struct FfnKind;

// What a matrix or a vector is for. A kind of block declares its own; the name is also the label of
// the operations that use it.
struct Role {
  const char* name;

  friend bool operator==(const Role& a, const Role& b) {
    return std::string_view(a.name) == b.name;
  }
};

enum class Block : uint8_t { kAttention, kFfn, kInputs };

// Which leaf of its layer a run belongs to; runs of one leaf can be computed with on their own.
enum class LeafRule : uint8_t {
  kOwn,     // its own leaf of K, or its expert: the leaves of this matrix are the layer's
  kReader,  // the leaf that reads a column
  kEven,    // none: tiles are dealt evenly over the leaves
};

struct PlannedMatrix {
  Role role;
  Block block;
  LeafRule leaf_rule;
  weights::MatrixPlan plan;
  // Used at several moments of a layer, and so never shared by ranks.
  bool kept = false;
  bool pooled = false;  // shared by ranks: not part of the rank's own weights

  kernels::PackedWeight geometry() const { return plan.Geometry(); }
  int32_t num_experts() const { return plan.num_experts; }
  weights::TensorKind tensors() const {
    return num_experts() > 0 ? weights::TensorKind::kExperts : weights::TensorKind::kDense;
  }
};

struct PlannedVector {
  Role role;
  std::string tensor;
  int64_t size;
  bool exact = false;     // kept as it is stored, not rounded to the compute type
  bool plus_one = false;  // stored less 1; the sum is exact enough in fp32, and is not rounded
  float factor = 1;       // of the stored elements, in fp32; where `exact`
  // Stored [size / taps, 1, taps], and kept [taps, size / taps]; 0: as it is stored.
  int64_t taps = 0;
  // The stored channels that the rank keeps, in this order, of `stored` ones; empty: all.
  std::vector<base::Part> kept = {};
  int64_t stored = 0;
  // The heads whose elements are packed in another order than they are stored in; null: none.
  const weights::HeadOrder order = {};
};

// The entry of that role; null: there is none.
template <typename Entry>
const Entry* FindRole(const std::vector<Entry>& entries, const Role& role) {
  for (const Entry& entry : entries) {
    if (entry.role == role) return &entry;
  }
  return nullptr;
}

struct LayerPlan {
  const AttentionKind* attention = nullptr;
  const FfnKind* ffn = nullptr;
  std::vector<PlannedMatrix> matrices;  // in the order of memory
  std::vector<PlannedVector> vectors;

  // REQUIRES: the layer has it.
  const weights::MatrixPlan& matrix(const Role& role) const {
    const PlannedMatrix* const entry = FindRole(matrices, role);
    FB_CHECK(entry != nullptr, "a layer has no matrix \"{}\"", role.name);
    return entry->plan;
  }
};

struct LoadedMatrix {
  Role role;
  bool pooled;
  weights::PlacedWeight placed;

  const kernels::PackedWeight& geometry() const { return placed.weight; }
  int32_t num_experts() const { return placed.num_experts; }
};

struct LoadedVector {
  Role role;
  const float* values;  // [size]
};

struct LayerWeights {
  const AttentionKind* attention = nullptr;
  const FfnKind* ffn = nullptr;
  std::vector<LoadedMatrix> matrices;  // as in the layer's plan; runs that lie elsewhere are null
  std::vector<LoadedVector> vectors;

  // REQUIRES: the layer has it.
  const weights::PlacedWeight& placed(const Role& role) const {
    const LoadedMatrix* const entry = FindRole(matrices, role);
    FB_CHECK(entry != nullptr, "a layer has no matrix \"{}\"", role.name);
    return entry->placed;
  }
  const kernels::PackedWeight& matrix(const Role& role) const { return placed(role).weight; }
  // Null: the layer has none.
  const float* vector(const Role& role) const {
    const LoadedVector* const entry = FindRole(vectors, role);
    return entry == nullptr ? nullptr : entry->values;
  }
};

// Whether ranks share the matrix. For ForEachRun.
template <typename Entry>
bool IsPooled(const Entry& entry) {
  return entry.pooled;
}
template <typename Entry>
bool IsOwn(const Entry& entry) {
  return !entry.pooled;
}

// Visits the runs of the layer's matrices that `take(entry)` chooses. All code numbers, places,
// pools and pulls runs in this one order: by matrix, then leaf and panel, or expert. Layer:
// LayerPlan or LayerWeights; visit(entry, weights::RunPlace).
template <typename Layer, typename Take, typename Visit>
void ForEachRun(Layer&& layer, Take take, Visit visit) {
  for (auto& entry : layer.matrices) {
    if (!take(entry)) continue;
    weights::ForEachRun(entry.geometry(), entry.num_experts(),
                        [&](const weights::RunPlace& run) { visit(entry, run); });
  }
}

}  // namespace forebay::model
