// Kernels by name and class, pageable copies, and utilisation, from a rank whose sums are known.
#include "collector/analysis/work/compute_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collector/analysis/build_report.h"
#include "tests/collector/testing/batch_builder.h"

namespace gpuprobe::analysis {
namespace {

using gpuprobe::testing::BatchBuilder;
using gpuprobe::testing::kStart;
using gpuprobe::testing::MakeHello;
using ::testing::HasSubstr;

// 3 GEMMs of 100 us, one of them with another geometry; 10 copies of 5 us by a kernel; one of 60 us of no
// class.
void AddRank(model::JobModel& job, int rank, const std::string& device_name = "NVIDIA H100 80GB HBM3") {
  model::ProcessModel& process = job.Join(MakeHello(rank, 2));
  BatchBuilder batch;
  batch.String(1, "ampere_sgemm_128x64_tn").String(2, "direct_copy_kernel_cuda").String(3, "mine");
  batch.Site(1, 1).Site(2, 2).Site(3, 3).Site(4, 1);
  v1::Batch message = batch.batch();
  message.mutable_kernel_sites(3)->set_grid_x(128);
  v1::Device* device = message.add_devices();
  device->set_ordinal(0);
  device->set_name(device_name);
  device->set_uuid("GPU-" + std::to_string(rank));
  ASSERT_TRUE(process.Apply(message).ok());
  BatchBuilder work(2);
  uint64_t now = kStart;
  const auto run = [&](uint64_t duration, uint32_t site) {
    work.Kernel(now, now + duration, site);
    now += duration;
  };
  for (const uint32_t site : {1u, 4u, 1u}) run(100'000, site);
  for (int i = 0; i < 10; ++i) run(5'000, 2);
  run(60'000, 3);
  // 3 MB pinned at 25 GB/s, 1 MB pageable at 5 GB/s.
  work.Copy(now, now + 120'000, 3'000'000, v1::COPY_DIRECTION_H2D);
  work.Copy(now + 120'000, now + 320'000, 1'000'000, v1::COPY_DIRECTION_H2D, 0, v1::MEMORY_KIND_PAGEABLE);
  ASSERT_TRUE(process.Apply(work.batch()).ok());
}

Report ReportOf(const std::string& device_name = "NVIDIA H100 80GB HBM3", const ModelWork& work = {}) {
  model::JobModel job;
  AddRank(job, 0, device_name);
  AddRank(job, 1, device_name);
  job.Finish();
  ReportInput input;
  input.work = work;
  return BuildReport(job, input);
}

TEST(Compute, KernelsHaveAShareAClassAndAGeometry) {
  const Report report = ReportOf();
  const KernelReport& gemm = report.top_kernels.front();
  EXPECT_EQ(gemm.kernel_class, KernelClass::kGemm);
  EXPECT_DOUBLE_EQ(gemm.share, 300.0 / 410);
  EXPECT_EQ(gemm.time_ns.count, 6u);
  EXPECT_EQ(gemm.geometries, 2u);
  EXPECT_EQ(gemm.geometry.grid[0], 64u);
  EXPECT_EQ(gemm.geometry.block[0], 256u);
}

TEST(Compute, ClassesAndShortKernelsAddUpOverRanks) {
  const ComputeReport c = ReportOf().compute;
  ASSERT_EQ(c.classes.size(), 3u);
  EXPECT_EQ(c.classes[0].kernel_class, KernelClass::kGemm);
  EXPECT_EQ(c.classes[0].total_ns, 600'000u);
  EXPECT_EQ(c.classes[1].kernel_class, KernelClass::kOther);
  EXPECT_EQ(c.classes[2].kernel_class, KernelClass::kCopy);
  EXPECT_EQ(c.classes[2].calls, 20u);
  EXPECT_EQ(c.kernels, 28u);
  EXPECT_EQ(c.total_ns, 820'000u);
  EXPECT_EQ(c.short_kernels, 20u);
  EXPECT_EQ(c.short_kernel_ns, 100'000u);
}

TEST(Compute, PageableCopiesAreToldApart) {
  const ComputeReport c = ReportOf().compute;
  ASSERT_EQ(c.pageable.size(), 1u);
  const PageableReport& p = c.pageable.at(v1::COPY_DIRECTION_H2D);
  EXPECT_EQ(p.count, 2u);
  EXPECT_EQ(p.bytes, 2'000'000u);
  EXPECT_DOUBLE_EQ(p.share, 0.25);
  EXPECT_DOUBLE_EQ(p.gbytes_per_s, 5);
  EXPECT_DOUBLE_EQ(p.pinned_gbytes_per_s.value_or(0), 25);
  EXPECT_DOUBLE_EQ(c.host_peak_gbytes_per_s.value_or(0), 63);
}

Conditions Devices(int count, const std::string& name) {
  Conditions c;
  for (int i = 0; i < count; ++i)
    c.devices.push_back({.host = "n1", .ordinal = 0, .name = name, .uuid = "", .memory_bytes = 0});
  return c;
}

TEST(Utilisation, IsModelFlopsOverStepTimeDevicesAndPeak) {
  ModelWork work;
  work.parameters = 7e9;
  work.tokens_per_step = 32'768;
  const UtilisationReport u = UtilisationOf(work, Devices(8, "NVIDIA H100 80GB HBM3"), 0.5);
  // 6 x 7e9 x 32768 = 1.376e15; 0.5 s x 8 x 989.4e12 = 3.9576e15.
  EXPECT_NEAR(u.mfu.value_or(0), 0.34775, 1e-5);
  EXPECT_FALSE(u.hfu.has_value());
  work.recompute = true;
  EXPECT_NEAR(UtilisationOf(work, Devices(8, "NVIDIA H100 80GB HBM3"), 0.5).hfu.value_or(0), 0.34775 * 8 / 6,
              1e-4);
  work.recompute = false;
  work.type = NumberFormat::kFp8;
  EXPECT_NEAR(UtilisationOf(work, Devices(8, "NVIDIA H100 80GB HBM3"), 0.5).hfu.value_or(0), 0.34775 / 2,
              1e-4);
}

TEST(Utilisation, SaysWhatItLacks) {
  ModelWork work;
  EXPECT_FALSE(UtilisationOf(work, Devices(1, "NVIDIA L4"), 1).asked);
  work.flops_per_step = 1e12;
  EXPECT_THAT(UtilisationOf(work, Devices(1, "Simulated GPU"), 1).missing, HasSubstr("--peak-tflops"));
  EXPECT_THAT(UtilisationOf(work, Devices(1, "NVIDIA L4"), 0).missing, HasSubstr("no steps"));
  EXPECT_THAT(UtilisationOf(work, Devices(0, ""), 1).missing, HasSubstr("no GPU"));
  work.peak_tflops = 10;
  const UtilisationReport u = UtilisationOf(work, Devices(1, "Simulated GPU"), 1);
  EXPECT_DOUBLE_EQ(u.mfu.value_or(0), 0.1);
  EXPECT_EQ(u.peak_source, "as given");
}

}  // namespace
}  // namespace gpuprobe::analysis
