// The CUDA driver as one table of functions: opened at run time, so that one program runs with and
// without a GPU, or a table of another making (testing/emulated_driver.h).
//
// The few types and numbers below are those of the driver's stable binary interface; driver_test
// holds them against the toolkit's header where there is one. The names follow it: Driver::MemAlloc
// is cuMemAlloc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace forebay::device::cu {

using Result = int;
inline constexpr Result kSuccess = 0, kOutOfMemory = 2, kNotReady = 600, kPeerAccessIsOn = 704;
using Device = int;
using DevicePtr = unsigned long long;
using Context = struct ContextTag*;
using Stream = struct StreamTag*;
using Event = struct EventTag*;
using Module = struct ModuleTag*;
using Function = struct FunctionTag*;
using Graph = struct GraphTag*;
using GraphExec = struct GraphExecTag*;

enum class Attribute : int {
  kMultiprocessors = 16,
  kL2Bytes = 38,
  kMajor = 75,
  kMinor = 76,
  kSharedPerBlock = 97,  // at most, where a kernel asks for it
  kStreamValues64 = 122  // whether streams write and wait for words of 64 bits
};
enum class FunctionAttribute : int { kMaxDynamicShared = 8 };
inline constexpr unsigned kStreamNonBlocking = 1, kEventDefault = 0, kEventDisableTiming = 2;
inline constexpr unsigned kHostPortable = 1, kHostMapped = 2;
inline constexpr unsigned kWaitGreaterOrEqual = 0, kWriteDefault = 0;
inline constexpr int kCaptureThread = 1;  // CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
inline constexpr int kLaunchCluster = 4;  // CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
// CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
inline constexpr int kLaunchProgrammatic = 6;

struct LaunchAttribute {
  int id;
  int padding;
  union {
    unsigned cluster[3];
    int programmatic;
    char bytes[64];
  } value;
};
using HostFunction = void (*)(void* data);
enum class MemoryType : int { kHost = 1, kUnified = 4 };
enum class PointerAttribute : int { kMemoryType = 2 };
// CUDA_MEMCPY2D: places of the unified address space, no arrays.
struct Copy2D {
  size_t source_x, source_y;
  MemoryType source_type;
  const void* source_host;
  DevicePtr source;
  void* source_array;
  size_t source_pitch;
  size_t destination_x, destination_y;
  MemoryType destination_type;
  void* destination_host;
  DevicePtr destination;
  void* destination_array;
  size_t destination_pitch;
  size_t width, height;  // bytes, rows
};

struct LaunchConfig {
  unsigned grid[3], block[3];
  unsigned shared_bytes;
  Stream stream;
  LaunchAttribute* attributes;
  unsigned num_attributes;
};

}  // namespace forebay::device::cu

namespace forebay::device {

inline constexpr base::ErrorCode kCudaUnavailable{"cuda_unavailable"};
inline constexpr base::ErrorCode kCudaFailed{"cuda_failed"};

// Name in the driver, arguments.
#define FB_CUDA_DRIVER(X)                                                                          \
  X(Init, (unsigned flags))                                                                        \
  X(DriverGetVersion, (int* version))                                                              \
  X(GetErrorName, (cu::Result result, const char** name))                                          \
  X(GetErrorString, (cu::Result result, const char** text))                                        \
  X(DeviceGetCount, (int* count))                                                                  \
  X(DeviceGet, (cu::Device * device, int ordinal))                                                 \
  X(DeviceGetName, (char* name, int length, cu::Device device))                                    \
  X(DeviceGetAttribute, (int* value, cu::Attribute attribute, cu::Device device))                  \
  X(DevicePrimaryCtxRetain, (cu::Context * context, cu::Device device))                            \
  X(DevicePrimaryCtxRelease, (cu::Device device))                                                  \
  X(CtxSetCurrent, (cu::Context context))                                                          \
  X(MemGetInfo, (size_t * free, size_t * total))                                                   \
  X(MemAlloc, (cu::DevicePtr * address, size_t bytes))                                             \
  X(MemFree, (cu::DevicePtr address))                                                              \
  X(MemHostAlloc, (void** address, size_t bytes, unsigned flags))                                  \
  X(MemFreeHost, (void* address))                                                                  \
  X(PointerGetAttribute, (void* value, cu::PointerAttribute attribute, cu::DevicePtr address))     \
  X(MemsetD8, (cu::DevicePtr address, unsigned char value, size_t bytes))                          \
  X(MemsetD8Async, (cu::DevicePtr address, unsigned char value, size_t bytes, cu::Stream stream))  \
  X(MemcpyAsync, (cu::DevicePtr to, cu::DevicePtr from, size_t bytes, cu::Stream stream))          \
  X(Memcpy2DAsync, (const cu::Copy2D* copy, cu::Stream stream))                                    \
  X(LaunchHostFunc, (cu::Stream stream, cu::HostFunction function, void* data))                    \
  X(DeviceCanAccessPeer, (int* can, cu::Device device, cu::Device peer))                           \
  X(CtxEnablePeerAccess, (cu::Context peer, unsigned flags))                                       \
  X(StreamCreateWithPriority, (cu::Stream * stream, unsigned flags, int priority))                 \
  X(StreamDestroy, (cu::Stream stream))                                                            \
  X(StreamSynchronize, (cu::Stream stream))                                                        \
  X(StreamQuery, (cu::Stream stream))                                                              \
  X(StreamWaitEvent, (cu::Stream stream, cu::Event event, unsigned flags))                         \
  X(StreamBeginCapture, (cu::Stream stream, int mode))                                             \
  X(StreamEndCapture, (cu::Stream stream, cu::Graph * graph))                                      \
  X(GraphInstantiateWithFlags,                                                                     \
    (cu::GraphExec * executable, cu::Graph graph, unsigned long long flags))                       \
  X(GraphLaunch, (cu::GraphExec executable, cu::Stream stream))                                    \
  X(GraphExecDestroy, (cu::GraphExec executable))                                                  \
  X(GraphDestroy, (cu::Graph graph))                                                               \
  X(StreamWriteValue64,                                                                            \
    (cu::Stream stream, cu::DevicePtr address, uint64_t value, unsigned flags))                    \
  X(StreamWaitValue64, (cu::Stream stream, cu::DevicePtr address, uint64_t value, unsigned flags)) \
  X(EventCreate, (cu::Event * event, unsigned flags))                                              \
  X(EventDestroy, (cu::Event event))                                                               \
  X(EventRecord, (cu::Event event, cu::Stream stream))                                             \
  X(EventQuery, (cu::Event event))                                                                 \
  X(EventElapsedTime, (float* milliseconds, cu::Event begin, cu::Event end))                       \
  X(ModuleLoadData, (cu::Module * module, const void* image))                                      \
  X(ModuleUnload, (cu::Module module))                                                             \
  X(ModuleGetFunction, (cu::Function * function, cu::Module module, const char* name))             \
  X(FuncSetAttribute, (cu::Function function, cu::FunctionAttribute attribute, int value))         \
  X(LaunchKernelEx,                                                                                \
    (const cu::LaunchConfig* config, cu::Function function, void** params, void** extra))

struct Driver {
#define FB_CUDA_MEMBER(name, arguments) cu::Result(*name) arguments = nullptr;
  FB_CUDA_DRIVER(FB_CUDA_MEMBER)
#undef FB_CUDA_MEMBER
  // Whether kernels run from their images. False: they are found by name alone, as tests have them.
  bool needs_images = true;

  // OK, or kCudaFailed: what was done and the driver's own words.
  base::Status Check(cu::Result result, std::string_view what) const;
};

// Opens libcuda.so.1 once and initialises it. Errors: kCudaUnavailable: there is no driver, it is
// older than 12.0, or it sees no GPU.
base::Result<const Driver*> OpenDriver();

}  // namespace forebay::device
