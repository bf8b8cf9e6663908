#include "device/cuda/testing/emulated_driver.h"

#include <fmt/core.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/rng.h"
#include "base/units.h"
#include "device/cuda/launch_context.h"

namespace forebay::device::testing {
namespace {

constexpr cu::Result kInvalidValue = 1, kInvalidDevice = 101, kInvalidContext = 201,
                     kPeerAccessUnsupported = 217, kInvalidHandle = 400, kIllegalAddress = 700,
                     kLaunchTimeout = 702, kNotSupported = 801, kCaptureUnsupported = 900;
constexpr size_t kHostPage = 4096;
constexpr int kMajor = 9, kMinor = 0, kMultiprocessors = 2;

// A primary context, from its first retain to its last release.
struct ContextState {
  cu::Device device = 0;
  int retained = 0, next_connection = 0;
  std::set<cu::Context> peers;  // whose memory its kernels reach
};
struct Memory {
  size_t bytes;
  bool pinned, mapped = false;
  cu::Context context = nullptr;
};
struct EventState {
  cu::Context context;
  uint64_t recorded = 0, reached = 0;
};
struct FunctionState {
  cu::Context context;
  std::string name;
  unsigned shared_bytes = 48 << 10;  // that a launch may ask for
};
struct GraphState {
  cu::Context context;
  std::vector<std::function<cu::Result()>> launches;
};
struct StreamState {
  struct Command {
    std::function<bool()> ready;  // null: always
    std::function<cu::Result()> run;
    uint64_t number = 0;  // of all commands, as they were enqueued
  };
  cu::Context context = nullptr;
  int connection = 0;
  std::deque<Command> commands;
  GraphState* captured = nullptr;  // into which launches go
};

thread_local cu::Context current = nullptr;  // the thread's, which may be gone
// Of all drivers of this process: a context that is gone is never there again.
std::atomic<uint64_t> contexts_made = 0;

}  // namespace

struct EmulatedDriver::State {
  explicit State(EmulatedDriverOptions given) : options(std::move(given)), rng(options.seed) {}

  // Whether [address, address + bytes) lies in one allocation.
  const Memory* Find(uint64_t address, size_t bytes) const {
    auto at = memory.upper_bound(address);
    if (at == memory.begin()) return nullptr;
    --at;
    return address + bytes <= at->first + at->second.bytes ? &at->second : nullptr;
  }

  // The GPU's memory is the GPU's alone but while it works: calls of the driver end with it closed.
  void Open(bool wanted) {
    if (std::exchange(open, wanted) == wanted) return;
    for (const auto& [address, piece] : memory) {
      if (piece.pinned) continue;
      FB_CHECK(mprotect(reinterpret_cast<void*>(address), piece.bytes,
                        open ? PROT_READ | PROT_WRITE : PROT_NONE) == 0,
               "mprotect: {}", strerror(errno));
    }
  }

  bool Reaches(cu::Context context, const Memory& piece) const {
    return piece.pinned || piece.context == context ||
           contexts.at(context).peers.contains(piece.context);
  }
  // While a kernel of the context runs: memory of GPUs that it does not reach.
  void Fence(cu::Context context, int protection) {
    for (const auto& [address, piece] : memory) {
      if (Reaches(context, piece)) continue;
      FB_CHECK(mprotect(reinterpret_cast<void*>(address), piece.bytes, protection) == 0,
               "mprotect: {}", strerror(errno));
    }
  }
  // The context that calls of this thread are for; null: it has none.
  cu::Context Current() const { return contexts.contains(current) ? current : nullptr; }
  // Nobody may name anything of the context from here on.
  void Destroy(cu::Context context) {
    size_t left = 0;
    const auto drop = [&](auto& things) {
      left += std::erase_if(things, [&](const auto& entry) {
        if constexpr (requires { entry.second.context; }) {
          return entry.second.context == context;
        } else {
          return entry.second->context == context;
        }
      });
    };
    for (const auto& [address, piece] : memory) {
      if (piece.context != context) continue;
      munmap(reinterpret_cast<void*>(address), base::RoundUp(piece.bytes, kHostPage));
      used[contexts.at(context).device] -= piece.pinned ? 0 : piece.bytes;
    }
    drop(memory), drop(streams), drop(events), drop(graphs), drop(executables), drop(modules);
    std::erase_if(functions, [&](const auto& entry) { return entry.second.context == context; });
    outlived += left;
    contexts.erase(context);
    for (auto& [other, state] : contexts) state.peers.erase(context);
  }

  // Runs a command of a stream that can go on, if there is one. Leaves the GPU's memory open.
  bool RunOne() {
    // A connection is in order: the first command of its streams holds up the others.
    std::map<std::pair<cu::Context, int>, StreamState*> first;
    for (const auto& [handle, stream] : streams) {
      if (stream->commands.empty()) continue;
      StreamState*& of = first[{stream->context, stream->connection}];
      if (of == nullptr || stream->commands.front().number < of->commands.front().number)
        of = stream.get();
    }
    std::vector<StreamState*> able;
    for (const auto& [connection, stream] : first) {
      const auto& ready = stream->commands.front().ready;
      if (!ready || ready()) able.push_back(stream);
    }
    if (able.empty()) return false;
    StreamState& stream = *able[rng.Below(able.size())];
    const StreamState::Command command = std::move(stream.commands.front());
    stream.commands.pop_front();
    ++progress;
    changed.notify_all();
    if (error != cu::kSuccess) return true;  // the context is dead
    Open(true);
    error = command.run();
    return true;
  }
  // Something runs while the host calls: `commands` at most.
  void Run(uint64_t commands) {
    while (commands > 0 && RunOne()) --commands;
    Open(false);
  }
  // Now and then; 3 in 4 calls on average.
  void Interleave() {
    if (rng.Below(8) == 0) Run(1 + rng.Below(11));
  }

  // Whether a command that was enqueued before this one is still to run.
  bool Pending(uint64_t number) const {
    return std::ranges::any_of(streams, [number](const auto& entry) {
      const auto& commands = entry.second->commands;
      return !commands.empty() && commands.front().number < number;
    });
  }
  // Streams run until `done`, as those of a GPU do while a call of the host waits. Other threads
  // may go on. The context dies where nothing can run and nobody has enqueued anything for a
  // while. REQUIRES: the mutex is held once.
  void Block(std::unique_lock<std::recursive_mutex>& lock, std::string_view call,
             const std::function<bool()>& done) {
    constexpr auto kLook = std::chrono::milliseconds(1);
    auto idle_since = std::chrono::steady_clock::now();
    for (uint64_t seen = progress; !done();) {
      if (error != cu::kSuccess) break;
      if (RunOne()) continue;
      Open(false);
      changed.wait_for(lock, kLook);
      const auto now = std::chrono::steady_clock::now();
      if (std::exchange(seen, progress) != seen) idle_since = now;
      if (now - idle_since < options.longest_call) continue;
      error = kLaunchTimeout;
      what = fmt::format("{} never returns: it waits for what nobody has enqueued", call);
    }
    Open(false);
  }
  // The call waits for all that was enqueued before it.
  cu::Result Drain(std::string_view call) {
    std::unique_lock lock(mutex);
    const uint64_t before = next_command;
    Block(lock, call, [&] { return !Pending(before); });
    return error;
  }

  EmulatedDriverOptions options;
  std::recursive_mutex mutex;
  std::condition_variable_any changed;  // with progress
  uint64_t progress = 0;                // commands enqueued or run
  uint64_t next_command = 0;
  base::Rng rng;
  Driver table;
  cu::Result error = cu::kSuccess;  // sticky, as a kernel's fault is
  std::string what;                 // of it
  uint64_t next_handle = 1;
  std::map<cu::Device, uint64_t> used;
  bool open = false;
  size_t outlived = 0;  // things that were there when their context went
  std::map<cu::Context, ContextState> contexts;
  std::map<uint64_t, Memory> memory;
  std::map<cu::Stream, std::unique_ptr<StreamState>> streams;
  std::map<cu::Event, std::unique_ptr<EventState>> events;
  struct ModuleState {
    cu::Context context;
  };
  std::map<cu::Module, ModuleState> modules;
  std::map<cu::Function, FunctionState> functions;
  std::map<cu::Graph, GraphState> graphs;
  std::map<cu::GraphExec, GraphState> executables;
  int graphs_made = 0;
};

// The functions of the table.
struct EmulatedCalls {
  using State = EmulatedDriver::State;
  using Command = StreamState::Command;
  static inline State* the = nullptr;

  template <typename Handle>
  static Handle NewHandle() {
    return reinterpret_cast<Handle>(the->next_handle++);
  }
  // REQUIRES: the mutex is not held. `blocks`: until it has run.
  static cu::Result Push(cu::Stream stream, Command command, const char* blocks = nullptr) {
    std::unique_lock lock(the->mutex);
    const auto found = the->streams.find(stream);
    if (found == the->streams.end()) return kInvalidHandle;
    if (the->Current() == nullptr) return kInvalidContext;
    if (found->second->captured != nullptr) return kCaptureUnsupported;
    std::deque<Command>& commands = found->second->commands;
    the->Block(lock, "a launch into a full queue",
               [&] { return commands.size() < the->options.queue_commands; });
    if (the->error != cu::kSuccess) return the->error;
    const uint64_t number = the->next_command++;
    command.number = number;
    commands.push_back(std::move(command));
    ++the->progress;
    the->changed.notify_all();
    the->Interleave();
    if (blocks != nullptr) {
      the->Block(lock, blocks,
                 [&] { return commands.empty() || commands.front().number > number; });
    }
    return blocks != nullptr ? the->error : cu::kSuccess;
  }
  // Copies between two places of the host's memory are made while the call waits.
  static const char* BlocksCopy(cu::DevicePtr to, cu::DevicePtr from) {
    const std::lock_guard lock(the->mutex);
    const auto pinned = [](cu::DevicePtr address) {
      const Memory* const memory = the->Find(address, 1);
      return memory != nullptr && memory->pinned;
    };
    return pinned(to) && pinned(from) ? "a copy from host to host" : nullptr;
  }
  static cu::Result Illegal(std::string what) {
    if (the->what.empty()) the->what = std::move(what);
    return kIllegalAddress;
  }
  static bool Reaches(uint64_t address, size_t bytes) {
    return the->Find(address, bytes) != nullptr;
  }

  static cu::Result Init(unsigned) { return cu::kSuccess; }
  static cu::Result DriverGetVersion(int* version) {
    *version = 13000;
    return cu::kSuccess;
  }
  static cu::Result GetErrorName(cu::Result result, const char** name) {
    *name = result == kIllegalAddress       ? "CUDA_ERROR_ILLEGAL_ADDRESS"
            : result == cu::kOutOfMemory    ? "CUDA_ERROR_OUT_OF_MEMORY"
            : result == kLaunchTimeout      ? "CUDA_ERROR_LAUNCH_TIMEOUT"
            : result == kInvalidValue       ? "CUDA_ERROR_INVALID_VALUE"
            : result == kInvalidHandle      ? "CUDA_ERROR_INVALID_HANDLE"
            : result == kInvalidContext     ? "CUDA_ERROR_INVALID_CONTEXT"
            : result == kNotSupported       ? "CUDA_ERROR_NOT_SUPPORTED"
            : result == kCaptureUnsupported ? "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"
                                            : "CUDA_SUCCESS";
    return cu::kSuccess;
  }
  static cu::Result GetErrorString(cu::Result, const char** text) {
    *text = the->what.c_str();
    return cu::kSuccess;
  }
  static cu::Result DeviceGetCount(int* count) {
    *count = the->options.gpus;
    return cu::kSuccess;
  }
  static cu::Result DeviceGet(cu::Device* device, int ordinal) {
    *device = ordinal;
    return ordinal >= 0 && ordinal < the->options.gpus ? cu::kSuccess : kInvalidDevice;
  }
  static cu::Result DeviceGetName(char* name, int length, cu::Device) {
    std::snprintf(name, static_cast<size_t>(length), "emulated");
    return cu::kSuccess;
  }
  static cu::Result DeviceGetAttribute(int* value, cu::Attribute attribute, cu::Device) {
    *value = attribute == cu::Attribute::kMajor             ? kMajor
             : attribute == cu::Attribute::kMinor           ? kMinor
             : attribute == cu::Attribute::kMultiprocessors ? kMultiprocessors
             : attribute == cu::Attribute::kStreamValues64  ? the->options.stream_values
                                                            : 1;
    return cu::kSuccess;
  }
  // REQUIRES: the mutex is held.
  static auto ContextOf(cu::Device device) {
    return std::ranges::find_if(
        the->contexts, [device](const auto& entry) { return entry.second.device == device; });
  }
  static cu::Result DevicePrimaryCtxRetain(cu::Context* context, cu::Device device) {
    const std::lock_guard lock(the->mutex);
    if (device < 0 || device >= the->options.gpus) return kInvalidDevice;
    auto found = ContextOf(device);
    if (found == the->contexts.end()) {
      const auto made = reinterpret_cast<cu::Context>(++contexts_made);
      found = the->contexts.try_emplace(made, ContextState{.device = device}).first;
    }
    ++found->second.retained;
    *context = found->first;
    return cu::kSuccess;
  }
  static cu::Result DevicePrimaryCtxRelease(cu::Device device) {
    const std::lock_guard lock(the->mutex);
    const auto found = ContextOf(device);
    if (found == the->contexts.end()) return kInvalidContext;
    if (--found->second.retained == 0) the->Destroy(found->first);
    return cu::kSuccess;
  }
  static cu::Result CtxSetCurrent(cu::Context context) {
    const std::lock_guard lock(the->mutex);
    if (!the->contexts.contains(context)) return kInvalidContext;
    current = context;
    return cu::kSuccess;
  }

  static cu::Result MemGetInfo(size_t* free, size_t* total) {
    const std::lock_guard lock(the->mutex);
    if (the->Current() == nullptr) return kInvalidContext;
    *total = the->options.memory_bytes;
    *free = *total - the->used[the->contexts.at(current).device];
    return cu::kSuccess;
  }
  static cu::Result NewMemory(size_t bytes, bool pinned, bool mapped, uint64_t* address) {
    the->Drain(pinned ? "cuMemHostAlloc" : "cuMemAlloc");
    const std::lock_guard lock(the->mutex);
    if (the->Current() == nullptr) return kInvalidContext;
    uint64_t& used = the->used[the->contexts.at(current).device];
    if (!pinned && bytes > the->options.memory_bytes - used) return cu::kOutOfMemory;
    const size_t whole = base::RoundUp(bytes, kHostPage);
    void* const data = mmap(nullptr, whole, pinned ? PROT_READ | PROT_WRITE : PROT_NONE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) return cu::kOutOfMemory;
    (void)madvise(data, whole, MADV_HUGEPAGE);  // fewer entries for Open
    *address = reinterpret_cast<uint64_t>(data);
    the->memory[*address] = {bytes, pinned, mapped, current};
    used += pinned ? 0 : bytes;
    return cu::kSuccess;
  }
  static cu::Result DropMemory(uint64_t address, bool pinned) {
    the->Drain(pinned ? "cuMemFreeHost" : "cuMemFree");
    const std::lock_guard lock(the->mutex);
    if (the->Current() == nullptr) return kInvalidContext;
    const auto found = the->memory.find(address);
    if (found == the->memory.end() || found->second.pinned != pinned) return kInvalidValue;
    munmap(reinterpret_cast<void*>(address), base::RoundUp(found->second.bytes, kHostPage));
    the->used[the->contexts.at(found->second.context).device] -= pinned ? 0 : found->second.bytes;
    the->memory.erase(found);
    return cu::kSuccess;
  }
  static cu::Result MemAlloc(cu::DevicePtr* address, size_t bytes) {
    uint64_t at = 0;
    const cu::Result result = NewMemory(bytes, false, false, &at);
    *address = at;
    return result;
  }
  static cu::Result MemFree(cu::DevicePtr address) { return DropMemory(address, false); }
  static cu::Result MemHostAlloc(void** address, size_t bytes, unsigned flags) {
    uint64_t at = 0;
    const cu::Result result = NewMemory(bytes, true, (flags & cu::kHostMapped) != 0, &at);
    *address = reinterpret_cast<void*>(at);
    return result;
  }
  static cu::Result MemFreeHost(void* address) {
    return DropMemory(reinterpret_cast<uint64_t>(address), true);
  }
  static cu::Result PointerGetAttribute(void* value, cu::PointerAttribute, cu::DevicePtr address) {
    constexpr unsigned kOfDevice = 2;
    const std::lock_guard lock(the->mutex);
    const Memory* const memory = the->Find(address, 1);
    if (memory == nullptr) return kInvalidValue;
    *static_cast<unsigned*>(value) =
        memory->pinned ? static_cast<unsigned>(cu::MemoryType::kHost) : kOfDevice;
    return cu::kSuccess;
  }
  static cu::Result MemsetD8(cu::DevicePtr address, unsigned char value, size_t bytes) {
    const std::lock_guard lock(the->mutex);
    if (the->Current() == nullptr) return kInvalidContext;
    if (!Reaches(address, bytes)) return kInvalidValue;
    the->Open(true);
    std::memset(reinterpret_cast<void*>(address), value, bytes);
    the->Open(false);
    return cu::kSuccess;
  }
  static cu::Result MemsetD8Async(cu::DevicePtr address, unsigned char value, size_t bytes,
                                  cu::Stream stream) {
    return Push(stream, {nullptr, [=] {
                           if (!Reaches(address, bytes)) return Illegal("memset of no allocation");
                           std::memset(reinterpret_cast<void*>(address), value, bytes);
                           return cu::kSuccess;
                         }});
  }
  static cu::Result MemcpyAsync(cu::DevicePtr to, cu::DevicePtr from, size_t bytes,
                                cu::Stream stream) {
    return Push(stream,
                {nullptr,
                 [=] {
                   if (!Reaches(to, bytes) || !Reaches(from, bytes))
                     return Illegal(fmt::format("a copy of {} bytes of no allocation", bytes));
                   std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from),
                               bytes);
                   return cu::kSuccess;
                 }},
                BlocksCopy(to, from));
  }

  static cu::Result Memcpy2DAsync(const cu::Copy2D* asked, cu::Stream stream) {
    const cu::Copy2D copy = *asked;
    if (copy.source_type != cu::MemoryType::kUnified ||
        copy.destination_type != cu::MemoryType::kUnified || copy.width > copy.source_pitch ||
        copy.width > copy.destination_pitch)
      return kInvalidValue;
    return Push(stream,
                {nullptr,
                 [copy] {
                   for (size_t row = 0; row < copy.height; ++row) {
                     const uint64_t to = copy.destination + row * copy.destination_pitch,
                                    from = copy.source + row * copy.source_pitch;
                     if (!Reaches(to, copy.width) || !Reaches(from, copy.width))
                       return Illegal("a copy of rows of no allocation");
                     std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from),
                                 copy.width);
                   }
                   return cu::kSuccess;
                 }},
                BlocksCopy(copy.destination, copy.source));
  }
  // The host's own code reaches the host's memory alone.
  static cu::Result LaunchHostFunc(cu::Stream stream, cu::HostFunction function, void* data) {
    return Push(stream, {nullptr, [=] {
                           the->Open(false);
                           function(data);
                           the->Open(true);
                           return cu::kSuccess;
                         }});
  }
  static cu::Result DeviceCanAccessPeer(int* can, cu::Device device, cu::Device peer) {
    *can = the->options.peers && device != peer ? 1 : 0;
    return cu::kSuccess;
  }
  // Of the current context to the peer: not the other way.
  static cu::Result CtxEnablePeerAccess(cu::Context peer, unsigned flags) {
    const std::lock_guard lock(the->mutex);
    if (flags != 0) return kInvalidValue;
    if (the->Current() == nullptr || peer == current || !the->contexts.contains(peer))
      return kInvalidContext;
    if (!the->options.peers) return kPeerAccessUnsupported;
    const bool added = the->contexts.at(current).peers.insert(peer).second;
    return added ? cu::kSuccess : cu::kPeerAccessIsOn;
  }

  static cu::Result StreamCreateWithPriority(cu::Stream* stream, unsigned, int) {
    const std::lock_guard lock(the->mutex);
    if (the->Current() == nullptr) return kInvalidContext;
    *stream = NewHandle<cu::Stream>();
    auto& made = the->streams[*stream] = std::make_unique<StreamState>();
    made->context = current;
    made->connection = the->contexts.at(current).next_connection++ % the->options.connections;
    return cu::kSuccess;
  }
  static cu::Result StreamDestroy(cu::Stream stream) {
    const std::lock_guard lock(the->mutex);
    return the->streams.erase(stream) == 1 ? cu::kSuccess : kInvalidHandle;
  }
  // The default stream has nothing to do.
  static cu::Result StreamSynchronize(cu::Stream stream) {
    std::unique_lock lock(the->mutex);
    if (stream == nullptr) return the->Current() != nullptr ? cu::kSuccess : kInvalidContext;
    const auto found = the->streams.find(stream);
    if (found == the->streams.end()) return kInvalidHandle;
    the->Block(lock, "cuStreamSynchronize", [&] { return found->second->commands.empty(); });
    return the->error;
  }
  static cu::Result StreamQuery(cu::Stream stream) {
    const std::lock_guard lock(the->mutex);
    const auto found = the->streams.find(stream);
    if (found == the->streams.end()) return kInvalidHandle;
    the->Run(1);
    if (the->error != cu::kSuccess) return the->error;
    return found->second->commands.empty() ? cu::kSuccess : cu::kNotReady;
  }
  static cu::Result StreamWaitEvent(cu::Stream stream, cu::Event event, unsigned) {
    std::unique_lock lock(the->mutex);
    const auto found = the->events.find(event);
    if (found == the->events.end()) return kInvalidHandle;
    // The record that counts is the last one now; the event may be gone when the stream gets there.
    const uint64_t awaited = found->second->recorded;
    lock.unlock();
    return Push(stream, {[event, awaited] {
                           const auto at = the->events.find(event);
                           return at == the->events.end() || at->second->reached >= awaited;
                         },
                         [] { return cu::kSuccess; }});
  }
  static cu::Result StreamWriteValue64(cu::Stream stream, cu::DevicePtr address, uint64_t value,
                                       unsigned) {
    if (!the->options.stream_values) return kNotSupported;
    return Push(stream, {nullptr, [=] {
                           if (!Reaches(address, sizeof value))
                             return Illegal("a value is written to no allocation");
                           std::memcpy(reinterpret_cast<void*>(address), &value, sizeof value);
                           return cu::kSuccess;
                         }});
  }
  static cu::Result StreamWaitValue64(cu::Stream stream, cu::DevicePtr address, uint64_t value,
                                      unsigned) {
    if (!the->options.stream_values) return kNotSupported;
    return Push(stream, {[=] {
                           if (!Reaches(address, sizeof value)) return true;
                           uint64_t there;
                           std::memcpy(&there, reinterpret_cast<const void*>(address),
                                       sizeof there);
                           return static_cast<int64_t>(there - value) >= 0;
                         },
                         [=] {
                           return Reaches(address, sizeof value)
                                      ? cu::kSuccess
                                      : Illegal("a wait for a value of no allocation");
                         }});
  }

  static cu::Result EventCreate(cu::Event* event, unsigned) {
    const std::lock_guard lock(the->mutex);
    if (the->Current() == nullptr) return kInvalidContext;
    *event = NewHandle<cu::Event>();
    the->events[*event] = std::make_unique<EventState>(EventState{.context = current});
    return cu::kSuccess;
  }
  static cu::Result EventDestroy(cu::Event event) {
    const std::lock_guard lock(the->mutex);
    return the->events.erase(event) == 1 ? cu::kSuccess : kInvalidHandle;
  }
  static cu::Result EventRecord(cu::Event event, cu::Stream stream) {
    std::unique_lock lock(the->mutex);
    const auto found = the->events.find(event);
    const auto into = the->streams.find(stream);
    if (found == the->events.end() || into == the->streams.end() ||
        found->second->context != into->second->context)
      return kInvalidHandle;
    const uint64_t number = ++found->second->recorded;
    lock.unlock();
    return Push(stream, {nullptr, [event, number] {
                           const auto at = the->events.find(event);
                           if (at != the->events.end()) at->second->reached = number;
                           return cu::kSuccess;
                         }});
  }
  static cu::Result EventQuery(cu::Event event) {
    const std::lock_guard lock(the->mutex);
    const auto found = the->events.find(event);
    if (found == the->events.end()) return kInvalidHandle;
    the->Run(1);
    if (the->error != cu::kSuccess) return the->error;
    return found->second->reached >= found->second->recorded ? cu::kSuccess : cu::kNotReady;
  }
  static cu::Result EventElapsedTime(float* milliseconds, cu::Event, cu::Event) {
    *milliseconds = 1;
    return cu::kSuccess;
  }

  // Loading, lazy or not, may wait for all that the context has to do.
  static cu::Result ModuleLoadData(cu::Module* module, const void*) {
    if (const cu::Result drained = the->Drain("cuModuleLoadData"); drained != cu::kSuccess)
      return drained;
    const std::lock_guard lock(the->mutex);
    if (the->Current() == nullptr) return kInvalidContext;
    *module = NewHandle<cu::Module>();
    the->modules[*module] = {current};
    return cu::kSuccess;
  }
  static cu::Result ModuleUnload(cu::Module module) {
    const std::lock_guard lock(the->mutex);
    return the->modules.erase(module) == 1 ? cu::kSuccess : kInvalidHandle;
  }
  static cu::Result ModuleGetFunction(cu::Function* function, cu::Module module, const char* name) {
    if (const cu::Result drained = the->Drain("cuModuleGetFunction"); drained != cu::kSuccess)
      return drained;
    const std::lock_guard lock(the->mutex);
    const auto found = the->modules.find(module);
    if (found == the->modules.end()) return kInvalidHandle;
    *function = NewHandle<cu::Function>();
    the->functions[*function] = {found->second.context, name};
    return cu::kSuccess;
  }
  static cu::Result FuncSetAttribute(cu::Function function, cu::FunctionAttribute, int value) {
    const std::lock_guard lock(the->mutex);
    const auto found = the->functions.find(function);
    if (found == the->functions.end()) return kInvalidHandle;
    if (value < 0 || value > kMostSharedBytes) return kInvalidValue;
    found->second.shared_bytes = static_cast<unsigned>(value);
    return cu::kSuccess;
  }
  static cu::Result LaunchKernelEx(const cu::LaunchConfig* config, cu::Function function,
                                   void** params, void**) {
    std::unique_lock lock(the->mutex);
    const auto found = the->functions.find(function);
    if (found == the->functions.end() || !the->options.kernel) return kInvalidHandle;
    // The function, the stream and the thread have one context.
    const cu::Context context = found->second.context;
    const auto into = the->streams.find(config->stream);
    if (into == the->streams.end() || into->second->context != context) return kInvalidHandle;
    if (the->Current() != context) return kInvalidContext;
    constexpr unsigned kMostAlong = kMostBlocksAlongYZ;
    if (config->shared_bytes > found->second.shared_bytes || config->grid[1] > kMostAlong ||
        config->grid[2] > kMostAlong)
      return kInvalidValue;
    const std::string name = found->second.name;
    const auto* const from = static_cast<const std::byte*>(params[0]);
    const std::vector<std::byte> copy(from, from + the->options.params_bytes(name));
    // What padding holds may look like an address.
    const size_t known = kClearsPadding ? copy.size() : 0;
    for (size_t at = 0; at + sizeof(uint64_t) <= known; at += sizeof(uint64_t)) {
      uint64_t word;
      std::memcpy(&word, copy.data() + at, sizeof word);
      const Memory* const memory = the->Find(word, 1);
      if (memory != nullptr && memory->pinned && !memory->mapped) {
        return Illegal(fmt::format(
            "kernel {} is given memory of the host, in byte {} of its parameters", name, at));
      }
      if (memory != nullptr && !the->Reaches(context, *memory)) {
        return Illegal(fmt::format(
            "kernel {} is given memory of cuda:{}, which cuda:{} does not reach, in byte {} of its "
            "parameters",
            name, the->contexts.at(memory->context).device, the->contexts.at(context).device, at));
      }
    }
    const uint64_t seed = the->rng.Next();
    cu::LaunchConfig kept = *config;
    kept.attributes = nullptr;
    kept.num_attributes = 0;
    // Kernels run one after another, whether they may overlap or not.
    cu::LaunchAttribute cluster{};
    for (unsigned i = 0; i < config->num_attributes; ++i) {
      if (config->attributes[i].id == cu::kLaunchCluster) cluster = config->attributes[i];
    }
    const auto run = [context, name, copy, seed, kept, cluster]() mutable {
      if (cluster.id != 0) {
        kept.attributes = &cluster;
        kept.num_attributes = 1;
      }
      the->Fence(context, PROT_NONE);
      const base::Status status = the->options.kernel(name, kept, copy.data(), seed);
      the->Fence(context, PROT_READ | PROT_WRITE);
      return status.ok() ? cu::kSuccess : Illegal(status.message());
    };
    if (GraphState* const captured = Captured(config->stream); captured != nullptr) {
      captured->launches.emplace_back(run);
      return cu::kSuccess;
    }
    lock.unlock();
    return Push(config->stream, {nullptr, run});
  }

  // REQUIRES: the mutex is held. Null: the stream is not captured.
  static GraphState* Captured(cu::Stream stream) {
    const auto found = the->streams.find(stream);
    return found == the->streams.end() ? nullptr : found->second->captured;
  }
  static cu::Result StreamBeginCapture(cu::Stream stream, int) {
    const std::lock_guard lock(the->mutex);
    const auto found = the->streams.find(stream);
    if (found == the->streams.end() || found->second->captured != nullptr) return kInvalidHandle;
    GraphState& graph = the->graphs[NewHandle<cu::Graph>()];
    graph.context = found->second->context;
    found->second->captured = &graph;
    return cu::kSuccess;
  }
  static cu::Result StreamEndCapture(cu::Stream stream, cu::Graph* graph) {
    const std::lock_guard lock(the->mutex);
    const GraphState* const captured = Captured(stream);
    if (captured == nullptr) return kInvalidHandle;
    the->streams[stream]->captured = nullptr;
    *graph =
        std::ranges::find(the->graphs, captured, [](auto& entry) { return &entry.second; })->first;
    return cu::kSuccess;
  }
  // Takes memory of the GPU.
  static cu::Result GraphInstantiateWithFlags(cu::GraphExec* executable, cu::Graph graph,
                                              unsigned long long) {
    if (const cu::Result drained = the->Drain("cuGraphInstantiate"); drained != cu::kSuccess)
      return drained;
    const std::lock_guard lock(the->mutex);
    const auto found = the->graphs.find(graph);
    if (found == the->graphs.end()) return kInvalidHandle;
    *executable = NewHandle<cu::GraphExec>();
    the->executables[*executable] = found->second;
    ++the->graphs_made;
    return cu::kSuccess;
  }
  static cu::Result GraphLaunch(cu::GraphExec executable, cu::Stream stream) {
    std::unique_lock lock(the->mutex);
    if (!the->executables.contains(executable)) return kInvalidHandle;
    lock.unlock();
    return Push(stream, {nullptr, [executable] {
                           const auto found = the->executables.find(executable);
                           if (found == the->executables.end())
                             return Illegal("a graph that was destroyed before it ran");
                           for (const auto& launch : found->second.launches) {
                             if (const cu::Result ran = launch(); ran != cu::kSuccess) return ran;
                           }
                           return cu::kSuccess;
                         }});
  }
  static cu::Result GraphExecDestroy(cu::GraphExec executable) {
    const std::lock_guard lock(the->mutex);
    return the->executables.erase(executable) == 1 ? cu::kSuccess : kInvalidHandle;
  }
  static cu::Result GraphDestroy(cu::Graph graph) {
    const std::lock_guard lock(the->mutex);
    return the->graphs.erase(graph) == 1 ? cu::kSuccess : kInvalidHandle;
  }
};

EmulatedDriver::EmulatedDriver(EmulatedDriverOptions options)
    : state_(std::make_unique<State>(std::move(options))) {
  FB_CHECK(EmulatedCalls::the == nullptr, "one emulated driver at a time");
  EmulatedCalls::the = state_.get();
#define FB_CUDA_EMULATED(name, arguments) state_->table.name = &EmulatedCalls::name;
  FB_CUDA_DRIVER(FB_CUDA_EMULATED)
#undef FB_CUDA_EMULATED
  state_->table.needs_images = false;
}

EmulatedDriver::~EmulatedDriver() {
  for (const auto& [address, piece] : state_->memory)
    munmap(reinterpret_cast<void*>(address), base::RoundUp(piece.bytes, kHostPage));
  EmulatedCalls::the = nullptr;
}

const Driver& EmulatedDriver::driver() const { return state_->table; }

int EmulatedDriver::num_streams() const { return static_cast<int>(state_->streams.size()); }
int EmulatedDriver::num_graphs() const { return state_->graphs_made; }

std::string EmulatedDriver::Leaks() const {
  const State& left = *state_;
  if (left.memory.empty() && left.streams.empty() && left.events.empty() && left.modules.empty() &&
      left.contexts.empty() && left.graphs.empty() && left.executables.empty() &&
      left.outlived == 0)
    return "";
  return fmt::format(
      "{} pieces of memory, {} streams, {} events, {} modules, {} contexts, {} graphs; {} of any "
      "kind when their context was released",
      left.memory.size(), left.streams.size(), left.events.size(), left.modules.size(),
      left.contexts.size(), left.graphs.size() + left.executables.size(), left.outlived);
}

}  // namespace forebay::device::testing
