// A cluster's day as it is planned.
#include "collector/simulate/cluster_day.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "collector/simulate/request.h"

namespace gpuprobe::simulate {
namespace {

constexpr int kJobs = 60;

bool UsesOffender(const ClusterDay& day, const PlannedJob& planned) {
  const auto& hosts = planned.placement.hosts;
  const int first = planned.placement.first_gpu;
  return std::find(hosts.begin(), hosts.end(), day.offender_host) != hosts.end() &&
         day.offender_gpu >= first && day.offender_gpu < first + planned.job.ranks_per_host;
}

TEST(ClusterDay, TheSeedDecidesEverything) {
  const ClusterDay one = PlanDay(7, kJobs, 24);
  const ClusterDay again = PlanDay(7, kJobs, 24);
  const ClusterDay other = PlanDay(8, kJobs, 24);
  ASSERT_EQ(one.jobs.size(), kJobs);
  ASSERT_EQ(again.jobs.size(), kJobs);
  int differ = 0;
  for (size_t i = 0; i < kJobs; ++i) {
    EXPECT_EQ(one.jobs[i].name, again.jobs[i].name);
    EXPECT_EQ(one.jobs[i].job.work, again.jobs[i].job.work);
    EXPECT_EQ(one.jobs[i].severity, again.jobs[i].severity);
    differ += one.jobs[i].job.work != other.jobs[i].job.work ? 1 : 0;
  }
  EXPECT_EQ(differ, kJobs);
}

TEST(ClusterDay, HasEveryFaultAndAsManyHealthyJobs) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    std::map<Fault, int> jobs;
    for (const PlannedJob& planned : PlanDay(seed, kJobs, 24).jobs) ++jobs[planned.fault];
    EXPECT_EQ(jobs.size(), static_cast<size_t>(Fault::kCount)) << "seed " << seed;
    EXPECT_GE(jobs[Fault::kNone], kJobs / 3) << "seed " << seed;
  }
}

TEST(ClusterDay, OnlyJobsThatAreMeantToRunOnTheSlowGpu) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const ClusterDay day = PlanDay(seed, kJobs, 24);
    int offended = 0;
    for (const PlannedJob& planned : day.jobs) {
      if (planned.many_hosts > 0) continue;  // on hosts of their own
      EXPECT_EQ(UsesOffender(day, planned), planned.has_repeat_offender) << "seed " << seed;
      offended += planned.has_repeat_offender ? 1 : 0;
      if (!planned.has_repeat_offender) continue;
      EXPECT_EQ(planned.placement.first_gpu + planned.faulty_rank % planned.job.ranks_per_host,
                day.offender_gpu);
    }
    EXPECT_GE(offended, 3);
  }
}

TEST(ClusterDay, AttemptsFollowEachOtherAndAreTheSameJob) {
  const ClusterDay day = PlanDay(3, kJobs, 24);
  std::map<std::string, const PlannedJob*> last;
  int again = 0;
  for (const PlannedJob& planned : day.jobs) {
    const PlannedJob*& before = last[planned.name];
    EXPECT_EQ(planned.attempt, before == nullptr ? 1 : before->attempt + 1);
    if (before != nullptr) {
      ++again;
      EXPECT_EQ(planned.job.layers, before->job.layers);
      EXPECT_EQ(planned.placement.hosts, before->placement.hosts);
      EXPECT_NE(planned.seed, before->seed);
      EXPECT_EQ(planned.fault, Fault::kNone);
    }
    before = &planned;
  }
  EXPECT_GE(again, 5);
}

TEST(ClusterDay, TheSmallestHasSomeOfEach) {
  std::set<bool> healthy;
  const ClusterDay day = PlanDay(1, kFewestJobs, 1);
  ASSERT_EQ(day.jobs.size(), static_cast<size_t>(kFewestJobs));
  for (const PlannedJob& planned : day.jobs) healthy.insert(planned.fault == Fault::kNone);
  EXPECT_EQ(healthy.size(), 2);
}

}  // namespace
}  // namespace gpuprobe::simulate
