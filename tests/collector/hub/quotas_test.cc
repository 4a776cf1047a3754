// What one host may send to a hub, and that it takes nothing from others.
#include "collector/hub/quotas.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace gpuprobe::hub {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr uint64_t kRate = 1 << 20;
constexpr size_t kPost = 1 << 20;
const Allowance::Time kStart{seconds(1000)};

size_t PostsAtOnce(Quotas& quotas, const std::string& host, Allowance::Time now) {
  size_t posts = 0;
  while (quotas.Admit(host, kPost, now).lease != nullptr) ++posts;
  return posts;
}

TEST(Quotas, ABurstAndThenTheRate) {
  Quotas quotas(kRate);
  EXPECT_EQ(PostsAtOnce(quotas, "a", kStart), Quotas::kBurstSeconds);
  const Quotas::Verdict refused = quotas.Admit("a", kPost, kStart);
  EXPECT_EQ(refused.lease, nullptr);
  EXPECT_GE(refused.again, seconds(1));
  EXPECT_TRUE(refused.may_pass);
  EXPECT_EQ(PostsAtOnce(quotas, "b", kStart), Quotas::kBurstSeconds) << "another host has its own";
  EXPECT_EQ(PostsAtOnce(quotas, "a", kStart + refused.again), 1U) << "at the time that the refusal gave";
  EXPECT_EQ(PostsAtOnce(quotas, "a", kStart + seconds(1000)), Quotas::kBurstSeconds);
}

TEST(Quotas, WhoComesAgainAtOnceIsCutOff) {
  Quotas quotas(kRate);
  PostsAtOnce(quotas, "a", kStart);
  size_t passed = 0;
  while (quotas.Admit("a", kPost, kStart).may_pass && passed < 1000) ++passed;
  EXPECT_EQ(1 + passed, 32U) << "MiB that it may overdraw";
}

TEST(Quotas, PostsThatAreReadAreBounded) {
  Quotas quotas(uint64_t{1} << 40);
  std::vector<std::shared_ptr<void>> leases;
  const auto take = [&](const std::string& host) {
    Quotas::Verdict verdict = quotas.Admit(host, kPost, kStart);
    const bool admitted = verdict.lease != nullptr;
    EXPECT_EQ(admitted ? 0 : 1, verdict.again.count());
    if (admitted) leases.push_back(std::move(verdict.lease));
    return admitted;
  };
  while (take("a")) {
  }
  EXPECT_EQ(leases.size(), Quotas::kOpenBytesOfHost / kPost);
  for (int host = 0; host < 100; ++host) {
    while (take(std::to_string(host))) {
    }
  }
  EXPECT_EQ(leases.size(), Quotas::kOpenBytes / kPost) << "of all hosts together";
  leases.clear();
  EXPECT_TRUE(take("late"));
}

TEST(Quotas, SmallPostsCountAsMore) {
  Quotas quotas(kRate);
  size_t posts = 0;
  while (quotas.Admit("a", 1, kStart).lease != nullptr) ++posts;
  EXPECT_EQ(posts, Quotas::kBurstSeconds * kRate / Quotas::kLeastBytes);
}

}  // namespace
}  // namespace gpuprobe::hub
