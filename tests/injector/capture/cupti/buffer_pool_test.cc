#include "injector/capture/cupti/buffer_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <thread>
#include <vector>

namespace gpuprobe::injector {
namespace {

constexpr size_t kBytes = 65536;

TEST(BufferPool, BuffersAreDistinctZeroedAndOfTheSizeAsked) {
  BufferPool pool;
  ASSERT_TRUE(pool.Init(4, kBytes));
  std::set<uint8_t*> buffers;
  for (int i = 0; i < 4; ++i) {
    size_t bytes = 0;
    uint8_t* buffer = pool.Take(&bytes);
    EXPECT_EQ(bytes, kBytes);
    EXPECT_EQ(pool.Classify(buffer), BufferPool::Owner::kPool);
    EXPECT_TRUE(buffers.insert(buffer).second);
    EXPECT_TRUE(std::all_of(buffer, buffer + bytes, [](uint8_t byte) { return byte == 0; }));
  }
  EXPECT_EQ(pool.outstanding(), 4u);
}

TEST(BufferPool, BuffersAreAsLargeAsAimedAtWhileThereAreEnough) {
  BufferPool pool;
  ASSERT_TRUE(pool.Init(4, kBytes));
  size_t bytes = 0;
  pool.Aim(20'005);
  uint8_t* first = pool.Take(&bytes);
  EXPECT_EQ(bytes, 20'000u) << "whole records are aligned to 8 bytes";
  pool.Aim(1);
  pool.Take(&bytes);
  EXPECT_EQ(bytes, BufferPool::kLeastBytes);
  pool.Take(&bytes);
  EXPECT_EQ(bytes, kBytes) << "more than half are out: whatever goes on, there is room for it";
  pool.GiveBack(first, 20'000);
  pool.GiveBack(pool.Take(&bytes), 0);
  pool.Aim(SIZE_MAX);
  pool.Take(&bytes);
  EXPECT_EQ(bytes, kBytes);
}

TEST(BufferPool, AnExhaustedPoolHandsOutTheDiscardBufferAndRecovers) {
  BufferPool pool;
  ASSERT_TRUE(pool.Init(2, kBytes));
  size_t bytes = 0;
  uint8_t* first = pool.Take(&bytes);
  pool.Take(&bytes);
  uint8_t* discard = pool.Take(&bytes);
  ASSERT_NE(discard, nullptr);
  EXPECT_GT(bytes, 0u);
  EXPECT_EQ(pool.Classify(discard), BufferPool::Owner::kDiscard);
  EXPECT_EQ(pool.Take(&bytes), discard);
  EXPECT_EQ(pool.outstanding(), 2u);
  pool.GiveBack(first, 0);
  EXPECT_EQ(pool.Take(&bytes), first);
}

TEST(BufferPool, ManyThreadsGetPiecesOfHalfOfTheMemory) {
  BufferPool pool;
  constexpr size_t kWhole = size_t{4} << 20;
  ASSERT_TRUE(pool.Init(16, kWhole));
  std::vector<uint8_t*> taken;
  size_t all_bytes = 0;
  for (;;) {
    size_t bytes = 0;
    uint8_t* buffer = pool.Take(&bytes);
    if (pool.Classify(buffer) == BufferPool::Owner::kDiscard) break;
    EXPECT_EQ(bytes, taken.size() < 8 ? kWhole : BufferPool::kPieceBytes);
    EXPECT_EQ(pool.Classify(buffer + 8), BufferPool::Owner::kForeign);
    buffer[0] = buffer[bytes - 1] = 1;
    all_bytes += bytes;
    taken.push_back(buffer);
    EXPECT_EQ(pool.runs_short(), taken.size() > 260);
  }
  EXPECT_EQ(all_bytes, 16 * kWhole);
  EXPECT_EQ(taken.size(), 520u);
  size_t bytes = 0;
  for (uint8_t* buffer : taken) pool.GiveBack(buffer, kWhole);
  EXPECT_EQ(pool.outstanding(), 0u);
  EXPECT_EQ(pool.Take(&bytes)[0], 0);
}

TEST(BufferPool, PiecesOfLargeBuffersAreFewAndLarger) {
  BufferPool pool;
  ASSERT_TRUE(pool.Init(256, size_t{4} << 20));
  size_t bytes = 0;
  for (int i = 0; i < 128; ++i) pool.Take(&bytes);
  pool.Take(&bytes);
  EXPECT_EQ(bytes, size_t{512} << 10);
}

TEST(BufferPool, AReturnedBufferIsZeroedAgain) {
  BufferPool pool;
  ASSERT_TRUE(pool.Init(1, kBytes));
  size_t bytes = 0;
  uint8_t* buffer = pool.Take(&bytes);
  std::fill(buffer, buffer + 1000, uint8_t{0xff});
  pool.GiveBack(buffer, 1000);
  EXPECT_EQ(pool.Take(&bytes), buffer);
  EXPECT_TRUE(std::all_of(buffer, buffer + bytes, [](uint8_t byte) { return byte == 0; }));
}

TEST(BufferPool, OthersBuffersAreForeign) {
  BufferPool pool;
  ASSERT_TRUE(pool.Init(2, kBytes));
  std::vector<uint8_t> other(kBytes);
  EXPECT_EQ(pool.Classify(other.data()), BufferPool::Owner::kForeign);
  size_t bytes = 0;
  uint8_t* buffer = pool.Take(&bytes);
  EXPECT_EQ(pool.Classify(buffer + 8), BufferPool::Owner::kForeign);
  pool.GiveBack(buffer, 0);
  EXPECT_EQ(pool.Classify(buffer), BufferPool::Owner::kForeign) << "completed twice";
}

TEST(BufferPool, ThreadsNeverShareABuffer) {
  BufferPool pool;
  ASSERT_TRUE(pool.Init(8, kBytes));
  std::vector<std::thread> threads;
  for (uint8_t id = 1; id <= 4; ++id) {
    threads.emplace_back([&pool, id] {
      for (int i = 0; i < 2000; ++i) {
        size_t bytes = 0;
        uint8_t* buffer = pool.Take(&bytes);
        if (pool.Classify(buffer) != BufferPool::Owner::kPool) continue;
        ASSERT_EQ(buffer[0], 0);
        std::fill(buffer, buffer + 64, id);
        ASSERT_TRUE(std::all_of(buffer, buffer + 64, [id](uint8_t byte) { return byte == id; }));
        pool.GiveBack(buffer, 64);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(pool.outstanding(), 0u);
}

}  // namespace
}  // namespace gpuprobe::injector
