// Visits of the linker's list and forks keep out of each other's way.
#include "injector/base/loaded_objects.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace gpuprobe::injector {
namespace {

int CountObject(dl_phdr_info* /*info*/, size_t /*size*/, void* data) {
  ++*static_cast<int*>(data);
  return 0;
}

TEST(LoadedObjects, NothingIsVisitedDuringAFork) {
  int objects = 0;
  BeforeFork();
  EXPECT_FALSE(VisitLoadedObjects(CountObject, &objects));
  EXPECT_EQ(objects, 0);
  AfterForkInParent();
  EXPECT_TRUE(VisitLoadedObjects(CountObject, &objects));
  EXPECT_GT(objects, 0);
}

TEST(LoadedObjects, TheChildMayVisitAtOnce) {
  int objects = 0;
  BeforeFork();
  AfterForkInChild();
  EXPECT_TRUE(VisitLoadedObjects(CountObject, &objects));
}

TEST(LoadedObjects, AForkWaitsUntilAVisitIsOver) {
  struct Slow {
    std::atomic<bool> inside{false};
    std::atomic<bool> over{false};
  } slow;
  std::thread visitor([&] {
    EXPECT_TRUE(VisitLoadedObjects(
        [](dl_phdr_info*, size_t, void* data) {
          static_cast<Slow*>(data)->inside = true;
          std::this_thread::sleep_for(std::chrono::milliseconds(30));
          static_cast<Slow*>(data)->over = true;
          return 1;
        },
        &slow));
  });
  while (!slow.inside) std::this_thread::yield();
  BeforeFork();
  EXPECT_TRUE(slow.over);
  AfterForkInParent();
  visitor.join();
}

// A signal handler that forks in the middle of a visit.
TEST(LoadedObjects, AForkInsideAVisitDoesNotWaitForIt) {
  int took_ms = 0;
  EXPECT_TRUE(VisitLoadedObjects(
      [](dl_phdr_info*, size_t, void* data) {
        const auto start = std::chrono::steady_clock::now();
        BeforeFork();
        AfterForkInParent();
        *static_cast<int*>(data) = static_cast<int>(
            std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - start)
                .count());
        return 1;
      },
      &took_ms));
  EXPECT_LT(took_ms, 500);
}

}  // namespace
}  // namespace gpuprobe::injector
