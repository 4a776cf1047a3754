#include "tests/sim/cupti/buffers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace gpusim::cupti {
namespace {

constexpr size_t kRecord = 16;

Record Numbered(uint64_t number) {
  Record record(kRecord);
  std::memcpy(record.data(), &number, sizeof(number));
  return record;
}

// A tool: hands out buffers of its pool and keeps what comes back.
class Tool {
 public:
  explicit Tool(size_t buffer_size = 1024, size_t pool = 1000) : buffer_size_(buffer_size), pool_(pool) {}

  BufferCallbacks Callbacks() {
    BufferCallbacks callbacks;
    callbacks.request = [this](uint8_t** buffer, size_t* size, size_t* max_records) {
      const std::scoped_lock lock(mutex_);
      ++requests;
      requesting_threads.push_back(std::this_thread::get_id());
      *max_records = max_records_per_buffer;
      *buffer = nullptr;
      *size = 0;
      if (pool_ > 0) {
        --pool_;
        memory_.push_back(std::make_unique<uint8_t[]>(buffer_size_));
        *buffer = memory_.back().get();
        *size = buffer_size_;
      }
    };
    callbacks.complete = [this](uint8_t* buffer, size_t, size_t valid) {
      const std::scoped_lock lock(mutex_);
      ++completions;
      completing_threads.push_back(std::this_thread::get_id());
      for (size_t offset = 0; offset < valid; offset += kRecord) {
        uint64_t number = 0;
        std::memcpy(&number, buffer + offset, sizeof(number));
        numbers.push_back(number);
      }
      completed_.notify_all();
    };
    return callbacks;
  }

  bool WaitForNumbers(size_t count) {
    std::unique_lock lock(mutex_);
    return completed_.wait_for(lock, std::chrono::seconds(10), [&] { return numbers.size() >= count; });
  }

  size_t max_records_per_buffer = 0;
  int requests = 0;
  int completions = 0;
  std::vector<uint64_t> numbers;
  std::vector<std::thread::id> requesting_threads;
  std::vector<std::thread::id> completing_threads;

 private:
  std::mutex mutex_;
  std::condition_variable completed_;
  const size_t buffer_size_;
  size_t pool_;
  std::vector<std::unique_ptr<uint8_t[]>> memory_;
};

TEST(BuffersTest, AFlushGivesEveryRecordOnceOnTheLibrarysOwnThread) {
  Tool tool;
  Buffers buffers({});
  buffers.Register(tool.Callbacks());
  buffers.EnsureBuffer();
  for (uint64_t i = 0; i < 50; ++i) {
    buffers.Add(0, Numbered(i));
  }
  buffers.Flush(false);
  std::sort(tool.numbers.begin(), tool.numbers.end());
  ASSERT_EQ(tool.numbers.size(), 50U);
  for (uint64_t i = 0; i < 50; ++i) {
    EXPECT_EQ(tool.numbers[i], i);
  }
  EXPECT_NE(tool.completing_threads.front(), std::this_thread::get_id()) << "the library's own";
  EXPECT_EQ(buffers.TakeDropped(), 0U);
}

TEST(BuffersTest, RecordsComeOutOfOrderAndTheSameEveryTime) {
  std::vector<uint64_t> orders[2];
  for (auto& order : orders) {
    Tool tool;
    Buffers buffers({.shuffle_window = 64});
    buffers.Register(tool.Callbacks());
    buffers.EnsureBuffer();
    // Reserved slots keep the worker from writing in between, so that the window is full.
    for (uint64_t i = 0; i < 40; ++i) {
      buffers.Add(0, Numbered(i));
    }
    buffers.Flush(false);
    order = tool.numbers;
  }
  EXPECT_FALSE(std::is_sorted(orders[0].begin(), orders[0].end()));
}

TEST(BuffersTest, FullBuffersComeFromTheWorkerWithoutAFlush) {
  Tool tool(/*buffer_size=*/10 * kRecord);
  Buffers buffers({});
  buffers.Register(tool.Callbacks());
  for (uint64_t i = 0; i < 35; ++i) {
    buffers.EnsureBuffer();
    ASSERT_TRUE(buffers.Reserve(static_cast<uint32_t>(i + 1), Numbered(0)));
    buffers.Add(static_cast<uint32_t>(i + 1), Numbered(i));
  }
  ASSERT_TRUE(tool.WaitForNumbers(30));
  EXPECT_NE(tool.completing_threads.front(), std::this_thread::get_id());
  for (const std::thread::id& thread : tool.requesting_threads) {
    EXPECT_EQ(thread, std::this_thread::get_id()) << "buffers are requested on the application's thread";
  }
  buffers.Flush(false);
  EXPECT_EQ(tool.numbers.size(), 35U);
}

TEST(BuffersTest, DefaultFlushLeavesABufferWithAnUnfinishedLaunch) {
  Tool tool;
  Buffers buffers({});
  buffers.Register(tool.Callbacks());
  ASSERT_TRUE(buffers.Reserve(1, Numbered(1000)));
  ASSERT_TRUE(buffers.Reserve(2, Numbered(2000)));
  buffers.Add(1, Numbered(1));
  buffers.Flush(false);
  EXPECT_EQ(tool.completions, 0);
  buffers.Add(2, Numbered(2));
  buffers.Flush(false);
  EXPECT_THAT(tool.numbers, testing::UnorderedElementsAre(1, 2));
}

TEST(BuffersTest, ForcedFlushGivesIncompleteRecordsAndTheirCompletionIsLost) {
  Tool tool;
  Buffers buffers({});
  buffers.Register(tool.Callbacks());
  ASSERT_TRUE(buffers.Reserve(1, Numbered(1000)));
  ASSERT_TRUE(buffers.Reserve(2, Numbered(2000)));
  buffers.Add(1, Numbered(1));
  buffers.Flush(true);
  EXPECT_THAT(tool.numbers, testing::UnorderedElementsAre(1, 2000));
  buffers.Add(2, Numbered(2));
  buffers.Flush(true);
  EXPECT_THAT(tool.numbers, testing::UnorderedElementsAre(1, 2000));
}

TEST(BuffersTest, ALaunchThatFailedOrWasCapturedHoldsNothing) {
  Tool tool;
  Buffers buffers({});
  buffers.Register(tool.Callbacks());
  ASSERT_TRUE(buffers.Reserve(1, Numbered(1000)));
  ASSERT_TRUE(buffers.Reserve(2, Numbered(2000)));
  buffers.Add(1, Numbered(1));
  buffers.Unreserve(2);
  buffers.Flush(false);
  EXPECT_THAT(tool.numbers, testing::ElementsAre(1));
}

TEST(BuffersTest, ADeclinedRequestDropsAndCounts) {
  Tool tool(/*buffer_size=*/4 * kRecord, /*pool=*/1);
  Buffers buffers({});
  buffers.Register(tool.Callbacks());
  for (uint32_t i = 1; i <= 10; ++i) {
    EXPECT_EQ(buffers.Reserve(i, Numbered(0)), i <= 4);
    buffers.Add(i, Numbered(i));
  }
  buffers.Flush(false);
  EXPECT_THAT(tool.numbers, testing::UnorderedElementsAre(1, 2, 3, 4));
  EXPECT_EQ(buffers.TakeDropped(), 6U);
  EXPECT_EQ(buffers.TakeDropped(), 0U) << "the count is reset by reading";
}

TEST(BuffersTest, RecordsWithoutABufferWaitForTheNextTracedCall) {
  Tool tool;
  Buffers buffers({});
  buffers.Register(tool.Callbacks());
  for (uint64_t i = 0; i < 20; ++i) {
    buffers.Add(0, Numbered(i));
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(tool.requests, 0) << "the worker does not ask";
  buffers.EnsureBuffer();
  buffers.Flush(false);
  EXPECT_EQ(tool.numbers.size(), 20U);
  EXPECT_EQ(buffers.TakeDropped(), 0U);
}

TEST(BuffersTest, TheRecordLimitOfABufferIsKept) {
  Tool tool;
  tool.max_records_per_buffer = 3;
  Buffers buffers({});
  buffers.Register(tool.Callbacks());
  for (uint32_t i = 1; i <= 9; ++i) {
    ASSERT_TRUE(buffers.Reserve(i, Numbered(0)));
    buffers.Add(i, Numbered(i));
  }
  buffers.Flush(false);
  EXPECT_EQ(tool.numbers.size(), 9U);
  EXPECT_EQ(tool.completions, 3);
}

TEST(BuffersTest, EachThreadHasItsOwnBufferUnlessTheyShare) {
  for (const bool per_thread : {true, false}) {
    Tool tool;
    Buffers buffers({});
    buffers.SetPerThread(per_thread);
    buffers.Register(tool.Callbacks());
    for (int i = 0; i < 4; ++i) {
      std::thread([&] { buffers.EnsureBuffer(); }).join();
    }
    EXPECT_EQ(tool.requests, per_thread ? 4 : 1);
  }
}

TEST(BuffersTest, WhoRegistersLastGetsTheBuffersOfTheOther) {
  Tool first;
  Tool second;
  Buffers buffers({});
  buffers.Register(first.Callbacks());
  ASSERT_TRUE(buffers.Reserve(1, Numbered(0)));
  buffers.Register(second.Callbacks());
  buffers.Add(1, Numbered(1));
  buffers.Flush(false);
  EXPECT_EQ(first.completions, 0);
  EXPECT_THAT(second.numbers, testing::ElementsAre(1));
}

TEST(BuffersTest, ManyThreadsLoseNothing) {
  constexpr int kThreads = 4;
  constexpr uint32_t kEach = 2000;
  Tool tool(/*buffer_size=*/100 * kRecord);
  Buffers buffers({});
  buffers.Register(tool.Callbacks());
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&buffers, t] {
      for (uint32_t i = 0; i < kEach; ++i) {
        const uint32_t number = static_cast<uint32_t>(t) * kEach + i + 1;
        ASSERT_TRUE(buffers.Reserve(number, Numbered(0)));
        buffers.Add(number, Numbered(number));
        if (i % 500 == 0) {
          buffers.Flush(false);
        }
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  buffers.Flush(true);
  std::sort(tool.numbers.begin(), tool.numbers.end());
  ASSERT_EQ(tool.numbers.size(), kThreads * kEach);
  EXPECT_EQ(std::unique(tool.numbers.begin(), tool.numbers.end()), tool.numbers.end());
  EXPECT_EQ(buffers.TakeDropped(), 0U);
}

TEST(BuffersDeathTest, NullCrashesWhereItDidBefore129) {
  Tool tool(1024, /*pool=*/0);
  Buffers buffers({.crash_on_null = true});
  buffers.Register(tool.Callbacks());
  EXPECT_DEATH(buffers.EnsureBuffer(), "NULL buffer");
}

}  // namespace
}  // namespace gpusim::cupti
