#include "kernels/cuda/emulation/grid.h"

#include <fmt/core.h>
#include <xmmintrin.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/rng.h"
#include "base/units.h"
#include "kernels/cuda/emulation/tensor_core.h"
#include "kernels/cuda/emulation/thread.h"
#include "runtime/virtual/fiber.h"

namespace forebay::gpu::emulation {

thread_local const Indices* here = nullptr;

namespace {

constexpr int kLanes = 32, kWarpgroup = 128, kNumBarriers = 16;
constexpr size_t kStackBytes = 96 << 10, kSharedAlignment = 1024;
constexpr int kPoison = 0xFF;  // NaN in bf16 and fp32
constexpr unsigned kFlushDenormals = 0x8040u;
// How often, one in so many waits: another warp is preferred; a copy lands before it has to.
constexpr uint64_t kPreferOther = 64, kLandEarly = 16;

// hopper.h's Bar. `bytes`: those that the phase awaits, and below 0 those that came before they
// were announced.
struct BarState {
  uint16_t count, pending;
  int32_t bytes_and_phase;

  int phase() const { return bytes_and_phase & 1; }
  int bytes() const { return bytes_and_phase >> 1; }
  void AddBytes(int n) { bytes_and_phase += n * 2; }
  void EndPhaseIfDone() {
    if (pending != 0 || bytes() != 0) return;
    pending = count;
    bytes_and_phase ^= 1;
  }
};
static_assert(sizeof(BarState) == sizeof(uint64_t));

BarState& StateOf(uint64_t* bar) { return *reinterpret_cast<BarState*>(bar); }

struct AsyncCopy {
  void* to;
  const void* from;
  bool valid;
};
void Copy(const AsyncCopy& copy) {
  if (copy.valid) {
    std::memcpy(copy.to, copy.from, 16);
  } else {
    std::memset(copy.to, 0, 16);
  }
}
struct Store {
  void* to;
  const void* from;
  size_t bytes;
};

// A thread's asynchronous work in groups: `open` until it commits them.
template <typename Work>
struct Groups {
  std::vector<Work> open;
  std::vector<std::vector<Work>> committed;

  void Commit() {
    committed.push_back(std::move(open));
    open.clear();
  }
  // Calls done(work) for all groups but the last `kept`.
  template <typename Done>
  void Wait(int kept, Done done) {
    while (static_cast<int>(committed.size()) > kept) {
      for (const Work& work : committed.front()) done(work);
      committed.erase(committed.begin());
    }
  }
};

// What a thread waits for. `bar` is tried anew each time; all else is ended by another thread.
struct Wait {
  const char* what = nullptr;  // null: it runs
  Where where;
  int barrier = 0, count = 0;
  uint64_t* bar = nullptr;
  int parity = 0;

  bool Over() const {
    return what == nullptr || (bar != nullptr && StateOf(bar).phase() != parity);
  }
};

struct Block;
struct Thread {
  Indices indices;
  Block* block = nullptr;
  runtime::Fiber* fiber = nullptr;
  bool done = false;
  Wait wait;
  Groups<AsyncCopy> copies;
  Groups<Store> stores;
  Groups<WgmmaStep> steps;
  // Steps that are waited for, and their registers of A.
  std::vector<WgmmaStep> due;
  std::vector<uint32_t> registers;
};

struct Warp {
  int arrived = 0, turn = 0;
  const char* what = nullptr;
  size_t bytes = 0;
  std::vector<std::byte> data[2];  // the last meeting's stay while the next one gathers
};

struct Block {
  std::vector<Thread> threads;
  std::vector<Warp> warps;
  std::unique_ptr<std::byte[]> memory;
  std::byte* shared = nullptr;
  size_t shared_bytes = 0;
  int arrived[kNumBarriers] = {};
};

// A bulk copy and the barrier that counts its bytes, or a thread's copies and that where it arrives
// behind them.
struct Landing {
  std::byte* to;
  const void* from;
  size_t bytes;
  uint64_t* bar;
  std::vector<AsyncCopy> copies = {};
  bool arrives = false;
};

// The blocks of one cluster, their threads on fibers that are used again.
class Cluster {
 public:
  // Runs it; the first fault, if there is one.
  std::optional<std::string> Run(ThreadFunction function, const void* params, const Grid& grid,
                                 const int first_block[3], uint64_t seed);

  Thread& running() { return *running_; }
  Block& block(int rank) { return *blocks_[rank]; }
  int size() const { return static_cast<int>(blocks_.size()); }

  // The running thread waits until somebody clears its wait.
  void Hold(Wait wait) {
    running_->wait = wait;
    Yield();
  }
  // Others may run here.
  void Yield();
  void AddLanding(Landing landing) { landings_.push_back(std::move(landing)); }
  [[noreturn]] void Fault(std::string what);

  int cluster_arrived = 0;

 private:
  struct Stack {
    std::unique_ptr<runtime::Fiber> fiber;
    Thread* thread = nullptr;
  };

  void Prepare(const Grid& grid, const int first_block[3]);
  Thread* FindRunnable();
  void Land(size_t index);
  std::string Standings() const;
  void Loop(Stack& stack);

  runtime::Fiber main_;
  std::vector<std::unique_ptr<Stack>> stacks_;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::vector<Landing> landings_;
  std::vector<std::pair<Block*, int>> warps_;  // of all blocks
  ThreadFunction function_ = nullptr;
  const void* params_ = nullptr;
  Thread* running_ = nullptr;
  bool adversarial_ = false;
  size_t preferred_ = 0;  // warp
  base::Rng rng_{0};
  std::optional<std::string> fault_;
};

thread_local Cluster* cluster = nullptr;

void Expect(BarState& state, int bytes) {
  if (state.pending == 0) cluster->Fault("more arrivals at an mbarrier than it counts");
  state.AddBytes(bytes);
  --state.pending;
  state.EndPhaseIfDone();
}

// Kept until the next call: a fault destroys nothing on its thread's stack.
const std::string& Line(const Where& where) {
  static thread_local std::string line;
  const std::string_view path = where.file;
  line = fmt::format("{}:{}", path.substr(path.rfind('/') + 1), where.line);
  return line;
}

void Cluster::Prepare(const Grid& grid, const int first_block[3]) {
  const int threads = grid.threads;
  blocks_.resize(static_cast<size_t>(grid.cluster_blocks));
  warps_.clear();
  landings_.clear();
  cluster_arrived = 0;
  for (int rank = 0; rank < grid.cluster_blocks; ++rank) {
    if (blocks_[rank] == nullptr) blocks_[rank] = std::make_unique<Block>();
    Block& block = *blocks_[rank];
    // Exactly what was asked for, so that AddressSanitizer sees who goes beyond.
    block.memory.reset(new std::byte[grid.shared_bytes + kSharedAlignment]);
    block.shared = reinterpret_cast<std::byte*>(
        base::RoundUp(reinterpret_cast<uintptr_t>(block.memory.get()), kSharedAlignment));
    block.shared_bytes = grid.shared_bytes;
    std::memset(block.shared, kPoison, grid.shared_bytes);
    std::fill(std::begin(block.arrived), std::end(block.arrived), 0);
    block.warps.assign(static_cast<size_t>(threads / kLanes), {});
    block.threads.assign(static_cast<size_t>(threads), {});
    for (int i = 0; i < threads; ++i) {
      Thread& thread = block.threads[i];
      thread.block = &block;
      thread.indices = {.thread = i,
                        .threads = threads,
                        .block = {first_block[0] + rank, first_block[1], first_block[2]},
                        .grid = {grid.blocks[0], grid.blocks[1], grid.blocks[2]},
                        .cluster_rank = rank,
                        .cluster_blocks = grid.cluster_blocks};
      const size_t number = static_cast<size_t>(rank * threads + i);
      if (number == stacks_.size()) {
        stacks_.push_back(std::make_unique<Stack>());
        Stack& stack = *stacks_.back();
        stack.fiber =
            std::make_unique<runtime::Fiber>(kStackBytes, [this, &stack] { Loop(stack); });
      }
      stacks_[number]->thread = &thread;
      thread.fiber = stacks_[number]->fiber.get();
    }
    for (int warp = 0; warp < threads / kLanes; ++warp) warps_.emplace_back(&block, warp);
  }
}

std::optional<std::string> Cluster::Run(ThreadFunction function, const void* params,
                                        const Grid& grid, const int first_block[3], uint64_t seed) {
  Prepare(grid, first_block);
  function_ = function;
  params_ = params;
  adversarial_ = seed != 0;
  rng_ = base::Rng(seed);
  preferred_ = adversarial_ ? rng_.Below(warps_.size()) : 0;
  fault_.reset();
  running_ = &blocks_[0]->threads[0];
  if (adversarial_) running_ = FindRunnable();
  here = &running_->indices;
  runtime::Fiber::Switch(main_, *running_->fiber);
  here = nullptr;
  // Fibers that stand in the middle of a kernel are of no use any more.
  if (fault_) stacks_.clear();
  return fault_;
}

void Cluster::Loop(Stack& stack) {
  for (;;) {
    function_(params_);
    Thread& thread = *stack.thread;
    thread.stores.Commit();
    thread.stores.Wait(0,
                       [](const Store& store) { std::memcpy(store.to, store.from, store.bytes); });
    thread.done = true;
    Yield();
  }
}

Thread* Cluster::FindRunnable() {
  // One warp runs as far as it can; which one it is changes now and then.
  if (adversarial_ && rng_.Below(kPreferOther) == 0) preferred_ = rng_.Below(warps_.size());
  const bool turns = !adversarial_ && running_ != nullptr;
  const int first_lane =
      adversarial_ ? static_cast<int>(rng_.Below(kLanes)) : running_->indices.thread % kLanes + 1;
  for (size_t i = 0; i < warps_.size(); ++i) {
    const auto& [block, warp] = warps_[(preferred_ + i) % warps_.size()];
    for (int l = 0; l < kLanes; ++l) {
      Thread& thread =
          block->threads[static_cast<size_t>(warp * kLanes + (first_lane + l) % kLanes)];
      if (thread.done || !thread.wait.Over()) continue;
      if (turns) preferred_ = (preferred_ + i + 1) % warps_.size();
      return &thread;
    }
  }
  return nullptr;
}

void Cluster::Yield() {
  if (!landings_.empty() && (!adversarial_ || rng_.Below(kLandEarly) == 0))
    Land(adversarial_ ? rng_.Below(landings_.size()) : 0);
  Thread* next = FindRunnable();
  while (next == nullptr && !landings_.empty()) {
    Land(adversarial_ ? rng_.Below(landings_.size()) : 0);
    next = FindRunnable();
  }
  Thread& before = *running_;
  if (next == nullptr) {
    bool all_done = true;
    for (const auto& block : blocks_) {
      for (const Thread& thread : block->threads) all_done &= thread.done;
    }
    if (!all_done) Fault("its threads wait for ever:" + Standings());
    runtime::Fiber::Switch(*before.fiber, main_);
    return;  // the fiber begins with another thread
  }
  next->wait.what = nullptr;
  next->wait.bar = nullptr;
  if (next == &before) return;
  running_ = next;
  here = &next->indices;
  runtime::Fiber::Switch(*before.fiber, *next->fiber);
}

void Cluster::Land(size_t index) {
  const Landing landing = std::move(landings_[index]);
  landings_.erase(landings_.begin() + static_cast<int64_t>(index));
  BarState& state = StateOf(landing.bar);
  if (landing.arrives) {
    for (const AsyncCopy& copy : landing.copies) Copy(copy);
    Expect(state, 0);
    return;
  }
  std::memcpy(landing.to, landing.from, landing.bytes);
  state.AddBytes(-static_cast<int>(landing.bytes));
  state.EndPhaseIfDone();
}

void Cluster::Fault(std::string what) {
  const Indices& at = running_->indices;
  fault_ = fmt::format("block ({}, {}, {}), thread {}: {}", at.block[0], at.block[1], at.block[2],
                       at.thread, what);
  std::string().swap(what);  // nothing on this stack is destroyed
  runtime::Fiber::Switch(*running_->fiber, main_);
  FB_CHECK(false, "a thread with a fault went on");
  __builtin_unreachable();
}

// One line a run of threads that stand at the same place.
std::string Cluster::Standings() const {
  std::string text;
  for (const auto& block : blocks_) {
    std::string last;
    int first = 0;
    const auto flush = [&](int end) {
      if (last.empty()) return;
      text += fmt::format("\n  block rank {}, threads {} to {}: {}",
                          block->threads[0].indices.cluster_rank, first, end - 1, last);
    };
    for (const Thread& thread : block->threads) {
      const Wait& wait = thread.wait;
      std::string stands;
      if (thread.done) {
        stands = "ended";
      } else if (wait.bar != nullptr) {
        const BarState& state = StateOf(wait.bar);
        stands = fmt::format(
            "BarWait at {}, shared address {}, parity {}: {} of {} arrivals and {} bytes are "
            "awaited",
            Line(wait.where), reinterpret_cast<const std::byte*>(wait.bar) - block->shared,
            wait.parity, state.pending, state.count, state.bytes());
      } else if (wait.count > 0) {
        stands = fmt::format("{} {} at {}: {} of {} threads arrived", wait.what, wait.barrier,
                             Line(wait.where), block->arrived[wait.barrier], wait.count);
      } else {
        stands = fmt::format("{} at {}", wait.what, Line(wait.where));
      }
      if (stands == last) continue;
      flush(thread.indices.thread);
      last = stands;
      first = thread.indices.thread;
    }
    flush(static_cast<int>(block->threads.size()));
  }
  return text;
}

std::byte* SharedPointer(const Thread& thread, uint32_t address, size_t bytes) {
  const Block& block = *thread.block;
  if (address + bytes > block.shared_bytes) {
    cluster->Fault(fmt::format("shared memory [{}, {}) of {} bytes", address, address + bytes,
                               block.shared_bytes));
  }
  return block.shared + address;
}

// Byte (row, k) of an operand in the 128-byte swizzle, see hopper.h.
uint16_t OperandElement(const Thread& thread, uint64_t descriptor, int row, int k, bool along_n) {
  const auto field = [&](int shift) {
    return static_cast<uint32_t>(descriptor >> shift & 0x3FFFu) << 4;
  };
  const uint32_t start = field(0), leading = field(16), stride = field(32);
  if (descriptor >> 62 != 1)
    cluster->Fault("an operand's descriptor is not of the 128-byte swizzle");
  uint32_t address = along_n ? start + static_cast<uint32_t>(row / 64) * leading +
                                   static_cast<uint32_t>(k / 8) * stride +
                                   static_cast<uint32_t>(k % 8 * 128 + row % 64 * 2)
                             : start + static_cast<uint32_t>(row / 8) * stride +
                                   static_cast<uint32_t>(row % 8 * 128 + k * 2);
  address ^= (address >> 7 & 7) << 4;
  uint16_t value;
  std::memcpy(&value, SharedPointer(thread, address, sizeof value), sizeof value);
  return value;
}

// The registers of A of a step: 4 a lane, of all lanes of the warp.
struct Fragments {
  const uint32_t* first;
  size_t lane_stride;

  uint16_t Element(int row, int k) const {
    const uint32_t* lane = first + static_cast<size_t>(row % 8 * 4 + k % 8 / 2) * lane_stride;
    return static_cast<uint16_t>(lane[k / 8 * 2 + row / 8] >> (k % 2 * 16));
  }
};

void RunStep(const Thread& thread, const WgmmaStep& step, const Fragments& fragments) {
  constexpr int kDepth = 16;
  const int lane = thread.indices.thread % kLanes;
  const int first_row = thread.indices.thread % kWarpgroup / kLanes * 16;
  uint16_t a[2][kDepth], b[kDepth];
  for (int half = 0; half < 2; ++half) {
    const int row = lane / 4 + half * 8;
    for (int k = 0; k < kDepth; ++k) {
      a[half][k] = step.registers != nullptr
                       ? fragments.Element(row, k)
                       : OperandElement(thread, step.a, first_row + row, k, false);
    }
  }
  for (int j = 0; j < step.n / 8; ++j) {
    for (int e = 0; e < 2; ++e) {
      const int column = j * 8 + lane % 4 * 2 + e;
      for (int k = 0; k < kDepth; ++k)
        b[k] = OperandElement(thread, step.b, column, k, step.b_along_n);
      for (int half = 0; half < 2; ++half) {
        float& c = step.c[j * 4 + half * 2 + e];
        c = TensorCoreStep(a[half], b, step.accumulate ? c : 0.0f);
      }
    }
  }
}

Thread& Running() { return cluster->running(); }

// What of the grid's order is known.
struct Overlap {
  const std::function<void()>* previous = nullptr;  // null: it has run
  bool block_awaits = false;
};
thread_local Overlap overlap;

}  // namespace

base::Status RunGrid(ThreadFunction function, const void* params, size_t params_bytes,
                     const Grid& grid) {
  FB_CHECK(grid.threads > 0 && grid.threads % kLanes == 0 && grid.threads <= 1024,
           "{} threads a block", grid.threads);
  FB_CHECK(grid.blocks[0] % grid.cluster_blocks == 0, "{} blocks in clusters of {}", grid.blocks[0],
           grid.cluster_blocks);
  static thread_local Cluster runner;
  FB_CHECK(cluster == nullptr, "a kernel launches a kernel");
  std::vector<std::byte> copy(params_bytes);
  std::memcpy(copy.data(), params, params_bytes);
  const int along_x = grid.blocks[0] / grid.cluster_blocks;
  std::vector<int> order(static_cast<size_t>(along_x * grid.blocks[1] * grid.blocks[2]));
  base::Rng rng(grid.seed);
  for (size_t i = 0; i < order.size(); ++i) {
    order[i] = static_cast<int>(i);
    if (grid.seed != 0) std::swap(order[i], order[rng.Below(i + 1)]);
  }
  const unsigned saved = _mm_getcsr();
  _mm_setcsr(saved | kFlushDenormals);
  cluster = &runner;
  overlap.previous = grid.previous ? &grid.previous : nullptr;
  std::optional<std::string> fault;
  for (size_t i = 0; i < order.size() && !fault; ++i) {
    const int number = order[i];
    const int first[3] = {number % along_x * grid.cluster_blocks, number / along_x % grid.blocks[1],
                          number / along_x / grid.blocks[1]};
    overlap.block_awaits = false;
    fault = runner.Run(function, copy.data(), grid, first,
                       grid.seed == 0 ? 0 : base::Combine64(grid.seed, i) | 1);
    if (!fault && grid.previous && !overlap.block_awaits)
      fault = "a block ends and has not awaited the kernel before it";
  }
  cluster = nullptr;
  _mm_setcsr(saved);
  return fault ? base::Status(kKernelFault, *fault) : base::Status::Ok();
}

void AwaitPrevious() {
  overlap.block_awaits = true;
  if (overlap.previous == nullptr) return;
  std::thread([previous = std::exchange(overlap.previous, nullptr)] { (*previous)(); }).join();
}

void* SharedBase() { return Running().block->shared; }

uint32_t SharedAddress(const void* shared) {
  const Block& block = *Running().block;
  const auto* at = static_cast<const std::byte*>(shared);
  if (at < block.shared || at > block.shared + block.shared_bytes)
    cluster->Fault("an address of shared memory is none");
  return static_cast<uint32_t>(at - block.shared);
}

void Barrier(int id, int count, bool wait, Where where) {
  Thread& thread = Running();
  Block& block = *thread.block;
  if (id < 0 || id >= kNumBarriers || count % kLanes != 0) {
    cluster->Fault(fmt::format("barrier {} of {} threads at {}", id, count, Line(where)));
  }
  const bool last = ++block.arrived[id] == count;
  if (!last && wait) {
    return cluster->Hold({.what = "barrier", .where = where, .barrier = id, .count = count});
  }
  if (!last) return;
  block.arrived[id] = 0;
  for (Thread& other : block.threads) {
    if (other.wait.what != nullptr && other.wait.count > 0 && other.wait.barrier == id)
      other.wait = {};
  }
  cluster->Yield();
}

const void* WarpMeeting(const char* what, const void* mine, size_t bytes, Where where) {
  Thread& thread = Running();
  const int number = thread.indices.thread / kLanes;
  Warp& warp = thread.block->warps[static_cast<size_t>(number)];
  std::vector<std::byte>& data = warp.data[warp.turn];
  if (warp.arrived == 0) {
    warp.what = what;
    warp.bytes = bytes;
    data.resize(bytes * kLanes);
  } else if (std::string_view(warp.what) != what || warp.bytes != bytes) {
    cluster->Fault(fmt::format("lanes of warp {} stand in {} and, at {}, in {}", number, warp.what,
                               Line(where), what));
  }
  if (bytes > 0) {
    std::memcpy(data.data() + static_cast<size_t>(thread.indices.thread % kLanes) * bytes, mine,
                bytes);
  }
  if (++warp.arrived < kLanes) {
    cluster->Hold({.what = what, .where = where});
    return data.data();
  }
  warp.arrived = 0;
  warp.turn ^= 1;
  for (int lane = 0; lane < kLanes; ++lane)
    thread.block->threads[static_cast<size_t>(number * kLanes + lane)].wait = {};
  return data.data();
}

void CopyAsync16(void* shared, const void* from, bool valid) {
  (void)SharedAddress(shared);
  std::memset(shared, kPoison, 16);
  Running().copies.open.push_back({shared, from, valid});
}
void CommitCopies() { Running().copies.Commit(); }
void WaitCopies(int groups) { Running().copies.Wait(groups, Copy); }
void CopiesArrive(uint64_t* bar) {
  (void)SharedAddress(bar);
  std::vector<AsyncCopy>& open = Running().copies.open;
  cluster->AddLanding({.to = nullptr,
                       .from = nullptr,
                       .bytes = 0,
                       .bar = bar,
                       .copies = std::move(open),
                       .arrives = true});
  open.clear();
}

void LoadMatrix4(uint32_t (&r)[4], uint32_t shared, bool transposed, Where where) {
  // A lane reads the row whose address it gives, before any lane goes on.
  uint16_t mine[8];
  std::memcpy(mine, SharedPointer(Running(), shared, sizeof mine), sizeof mine);
  const auto* rows =
      static_cast<const uint16_t(*)[8]>(WarpMeeting("LoadMatrix4", mine, sizeof mine, where));
  const int lane = here->thread % kLanes, row = lane / 4, pair = lane % 4 * 2;
  for (int i = 0; i < 4; ++i) {
    const uint16_t low = transposed ? rows[i * 8 + pair][row] : rows[i * 8 + row][pair];
    const uint16_t high = transposed ? rows[i * 8 + pair + 1][row] : rows[i * 8 + row][pair + 1];
    r[i] = low | static_cast<uint32_t>(high) << 16;
  }
}

void StoreMatrix(uint32_t shared, const uint32_t* r, int matrices, bool transposed, Where where) {
  Thread& thread = Running();
  const auto* rows =
      static_cast<const uint32_t*>(WarpMeeting("StoreMatrix", &shared, sizeof shared, where));
  const int lane = thread.indices.thread % kLanes;
  for (int i = 0; i < matrices; ++i) {
    if (!transposed) {
      std::memcpy(SharedPointer(thread, rows[i * 8 + lane / 4] + lane % 4 * 4, 4), &r[i], 4);
      continue;
    }
    for (int e = 0; e < 2; ++e) {
      const auto half = static_cast<uint16_t>(r[i] >> (16 * e));
      std::memcpy(SharedPointer(thread, rows[i * 8 + lane % 4 * 2 + e] + lane / 4 * 2, 2), &half,
                  2);
    }
  }
  WarpMeeting("StoreMatrix", nullptr, 0, where);
}

void Mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, Where where) {
  struct Mine {
    uint32_t a[4], b[2];
  };
  const Mine mine{{a[0], a[1], a[2], a[3]}, {b0, b1}};
  const auto* all = static_cast<const Mine*>(WarpMeeting("Mma", &mine, sizeof mine, where));
  const int lane = here->thread % kLanes;
  uint16_t rows[2][16], columns[2][16];
  for (int k = 0; k < 16; ++k) {
    const int from = k % 8 / 2, shift = k % 2 * 16;
    for (int i = 0; i < 2; ++i) {
      rows[i][k] = static_cast<uint16_t>(all[lane / 4 * 4 + from].a[k / 8 * 2 + i] >> shift);
      columns[i][k] = static_cast<uint16_t>(all[(lane % 4 * 2 + i) * 4 + from].b[k / 8] >> shift);
    }
  }
  for (int i = 0; i < 4; ++i) c[i] = TensorCoreStep(rows[i / 2], columns[i % 2], c[i]);
}

void BarInit(uint64_t* bar, int count) {
  (void)SharedAddress(bar);
  StateOf(bar) = {static_cast<uint16_t>(count), static_cast<uint16_t>(count), 0};
}
void BarExpect(uint64_t* bar, int bytes, Where) { Expect(StateOf(bar), bytes); }
void BarArrive(uint64_t* bar, int block_of_cluster, Where where) {
  const uint32_t address = SharedAddress(bar);
  if (block_of_cluster < 0 || block_of_cluster >= cluster->size())
    cluster->Fault(fmt::format("no block {} in the cluster at {}", block_of_cluster, Line(where)));
  Block& block = cluster->block(block_of_cluster);
  if (block.threads[0].done && block_of_cluster != here->cluster_rank) {
    cluster->Fault(fmt::format("arrives in block {} of the cluster, which has ended, at {}",
                               block_of_cluster, Line(where)));
  }
  Expect(StateOf(reinterpret_cast<uint64_t*>(block.shared + address)), 0);
}
void BarWait(uint64_t* bar, int parity, Where where) {
  cluster->Hold({.what = "BarWait", .where = where, .bar = bar, .parity = parity});
}

void BulkCopy(void* shared, const void* from, int bytes, uint64_t* bar, uint32_t blocks,
              Where where) {
  const uint32_t to = SharedAddress(shared), at = SharedAddress(bar);
  if (bytes % 16 != 0 || to % 16 != 0 || reinterpret_cast<uintptr_t>(from) % 16 != 0) {
    cluster->Fault(
        fmt::format("a bulk copy of {} bytes, not aligned to 16, at {}", bytes, Line(where)));
  }
  (void)SharedPointer(Running(), to, static_cast<size_t>(bytes));
  for (int rank = 0; rank < cluster->size(); ++rank) {
    if ((blocks >> rank & 1) == 0) continue;
    Block& block = cluster->block(rank);
    std::memset(block.shared + to, kPoison, static_cast<size_t>(bytes));
    cluster->AddLanding({block.shared + to, from, static_cast<size_t>(bytes),
                         reinterpret_cast<uint64_t*>(block.shared + at)});
  }
}
void BulkStore(void* to, const void* shared, int bytes, Where where) {
  (void)SharedPointer(Running(), SharedAddress(shared), static_cast<size_t>(bytes));
  if (bytes % 16 != 0 || reinterpret_cast<uintptr_t>(to) % 16 != 0) {
    cluster->Fault(
        fmt::format("a bulk store of {} bytes, not aligned to 16, at {}", bytes, Line(where)));
  }
  Running().stores.open.push_back({to, shared, static_cast<size_t>(bytes)});
}
void BulkCommit() { Running().stores.Commit(); }
void BulkWaitRead(int groups) {
  Running().stores.Wait(groups,
                        [](const Store& store) { std::memcpy(store.to, store.from, store.bytes); });
}

void ClusterSync(Where where) {
  int threads = 0;
  for (int rank = 0; rank < cluster->size(); ++rank)
    threads += static_cast<int>(cluster->block(rank).threads.size());
  if (++cluster->cluster_arrived < threads)
    return cluster->Hold({.what = "ClusterSync", .where = where});
  cluster->cluster_arrived = 0;
  for (int rank = 0; rank < cluster->size(); ++rank) {
    for (Thread& thread : cluster->block(rank).threads) thread.wait = {};
  }
  cluster->Yield();
}

void WgmmaIssue(const WgmmaStep& step, Where) {
  cluster->Yield();
  Running().steps.open.push_back(step);
}
void WgmmaCommit(Where) { Running().steps.Commit(); }
void WgmmaWait(int groups, Where where) {
  cluster->Yield();
  Thread& thread = Running();
  std::vector<WgmmaStep>& due = thread.due;
  std::vector<uint32_t>& registers = thread.registers;
  due.clear();
  thread.steps.Wait(groups, [&](const WgmmaStep& step) { due.push_back(step); });
  // Registers of A are read now, as late as the hardware may.
  registers.resize(due.size() * 4 + 1);
  for (size_t i = 0; i < due.size(); ++i) {
    if (due[i].registers != nullptr)
      std::copy_n(due[i].registers, 4, registers.begin() + static_cast<int64_t>(i * 4));
  }
  const auto* all = static_cast<const uint32_t*>(
      WarpMeeting("WgmmaWait", registers.data(), registers.size() * sizeof(uint32_t), where));
  for (size_t i = 0; i < due.size(); ++i) RunStep(thread, due[i], {all + i * 4, registers.size()});
  // A lane that goes on may release what the others read.
  WarpMeeting("WgmmaWait", nullptr, 0, where);
}

}  // namespace forebay::gpu::emulation
