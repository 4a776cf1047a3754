// Copies move real bytes in the time that the link allows, and return to the caller when CUDA's would.
#include <cupti.h>

#include <cstring>
#include <vector>

#include "tests/sim/core/knobs.h"
#include "tests/sim/test_node.h"

namespace gpusim {
namespace {

constexpr size_t kCopyBytes = 50'000'000;  // 2 ms at 25 GB/s
constexpr uint64_t kBytesNs = 2'000'000;

class CopyTest : public NodeTest {
 protected:
  void SetUp() override {
    NodeTest::SetUp();
    ASSERT_CUDA(cudaMalloc(&device_, kCopyBytes));
    ASSERT_CUDA(cudaHostAlloc(&pinned_, kCopyBytes, cudaHostAllocDefault));
    stream_ = NewStream();
  }
  void TearDown() override {
    EXPECT_CUDA(cudaStreamDestroy(stream_));
    EXPECT_CUDA(cudaFreeHost(pinned_));
    EXPECT_CUDA(cudaFree(device_));
    NodeTest::TearDown();
  }
  static Activity OnlyCopy() {
    const std::vector<Activity> copies = Activities(ActivityKind::kMemcpy);
    EXPECT_EQ(copies.size(), 1U);
    return copies.empty() ? Activity{} : copies[0];
  }

  void* device_ = nullptr;
  void* pinned_ = nullptr;
  cudaStream_t stream_ = nullptr;
};

TEST_F(CopyTest, APinnedCopyIsAsynchronousAndTakesBytesOverRate) {
  Launch(Slow(), stream_);
  ASSERT_CUDA(cudaMemcpyAsync(device_, pinned_, kCopyBytes, cudaMemcpyHostToDevice, stream_));
  EXPECT_EQ(cudaStreamQuery(stream_), cudaErrorNotReady);
  ASSERT_CUDA(cudaStreamSynchronize(stream_));
  const Activity copy = OnlyCopy();
  EXPECT_EQ(copy.end_ns - copy.start_ns, kBytesNs);
  EXPECT_EQ(copy.bytes, kCopyBytes);
  EXPECT_EQ(copy.copy_kind, CUPTI_ACTIVITY_MEMCPY_KIND_HTOD);
  EXPECT_EQ(copy.src_memory, CUPTI_ACTIVITY_MEMORY_KIND_PINNED);
  EXPECT_EQ(copy.dst_memory, CUPTI_ACTIVITY_MEMORY_KIND_DEVICE);
  EXPECT_TRUE(copy.asynchronous);
  cudaGetLastError();
}

TEST_F(CopyTest, ABatchOfCopiesIsACopyEach) {
  auto* device = static_cast<char*>(device_);
  auto* pinned = static_cast<char*>(pinned_);
  std::memcpy(pinned, "onetwo", 6);
  void* const to[] = {device + 100, device + 200};
  const void* const from[] = {pinned, pinned + 3};
  const size_t bytes[] = {3, 3};
  cudaMemcpyAttributes attributes{};
  attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
  size_t first = 0;
  ASSERT_CUDA(cudaMemcpyBatchAsync(to, from, bytes, 2, &attributes, &first, 1, stream_));
  ASSERT_CUDA(cudaStreamSynchronize(stream_));
  EXPECT_EQ(std::memcmp(device + 100, "one", 3), 0);
  EXPECT_EQ(std::memcmp(device + 200, "two", 3), 0);
  const std::vector<Activity> copies = Activities(ActivityKind::kMemcpy);
  ASSERT_EQ(copies.size(), 2U);
  EXPECT_EQ(copies[0].correlation, copies[1].correlation);
  first = 1;
  EXPECT_EQ(cudaMemcpyBatchAsync(to, from, bytes, 2, &attributes, &first, 1, stream_), cudaErrorInvalidValue)
      << "the first copy has no attributes";
  cudaGetLastError();
}

TEST_F(CopyTest, APageableCopyBackReturnsWhenItIsDone) {
  std::vector<char> pageable(kCopyBytes);
  ASSERT_CUDA(cudaMemcpyAsync(pageable.data(), device_, kCopyBytes, cudaMemcpyDeviceToHost, stream_));
  const uint64_t returned_ns = NowNs();
  const Activity copy = OnlyCopy();
  EXPECT_GE(returned_ns, copy.end_ns);
  EXPECT_EQ(copy.end_ns - copy.start_ns, kBytesNs);
  EXPECT_EQ(copy.dst_memory, CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE);
}

TEST_F(CopyTest, ASmallPageableSourceIsStagedAndMayChangeAtOnce) {
  std::vector<int> source(1000, 7);
  Launch(Slow(), stream_);
  ASSERT_CUDA(cudaMemcpyAsync(device_, source.data(), 4000, cudaMemcpyHostToDevice, stream_));
  EXPECT_EQ(cudaStreamQuery(stream_), cudaErrorNotReady) << "returns before the copy";
  source.assign(1000, 9);
  std::vector<int> back(1000);
  ASSERT_CUDA(cudaMemcpyAsync(back.data(), device_, 4000, cudaMemcpyDeviceToHost, stream_));
  EXPECT_EQ(back, std::vector<int>(1000, 7));
  cudaGetLastError();
}

TEST_F(CopyTest, BytesGoThereAndBack) {
  std::vector<unsigned char> there(kCopyBytes);
  for (size_t i = 0; i < kCopyBytes; ++i) there[i] = static_cast<unsigned char>(i * 31);
  std::vector<unsigned char> back(kCopyBytes);
  void* other = nullptr;
  ASSERT_CUDA(cudaMalloc(&other, kCopyBytes));
  ASSERT_CUDA(cudaMemcpy(device_, there.data(), kCopyBytes, cudaMemcpyHostToDevice));
  ASSERT_CUDA(cudaMemcpy(other, device_, kCopyBytes, cudaMemcpyDeviceToDevice));
  ASSERT_CUDA(cudaMemcpy(back.data(), other, kCopyBytes, cudaMemcpyDefault));
  EXPECT_TRUE(there == back);
  ASSERT_CUDA(cudaFree(other));
  const std::vector<Activity> copies = Activities(ActivityKind::kMemcpy);
  ASSERT_EQ(copies.size(), 3U);
  EXPECT_EQ(copies[1].copy_kind, CUPTI_ACTIVITY_MEMCPY_KIND_DTOD);
  EXPECT_EQ(copies[1].end_ns - copies[1].start_ns, TransferNs(kCopyBytes, kDeviceCopyBytesPerS));
  EXPECT_EQ(copies[2].copy_kind, CUPTI_ACTIVITY_MEMCPY_KIND_DTOH);
}

TEST_F(CopyTest, AFillIsSeenByTheCopyAfterIt) {
  ASSERT_CUDA(cudaMemsetAsync(device_, 0x5A, 4096, stream_));
  ASSERT_EQ(cuMemsetD32Async(reinterpret_cast<CUdeviceptr>(device_) + 1024, 0x01020304, 16, stream_),
            CUDA_SUCCESS);
  ASSERT_CUDA(cudaMemcpyAsync(pinned_, device_, 4096, cudaMemcpyDeviceToHost, stream_));
  ASSERT_CUDA(cudaStreamSynchronize(stream_));
  const auto* bytes = static_cast<const unsigned char*>(pinned_);
  EXPECT_EQ(bytes[0], 0x5A);
  EXPECT_EQ(bytes[4095], 0x5A);
  uint32_t word = 0;
  std::memcpy(&word, bytes + 1024 + 15 * 4, sizeof word);
  EXPECT_EQ(word, 0x01020304U);
  const std::vector<Activity> fills = Activities(ActivityKind::kMemset);
  ASSERT_EQ(fills.size(), 2U);
  EXPECT_EQ(fills[0].bytes, 4096U);
  EXPECT_EQ(fills[1].bytes, 64U);
  EXPECT_EQ(fills[1].memset_value, 0x01020304U);
}

TEST_F(CopyTest, ARectangleIsCopiedRowByRow) {
  void* pitched = nullptr;
  size_t pitch = 0;
  ASSERT_CUDA(cudaMallocPitch(&pitched, &pitch, 100, 8));
  EXPECT_GE(pitch, 100U);
  std::vector<char> there(800);
  for (size_t i = 0; i < there.size(); ++i) there[i] = static_cast<char>(i);
  std::vector<char> back(800);
  ASSERT_CUDA(cudaMemcpy2D(pitched, pitch, there.data(), 100, 100, 8, cudaMemcpyHostToDevice));
  ASSERT_CUDA(cudaMemcpy2D(back.data(), 100, pitched, pitch, 100, 8, cudaMemcpyDeviceToHost));
  EXPECT_EQ(there, back);
  EXPECT_EQ(Activities(ActivityKind::kMemcpy)[0].bytes, 800U);
  EXPECT_CUDA(cudaFree(pitched));
}

TEST_F(CopyTest, BetweenDevicesItIsAPeerCopy) {
  void* far = nullptr;
  ASSERT_CUDA(cudaSetDevice(1));
  ASSERT_CUDA(cudaMalloc(&far, kCopyBytes));
  ASSERT_CUDA(cudaSetDevice(0));
  ASSERT_CUDA(cudaMemcpyPeerAsync(far, 1, device_, 0, kCopyBytes, stream_));
  ASSERT_CUDA(cudaStreamSynchronize(stream_));
  const std::vector<Activity> copies = Activities(ActivityKind::kPeerCopy);
  ASSERT_EQ(copies.size(), 1U);
  EXPECT_EQ(copies[0].src_device, 0U);
  EXPECT_EQ(copies[0].dst_device, 1U);
  EXPECT_EQ(copies[0].end_ns - copies[0].start_ns, TransferNs(kCopyBytes, kPeerBytesPerS));
  EXPECT_CUDA(cudaFree(far));
}

TEST_F(CopyTest, ArraysAreCopiedThroughTheirShape) {
  const cudaChannelFormatDesc format = cudaCreateChannelDesc(32, 0, 0, 0, cudaChannelFormatKindFloat);
  cudaArray_t array = nullptr;
  ASSERT_CUDA(cudaMallocArray(&array, &format, 16, 4, 0));
  std::vector<float> there(64);
  for (size_t i = 0; i < there.size(); ++i) there[i] = static_cast<float>(i);
  std::vector<float> back(64);
  cudaMemcpy3DParms in{};
  in.srcPtr = {there.data(), 64, 64, 4};
  in.dstArray = array;
  in.extent = {16, 4, 1};
  in.kind = cudaMemcpyHostToDevice;
  ASSERT_CUDA(cudaMemcpy3D(&in));
  cudaMemcpy3DParms out{};
  out.srcArray = array;
  out.dstPtr = {back.data(), 64, 64, 4};
  out.extent = {16, 4, 1};
  out.kind = cudaMemcpyDeviceToHost;
  ASSERT_CUDA(cudaMemcpy3D(&out));
  EXPECT_EQ(there, back);
  EXPECT_CUDA(cudaFreeArray(array));
}

}  // namespace
}  // namespace gpusim
