#include "collector/recording/host_clocks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "tests/collector/testing/batch_builder.h"

namespace gpuprobe::recording {
namespace {

using testing::BatchBuilder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::kSecond;
using testing::kStart;

class HostClocksTest : public ::testing::Test {
 protected:
  // A second passes here, after which the host sends what its clock says.
  void Second(const std::map<std::string, int64_t>& ahead_s) {
    now_ns_ += kSecond;
    for (const auto& [host, seconds] : ahead_s)
      Send(host, now_ns_ + static_cast<uint64_t>(seconds) * kSecond);
    clocks_.Look(job_, now_ns_);
  }
  void Send(const std::string& host, uint64_t clock_ns) {
    v1::Hello hello = testing::MakeHello(host == "n1" ? 0 : 1, 2, 10);
    hello.mutable_identity()->set_host(host);
    BatchBuilder batch(++sequence_[host]);
    ASSERT_TRUE(job_.Join(hello).Apply(batch.Clock(clock_ns, sequence_[host] * kSecond).batch()).ok());
  }

  model::JobModel job_;
  std::map<std::string, uint64_t> sequence_;
  uint64_t now_ns_ = kStart;
  HostClocks clocks_;
};

TEST_F(HostClocksTest, ThatAgreeToASecondAgree) {
  for (int i = 0; i < 100; ++i) Second({{"n1", 0}, {"n2", i % 2 == 0 ? -2 : 1}});
  EXPECT_TRUE(clocks_.agree());
  EXPECT_THAT(clocks_.TakeLines(), IsEmpty());
}

TEST_F(HostClocksTest, ThatAreAnHourApartAreSaidOnce) {
  Second({{"n1", 0}, {"n2", -3600}});
  EXPECT_FALSE(clocks_.agree());
  EXPECT_THAT(clocks_.TakeLines(), IsEmpty()) << "it may have been on its way for so long";
  for (int i = 0; i < 20; ++i) Second({{"n1", 0}, {"n2", -3600}});
  EXPECT_FALSE(clocks_.agree());
  EXPECT_THAT(clocks_.TakeLines(), ElementsAre(HasSubstr("CLOCK  n2's clock is 3600 s behind that of")));
  Second({{"n1", 0}, {"n2", -3600}});
  EXPECT_THAT(clocks_.TakeLines(), IsEmpty());
}

TEST_F(HostClocksTest, OneThatIsAheadIsAhead) {
  for (int i = 0; i < 20; ++i) Second({{"n1", 0}, {"n2", 3600}});
  EXPECT_THAT(clocks_.TakeLines(), ElementsAre(HasSubstr("3600 s ahead of")));
}

TEST_F(HostClocksTest, WhatWaitedOnItsWayAgreesOnceItHasCome) {
  for (int i = 0; i < 5; ++i) Second({{"n1", 0}, {"n2", -300 + 60 * i}});
  EXPECT_FALSE(clocks_.agree());
  Second({{"n1", 0}, {"n2", -1}});
  EXPECT_TRUE(clocks_.agree());
  for (int i = 0; i < 20; ++i) Second({{"n1", 0}, {"n2", 0}});
  EXPECT_THAT(clocks_.TakeLines(), IsEmpty());
}

TEST_F(HostClocksTest, AHostThatSendsNothingMoreIsForgotten) {
  Second({{"n1", 0}, {"n2", -3600}});
  for (int i = 0; i < 50; ++i) Second({{"n1", 0}});
  EXPECT_FALSE(clocks_.agree());
  for (int i = 0; i < 20; ++i) Second({{"n1", 0}});
  EXPECT_TRUE(clocks_.agree());
}

}  // namespace
}  // namespace gpuprobe::recording
