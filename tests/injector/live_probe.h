// A live probe without a sender, for unit tests of the capture parts: what they emit on this thread is read
// back as it lies in the ring.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "injector/base/lifecycle.h"
#include "injector/base/losses.h"
#include "injector/core/event_ring.h"
#include "injector/core/thread_state.h"
#include "tests/injector/support/lifecycle.h"

namespace gpuprobe::injector {

struct SeenEvent {
  EventType type;
  std::string bytes;
  std::string text;
  uint32_t tid;

  template <typename Event>
  Event As() const {
    EXPECT_EQ(type, Event::kType);
    Event event{};
    std::memcpy(&event, bytes.data(), std::min(sizeof(event), bytes.size()));
    return event;
  }
};

class LiveProbe : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(MapRings());
    Switch(true);
  }
  void TearDown() override {
    Events();
    Switch(false);
  }

  static void Switch(bool live) { SetLive(live); }

  // Everything that was emitted since the last call, by all threads, each thread's in order.
  static std::vector<SeenEvent> Events() {
    std::vector<SeenEvent> events;
    for (int slot = 0; slot < kRingSlots; ++slot) {
      EventRing& ring = RingAt(slot);
      if (ring.slot() != EventRing::Slot::kOwned && ring.slot() != EventRing::Slot::kReleased) continue;
      const uint64_t end = ring.PublishedEnd();
      uint64_t position = ring.ReadPosition();
      static uint32_t tids[kRingSlots];
      while (const EventHeader* header = ring.Peek(&position, end)) {
        const auto* payload = reinterpret_cast<const char*>(header + 1);
        const auto type = static_cast<EventType>(header->type);
        position += header->total_bytes;
        if (type == EventType::kThreadBegins) {
          ThreadBeginsEvent begins;
          std::memcpy(&begins, payload, sizeof(begins));
          tids[slot] = begins.tid;
          continue;
        }
        events.push_back({type, std::string(payload, SizeOf(type)),
                          std::string(payload + SizeOf(type), header->text_bytes), tids[slot]});
      }
      ring.Consume(position);
      if (ring.slot() == EventRing::Slot::kReleased) FreeRing(ring);
    }
    return events;
  }

  template <typename Event>
  static std::vector<Event> Only(const std::vector<SeenEvent>& events) {
    std::vector<Event> found;
    for (const SeenEvent& event : events) {
      if (event.type == Event::kType) found.push_back(event.As<Event>());
    }
    return found;
  }

 private:
  static size_t SizeOf(EventType type) {
    switch (type) {
      case EventType::kLaunch:
        return sizeof(LaunchEvent);
      case EventType::kLaunchTime:
        return sizeof(LaunchTimeEvent);
      case EventType::kRangeOpen:
        return sizeof(RangeOpenEvent);
      case EventType::kRangeClose:
        return sizeof(RangeCloseEvent);
      case EventType::kMark:
        return sizeof(MarkEvent);
      case EventType::kAllocation:
        return sizeof(AllocationEvent);
      case EventType::kCollective:
        return sizeof(CollectiveEvent);
      case EventType::kPlanLaunch:
        return sizeof(PlanLaunchEvent);
      case EventType::kCommunicator:
        return sizeof(CommunicatorEvent);
      case EventType::kContextEnd:
        return sizeof(ContextEndEvent);
      case EventType::kAllocatorLevel:
        return sizeof(AllocatorLevelEvent);
      case EventType::kAllocatorRefusal:
        return sizeof(AllocatorRefusalEvent);
      case EventType::kThreadName:
        return sizeof(ThreadNameEvent);
      case EventType::kCategoryName:
        return sizeof(CategoryNameEvent);
      case EventType::kTensor:
        return sizeof(TensorEvent);
      case EventType::kRangePayload:
        return sizeof(RangePayloadEvent);
      case EventType::kObjectName:
        return sizeof(ObjectNameEvent);
      case EventType::kGraphNode:
        return sizeof(GraphNodeEvent);
      case EventType::kGraphMemoryNode:
        return sizeof(GraphMemoryNodeEvent);
      case EventType::kGraphCall:
        return sizeof(GraphCallEvent);
      case EventType::kThreadBegins:
        return sizeof(ThreadBeginsEvent);
      case EventType::kPhysicalMemory:
        return sizeof(PhysicalMemoryEvent);
      case EventType::kDriverCall:
        return sizeof(DriverCallEvent);
      case EventType::kTracedStep:
        return sizeof(TracedStepEvent);
      case EventType::kCallTime:
        return sizeof(CallTimeEvent);
    }
    return 0;
  }
};

}  // namespace gpuprobe::injector
