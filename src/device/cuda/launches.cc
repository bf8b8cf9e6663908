#include "device/cuda/launches.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <iterator>
#include <string_view>
#include <utility>

namespace forebay::device {

CudaLaunches::~CudaLaunches() {
  for (const Run& run : runs_) {
    if (run.graph != nullptr) driver_.GraphExecDestroy(run.graph);
  }
  DestroyDropped();
}

void CudaLaunches::DestroyDropped() {
  for (const cu::GraphExec graph : dropped_) driver_.GraphExecDestroy(graph);
  dropped_.clear();
}

bool CudaLaunches::SameLaunch(const Run& a, const Run& b, size_t launch) {
  if (launch >= a.launches.size() || launch >= b.launches.size()) return false;
  const Launch &x = a.launches[launch], &y = b.launches[launch];
  return x.kernel == y.kernel && x.shape == y.shape && x.bytes == y.bytes &&
         std::memcmp(a.params.data() + x.params_at, b.params.data() + y.params_at, x.bytes) == 0;
}

size_t CudaLaunches::HashOf(const Run& run) {
  const Launch& first = run.launches.front();
  const std::string_view params(reinterpret_cast<const char*>(run.params.data()), first.bytes);
  return std::hash<std::string_view>()(params) ^ std::hash<const void*>()(first.kernel);
}

void CudaLaunches::Keep(Run run) {
  runs_.push_front(std::move(run));
  by_first_.emplace(HashOf(runs_.front()), runs_.begin());
  if (runs_.size() <= kMostRuns) return;
  const auto last = std::prev(runs_.end());
  if (last->graph != nullptr) dropped_.push_back(last->graph);
  const auto [begin, end] = by_first_.equal_range(HashOf(*last));
  by_first_.erase(
      std::find_if(begin, end, [&](const auto& entry) { return entry.second == last; }));
  runs_.pop_back();
}

base::Status CudaLaunches::IssueRest() {
  base::Status first;
  for (; issued_ < now_.launches.size(); ++issued_) {
    const Launch& launch = now_.launches[issued_];
    base::Status status = modules_.Launch(*launch.kernel, launch.function, launch.shape,
                                          now_.params.data() + launch.params_at, stream_);
    if (first.ok()) first = std::move(status);
  }
  return first;
}

base::Status CudaLaunches::Add(const CudaKernel& kernel, LaunchShape shape, const void* params,
                               size_t bytes) {
  const size_t at = now_.launches.size();
  shape.overlaps &= at > 0;
  ++kernels_;
  if (!graphs_) {
    const base::Status before = Flush();
    const base::Status status = modules_.Launch(kernel, shape, params, stream_);
    return before.ok() ? status : before;
  }
  FB_ASSIGN_OR_RETURN(const cu::Function function, modules_.Prepare(kernel, shape));
  now_.launches.push_back({&kernel, function, shape, now_.params.size(), bytes});
  const auto* const from = static_cast<const std::byte*>(params);
  now_.params.insert(now_.params.end(), from, from + bytes);
  if (at == 0) {
    const auto [begin, end] = by_first_.equal_range(HashOf(now_));
    for (auto entry = begin; entry != end; ++entry) alike_.push_back(entry->second);
  }
  std::erase_if(alike_, [&](const auto& run) { return !SameLaunch(*run, now_, at); });
  base::Status status;
  if (alike_.empty()) status = IssueRest();
  if (now_.launches.size() < kMostInGraph) return status;
  const base::Status ended = EndRun();
  return status.ok() ? ended : status;
}

base::Status CudaLaunches::Flush() { return now_.launches.empty() ? base::Status() : EndRun(); }

base::Status CudaLaunches::EndRun() {
  const auto same = std::ranges::find_if(
      alike_, [&](const auto& run) { return run->launches.size() == now_.launches.size(); });
  base::Status status;
  if (same != alike_.end() && graphs_) {
    const auto run = *same;
    runs_.splice(runs_.begin(), runs_, run);
    if (run->graph == nullptr) status = MakeGraph(&*run);
    if (status.ok())
      status = driver_.Check(driver_.GraphLaunch(run->graph, stream_), "launching a graph");
    in_graphs_ += static_cast<int64_t>(now_.launches.size());
  } else {
    status = IssueRest();
    if (now_.launches.size() >= kLeastInGraph) Keep(std::exchange(now_, {}));
  }
  now_.launches.clear();
  now_.params.clear();
  alike_.clear();
  issued_ = 0;
  return status;
}

base::Status CudaLaunches::MakeGraph(Run* run) {
  FB_RETURN_IF_ERROR(
      driver_.Check(driver_.StreamBeginCapture(stream_, cu::kCaptureThread), "capturing a graph"));
  const base::Status launched = IssueRest();
  cu::Graph graph = nullptr;
  base::Status status =
      driver_.Check(driver_.StreamEndCapture(stream_, &graph), "capturing a graph");
  if (!launched.ok()) status = launched;
  if (status.ok())
    status =
        driver_.Check(driver_.GraphInstantiateWithFlags(&run->graph, graph, 0), "making a graph");
  if (graph != nullptr) driver_.GraphDestroy(graph);
  return status;
}

}  // namespace forebay::device
