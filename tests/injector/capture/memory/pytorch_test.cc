// PyTorch's allocator, played by two libraries, in every version of its reporting function.
#include "injector/capture/memory/pytorch.h"

#include <dlfcn.h>

#include <string>

#include "tests/injector/live_probe.h"

namespace gpuprobe::injector {
namespace {

struct Version {
  const char* name;
  const char* c10;
  const char* allocator;
  bool has_totals;
};

class Pytorch : public LiveProbe, public ::testing::WithParamInterface<Version> {
 protected:
  void SetUp() override {
    LiveProbe::SetUp();
    c10_ = dlopen(GetParam().c10, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(c10_, nullptr) << dlerror();
    allocator_ = dlopen(GetParam().allocator, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(allocator_, nullptr) << dlerror();
    report_ = Find<Report>(allocator_, "fake_allocator_report");
    out_of_memory_ = Find<OutOfMemory>(allocator_, "fake_allocator_out_of_memory");
  }
  void TearDown() override {
    if (allocator_ != nullptr) dlclose(allocator_);
    if (c10_ != nullptr) dlclose(c10_);
    LiveProbe::TearDown();
  }

  using Report = void(void*, int64_t, uint64_t, uint64_t, int, int);
  using OutOfMemory = bool(int64_t, uint64_t, uint64_t, int, int);
  template <typename Function>
  static Function* Find(void* library, const char* name) {
    return reinterpret_cast<Function*>(dlsym(library, name));
  }
  uint64_t Calls() const { return Find<uint64_t()>(c10_, "fake_c10_calls")(); }
  uint64_t Sum() const { return Find<uint64_t()>(c10_, "fake_c10_sum")(); }
  static std::vector<AllocatorLevelEvent> Levels() {
    pytorch::ReportLevels();
    return Only<AllocatorLevelEvent>(Events());
  }

  static constexpr int kCuda = 1;
  void* c10_ = nullptr;
  void* allocator_ = nullptr;
  Report* report_ = nullptr;
  OutOfMemory* out_of_memory_ = nullptr;
};

TEST_P(Pytorch, LevelsAndPeaksOfEachDeviceAreKnownAndTheRealFunctionIsCalled) {
  EXPECT_GE(pytorch::PatchLoadedObjects(), 1u);
  void* pointer = reinterpret_cast<void*>(0x1000);
  report_(pointer, 500, 500, 2048, kCuda, 0);
  report_(pointer, 300, 800, 4096, kCuda, 0);
  report_(pointer, -500, 300, 2048, kCuda, 0);
  report_(pointer, 7, 7, 64, kCuda, 3);
  report_(pointer, 9, 9, 9, 0, -1);  // the CPU's
  EXPECT_EQ(Calls(), 5u);
  const bool totals = GetParam().has_totals;
  const uint64_t told = totals ? 500 + 2048 + 800 + 4096 + 300 + 2048 + 7 + 64 + 9 + 9 : 0;
  EXPECT_EQ(Sum(), 5 * 0x1000u + 500 + 300 - 500 + 7 + 9 + told + 4 * 1 + 3 + static_cast<uint64_t>(-1));
  const auto levels = Levels();
  ASSERT_EQ(levels.size(), 2u);
  EXPECT_EQ(levels[0].device, 0);
  EXPECT_EQ(levels[0].allocated_bytes, 300u);
  EXPECT_EQ(levels[0].peak_allocated_bytes, 800u);
  EXPECT_EQ(levels[0].reserved_bytes, totals ? 2048u : 0u);
  EXPECT_EQ(levels[0].peak_reserved_bytes, totals ? 4096u : 0u);
  EXPECT_EQ(levels[1].device, 3);
  EXPECT_EQ(levels[1].allocated_bytes, 7u);
  EXPECT_TRUE(Levels().empty()) << "nothing changed";
  report_(pointer, -7, 0, 64, kCuda, 3);
  EXPECT_EQ(Levels().size(), 1u);
}

TEST_P(Pytorch, WhatIsHandedOutAndTakenBackIsAnEventInItsRange) {
  pytorch::PatchLoadedObjects();
  ThreadState& thread = CurrentThread();
  thread.range_ids[0] = 88;
  thread.range_depth = 1;
  report_(reinterpret_cast<void*>(0x1000), 500, 500, 2048, kCuda, 2);
  thread.range_depth = 0;
  report_(reinterpret_cast<void*>(0x1000), -500, 0, 2048, kCuda, 2);
  report_(reinterpret_cast<void*>(0x2000), 9, 9, 9, 0, -1);  // the CPU's
  const auto tensors = Only<TensorEvent>(Events());
  ASSERT_EQ(tensors.size(), 2u);
  EXPECT_EQ(tensors[0].address, 0x1000u);
  EXPECT_EQ(tensors[0].bytes, 500);
  EXPECT_EQ(tensors[0].range_id, 88u);
  EXPECT_EQ(tensors[0].device, 2);
  EXPECT_EQ(tensors[1].address, 0x1000u);
  EXPECT_EQ(tensors[1].bytes, -500);
  EXPECT_EQ(tensors[1].range_id, 0u);
}

TEST_P(Pytorch, AScanPatchesOnce) {
  EXPECT_GE(pytorch::PatchLoadedObjects(), 1u);
  EXPECT_EQ(pytorch::PatchLoadedObjects(), 0u);
  pytorch::PatchNewObjects();
  report_(nullptr, 1, 1, 1, kCuda, 0);
  EXPECT_EQ(Calls(), 1u);
}

TEST_P(Pytorch, WithoutThePatchNothingIsSeenAndWithTheProbeOffTheRealFunctionIsCalled) {
  report_(nullptr, 1, 1, 1, kCuda, 0);
  EXPECT_TRUE(Levels().empty());
  pytorch::PatchLoadedObjects();
  Switch(false);
  report_(nullptr, 1, 1, 1, kCuda, 0);
  out_of_memory_(1, 2, 3, kCuda, 0);
  EXPECT_EQ(Calls(), GetParam().has_totals ? 3u : 2u);
  EXPECT_TRUE(Only<AllocatorRefusalEvent>(Events()).empty());
}

TEST_P(Pytorch, OutOfMemoryIsAnEventInItsRange) {
  pytorch::PatchLoadedObjects();
  ThreadState& thread = CurrentThread();
  thread.range_ids[0] = 88;
  thread.range_depth = 1;
  const bool told = out_of_memory_(1 << 30, 700, 900, kCuda, 2);
  thread.range_depth = 0;
  EXPECT_EQ(told, GetParam().has_totals);
  const auto refusals = Only<AllocatorRefusalEvent>(Events());
  ASSERT_EQ(refusals.size(), told ? 1u : 0u);
  if (!told) return;
  EXPECT_EQ(refusals[0].asked_bytes, 1u << 30);
  EXPECT_EQ(refusals[0].allocated_bytes, 700u);
  EXPECT_EQ(refusals[0].reserved_bytes, 900u);
  EXPECT_EQ(refusals[0].device, 2);
  EXPECT_EQ(refusals[0].range_id, 88u);
  EXPECT_NE(refusals[0].time_ns, 0u);
  EXPECT_EQ(Calls(), 1u);
}

INSTANTIATE_TEST_SUITE_P(EveryName, Pytorch,
                         ::testing::Values(Version{"Unsigned", FAKE_C10_SIZE, FAKE_ALLOCATOR_SIZE, true},
                                           Version{"Signed", FAKE_C10_INT, FAKE_ALLOCATOR_INT, true},
                                           Version{"WithoutTotals", FAKE_C10_NONE, FAKE_ALLOCATOR_NONE,
                                                   false}),
                         [](const auto& version) { return std::string(version.param.name); });

}  // namespace
}  // namespace gpuprobe::injector
