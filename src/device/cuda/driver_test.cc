// The driver's table: its types and numbers against the toolkit's header, where this build has one.
#include "device/cuda/driver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>

#if __has_include(<cuda.h>)
#include <cuda.h>
#define FB_HAS_CUDA_HEADER 1
#endif

namespace forebay::device {
namespace {

TEST(CudaDriver, SaysWhatIsMissingWhereThereIsNoDriver) {
  const base::Result<const Driver*> driver = OpenDriver();
  if (driver.ok()) GTEST_SKIP() << "this machine has a driver";
  EXPECT_EQ(driver.status().code(), kCudaUnavailable);
  EXPECT_THAT(driver.status().message(), ::testing::HasSubstr("driver"));
}

#ifdef FB_HAS_CUDA_HEADER
TEST(CudaDriver, HasTheNumbersAndLayoutsOfTheHeader) {
  EXPECT_EQ(cu::kSuccess, static_cast<int>(CUDA_SUCCESS));
  EXPECT_EQ(cu::kOutOfMemory, static_cast<int>(CUDA_ERROR_OUT_OF_MEMORY));
  EXPECT_EQ(cu::kNotReady, static_cast<int>(CUDA_ERROR_NOT_READY));
  EXPECT_EQ(static_cast<int>(cu::Attribute::kMultiprocessors),
            static_cast<int>(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
  EXPECT_EQ(static_cast<int>(cu::Attribute::kL2Bytes),
            static_cast<int>(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE));
  EXPECT_EQ(static_cast<int>(cu::Attribute::kMajor),
            static_cast<int>(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR));
  EXPECT_EQ(static_cast<int>(cu::Attribute::kMinor),
            static_cast<int>(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
  EXPECT_EQ(static_cast<int>(cu::Attribute::kSharedPerBlock),
            static_cast<int>(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN));
  EXPECT_EQ(static_cast<int>(cu::Attribute::kStreamValues64),
            static_cast<int>(CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS));
  EXPECT_EQ(static_cast<int>(cu::FunctionAttribute::kMaxDynamicShared),
            static_cast<int>(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES));
  EXPECT_EQ(cu::kStreamNonBlocking, static_cast<unsigned>(CU_STREAM_NON_BLOCKING));
  EXPECT_EQ(cu::kEventDefault, static_cast<unsigned>(CU_EVENT_DEFAULT));
  EXPECT_EQ(cu::kEventDisableTiming, static_cast<unsigned>(CU_EVENT_DISABLE_TIMING));
  EXPECT_EQ(cu::kHostPortable, static_cast<unsigned>(CU_MEMHOSTALLOC_PORTABLE));
  EXPECT_EQ(cu::kHostMapped, static_cast<unsigned>(CU_MEMHOSTALLOC_DEVICEMAP));
  EXPECT_EQ(cu::kWaitGreaterOrEqual, static_cast<unsigned>(CU_STREAM_WAIT_VALUE_GEQ));
  EXPECT_EQ(cu::kWriteDefault, static_cast<unsigned>(CU_STREAM_WRITE_VALUE_DEFAULT));
  EXPECT_EQ(cu::kCaptureThread, static_cast<int>(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  EXPECT_EQ(cu::kLaunchCluster, static_cast<int>(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION));
  EXPECT_EQ(cu::kLaunchProgrammatic,
            static_cast<int>(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION));
  EXPECT_EQ(cu::kPeerAccessIsOn, static_cast<int>(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED));
  EXPECT_EQ(static_cast<int>(cu::MemoryType::kUnified), static_cast<int>(CU_MEMORYTYPE_UNIFIED));
  EXPECT_EQ(static_cast<int>(cu::MemoryType::kHost), static_cast<int>(CU_MEMORYTYPE_HOST));
  EXPECT_EQ(static_cast<int>(cu::PointerAttribute::kMemoryType),
            static_cast<int>(CU_POINTER_ATTRIBUTE_MEMORY_TYPE));
  EXPECT_EQ(sizeof(cu::Copy2D), sizeof(CUDA_MEMCPY2D));
  EXPECT_EQ(offsetof(cu::Copy2D, source_y), offsetof(CUDA_MEMCPY2D, srcY));
  EXPECT_EQ(offsetof(cu::Copy2D, source_type), offsetof(CUDA_MEMCPY2D, srcMemoryType));
  EXPECT_EQ(offsetof(cu::Copy2D, source_host), offsetof(CUDA_MEMCPY2D, srcHost));
  EXPECT_EQ(offsetof(cu::Copy2D, source_array), offsetof(CUDA_MEMCPY2D, srcArray));
  EXPECT_EQ(offsetof(cu::Copy2D, destination_y), offsetof(CUDA_MEMCPY2D, dstY));
  EXPECT_EQ(offsetof(cu::Copy2D, destination_host), offsetof(CUDA_MEMCPY2D, dstHost));
  EXPECT_EQ(offsetof(cu::Copy2D, destination_array), offsetof(CUDA_MEMCPY2D, dstArray));
  EXPECT_EQ(offsetof(cu::Copy2D, source), offsetof(CUDA_MEMCPY2D, srcDevice));
  EXPECT_EQ(offsetof(cu::Copy2D, source_pitch), offsetof(CUDA_MEMCPY2D, srcPitch));
  EXPECT_EQ(offsetof(cu::Copy2D, destination_type), offsetof(CUDA_MEMCPY2D, dstMemoryType));
  EXPECT_EQ(offsetof(cu::Copy2D, destination), offsetof(CUDA_MEMCPY2D, dstDevice));
  EXPECT_EQ(offsetof(cu::Copy2D, destination_pitch), offsetof(CUDA_MEMCPY2D, dstPitch));
  EXPECT_EQ(offsetof(cu::Copy2D, width), offsetof(CUDA_MEMCPY2D, WidthInBytes));
  EXPECT_EQ(sizeof(cu::DevicePtr), sizeof(CUdeviceptr));
  EXPECT_EQ(sizeof(cu::LaunchAttribute), sizeof(CUlaunchAttribute));
  EXPECT_EQ(offsetof(cu::LaunchAttribute, value), offsetof(CUlaunchAttribute, value));
  EXPECT_EQ(sizeof(cu::LaunchConfig), sizeof(CUlaunchConfig));
  EXPECT_EQ(offsetof(cu::LaunchConfig, block), offsetof(CUlaunchConfig, blockDimX));
  EXPECT_EQ(offsetof(cu::LaunchConfig, shared_bytes), offsetof(CUlaunchConfig, sharedMemBytes));
  EXPECT_EQ(offsetof(cu::LaunchConfig, stream), offsetof(CUlaunchConfig, hStream));
  EXPECT_EQ(offsetof(cu::LaunchConfig, attributes), offsetof(CUlaunchConfig, attrs));
  EXPECT_EQ(offsetof(cu::LaunchConfig, num_attributes), offsetof(CUlaunchConfig, numAttrs));
}
#endif

}  // namespace
}  // namespace forebay::device
