#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "fabric/fabric.h"

namespace forebay::fabric {

using CounterFactory = std::function<std::unique_ptr<device::Counter>(std::string name)>;

// What a stream waits for that awaits a counter of this channel.
WaitCause CauseOf(int channel);

// What the ranks of a group share: the regions that they published, and the counters between them.
// Any task.
class Directory {
 public:
  virtual ~Directory() = default;
  virtual device::Counter& counter(int from, int to, int channel) = 0;
  virtual base::Status Publish(int rank, const device::Region& region) = 0;
  // Where this process reads it; null: it was not published.
  virtual const device::Region* Find(int rank, int id) = 0;
  virtual const device::Region* Find(int rank, std::string_view name) = 0;
  virtual void Abort(const base::Status& why) = 0;
  virtual base::Status status() const = 0;
};

// The fabric of a rank whose streams reach all memory in the directory by copies.
std::unique_ptr<Fabric> CreateFabric(int rank, int num_ranks, std::shared_ptr<Directory> directory);

// As messages and deadlock reports have it.
std::string CounterName(int from, int to, int channel);

// Ranks of one process, whatever their devices' kind: `new_counter` makes counters for it; empty:
// they pull and never meet.
std::vector<std::unique_ptr<Fabric>> CreateInProcessFabric(int num_ranks,
                                                           const CounterFactory& new_counter);

}  // namespace forebay::fabric
