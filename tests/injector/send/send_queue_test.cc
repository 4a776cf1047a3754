#include "injector/send/send_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <deque>
#include <random>
#include <string>
#include <thread>

#include "tests/injector/support/send_queue_counts.h"

namespace gpuprobe::injector {
namespace {

bool Put(SendQueue* queue, const std::string& text, size_t reserve = 0, uint64_t sequence = 1) {
  char* memory = queue->Reserve(reserve > text.size() + 3 ? reserve : text.size() + 3);
  if (memory == nullptr) return false;
  // NOLINTNEXTLINE(bugprone-not-null-terminated-result): a frame is no C string
  std::memcpy(memory + 3, text.data(), text.size());
  queue->Commit(3, text.size(), 1, sequence);
  return true;
}

std::string Take(SendQueue* queue) {
  SendQueue::Frame frame;
  if (!queue->Front(&frame)) return "<none>";
  std::string text(frame.data, frame.size);
  queue->Pop();
  return text;
}

TEST(SendQueue, FramesComeOutInOrder) {
  SendQueue queue;
  ASSERT_TRUE(queue.Init(1 << 16));
  EXPECT_EQ(Take(&queue), "<none>");
  EXPECT_TRUE(Put(&queue, "one"));
  EXPECT_TRUE(Put(&queue, "two", 5000));  // reserved more than it used
  EXPECT_EQ(SendQueueCounts::Kept(queue), 2u);
  EXPECT_EQ(Take(&queue), "one");
  EXPECT_EQ(Take(&queue), "two");
  EXPECT_EQ(SendQueueCounts::Kept(queue), 0u);
}

TEST(SendQueue, ACancelledReservationLeavesNothing) {
  SendQueue queue;
  ASSERT_TRUE(queue.Init(1 << 16));
  ASSERT_NE(queue.Reserve(100), nullptr);
  queue.Cancel();
  EXPECT_EQ(SendQueueCounts::Kept(queue), 0u);
  EXPECT_TRUE(Put(&queue, "x"));
  EXPECT_EQ(Take(&queue), "x");
}

TEST(SendQueue, WhatIsLargerThanTheQueueIsRefused) {
  SendQueue queue;
  ASSERT_TRUE(queue.Init(8192));
  EXPECT_EQ(queue.Reserve(9000), nullptr);
  EXPECT_TRUE(Put(&queue, std::string(8000, 'x')));
  EXPECT_EQ(queue.Reserve(1000), nullptr);
}

TEST(SendQueue, ClearCountsTheRecordsThatItDropped) {
  SendQueue queue;
  ASSERT_TRUE(queue.Init(1 << 16));
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(Put(&queue, "x"));
  EXPECT_EQ(queue.Clear(), 5u);
  EXPECT_EQ(Take(&queue), "<none>");
}

TEST(SendQueue, RandomUseAgreesWithAModelThroughManyWraps) {
  SendQueue queue;
  ASSERT_TRUE(queue.Init(16384));
  std::deque<std::string> model;
  std::mt19937 random(3);
  size_t refused = 0;
  for (int i = 0; i < 100000; ++i) {
    if (random() % 2 == 0) {
      const std::string text(random() % 3000, static_cast<char>('a' + i % 26));
      if (Put(&queue, text, random() % 4000)) {
        model.push_back(text);
      } else {
        ++refused;
        ASSERT_FALSE(model.empty());
      }
    } else if (!model.empty()) {
      ASSERT_EQ(Take(&queue), model.front());
      model.pop_front();
    }
    ASSERT_EQ(SendQueueCounts::Kept(queue), model.size());
  }
  EXPECT_GT(refused, 0u);
}

TEST(SendQueue, WhatWasSentIsKeptUntilItIsReleasedAndCanBeSentAgain) {
  SendQueue queue;
  ASSERT_TRUE(queue.Init(1 << 16));
  for (uint64_t i = 1; i <= 4; ++i) ASSERT_TRUE(Put(&queue, std::to_string(i), 0, i));
  SendQueue::Frame frame;
  for (int i = 0; i < 3; ++i) queue.Advance();
  EXPECT_EQ(SendQueueCounts::Kept(queue), 4u);
  EXPECT_EQ(SendQueueCounts::Unsent(queue), 1u);
  queue.Release(100);  // only what was sent can have been acknowledged
  EXPECT_EQ(SendQueueCounts::Kept(queue), 1u);
  EXPECT_EQ(queue.released_sequence(), 3u);
  EXPECT_EQ(queue.released_records(), 3u);
  ASSERT_TRUE(Put(&queue, "5", 0, 5));
  queue.Advance();
  queue.Advance();
  EXPECT_FALSE(queue.Front(&frame));
  queue.Rewind();
  ASSERT_TRUE(queue.Front(&frame));
  EXPECT_EQ(frame.sequence, 4u);
  queue.Release(4, true);  // the next collector has it already
  EXPECT_EQ(Take(&queue), "5");
}

TEST(SendQueue, RandomUseWithRewindsAgreesWithAModel) {
  SendQueue queue;
  ASSERT_TRUE(queue.Init(size_t{4} << 20));
  std::deque<std::pair<uint64_t, std::string>> model;  // what is kept
  size_t sent = 0;
  uint64_t sequence = 0;
  std::mt19937 random(5);
  for (int i = 0; i < 60000; ++i) {
    const uint32_t what = random() % 100;
    if (what < 50) {
      const std::string text(random() % 60000, static_cast<char>('a' + i % 26));
      if (Put(&queue, text, random() % 70000, ++sequence)) model.emplace_back(sequence, text);
    } else if (what < 90) {
      SendQueue::Frame frame;
      ASSERT_EQ(queue.Front(&frame), sent < model.size());
      if (sent == model.size()) continue;
      ASSERT_EQ(frame.sequence, model[sent].first);
      ASSERT_TRUE(std::string_view(frame.data, frame.size) == model[sent].second)
          << "frame " << frame.sequence;
      queue.Advance();
      ++sent;
    } else if (what < 99) {
      const size_t count = sent == 0 ? 0 : random() % (sent + 1);
      if (count > 0) queue.Release(model[count - 1].first);
      model.erase(model.begin(), model.begin() + static_cast<ptrdiff_t>(count));
      sent -= count;
    } else {
      queue.Rewind();
      sent = 0;
    }
    ASSERT_EQ(SendQueueCounts::Kept(queue), model.size());
    ASSERT_EQ(SendQueueCounts::Unsent(queue), model.size() - sent);
  }
}

TEST(SendQueue, ProducerAndConsumerOnTwoThreadsAgree) {
  SendQueue queue;
  ASSERT_TRUE(queue.Init(16384));
  constexpr int kFrames = 50000;
  std::thread producer([&queue] {
    for (int i = 0; i < kFrames;) {
      if (Put(&queue, std::to_string(i), static_cast<size_t>(i) % 2000)) ++i;
    }
  });
  for (int i = 0; i < kFrames;) {
    SendQueue::Frame frame;
    if (!queue.Front(&frame)) continue;
    ASSERT_EQ(std::string(frame.data, frame.size), std::to_string(i));
    queue.Pop();
    ++i;
  }
  producer.join();
}

}  // namespace
}  // namespace gpuprobe::injector
