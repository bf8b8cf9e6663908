#include "kernels/cuda/emulation/grid.h"

#include <fmt/core.h>
#include <xmmintrin.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/rng.h"
#include "base/units.h"
#include "device/cuda/launch_context.h"
#include "kernels/cuda/emulation/tensor_core.h"
#include "kernels/cuda/emulation/thread.h"
#include "runtime/virtual/fiber.h"

namespace forebay::gpu::emulation {

constinit thread_local const Indices* here = nullptr;

namespace {

constexpr int kLanes = 32, kWarpgroup = 128, kNumBarriers = 16;
constexpr size_t kStackBytes = 96 << 10, kSharedAlignment = 1024;
// Stacks end at different places of a page, or the same sets of a cache would have them all.
constexpr size_t kStackShifts = 16, kStackShift = 256;
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

// A thread's asynchronous work in groups, in order: those that it committed, and one that is open.
template <typename Work>
struct Groups {
  std::vector<Work> work;
  std::vector<size_t> ends;  // of the committed groups

  void Clear() {
    work.clear();
    ends.clear();
  }
  void Commit() { ends.push_back(work.size()); }
  std::vector<Work> TakeOpen() {
    const auto first = work.begin() + (ends.empty() ? 0 : static_cast<int64_t>(ends.back()));
    std::vector<Work> open(first, work.end());
    work.erase(first, work.end());
    return open;
  }
  // Calls done(work) for all groups but the last `kept`.
  template <typename Done>
  void Wait(int kept, Done done) {
    const int64_t over = std::ssize(ends) - kept;
    if (over <= 0) return;
    const size_t end = ends[static_cast<size_t>(over - 1)];
    for (size_t i = 0; i < end; ++i) done(work[i]);
    work.erase(work.begin(), work.begin() + static_cast<int64_t>(end));
    ends.erase(ends.begin(), ends.begin() + over);
    for (size_t& later : ends) later -= end;
  }
};

// What a thread waits for. `bar` is tried anew each time; all else is ended by another thread.
struct Wait {
  const char* what = "";
  Where where;
  int barrier = 0, count = 0;
  uint64_t* bar = nullptr;
  int parity = 0;
};

struct Block;
struct Warp;
struct Thread {
  Indices indices;
  Block* block = nullptr;
  Warp* warp = nullptr;
  uint32_t bit = 0;  // its lane's
  bool done = false;
  runtime::Fiber* fiber = nullptr;
  Wait wait;  // the last one
  Groups<AsyncCopy> copies;
  Groups<Store> stores;
  Groups<WgmmaStep> steps;
  std::vector<WgmmaStep> due;  // steps that are waited for
};

struct Warp {
  Thread* threads = nullptr;  // of its lanes
  // Lanes that run; of the others, those that wait at an mbarrier, and those at a barrier.
  uint32_t running = ~0u, at_bars = 0, at_barriers = 0;
  // The lanes' meeting.
  int arrived = 0, turn = 0;
  const char* what = nullptr;
  size_t bytes = 0;
  std::vector<std::byte> data[2];  // the last meeting's stay while the next one gathers

  void Reset(Thread* first) {
    threads = first;
    running = ~0u;
    at_bars = at_barriers = 0;
    arrived = turn = 0;
  }
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
  void Hold(const Wait& wait) {
    Thread& thread = *running_;
    thread.wait = wait;
    thread.warp->running &= ~thread.bit;
    if (wait.bar != nullptr) thread.warp->at_bars |= thread.bit;
    if (wait.count > 0) thread.warp->at_barriers |= thread.bit;
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

  std::optional<runtime::Fiber> main_;  // of this run
  std::vector<std::unique_ptr<Stack>> stacks_;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::vector<Landing> landings_;
  std::vector<Warp*> warps_;  // of all blocks
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
    if (block.memory == nullptr || block.shared_bytes != grid.shared_bytes) {
      // Exactly what was asked for, so that AddressSanitizer sees who goes beyond.
      block.memory.reset(new std::byte[grid.shared_bytes + kSharedAlignment]);
      block.shared = reinterpret_cast<std::byte*>(
          base::RoundUp(reinterpret_cast<uintptr_t>(block.memory.get()), kSharedAlignment));
      block.shared_bytes = grid.shared_bytes;
    }
    std::memset(block.shared, kPoison, grid.shared_bytes);
    std::fill(std::begin(block.arrived), std::end(block.arrived), 0);
    block.warps.resize(static_cast<size_t>(threads / kLanes));
    block.threads.resize(static_cast<size_t>(threads));
    for (int i = 0; i < threads; ++i) {
      Thread& thread = block.threads[i];
      thread.block = &block;
      thread.warp = &block.warps[i / kLanes];
      thread.bit = 1u << i % kLanes;
      thread.done = false;
      thread.copies.Clear();
      thread.stores.Clear();
      thread.steps.Clear();
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
        stack.fiber = std::make_unique<runtime::Fiber>(
            kStackBytes + number % kStackShifts * kStackShift, [this, &stack] { Loop(stack); });
      }
      stacks_[number]->thread = &thread;
      thread.fiber = stacks_[number]->fiber.get();
    }
    for (size_t warp = 0; warp < block.warps.size(); ++warp) {
      block.warps[warp].Reset(&block.threads[warp * kLanes]);
      warps_.push_back(&block.warps[warp]);
    }
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
  main_.emplace();
  runtime::Fiber::Switch(*main_, *running_->fiber);
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
    thread.warp->running &= ~thread.bit;
    Yield();
  }
}

Thread* Cluster::FindRunnable() {
  // One warp runs as far as it can; which one it is changes now and then.
  if (adversarial_ && rng_.Below(kPreferOther) == 0) preferred_ = rng_.Below(warps_.size());
  const bool turns = !adversarial_ && running_ != nullptr;
  const int first_lane =
      (adversarial_ ? static_cast<int>(rng_.Below(kLanes)) : running_->indices.thread + 1) % kLanes;
  size_t at = preferred_;
  for (size_t i = 0; i < warps_.size(); ++i) {
    Warp& warp = *warps_[at];
    if (++at == warps_.size()) at = 0;
    const Wait* vain = nullptr;  // the last one that was tried
    for (uint32_t lanes = std::rotr(warp.running | warp.at_bars, first_lane); lanes != 0;
         lanes &= lanes - 1) {
      Thread& thread = warp.threads[(std::countr_zero(lanes) + first_lane) % kLanes];
      if ((warp.at_bars & thread.bit) != 0) {
        const Wait& wait = thread.wait;
        if (vain != nullptr && wait.bar == vain->bar && wait.parity == vain->parity) continue;
        if (StateOf(wait.bar).phase() == wait.parity) {
          vain = &wait;
          continue;
        }
        warp.at_bars &= ~thread.bit;
        warp.running |= thread.bit;
      }
      if (turns) preferred_ = at;
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
    runtime::Fiber::Switch(*before.fiber, *main_);
    return;  // the fiber begins with another thread
  }
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
  runtime::Fiber::Switch(*running_->fiber, *main_);
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

constexpr int kDepth = 16, kRows = 16, kColumns = 8;  // of a warp's part of a step

// Where an operand lies in the 128-byte swizzle, see hopper.h.
struct Operand {
  uint32_t start, leading, stride;  // in bytes

  explicit Operand(uint64_t descriptor)
      : start(Field(descriptor, 0)), leading(Field(descriptor, 16)), stride(Field(descriptor, 32)) {
    if (descriptor >> 62 != 1)
      cluster->Fault("an operand's descriptor is not of the 128-byte swizzle");
  }
  static uint32_t Field(uint64_t descriptor, int shift) {
    return static_cast<uint32_t>(descriptor >> shift & 0x3FFFu) << 4;
  }
  // Eight elements that lie side by side.
  static void Read(const Thread& thread, uint32_t address, uint16_t to[8]) {
    constexpr size_t kBytes = 16;
    std::memcpy(to, SharedPointer(thread, address ^ (address >> 7 & 7) << 4, kBytes), kBytes);
  }
  // Elements k to k + 7 of a row, of rows along K.
  void ReadAlongK(const Thread& thread, int row, int k, uint16_t to[8]) const {
    Read(thread,
         start + static_cast<uint32_t>(row / 8) * stride +
             static_cast<uint32_t>(row % 8 * 128 + k * 2),
         to);
  }
  // Element k of rows `row` to `row` + 7, of rows along N.
  void ReadAlongN(const Thread& thread, int row, int k, uint16_t to[8]) const {
    Read(thread,
         start + static_cast<uint32_t>(row / 64) * leading + static_cast<uint32_t>(k / 8) * stride +
             static_cast<uint32_t>(k % 8 * 128 + row % 64 * 2),
         to);
  }
};

// A of a step in registers, four a lane: element (row, k).
template <typename RegistersOf>
void GatherRows(RegistersOf registers_of, uint16_t (&a)[kRows][kDepth]) {
  for (int lane = 0; lane < kLanes; ++lane) {
    const uint32_t* const registers = registers_of(lane);
    for (int i = 0; i < 4; ++i)
      std::memcpy(&a[lane / 4 + i % 2 * 8][i / 2 * 8 + lane % 4 * 2], &registers[i], 4);
  }
}
// Adds A B to the sums of the warp's lanes, four each; `accumulate` false: those are 0 before.
template <typename SumsOf>
void AddTile(const uint16_t (&a)[kRows][kDepth], const uint16_t (&b)[kDepth][kColumns],
             bool accumulate, SumsOf sums_of) {
  float c[kRows][kColumns] = {};
  const auto each = [&](auto move) {
    for (int lane = 0; lane < kLanes; ++lane) {
      float* const sums = sums_of(lane);
      for (int half = 0; half < 2; ++half)
        move(&c[lane / 4 + half * 8][lane % 4 * 2], sums + half * 2);
    }
  };
  constexpr size_t kBytes = 2 * sizeof(float);
  if (accumulate) each([](float* tile, const float* sums) { std::memcpy(tile, sums, kBytes); });
  TensorCoreTile(a, b, c);
  each([](const float* tile, float* sums) { std::memcpy(sums, tile, kBytes); });
}

// Step i of those that the warp's lanes wait for.
void RunStep(const Warp& warp, size_t i) {
  const Thread& first = *warp.threads;
  const WgmmaStep& step = first.due[i];
  const Operand of_b(step.b);
  uint16_t a[kRows][kDepth], b[kDepth][kColumns];
  if (step.registers != nullptr) {
    // Read now, as late as the hardware may.
    GatherRows([&](int lane) { return warp.threads[lane].due[i].registers; }, a);
  } else {
    const Operand of_a(step.a);
    const int first_row = first.indices.thread % kWarpgroup / kLanes * kRows;
    for (int row = 0; row < kRows; ++row) {
      for (int k = 0; k < kDepth; k += 8) of_a.ReadAlongK(first, first_row + row, k, &a[row][k]);
    }
  }
  for (int column = 0; column < step.n; column += kColumns) {
    if (step.b_along_n) {
      for (int k = 0; k < kDepth; ++k) of_b.ReadAlongN(first, column, k, b[k]);
    } else {
      uint16_t row[kDepth];
      for (int j = 0; j < kColumns; ++j) {
        for (int k = 0; k < kDepth; k += 8) of_b.ReadAlongK(first, column + j, k, row + k);
        for (int k = 0; k < kDepth; ++k) b[k][j] = row[k];
      }
    }
    AddTile(a, b, step.accumulate,
            [&](int lane) { return warp.threads[lane].due[i].c + column / 2; });
  }
}

bool SameStep(const WgmmaStep& a, const WgmmaStep& b) {
  return a.n == b.n && a.a == b.a && a.b == b.b && a.accumulate == b.accumulate &&
         a.b_along_n == b.b_along_n && (a.registers == nullptr) == (b.registers == nullptr);
}

Thread& Running() { return cluster->running(); }

// `bits`: of all addresses and sizes that have to be multiples of 16.
void CheckAligned(const char* what, uintptr_t bits, Where where) {
  if (bits % 16 != 0)
    cluster->Fault(fmt::format("{} is not aligned to 16 at {}", what, Line(where)));
}

// What of the grid's order is known.
struct Overlap {
  const std::function<void()>* previous = nullptr;  // null: it has run
  bool block_awaits = false;
};
thread_local Overlap overlap;

// Those that no grid of this thread has: a grid may run within another (Grid::previous).
thread_local std::vector<std::unique_ptr<Cluster>> idle_clusters;

}  // namespace

base::Status RunGrid(ThreadFunction function, const void* params, size_t params_bytes,
                     const Grid& grid) {
  FB_CHECK(grid.threads > 0 && grid.threads % kLanes == 0 && grid.threads <= 1024,
           "{} threads a block", grid.threads);
  FB_CHECK(grid.blocks[0] % grid.cluster_blocks == 0, "{} blocks in clusters of {}", grid.blocks[0],
           grid.cluster_blocks);
  using device::kMostBlocksAlongYZ;
  using device::kMostSharedBytes;
  if (grid.blocks[1] > kMostBlocksAlongYZ || grid.blocks[2] > kMostBlocksAlongYZ ||
      grid.shared_bytes > kMostSharedBytes) {
    return {kKernelFault,
            fmt::format("a grid of {} x {} x {} blocks with {} bytes of shared memory: at most {} "
                        "along y and z, with {} bytes",
                        grid.blocks[0], grid.blocks[1], grid.blocks[2], grid.shared_bytes,
                        kMostBlocksAlongYZ, kMostSharedBytes)};
  }
  FB_CHECK(cluster == nullptr, "a kernel launches a kernel");
  if (idle_clusters.empty()) idle_clusters.push_back(std::make_unique<Cluster>());
  std::unique_ptr<Cluster> runner = std::move(idle_clusters.back());
  idle_clusters.pop_back();
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
  cluster = runner.get();
  overlap.previous = grid.previous ? &grid.previous : nullptr;
  std::optional<std::string> fault;
  for (size_t i = 0; i < order.size() && !fault; ++i) {
    const int number = order[i];
    const int first[3] = {number % along_x * grid.cluster_blocks, number / along_x % grid.blocks[1],
                          number / along_x / grid.blocks[1]};
    overlap.block_awaits = false;
    fault = runner->Run(function, copy.data(), grid, first,
                        grid.seed == 0 ? 0 : base::Combine64(grid.seed, i) | 1);
    if (!fault && grid.previous && !overlap.block_awaits)
      fault = "a block ends and has not awaited the kernel before it";
  }
  cluster = nullptr;
  idle_clusters.push_back(std::move(runner));
  _mm_setcsr(saved);
  return fault ? base::Status(kKernelFault, *fault) : base::Status::Ok();
}

void AwaitPrevious() {
  overlap.block_awaits = true;
  if (overlap.previous == nullptr) return;
  // As if this thread's grid were not there.
  Cluster* const outer = std::exchange(cluster, nullptr);
  const Indices* const at = here;
  const std::function<void()>* const previous = std::exchange(overlap.previous, nullptr);
  const Overlap left = overlap;
  (*previous)();
  cluster = outer;
  here = at;
  overlap = left;
}

void CheckThreads(int most) {
  if (here->threads > most) {
    cluster->Fault(fmt::format("a block of {} threads, of at most {} by the kernel's launch bounds",
                               here->threads, most));
  }
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
  for (Warp& warp : block.warps) {
    for (uint32_t lanes = warp.at_barriers; lanes != 0; lanes &= lanes - 1) {
      const Thread& other = warp.threads[std::countr_zero(lanes)];
      if (other.wait.barrier != id) continue;
      warp.at_barriers &= ~other.bit;
      warp.running |= other.bit;
    }
  }
  cluster->Yield();
}

namespace {

// WarpMeeting, where the last lane to come calls last(data) before any goes on.
template <typename Last>
const void* Meet(const char* what, const void* mine, size_t bytes, Where where, Last last) {
  Thread& thread = Running();
  Warp& warp = *thread.warp;
  std::vector<std::byte>& data = warp.data[warp.turn];
  if (warp.arrived == 0) {
    warp.what = what;
    warp.bytes = bytes;
    if (data.size() < bytes * kLanes) data.resize(bytes * kLanes);
  } else if (warp.bytes != bytes ||
             (warp.what != what && std::string_view(warp.what) != std::string_view(what))) {
    cluster->Fault(fmt::format("lanes of warp {} stand in {} and, at {}, in {}",
                               thread.indices.thread / kLanes, warp.what, Line(where), what));
  }
  if (bytes > 0) {
    std::memcpy(data.data() + static_cast<size_t>(thread.indices.thread % kLanes) * bytes, mine,
                bytes);
  }
  if (++warp.arrived < kLanes) {
    cluster->Hold({.what = what, .where = where});
    return data.data();
  }
  last(data.data());
  warp.arrived = 0;
  warp.turn ^= 1;
  warp.running = ~0u;
  return data.data();
}

}  // namespace

const void* WarpMeeting(const char* what, const void* mine, size_t bytes, Where where) {
  return Meet(what, mine, bytes, where, [](const void*) {});
}

void CopyAsync16(void* shared, const void* from, bool valid, Where where) {
  CheckAligned("an asynchronous copy", SharedAddress(shared), where);
  CheckAligned("an asynchronous copy", reinterpret_cast<uintptr_t>(from), where);
  std::memset(shared, kPoison, 16);
  Running().copies.work.push_back({shared, from, valid});
}
void CommitCopies() { Running().copies.Commit(); }
void WaitCopies(int groups) { Running().copies.Wait(groups, Copy); }
void CopiesArrive(uint64_t* bar) {
  (void)SharedAddress(bar);
  cluster->AddLanding({.to = nullptr,
                       .from = nullptr,
                       .bytes = 0,
                       .bar = bar,
                       .copies = Running().copies.TakeOpen(),
                       .arrives = true});
}

void LoadMatrix4(uint32_t (&r)[4], uint32_t shared, bool transposed, Where where) {
  // A lane reads the row whose address it gives, before any lane goes on.
  CheckAligned("a row of a matrix", shared, where);
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
  CheckAligned("a row of a matrix", shared, where);
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
    float* c;
    const uint32_t* a;
    uint32_t b[2];
  };
  const Mine mine{c, a, {b0, b1}};
  Meet("Mma", &mine, sizeof mine, where, [](const void* data) {
    const auto* const lanes = static_cast<const Mine*>(data);
    uint16_t rows[kRows][kDepth], columns[kDepth][kColumns];
    GatherRows([&](int lane) { return lanes[lane].a; }, rows);
    for (int lane = 0; lane < kLanes; ++lane) {
      for (int i = 0; i < 2; ++i) {
        uint16_t pair[2];  // of neighbours along K
        std::memcpy(pair, &lanes[lane].b[i], sizeof pair);
        for (int e = 0; e < 2; ++e) columns[i * 8 + lane % 4 * 2 + e][lane / 4] = pair[e];
      }
    }
    AddTile(rows, columns, true, [&](int lane) { return lanes[lane].c; });
  });
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
  CheckAligned("a bulk copy", reinterpret_cast<uintptr_t>(from) | to | static_cast<unsigned>(bytes),
               where);
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
  const uint32_t from = SharedAddress(shared);
  (void)SharedPointer(Running(), from, static_cast<size_t>(bytes));
  CheckAligned("a bulk store",
               reinterpret_cast<uintptr_t>(to) | from | static_cast<unsigned>(bytes), where);
  Running().stores.work.push_back({to, shared, static_cast<size_t>(bytes)});
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
    for (Warp& warp : cluster->block(rank).warps) warp.running = ~0u;
  }
  cluster->Yield();
}

void WgmmaIssue(const WgmmaStep& step, Where) { Running().steps.work.push_back(step); }
void WgmmaCommit(Where) { Running().steps.Commit(); }
void WgmmaWait(int groups, Where where) {
  cluster->Yield();
  Thread& thread = Running();
  thread.due.clear();
  thread.steps.Wait(groups, [&](const WgmmaStep& step) { thread.due.push_back(step); });
  Meet("WgmmaWait", nullptr, 0, where, [&](const void*) {
    const Warp& warp = *thread.warp;
    const std::vector<WgmmaStep>& due = warp.threads->due;
    for (int lane = 1; lane < kLanes; ++lane) {
      if (!std::ranges::equal(warp.threads[lane].due, due, SameStep)) {
        cluster->Fault(fmt::format("lanes of warp {} wait for different steps of wgmma at {}",
                                   thread.indices.thread / kLanes, Line(where)));
      }
    }
    for (size_t i = 0; i < due.size(); ++i) RunStep(warp, i);
  });
}

}  // namespace forebay::gpu::emulation
