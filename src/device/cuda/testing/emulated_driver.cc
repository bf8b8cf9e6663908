#include "device/cuda/testing/emulated_driver.h"

#include <fmt/core.h>
#include <sys/mman.h>

#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <vector>

#include "base/check.h"
#include "base/rng.h"
#include "base/units.h"

namespace forebay::device::testing {
namespace {

constexpr cu::Result kInvalidValue = 1, kInvalidHandle = 400, kIllegalAddress = 700;
constexpr size_t kHostPage = 4096;
constexpr int kMajor = 9, kMinor = 0;

struct Memory {
  size_t bytes;
  bool pinned;
};
struct EventState {
  uint64_t recorded = 0, reached = 0;
};
struct StreamState {
  struct Command {
    std::function<bool()> ready;  // null: always
    std::function<cu::Result()> run;
  };
  std::deque<Command> commands;
};

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

  // The GPU's memory is the GPU's alone but while it works.
  void Open(bool open) {
    for (const auto& [address, piece] : memory) {
      if (piece.pinned) continue;
      FB_CHECK(mprotect(reinterpret_cast<void*>(address), piece.bytes,
                        open ? PROT_READ | PROT_WRITE : PROT_NONE) == 0,
               "mprotect: {}", strerror(errno));
    }
  }

  // Runs a command of a stream that can go on, if there is one.
  bool RunOne() {
    std::vector<StreamState*> able;
    for (const auto& [handle, stream] : streams) {
      if (stream->commands.empty()) continue;
      const auto& ready = stream->commands.front().ready;
      if (!ready || ready()) able.push_back(stream.get());
    }
    if (able.empty()) return false;
    StreamState& stream = *able[rng.Below(able.size())];
    const StreamState::Command command = std::move(stream.commands.front());
    stream.commands.pop_front();
    if (error != cu::kSuccess) return true;  // the context is dead
    Open(true);
    error = command.run();
    Open(false);
    return true;
  }
  // Now and then something runs while the host calls.
  void Interleave() {
    for (uint64_t n = rng.Below(4); n > 1 && RunOne();) --n;
  }

  EmulatedDriverOptions options;
  std::recursive_mutex mutex;
  base::Rng rng;
  Driver table;
  cu::Result error = cu::kSuccess;  // sticky, as a kernel's fault is
  std::string what;                 // of it
  uint64_t next_handle = 1;
  uint64_t used = 0;
  int contexts = 0;
  std::map<uint64_t, Memory> memory;
  std::map<cu::Stream, std::unique_ptr<StreamState>> streams;
  std::map<cu::Event, std::unique_ptr<EventState>> events;
  std::map<cu::Module, const void*> modules;
  std::map<cu::Function, std::string> functions;
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
  static cu::Result Push(cu::Stream stream, Command command) {
    const std::lock_guard lock(the->mutex);
    const auto found = the->streams.find(stream);
    if (found == the->streams.end()) return kInvalidHandle;
    if (the->error != cu::kSuccess) return the->error;
    found->second->commands.push_back(std::move(command));
    the->Interleave();
    return cu::kSuccess;
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
    *name = result == kIllegalAddress    ? "CUDA_ERROR_ILLEGAL_ADDRESS"
            : result == cu::kOutOfMemory ? "CUDA_ERROR_OUT_OF_MEMORY"
            : result == kInvalidValue    ? "CUDA_ERROR_INVALID_VALUE"
            : result == kInvalidHandle   ? "CUDA_ERROR_INVALID_HANDLE"
                                         : "CUDA_SUCCESS";
    return cu::kSuccess;
  }
  static cu::Result GetErrorString(cu::Result, const char** text) {
    *text = the->what.c_str();
    return cu::kSuccess;
  }
  static cu::Result DeviceGetCount(int* count) {
    *count = 1;
    return cu::kSuccess;
  }
  static cu::Result DeviceGet(cu::Device* device, int ordinal) {
    *device = ordinal;
    return ordinal == 0 ? cu::kSuccess : kInvalidValue;
  }
  static cu::Result DeviceGetName(char* name, int length, cu::Device) {
    std::snprintf(name, static_cast<size_t>(length), "emulated");
    return cu::kSuccess;
  }
  static cu::Result DeviceGetAttribute(int* value, cu::Attribute attribute, cu::Device) {
    *value = attribute == cu::Attribute::kMajor   ? kMajor
             : attribute == cu::Attribute::kMinor ? kMinor
                                                  : 1;
    return cu::kSuccess;
  }
  static cu::Result DevicePrimaryCtxRetain(cu::Context* context, cu::Device) {
    const std::lock_guard lock(the->mutex);
    ++the->contexts;
    *context = reinterpret_cast<cu::Context>(the);
    return cu::kSuccess;
  }
  static cu::Result DevicePrimaryCtxRelease(cu::Device) {
    const std::lock_guard lock(the->mutex);
    --the->contexts;
    return cu::kSuccess;
  }
  static cu::Result CtxSetCurrent(cu::Context context) {
    return context == reinterpret_cast<cu::Context>(the) ? cu::kSuccess : kInvalidValue;
  }

  static cu::Result MemGetInfo(size_t* free, size_t* total) {
    *total = the->options.memory_bytes;
    *free = *total - the->used;
    return cu::kSuccess;
  }
  static cu::Result NewMemory(size_t bytes, bool pinned, uint64_t* address) {
    const std::lock_guard lock(the->mutex);
    if (!pinned && bytes > the->options.memory_bytes - the->used) return cu::kOutOfMemory;
    const size_t whole = base::RoundUp(bytes, kHostPage);
    void* const data = mmap(nullptr, whole, pinned ? PROT_READ | PROT_WRITE : PROT_NONE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) return cu::kOutOfMemory;
    *address = reinterpret_cast<uint64_t>(data);
    the->memory[*address] = {bytes, pinned};
    the->used += pinned ? 0 : bytes;
    return cu::kSuccess;
  }
  static cu::Result DropMemory(uint64_t address, bool pinned) {
    const std::lock_guard lock(the->mutex);
    const auto found = the->memory.find(address);
    if (found == the->memory.end() || found->second.pinned != pinned) return kInvalidValue;
    munmap(reinterpret_cast<void*>(address), base::RoundUp(found->second.bytes, kHostPage));
    the->used -= pinned ? 0 : found->second.bytes;
    the->memory.erase(found);
    return cu::kSuccess;
  }
  static cu::Result MemAlloc(cu::DevicePtr* address, size_t bytes) {
    uint64_t at = 0;
    const cu::Result result = NewMemory(bytes, false, &at);
    *address = at;
    return result;
  }
  static cu::Result MemFree(cu::DevicePtr address) { return DropMemory(address, false); }
  static cu::Result MemHostAlloc(void** address, size_t bytes, unsigned) {
    uint64_t at = 0;
    const cu::Result result = NewMemory(bytes, true, &at);
    *address = reinterpret_cast<void*>(at);
    return result;
  }
  static cu::Result MemFreeHost(void* address) {
    return DropMemory(reinterpret_cast<uint64_t>(address), true);
  }
  static cu::Result MemsetD8(cu::DevicePtr address, unsigned char value, size_t bytes) {
    const std::lock_guard lock(the->mutex);
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
                {nullptr, [=] {
                   if (!Reaches(to, bytes) || !Reaches(from, bytes))
                     return Illegal(fmt::format("a copy of {} bytes of no allocation", bytes));
                   std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from),
                               bytes);
                   return cu::kSuccess;
                 }});
  }

  static cu::Result Memcpy2DAsync(const cu::Copy2D* asked, cu::Stream stream) {
    const cu::Copy2D copy = *asked;
    if (copy.source_type != cu::MemoryType::kUnified ||
        copy.destination_type != cu::MemoryType::kUnified || copy.width > copy.source_pitch ||
        copy.width > copy.destination_pitch)
      return kInvalidValue;
    return Push(stream, {nullptr, [copy] {
                           for (size_t row = 0; row < copy.height; ++row) {
                             const uint64_t to = copy.destination + row * copy.destination_pitch,
                                            from = copy.source + row * copy.source_pitch;
                             if (!Reaches(to, copy.width) || !Reaches(from, copy.width))
                               return Illegal("a copy of rows of no allocation");
                             std::memcpy(reinterpret_cast<void*>(to),
                                         reinterpret_cast<const void*>(from), copy.width);
                           }
                           return cu::kSuccess;
                         }});
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
  static cu::Result DeviceCanAccessPeer(int* can, cu::Device, cu::Device) {
    *can = 1;
    return cu::kSuccess;
  }
  static cu::Result CtxEnablePeerAccess(cu::Context, unsigned) { return cu::kSuccess; }

  static cu::Result StreamCreateWithPriority(cu::Stream* stream, unsigned, int) {
    const std::lock_guard lock(the->mutex);
    *stream = NewHandle<cu::Stream>();
    the->streams[*stream] = std::make_unique<StreamState>();
    return cu::kSuccess;
  }
  static cu::Result StreamDestroy(cu::Stream stream) {
    const std::lock_guard lock(the->mutex);
    return the->streams.erase(stream) == 1 ? cu::kSuccess : kInvalidHandle;
  }
  // The default stream has nothing to do. Another one may not wait for what is not enqueued yet.
  static cu::Result StreamSynchronize(cu::Stream stream) {
    if (stream == nullptr) return cu::kSuccess;
    const std::lock_guard lock(the->mutex);
    const auto found = the->streams.find(stream);
    if (found == the->streams.end()) return kInvalidHandle;
    while (!found->second->commands.empty())
      FB_CHECK(the->RunOne(), "a stream that waits for ever");
    return the->error;
  }
  static cu::Result StreamQuery(cu::Stream stream) {
    const std::lock_guard lock(the->mutex);
    const auto found = the->streams.find(stream);
    if (found == the->streams.end()) return kInvalidHandle;
    the->RunOne();
    if (the->error != cu::kSuccess) return the->error;
    return found->second->commands.empty() ? cu::kSuccess : cu::kNotReady;
  }
  static cu::Result StreamWaitEvent(cu::Stream stream, cu::Event event, unsigned) {
    const std::lock_guard lock(the->mutex);
    const auto found = the->events.find(event);
    if (found == the->events.end()) return kInvalidHandle;
    // The record that counts is the last one now; the event may be gone when the stream gets there.
    const uint64_t awaited = found->second->recorded;
    return Push(stream, {[event, awaited] {
                           const auto at = the->events.find(event);
                           return at == the->events.end() || at->second->reached >= awaited;
                         },
                         [] { return cu::kSuccess; }});
  }
  static cu::Result StreamWriteValue64(cu::Stream stream, cu::DevicePtr address, uint64_t value,
                                       unsigned) {
    return Push(stream, {nullptr, [=] {
                           if (!Reaches(address, sizeof value))
                             return Illegal("a value is written to no allocation");
                           std::memcpy(reinterpret_cast<void*>(address), &value, sizeof value);
                           return cu::kSuccess;
                         }});
  }
  static cu::Result StreamWaitValue64(cu::Stream stream, cu::DevicePtr address, uint64_t value,
                                      unsigned) {
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
    *event = NewHandle<cu::Event>();
    the->events[*event] = std::make_unique<EventState>();
    return cu::kSuccess;
  }
  static cu::Result EventDestroy(cu::Event event) {
    const std::lock_guard lock(the->mutex);
    return the->events.erase(event) == 1 ? cu::kSuccess : kInvalidHandle;
  }
  static cu::Result EventRecord(cu::Event event, cu::Stream stream) {
    const std::lock_guard lock(the->mutex);
    const auto found = the->events.find(event);
    if (found == the->events.end()) return kInvalidHandle;
    const uint64_t number = ++found->second->recorded;
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
    the->RunOne();
    if (the->error != cu::kSuccess) return the->error;
    return found->second->reached >= found->second->recorded ? cu::kSuccess : cu::kNotReady;
  }
  static cu::Result EventElapsedTime(float* milliseconds, cu::Event, cu::Event) {
    *milliseconds = 1;
    return cu::kSuccess;
  }

  static cu::Result ModuleLoadData(cu::Module* module, const void* image) {
    const std::lock_guard lock(the->mutex);
    *module = NewHandle<cu::Module>();
    the->modules[*module] = image;
    return cu::kSuccess;
  }
  static cu::Result ModuleUnload(cu::Module module) {
    const std::lock_guard lock(the->mutex);
    return the->modules.erase(module) == 1 ? cu::kSuccess : kInvalidHandle;
  }
  static cu::Result ModuleGetFunction(cu::Function* function, cu::Module module, const char* name) {
    const std::lock_guard lock(the->mutex);
    if (!the->modules.contains(module)) return kInvalidHandle;
    *function = NewHandle<cu::Function>();
    the->functions[*function] = name;
    return cu::kSuccess;
  }
  static cu::Result FuncSetAttribute(cu::Function, cu::FunctionAttribute, int) {
    return cu::kSuccess;
  }
  static cu::Result LaunchKernelEx(const cu::LaunchConfig* config, cu::Function function,
                                   void** params, void**) {
    const std::lock_guard lock(the->mutex);
    const auto found = the->functions.find(function);
    if (found == the->functions.end() || !the->options.kernel) return kInvalidHandle;
    const std::string name = found->second;
    const auto* const from = static_cast<const std::byte*>(params[0]);
    const std::vector<std::byte> copy(from, from + the->options.params_bytes(name));
    const uint64_t seed = the->rng.Next();
    cu::LaunchConfig kept = *config;
    kept.attributes = nullptr;
    kept.num_attributes = 0;
    cu::LaunchAttribute cluster =
        config->num_attributes > 0 ? *config->attributes : cu::LaunchAttribute{};
    return Push(config->stream, {nullptr, [name, copy, seed, kept, cluster]() mutable {
                                   if (cluster.id != 0) {
                                     kept.attributes = &cluster;
                                     kept.num_attributes = 1;
                                   }
                                   const base::Status status =
                                       the->options.kernel(name, kept, copy.data(), seed);
                                   return status.ok() ? cu::kSuccess : Illegal(status.message());
                                 }});
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

std::string EmulatedDriver::Leaks() const {
  const State& left = *state_;
  if (left.memory.empty() && left.streams.empty() && left.events.empty() && left.modules.empty() &&
      left.contexts == 0)
    return "";
  return fmt::format("{} pieces of memory, {} streams, {} events, {} modules, {} contexts",
                     left.memory.size(), left.streams.size(), left.events.size(),
                     left.modules.size(), left.contexts);
}

}  // namespace forebay::device::testing
