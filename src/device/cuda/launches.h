// The kernel launches of one stream. Where the same launches come again, with the same grids and
// parameters byte for byte, they go to the driver in one call, as a graph: a step of decoding has
// some hundred launches, and its rows, positions and tables lie in control memory.
//
// Launches are told apart by nothing but their bytes, so a graph can never run others than those
// that were asked for. Runs of launches end where the stream does something else, or after
// kMostInGraph. A run that begins as a known one is kept back until it ends; any other goes to the
// driver launch by launch, and is known from then on. A known run becomes a graph when it comes
// again.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <unordered_map>
#include <vector>

#include "device/cuda/modules.h"
#include "device/device.h"

namespace forebay::device {

// The task's that enqueues, but for `counts`. REQUIRES of all calls: the context is current on the
// thread.
class CudaLaunches {
 public:
  // After so many launches the first graph of a step begins, while the host prepares the next.
  static constexpr size_t kMostInGraph = 32;
  // A shorter run gains nothing.
  static constexpr size_t kLeastInGraph = 4;
  // Of runs, the one used longest ago goes: 64 steps of 28 layers.
  static constexpr size_t kMostRuns = 640;

  // `graphs`: while it holds. The driver may wait for all streams when it makes a graph, so there
  // are none where ranks meet.
  CudaLaunches(const Driver& driver, CudaModules& modules, cu::Stream stream, const bool& graphs)
      : driver_(driver), modules_(modules), stream_(stream), graphs_(graphs) {}
  ~CudaLaunches();
  CudaLaunches(const CudaLaunches&) = delete;

  // A kernel overlaps with the one before it (LaunchShape::overlaps) within a run alone.
  // Errors of all calls: kCudaUnavailable, kCudaFailed.
  base::Status Add(const CudaKernel& kernel, LaunchShape shape, const void* params, size_t bytes);
  // The driver has all that was added.
  base::Status Flush();
  // The stream has nothing to do: graphs that were dropped can go.
  void DestroyDropped();

  // Any thread.
  LaunchCounts counts() const { return {kernels_, in_graphs_}; }

 private:
  struct Launch {
    const CudaKernel* kernel;
    cu::Function function;
    LaunchShape shape;
    size_t params_at, bytes;
  };
  struct Run {
    std::vector<Launch> launches;
    std::vector<std::byte> params;  // of all launches
    cu::GraphExec graph = nullptr;
  };

  using Runs = std::list<Run>;

  static bool SameLaunch(const Run& a, const Run& b, size_t launch);
  // Of its first launch.
  static size_t HashOf(const Run& run);
  void Keep(Run run);
  // Issues what was kept back.
  base::Status IssueRest();
  base::Status EndRun();
  base::Status MakeGraph(Run* run);

  const Driver& driver_;
  CudaModules& modules_;
  const cu::Stream stream_;
  const bool& graphs_;
  Run now_;
  size_t issued_ = 0;                                         // of now_
  Runs runs_;                                                 // the one used last first
  std::unordered_multimap<size_t, Runs::iterator> by_first_;  // by HashOf
  std::vector<Runs::iterator> alike_;  // that begin as now_; none once it was issued
  std::vector<cu::GraphExec> dropped_;
  std::atomic<int64_t> kernels_{0}, in_graphs_{0};
};

}  // namespace forebay::device
