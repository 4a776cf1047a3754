#include "injector/capture/nccl/communicators.h"

#include <gtest/gtest.h>

#include <set>
#include <thread>
#include <vector>

namespace gpuprobe::injector::nccl {
namespace {

const void* Handle(uintptr_t value) { return reinterpret_cast<const void*>(value); }

TEST(Communicators, AHandleIsFoundUntilItIsRemoved) {
  Communicator* made = Register(Handle(0x1000), {.hash = 5, .rank = 1, .ranks = 4});
  ASSERT_NE(made, nullptr);
  EXPECT_EQ(Find(Handle(0x1000)), made);
  EXPECT_EQ(made->rank.load(), 1);
  EXPECT_EQ(Find(Handle(0x2000)), nullptr);
  EXPECT_EQ(Find(nullptr), nullptr);
  Remove(Handle(0x1000));
  EXPECT_EQ(Find(Handle(0x1000)), nullptr);
}

TEST(Communicators, AReusedHandleIsANewCommunicator) {
  Communicator* first = Register(Handle(0x1000), {.hash = 5});
  const uint32_t first_id = first->id.load();
  first->collectives.store(40);
  Remove(Handle(0x1000));
  Communicator* second = Register(Handle(0x1000), {.hash = 6});
  EXPECT_NE(second->id.load(), first_id);
  EXPECT_EQ(second->collectives.load(), 0u);
  // Destroyed unseen, and made again.
  Communicator* third = Register(Handle(0x1000), {.hash = 7});
  EXPECT_NE(third->id.load(), second->id.load() - 1);
  EXPECT_EQ(Find(Handle(0x1000))->hash.load(), 7u);
}

TEST(Communicators, AFullTableRefusesAndTakesAgainAfterARemoval) {
  std::vector<uintptr_t> taken;
  uintptr_t refused = 0;
  for (uintptr_t i = 1; i <= kMaxCommunicators + 10 && refused == 0; ++i) {
    (Register(Handle(i * 64), {}) != nullptr ? (void)taken.push_back(i * 64) : (void)(refused = i * 64));
  }
  ASSERT_NE(refused, 0u);
  EXPECT_GT(taken.size(), kMaxCommunicators / 2);
  for (const uintptr_t handle : taken) Remove(Handle(handle));
  EXPECT_NE(Register(Handle(refused), {}), nullptr);
}

TEST(Communicators, ThreadsMakeAndEndTheirOwn) {
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (uintptr_t t = 1; t <= 4; ++t) {
    threads.emplace_back([t, &wrong] {
      for (int i = 0; i < 2000; ++i) {
        const void* handle = Handle(t * 0x10000);
        Communicator* made = Register(handle, {.hash = t});
        if (made == nullptr || Find(handle) != made || made->hash.load() != t) ++wrong;
        Remove(handle);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0);
}

TEST(CommunicatorHash, IsDjb2aOverTheUniqueId) {
  unsigned char id[128] = {};
  uint64_t expected = 5381;
  for (int i = 0; i < 128; ++i) {
    id[i] = static_cast<unsigned char>(255 - i);
    expected = (expected * 33) ^ id[i];
  }
  EXPECT_EQ(HashUniqueId(id), expected);
}

TEST(CommunicatorHash, ChildrenDifferByOrdinalAndColorAndAgreeAcrossRanks) {
  std::set<uint64_t> hashes;
  for (uint32_t ordinal = 0; ordinal < 8; ++ordinal) {
    for (int color = -1; color < 8; ++color) hashes.insert(HashChild(0x1234, ordinal, color));
  }
  EXPECT_EQ(hashes.size(), 72u);
  EXPECT_EQ(HashChild(0x1234, 3, 2), HashChild(0x1234, 3, 2));
  EXPECT_EQ(HashChild(0, 3, 2), 0u) << "an unknown parent has unknown children";
}

}  // namespace
}  // namespace gpuprobe::injector::nccl
