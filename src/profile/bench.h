// A device under measurement: memory full of random numbers, and the time of operations on its
// streams.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "device/device.h"
#include "kernels/kernel_set.h"
#include "profile/subject.h"
#include "runtime/runtime.h"

namespace forebay::profile {

// From where to where a copy stream copies: within `data`, or between it and the host's memory.
struct CopyPath {
  device::CopyKind stream = device::CopyKind::kWeights;
  bool from_host = false, to_host = false;
};

class Bench {
 public:
  // `subject` outlives the bench. Errors: its device's, memory.
  static base::Result<std::unique_ptr<Bench>> Create(runtime::Runtime& runtime,
                                                     const Subject& subject);

  // Enqueues operation number i on a stream; what it points to must live until the next call of a
  // Bench function.
  using EnqueueFn = std::function<void(device::Stream& stream, int64_t i)>;

  // Seconds of one operation of a run of them, its launch included: the lower quartile of several
  // runs of some milliseconds. i counts up over all of them, so that each operation may find other
  // memory.
  double SecondsOf(const EnqueueFn& enqueue) { return SecondsOf(enqueue, grid().sample_seconds); }
  // The same where each operation's input was just written by all workers in turn, as it is in a
  // step: the writing alone is measured too and taken off. Where workers share their caches, the
  // run before has left the input there. REQUIRES: bytes <= input().bytes; the operation reads
  // input().
  double SecondsAfterInput(int64_t bytes, const EnqueueFn& enqueue);
  // Seconds in which each of the paths makes one copy of `bytes`, while all of them copy. REQUIRES:
  // each has a stream of its own; paths of the host need host memory.
  double CopySeconds(std::span<const CopyPath> paths, int64_t bytes);
  // From here on `count` copies of `bytes` are under way when a run of operations begins; 0: none.
  void CopyBeside(const CopyPath& path, int64_t bytes, int count);

  // A copy of the table where operations read it, control memory. It lasts until ClearTables.
  // REQUIRES: it fits Grid::table_bytes with the others; nothing is under way.
  template <typename T>
  T* Place(const std::vector<T>& table) {
    const size_t bytes = table.size() * sizeof(T);
    return static_cast<T*>(PlaceBytes(table.data(), bytes));
  }
  void ClearTables();

  runtime::Runtime& runtime() { return runtime_; }
  device::Device& device() { return *device_; }
  const kernels::KernelSet& kernels() const { return subject_.kernels(); }
  const Grid& grid() const { return subject_.grid(); }
  bool bf16_alone() const { return subject_.bf16_alone(); }
  // Random numbers in [-1, 1], far larger than the caches: read as bf16 or fp32.
  const device::Region& data() const { return *data_; }
  // How many pieces of so many bytes lie in `data`, one behind another. REQUIRES: one does.
  int64_t Pieces(int64_t bytes) const;
  // The same numbers, for what an operation of a step gets from the one before.
  const device::Region& input() const { return *input_; }
  // For what operations write: activations, logits, sums. The packed rows of a linear go to
  // `workspace`.
  const device::Region& output() const { return *output_; }
  const device::Region& workspace() const { return *workspace_; }
  // Memory of the host that copies reach; null where the host reaches `data`.
  const device::Region* host() const { return host_; }
  // The first fault of an operation, after which times mean nothing.
  const base::Status& fault() const { return fault_; }

 private:
  Bench(runtime::Runtime& runtime, const Subject& subject)
      : runtime_(runtime), subject_(subject), go_(runtime.NewEvent("go")) {}
  base::Status Fill();
  double SecondsOf(const EnqueueFn& enqueue, double sample_seconds);
  // Seconds of `count` operations in a row, numbered from next_ on, less gap_.
  double Run(const EnqueueFn& enqueue, int64_t count);
  // Copy number i of a path.
  void EnqueueCopy(const CopyPath& path, int64_t bytes, int64_t i);
  void Synchronize(device::Stream& stream);
  void* PlaceBytes(const void* table, size_t bytes);

  struct Beside {
    CopyPath path;
    int64_t bytes = 0;
    int count = 0;
  };

  runtime::Runtime& runtime_;
  const Subject& subject_;
  std::unique_ptr<runtime::Event> go_;
  std::unique_ptr<device::Device> device_;
  std::unique_ptr<device::Arena> host_arena_;
  const device::Region* data_ = nullptr;
  const device::Region* input_ = nullptr;
  const device::Region* output_ = nullptr;
  const device::Region* workspace_ = nullptr;
  const device::Region* tables_ = nullptr;
  const device::Region* host_ = nullptr;
  std::optional<device::RegionCutter> cutter_;  // of tables_
  Beside beside_;
  int64_t next_ = 0;
  double gap_ = 0;  // seconds of a run of no operations
  base::Status fault_;
};

}  // namespace forebay::profile
