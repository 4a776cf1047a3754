// One kernel for each product, whose name tells what it is and whose time follows from its work.
#include <cublas_v2.h>

#include "tests/sim/test_node.h"

namespace gpusim {
namespace {

constexpr uint64_t kShortestNs = 2'000;

class CublasTest : public NodeTest {
 protected:
  void SetUp() override {
    NodeTest::SetUp();
    stream_ = NewStream();
    ASSERT_EQ(cublasCreate(&handle_), CUBLAS_STATUS_SUCCESS);
    ASSERT_EQ(cublasSetStream(handle_, stream_), CUBLAS_STATUS_SUCCESS);
  }
  void TearDown() override {
    EXPECT_EQ(cublasDestroy(handle_), CUBLAS_STATUS_SUCCESS);
    EXPECT_CUDA(cudaStreamDestroy(stream_));
    NodeTest::TearDown();
  }
  // The only kernel so far.
  void ExpectKernel(const std::string& name, uint64_t duration_ns) {
    ASSERT_CUDA(cudaStreamSynchronize(stream_));
    const std::vector<Activity> kernels = Activities(ActivityKind::kKernel);
    ASSERT_EQ(kernels.size(), 1U);
    EXPECT_EQ(kernels[0].name, name);
    EXPECT_EQ(kernels[0].end_ns - kernels[0].start_ns, duration_ns);
  }

  cublasHandle_t handle_ = nullptr;
  cudaStream_t stream_ = nullptr;
  float f = 1;
  double d = 1;
  cuComplex c{1, 0};
};

TEST_F(CublasTest, AProductOfMatricesTakesItsOperations) {
  ASSERT_EQ(
      cublasSgemm(handle_, CUBLAS_OP_T, CUBLAS_OP_N, 4096, 1024, 512, &f, &f, 512, &f, 512, &f, &f, 4096),
      CUBLAS_STATUS_SUCCESS);
  ExpectKernel("cutlass_80_simt_sgemm_tn_n_tilesize128x128x32_cublas", 95'444);  // 2mnk / 45e12 per s
}

TEST_F(CublasTest, ABatchTakesTheOperationsOfAllItsProducts) {
  ASSERT_EQ(cublasDgemmStridedBatched(handle_, CUBLAS_OP_N, CUBLAS_OP_N, 64, 64, 1024, &d, &d, 64, 65536, &d,
                                      1024, 65536, &d, &d, 64, 4096, 100),
            CUBLAS_STATUS_SUCCESS);
  ExpectKernel("cutlass_80_tensorop_d884gemm_nn_n_tilesize64x64x32_cublas", 18'642);
}

TEST_F(CublasTest, ABatchByPointersIsTheSame) {
  const float* in[100] = {};
  float* out[100] = {};
  ASSERT_EQ(cublasSgemmBatched(handle_, CUBLAS_OP_N, CUBLAS_OP_N, 64, 64, 1024, &f, in, 64, in, 1024, &f, out,
                               64, 100),
            CUBLAS_STATUS_SUCCESS);
  ExpectKernel("cutlass_80_simt_sgemm_nn_n_tilesize64x64x32_cublas", 18'642);
}

TEST_F(CublasTest, HalfPrecisionRunsAtItsOwnRate) {
  const void* in[8] = {};
  void* out[8] = {};
  ASSERT_EQ(cublasGemmBatchedEx(handle_, CUBLAS_OP_N, CUBLAS_OP_T, 1024, 1024, 1024, &f, in, CUDA_R_16BF,
                                1024, in, CUDA_R_16BF, 1024, &f, out, CUDA_R_16BF, 1024, 8,
                                CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
            CUBLAS_STATUS_SUCCESS);
  ExpectKernel("sm90_xmma_gemm_bf16bf16_bf16f32_f32_nt_n_tilesize128x128x32_cublas", 24'543);
}

TEST_F(CublasTest, ComplexNumbersTakeFourTimesAsLong) {
  ASSERT_EQ(
      cublasCgemm(handle_, CUBLAS_OP_N, CUBLAS_OP_C, 4096, 1024, 512, &c, &c, 4096, &c, 1024, &c, &c, 4096),
      CUBLAS_STATUS_SUCCESS);
  ExpectKernel("cutlass_80_simt_cgemm_nt_n_tilesize128x128x32_cublas", 381'775);
}

TEST_F(CublasTest, AMatrixTimesAVectorTakesAsLongAsReadingIt) {
  ASSERT_EQ(cublasSgemv(handle_, CUBLAS_OP_T, 30000, 1000, &f, &f, 30000, &f, 1, &f, &f, 1),
            CUBLAS_STATUS_SUCCESS);
  ExpectKernel("gemv2T_kernel<float>", 40'000);  // 120 MB at 3,000 GB/s
}

TEST_F(CublasTest, ADotProductTakesAsLongAsReadingBoth) {
  ASSERT_EQ(cublasSetPointerMode(handle_, CUBLAS_POINTER_MODE_DEVICE), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(cublasDdot(handle_, 1'500'000, &d, 1, &d, 1, &d), CUBLAS_STATUS_SUCCESS);
  ExpectKernel("dot_kernel<double>", 8'000);  // 24 MB
}

TEST_F(CublasTest, ADotProductOfHalvesIsAtLeastTheShortestKernel) {
  ASSERT_EQ(cublasDotEx(handle_, 100, &f, CUDA_R_16F, 1, &f, CUDA_R_16F, 1, &f, CUDA_R_16F, CUDA_R_32F),
            CUBLAS_STATUS_SUCCESS);
  ExpectKernel("dot_kernel<__half>", kShortestNs);
}

TEST_F(CublasTest, AResultInTheHostsMemoryIsWaitedFor) {
  Launch(Slow(), stream_);
  ASSERT_EQ(cublasSdot(handle_, 100, &f, 1, &f, 1, &f), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cudaStreamQuery(stream_), cudaSuccess) << "nothing is left to do";
  ASSERT_EQ(cublasSetPointerMode(handle_, CUBLAS_POINTER_MODE_DEVICE), CUBLAS_STATUS_SUCCESS);
  Launch(Slow(), stream_);
  ASSERT_EQ(cublasSdot(handle_, 100, &f, 1, &f, 1, &f), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cudaStreamQuery(stream_), cudaErrorNotReady) << "in the device's it is not";
  EXPECT_CUDA(cudaStreamSynchronize(stream_));
}

TEST_F(CublasTest, NothingIsLaunchedForNothing) {
  EXPECT_EQ(cublasSgemv(handle_, CUBLAS_OP_N, 0, 10, &f, &f, 1, &f, 1, &f, &f, 1), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cublasSdot(handle_, 0, &f, 1, &f, 1, &f), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cublasSgemm(handle_, CUBLAS_OP_N, CUBLAS_OP_N, 0, 8, 8, &f, &f, 1, &f, 8, &f, &f, 1),
            CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cublasSgemv(handle_, CUBLAS_OP_N, -1, 10, &f, &f, 1, &f, 1, &f, &f, 1),
            CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(cublasSdot(nullptr, 1, &f, 1, &f, 1, &f), CUBLAS_STATUS_NOT_INITIALIZED);
  ASSERT_CUDA(cudaStreamSynchronize(stream_));
  EXPECT_TRUE(Activities(ActivityKind::kKernel).empty());
}

}  // namespace
}  // namespace gpusim
