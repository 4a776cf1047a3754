// Another tool's calls of CUPTI's activity functions, as patched relocations lead them here.
#include "injector/cupti/rivals.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace gpuprobe::injector {
namespace {

std::vector<std::string> calls;

CUptiResult CUPTIAPI RealRegister(CUpti_BuffersCallbackRequestFunc, CUpti_BuffersCallbackCompleteFunc) {
  calls.emplace_back("register");
  return CUPTI_SUCCESS;
}
CUptiResult CUPTIAPI RealEnable(CUpti_ActivityKind kind) {
  calls.push_back("enable " + std::to_string(kind));
  return CUPTI_ERROR_NOT_COMPATIBLE;
}
CUptiResult CUPTIAPI RealDisable(CUpti_ActivityKind kind) {
  calls.push_back("disable " + std::to_string(kind));
  return CUPTI_SUCCESS;
}

class Rivals : public ::testing::Test {
 protected:
  void SetUp() override {
    ForgetRivalsForTest();
    calls.clear();
    api_.ActivityRegisterCallbacks = RealRegister;
    api_.ActivityEnable = RealEnable;
    api_.ActivityDisable = RealDisable;
    WatchRivals(api_, {[](void*) noexcept { calls.emplace_back("stepped aside"); }, nullptr});
  }
  void TearDown() override { ForgetRivalsForTest(); }

  template <typename Function>
  static Function Patched(const char* symbol, Function real) {
    void* replacement = RivalReplacement(symbol, reinterpret_cast<const void*>(real));
    EXPECT_NE(replacement, nullptr) << symbol;
    return reinterpret_cast<Function>(replacement);
  }
  static CUptiResult Enable(CUpti_ActivityKind kind) {
    return Patched("cuptiActivityEnable", RealEnable)(kind);
  }
  static CUptiResult Disable(CUpti_ActivityKind kind) {
    return Patched("cuptiActivityDisable", RealDisable)(kind);
  }
  static CUptiResult Register() {
    return Patched("cuptiActivityRegisterCallbacks", RealRegister)(nullptr, nullptr);
  }

  CuptiApi api_;
};

TEST_F(Rivals, WeStepAsideBeforeTheOtherToolsBuffersAreRegistered) {
  EXPECT_EQ(RivalLastCallNs(), 0u);
  EXPECT_EQ(Register(), CUPTI_SUCCESS);
  EXPECT_EQ(calls, (std::vector<std::string>{"stepped aside", "register"}));
  EXPECT_NE(RivalLastCallNs(), 0u);
}

TEST_F(Rivals, AToolIsActiveFromItsRegistrationUntilAllThatItEnabledIsOff) {
  Enable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  EXPECT_FALSE(RivalIsActive()) << "without buffers of its own it takes nothing";
  Register();
  Enable(CUPTI_ACTIVITY_KIND_MEMCPY);
  EXPECT_TRUE(RivalIsActive());
  Disable(CUPTI_ACTIVITY_KIND_MEMCPY);
  EXPECT_TRUE(RivalIsActive());
  Disable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  EXPECT_FALSE(RivalIsActive());
  Disable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  EXPECT_FALSE(RivalIsActive());
}

TEST_F(Rivals, TheToolGetsCuptisOwnAnswer) {
  EXPECT_EQ(Enable(CUPTI_ACTIVITY_KIND_MEMCPY), CUPTI_ERROR_NOT_COMPATIBLE);
  EXPECT_EQ(Disable(CUPTI_ACTIVITY_KIND_MEMCPY), CUPTI_SUCCESS);
  EXPECT_EQ(calls.size(), 2u);
}

TEST_F(Rivals, OnlySlotsOfTheCuptiThatWeUseAreLedHere) {
  int another = 0;
  EXPECT_EQ(RivalReplacement("cuptiActivityEnable", &another), nullptr) << "another copy of CUPTI";
  EXPECT_NE(RivalReplacement("cuptiActivityEnable", nullptr), nullptr) << "not resolved yet";
  EXPECT_EQ(RivalReplacement("cuptiActivityFlushAll", nullptr), nullptr);
  EXPECT_EQ(RivalReplacement("cudaMalloc", nullptr), nullptr);
  api_.ActivityDisable = nullptr;
  EXPECT_EQ(RivalReplacement("cuptiActivityDisable", nullptr), nullptr) << "this CUPTI has none";
  ForgetRivalsForTest();
  EXPECT_EQ(RivalReplacement("cuptiActivityEnable", nullptr), nullptr) << "nobody watches";
}

TEST_F(Rivals, AKindThatWeDoNotKnowTheNumberOfPassesThrough) {
  Register();
  Enable(static_cast<CUpti_ActivityKind>(100000));
  EXPECT_FALSE(RivalIsActive());
  EXPECT_EQ(calls.back(), "enable 100000");
}

}  // namespace
}  // namespace gpuprobe::injector
