// The parts of one kind of device, which layout/platform.h plans: devices, counters, fabrics,
// and what answers say of them. A kind has a file here and a row in compose.cc
// (docs/recipes/device.md).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "device/device.h"
#include "fabric/fabric.h"
#include "layout/job_groups.h"
#include "layout/layout_draft.h"
#include "layout/options.h"
#include "runtime/runtime.h"

namespace forebay::engine {

using Devices = std::vector<std::unique_ptr<device::Device>>;
using Fabrics = std::vector<std::unique_ptr<fabric::Fabric>>;

// Outlives all that it makes.
class Backend {
 public:
  virtual ~Backend() = default;
  // Operations compute on data; else devices know shapes alone, and weights are not read.
  virtual bool computes() const { return true; }
  // The devices of a group, by rank, with the memory that the plan gives them.
  virtual base::Result<Devices> MakeDevices(const layout::JobGroup& group) = 0;
  // Whether a stream's calls may wait until it has run something: then each rank of a replica has a
  // task that enqueues.
  virtual bool enqueue_waits() const { return false; }
  // `name` appears in reports of deadlocks.
  virtual std::unique_ptr<device::Counter> NewCounter(std::string name) = 0;
  // The fabrics of ranks that pull and meet, by rank.
  virtual Fabrics NewFabric(int num_ranks) = 0;
  // The fabrics of ranks of several groups, which pull and never meet.
  virtual Fabrics NewPullFabric(int num_ranks) = 0;
  // What computes, as a summary names it: LocalEngine::isa.
  virtual std::string isa() const = 0;
  // The order of sums and the types that an answer depends on: ModelFacts::numerics_class.
  virtual std::string NumericsClass(const layout::LayoutDraft& plan) const = 0;
};

// What devices that compute say of their plan: its kernels' class, types, the form of latents.
std::string ComputedClass(const layout::LayoutDraft& plan);

// `runtime` and the plan's kernels outlive the backend.
std::unique_ptr<Backend> CreateCpuBackend(runtime::Runtime& runtime,
                                          const layout::LayoutDraft& plan,
                                          const layout::EngineOptions& options);
std::unique_ptr<Backend> CreateCudaBackend(runtime::Runtime& runtime,
                                           const layout::LayoutDraft& plan,
                                           const layout::EngineOptions& options);
// REQUIRES: `runtime` is a VirtualRuntime.
std::unique_ptr<Backend> CreateSimBackend(runtime::Runtime& runtime,
                                          const layout::LayoutDraft& plan,
                                          const layout::EngineOptions& options);

}  // namespace forebay::engine
