// The advised size of gradient buckets, held against simulated runs that follow the advice.
#include "collector/analysis/communication/bucket_advice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collector/analysis/build_report.h"
#include "collector/simulate/scenarios.h"
#include "tests/collector/testing/simulated_run.h"

namespace gpuprobe::analysis {
namespace {

constexpr double kMs = 1e6;

TEST(ExposedOfBuckets, OneBucketIsReducedAfterBackward) {
  EXPECT_NEAR(ExposedOfBuckets({.bytes = 100e6, .backward_ns = 10 * kMs, .alpha_ns = 0, .ns_per_byte = 0.01},
                               100'000'000, 100'000'000),
              1 * kMs, 1);
}

TEST(ExposedOfBuckets, OfSmallOnesOnlyTheLastIsLeft) {
  EXPECT_NEAR(ExposedOfBuckets({.bytes = 100e6, .backward_ns = 10 * kMs, .alpha_ns = 0, .ns_per_byte = 0.01},
                               10'000'000, 10'000'000),
              0.1 * kMs, 1);
}

TEST(ExposedOfBuckets, TinyOnesPayTheLatencyOfEach) {
  // A hundred reductions of 0.2 ms in 10 ms of backward.
  EXPECT_NEAR(
      ExposedOfBuckets({.bytes = 100e6, .backward_ns = 10 * kMs, .alpha_ns = 0.2 * kMs, .ns_per_byte = 0},
                       1'000'000, 1'000'000),
      10.1 * kMs, 1);
}

class FollowedAdvice : public ::testing::TestWithParam<const char*> {};

// The advice promises the most that can be gained. In these jobs the gradients of a layer are ready all at
// once, so that a large last layer's are reduced after backward, and somewhat less is gained.
TEST_P(FollowedAdvice, GainsWhatItPromises) {
  simulate::TrainingJob job = simulate::FindScenario(GetParam())->job;
  job.steps = 20;
  const auto before = testing::ModelOf(job, 7);
  const Report report = BuildReport(*before, {});
  const std::optional<BucketAdvice>& advice = report.communication.bucket_advice;
  ASSERT_TRUE(advice.has_value());
  EXPECT_THAT(report.findings.front().advice, ::testing::HasSubstr("bucket_cap_mb (DDP) to "));
  EXPECT_THAT(report.findings.front().advice, ::testing::HasSubstr("shortening the step by up to "));

  job.gradients.bucket_bytes = advice->bucket_bytes;
  job.gradients.first_bucket_bytes = uint64_t{1} << 20;
  const auto after = testing::ModelOf(job, 7);
  const Report followed = BuildReport(*after, {});
  const double step_ns = report.communication.step_ns;
  const double promised_ns = report.communication.exposed_transfer_ns - advice->exposed_ns;
  const double gained_ns = step_ns - followed.communication.step_ns;
  EXPECT_GT(gained_ns, 0.05 * step_ns);
  EXPECT_LT(gained_ns, promised_ns + 0.05 * step_ns);
  EXPECT_GT(gained_ns, 0.5 * promised_ns)
      << "bucket " << (advice->bucket_bytes >> 20) << " MiB, exposed " << advice->exposed_ns << ", before "
      << report.communication.exposed_transfer_ns << ", after " << followed.communication.exposed_transfer_ns;
}

INSTANTIATE_TEST_SUITE_P(Scenarios, FollowedAdvice, ::testing::Values("tiny-buckets", "huge-buckets"),
                         [](const auto& each) {
                           std::string name = each.param;
                           name.erase(name.find('-'), 1);
                           return name;
                         });

}  // namespace
}  // namespace gpuprobe::analysis
