// Vasuki's two jobs: the lengths of their requests, and whole runs of them on one simulated device
// with little memory.
#pragma once

#include <cstdint>

#include "layout/options.h"
#include "repro/lab.h"
#include "repro/vasuki/offload.h"

namespace forebay::repro {

inline constexpr double kGigabyte = 1e9;

// The summarization of arXiv articles, whose lengths Vidur publishes, and the translation of books,
// of which the paper gives mean and deviation. Beside them chats of ShareGPT whose answers are
// longer than their prompts: they are short, so that many fit in any case.
enum class Task : uint8_t { kSummarization, kTranslation, kChat };

// Means of the first two.
MeanLengths LengthsOf(Task task);
// The requests of a whole job.
trace::LengthTrace TraceOf(Task task);
// Every 20th request of the published trace, all that the tables of the paper run.
trace::LengthTrace ArxivTrace();

struct VasukiJob {
  Task task = Task::kTranslation;
  double room_gb = 7.1;  // for KV; 0: what the device's memory leaves
  const char* device = "a10";
  int64_t chunk = 512;
  bool shortest_first = false;  // in the file: what has ended says too little of what is to come
};

// How it is run.
struct VasukiRun {
  const char* policy = "continuous";
  bool tier = true;  // 8 GiB of the host's memory
  layout::Offloading offload = layout::Offloading::kOff;
  layout::Preempting preempt = layout::Preempting::kAuto;
};

// A tenth or so of the requests of the paper's jobs: 200 of translation, 354 of summarization,
// 1,135 chats; an eighth of these in a quick lab.
base::Result<const trace::SimulationResult*> RunVasuki(const VasukiJob& job, const VasukiRun& run,
                                                       Lab& lab);

}  // namespace forebay::repro
