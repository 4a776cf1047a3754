#include "injector/core/event_ring.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "injector/base/losses.h"

namespace gpuprobe::injector {
namespace {

class EventRingTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(MapRings());
    ring_ = ClaimRing(static_cast<uint32_t>(gettid()), 1);
    ASSERT_NE(ring_, nullptr);
    ring_->Consume(ring_->PublishedEnd());  // whose it is
  }
  void TearDown() override {
    ring_->Consume(ring_->PublishedEnd());
    ReleaseRing(*ring_);
    EXPECT_TRUE(FreeRing(*ring_));
  }

  EventRing* ring_ = nullptr;
};

LaunchEvent Launch(uint32_t correlation) {
  LaunchEvent event{};
  event.correlation = correlation;
  return event;
}

TEST_F(EventRingTest, EventsComeOutInOrderWithTheirText) {
  const RangeOpenEvent open{.time_ns = 5,
                            .id = 9,
                            .parent_id = 0,
                            .domain = 0,
                            .category = 0,
                            .kind = 0,
                            .name_bytes = 7,
                            .payload = 0,
                            .color = 0,
                            .payload_kind = 0};
  ASSERT_TRUE(ring_->Push(EventType::kRangeOpen, &open, sizeof(open), "forward"));
  const LaunchEvent launch = Launch(42);
  ASSERT_TRUE(ring_->Push(EventType::kLaunch, &launch, sizeof(launch), {}));

  const uint64_t end = ring_->PublishedEnd();
  uint64_t position = ring_->ReadPosition();
  const EventHeader* header = ring_->Peek(&position, end);
  ASSERT_NE(header, nullptr);
  EXPECT_EQ(header->type, static_cast<uint16_t>(EventType::kRangeOpen));
  const auto* payload = reinterpret_cast<const char*>(header + 1);
  EXPECT_EQ(std::string(payload + sizeof(RangeOpenEvent), header->text_bytes), "forward");
  position += header->total_bytes;
  header = ring_->Peek(&position, end);
  ASSERT_NE(header, nullptr);
  EXPECT_EQ(reinterpret_cast<const LaunchEvent*>(header + 1)->correlation, 42u);
  position += header->total_bytes;
  EXPECT_EQ(ring_->Peek(&position, end), nullptr);
}

TEST_F(EventRingTest, AFullRingRefusesAndTakesAgainAfterConsume) {
  const LaunchEvent launch = Launch(1);
  size_t pushed = 0;
  while (ring_->Push(EventType::kLaunch, &launch, sizeof(launch), {})) ++pushed;
  // Where the ring ends, what is left may be too small for an event.
  constexpr size_t kFits = (kRingBytes - kKeptForEnds) / (sizeof(EventHeader) + sizeof(LaunchEvent));
  EXPECT_GE(pushed, kFits - 1);
  EXPECT_LE(pushed, kFits);
  ring_->Consume(ring_->PublishedEnd());
  EXPECT_TRUE(ring_->Push(EventType::kLaunch, &launch, sizeof(launch), {}));
}

// What a consumer that gets no processor for a while needs is room after it was woken.
TEST_F(EventRingTest, AQuarterOfItWakesTheConsumerOnce) {
  const uint32_t before = wake_word.load();
  const LaunchEvent launch = Launch(1);
  size_t pushed = 0;
  while (wake_word.load() == before && ring_->Push(EventType::kLaunch, &launch, sizeof(launch), {})) ++pushed;
  constexpr size_t kFitInAQuarter = kRingBytes / 4 / (sizeof(EventHeader) + sizeof(LaunchEvent));
  EXPECT_EQ(pushed, kFitInAQuarter + 1);
  while (ring_->Push(EventType::kLaunch, &launch, sizeof(launch), {})) {
  }
  EXPECT_EQ(wake_word.load(), before + 1);
}

TEST_F(EventRingTest, LongNamesAreCutAndEveryEventSurvivesWrapping) {
  const std::string name(1000, 'n');
  const RangeOpenEvent open{};
  uint64_t seen = 0;
  for (int i = 0; i < 20000; ++i) {
    ASSERT_TRUE(
        ring_->Push(EventType::kRangeOpen, &open, sizeof(open), std::string_view(name.data(), i % 1000)));
    const uint64_t end = ring_->PublishedEnd();
    uint64_t position = ring_->ReadPosition();
    while (const EventHeader* header = ring_->Peek(&position, end)) {
      ASSERT_EQ(header->text_bytes, std::min(i % 1000, int{kMaxNameBytes}));
      position += header->total_bytes;
      ++seen;
    }
    ring_->Consume(position);
  }
  EXPECT_EQ(seen, 20000u);
}

TEST_F(EventRingTest, ProducerAndConsumerOnTwoThreadsAgree) {
  constexpr uint32_t kEvents = 300000;
  std::thread producer([this] {
    for (uint32_t i = 0; i < kEvents;) {
      const LaunchEvent launch = Launch(i);
      if (ring_->Push(EventType::kLaunch, &launch, sizeof(launch), {})) ++i;
    }
  });
  uint32_t expected = 0;
  while (expected < kEvents) {
    const uint64_t end = ring_->PublishedEnd();
    uint64_t position = ring_->ReadPosition();
    while (const EventHeader* header = ring_->Peek(&position, end)) {
      ASSERT_EQ(reinterpret_cast<const LaunchEvent*>(header + 1)->correlation, expected);
      ++expected;
      position += header->total_bytes;
    }
    ring_->Consume(position);
  }
  producer.join();
}

void Free(EventRing& ring) {
  ring.Consume(ring.PublishedEnd());
  EXPECT_TRUE(FreeRing(ring));
}

// The types of the events that are in the ring, a thread's beginning with its id.
std::vector<uint64_t> Contents(const EventRing& ring) {
  std::vector<uint64_t> contents;
  uint64_t position = ring.ReadPosition();
  while (const EventHeader* header = ring.Peek(&position, ring.PublishedEnd())) {
    const auto* payload = header + 1;
    if (static_cast<EventType>(header->type) == EventType::kThreadBegins) {
      contents.push_back(1000 + reinterpret_cast<const ThreadBeginsEvent*>(payload)->tid);
    } else {
      contents.push_back(reinterpret_cast<const LaunchEvent*>(payload)->correlation);
    }
    position += header->total_bytes;
  }
  return contents;
}

TEST(EventRings, AThreadThatEndsLeavesItsEventsForTheConsumer) {
  ASSERT_TRUE(MapRings());
  EventRing* ring = nullptr;
  std::thread([&ring] {
    ASSERT_TRUE(Emit(CurrentThread(), Launch(7)));
    ring = CurrentThread().ring;
  }).join();
  ASSERT_NE(ring, nullptr);
  EXPECT_EQ(ring->slot(), EventRing::Slot::kReleased);
  EXPECT_FALSE(FreeRing(*ring)) << "nobody has looked at them";
  EXPECT_EQ(Contents(*ring).back(), 7u);
  Free(*ring);
  EXPECT_EQ(ring->slot(), EventRing::Slot::kFree);
}

TEST(EventRings, AThreadGoesOnInTheRingOfOneThatHasEnded) {
  ASSERT_TRUE(MapRings());
  EventRing* first = ClaimRing(1, 1);
  const LaunchEvent launch = Launch(7);
  ASSERT_TRUE(first->Push(EventType::kLaunch, &launch, sizeof(launch), {}));
  const uint32_t id = first->thread_id();
  ReleaseRing(*first);
  EventRing* second = ClaimRing(2, 2);
  ASSERT_EQ(second, first);
  EXPECT_NE(second->thread_id(), id);
  EXPECT_FALSE(FreeRing(*first)) << "it is somebody's";
  ASSERT_TRUE(second->Push(EventType::kLaunch, &launch, sizeof(launch), {}));
  EXPECT_EQ(Contents(*second), (std::vector<uint64_t>{1001, 7, 1002, 7}));
  while (second->Push(EventType::kLaunch, &launch, sizeof(launch), {})) {
  }
  ReleaseRing(*second);
  EventRing* third = ClaimRing(3, 3);
  EXPECT_NE(third, second) << "it is more than half full";
  ReleaseRing(*third);
  Free(*second);
  Free(*third);
}

// Rings that nobody else gets, while this lives.
class AllRingsTaken {
 public:
  AllRingsTaken() {
    while (EventRing* ring = ClaimRing(1, 1)) rings_.push_back(ring);
  }
  ~AllRingsTaken() {
    for (EventRing* ring : rings_) {
      ReleaseRing(*ring);
      Free(*ring);
    }
  }
  AllRingsTaken(const AllRingsTaken&) = delete;
  AllRingsTaken& operator=(const AllRingsTaken&) = delete;
  size_t count() const { return rings_.size(); }

 private:
  std::vector<EventRing*> rings_;
};

std::vector<uint64_t> SharedContents() {
  std::vector<uint64_t> contents;
  for (int slot = kOwnRings; slot < kRingSlots; ++slot) {
    for (const uint64_t event : Contents(RingAt(slot))) contents.push_back(event);
    RingAt(slot).Consume(RingAt(slot).PublishedEnd());
  }
  return contents;
}

TEST(EventRings, MoreThreadsThanRingsShareTheLastOnes) {
  ASSERT_TRUE(MapRings());
  const AllRingsTaken taken;
  EXPECT_EQ(taken.count(), static_cast<size_t>(kOwnRings));
  const auto emit = [](uint32_t tid, std::initializer_list<uint32_t> launches) {
    ThreadState thread;
    thread.tid = tid;
    for (const uint32_t launch : launches) EXPECT_TRUE(Emit(thread, Launch(launch)));
    EXPECT_EQ(thread.ring, nullptr);
  };
  emit(7, {1, 2});
  EXPECT_EQ(SharedContents(), (std::vector<uint64_t>{1007, 1, 2}));
  emit(8, {3});
  EXPECT_EQ(SharedContents(), (std::vector<uint64_t>{1008, 3}));
  EXPECT_EQ(LossCount(wire::LossReason::kLossThreadSlotsFull), 0u);
}

TEST(EventRings, AThreadWithoutARingGetsTheFirstThatIsGivenBack) {
  ASSERT_TRUE(MapRings());
  const AllRingsTaken taken;
  ThreadState thread;
  thread.tid = 9;
  ASSERT_TRUE(Emit(thread, Launch(1)));
  EXPECT_EQ(thread.ring, nullptr);
  EventRing& given_back = RingAt(200);
  ReleaseRing(given_back);
  ASSERT_TRUE(Emit(thread, Launch(2)));
  EXPECT_EQ(thread.ring, &given_back);
  EXPECT_EQ(thread.ring->bytes(), kSmallRingBytes);
  SharedContents();
}

// Ranges count as one record each: the end of one that is recorded is, too.
TEST_F(EventRingTest, EndsOfRangesFindRoomInAFullRing) {
  const RangeOpenEvent open{};
  const RangeCloseEvent close{};
  while (ring_->Push(EventType::kRangeOpen, &open, sizeof(open), "a range")) {
  }
  for (int i = 0; i < kMaxRangeDepth; ++i)
    EXPECT_TRUE(ring_->Push(EventType::kRangeClose, &close, sizeof(close), {})) << i;
  EXPECT_FALSE(ring_->Push(EventType::kRangeOpen, &open, sizeof(open), "a range"));
}

}  // namespace
}  // namespace gpuprobe::injector
