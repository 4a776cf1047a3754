// Another tool's use of CUPTI, as patched relocations lead it here, on a CUPTI that the test plays.
#include "injector/capture/cupti/broker.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "injector/base/losses.h"
#include "injector/capture/cupti/guest.h"
#include "injector/capture/cupti/guest_buffers.h"
#include "injector/capture/cupti/guest_callbacks.h"
#include "injector/capture/cupti/guest_clock.h"
#include "injector/capture/cupti/guest_records.h"
#include "tests/injector/support/records.h"

namespace gpuprobe::injector {
namespace {

struct Played {
  std::set<CUpti_ActivityKind> kinds;
  std::set<std::pair<int, uint32_t>> callbacks;
  std::vector<std::string> calls;
  CUpti_TimestampCallbackFunc clock = nullptr;
};
Played* played = nullptr;

CUpti_SubscriberHandle Ours() { return reinterpret_cast<CUpti_SubscriberHandle>(uintptr_t{0x77}); }

CuptiApi Api() {
  CuptiApi api = testing::DecodingApi();
  api.Subscribe = [](CUpti_SubscriberHandle*, CUpti_CallbackFunc, void*) {
    played->calls.emplace_back("subscribe");
    return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  };
  api.Unsubscribe = [](CUpti_SubscriberHandle) {
    played->calls.emplace_back("unsubscribe");
    return CUPTI_SUCCESS;
  };
  api.EnableCallback = [](uint32_t enable, CUpti_SubscriberHandle subscriber, CUpti_CallbackDomain domain,
                          CUpti_CallbackId cbid) {
    EXPECT_EQ(subscriber, Ours());
    if (cbid >= 900) return CUPTI_ERROR_INVALID_PARAMETER;
    if (enable != 0) {
      played->callbacks.insert({domain, cbid});
    } else {
      played->callbacks.erase({domain, cbid});
    }
    return CUPTI_SUCCESS;
  };
  api.EnableDomain = [](uint32_t, CUpti_SubscriberHandle, CUpti_CallbackDomain) { return CUPTI_SUCCESS; };
  api.Finalize = [] {
    played->calls.emplace_back("finalize");
    return CUPTI_SUCCESS;
  };
  api.ActivityRegisterCallbacks = [](CUpti_BuffersCallbackRequestFunc, CUpti_BuffersCallbackCompleteFunc) {
    played->calls.emplace_back("register");
    return CUPTI_SUCCESS;
  };
  api.ActivityEnable = [](CUpti_ActivityKind kind) {
    played->kinds.insert(kind);
    return CUPTI_SUCCESS;
  };
  api.ActivityDisable = [](CUpti_ActivityKind kind) {
    played->kinds.erase(kind);
    return CUPTI_SUCCESS;
  };
  api.ActivitySetAttribute = [](CUpti_ActivityAttribute attribute, size_t*, void*) {
    played->calls.push_back("attribute " + std::to_string(attribute));
    return CUPTI_SUCCESS;
  };
  api.ActivityFlushAll = [](uint32_t) { return CUPTI_SUCCESS; };
  api.ActivityGetNumDroppedRecords = [](CUcontext, uint32_t, size_t* dropped) {
    *dropped = 0;
    return CUPTI_SUCCESS;
  };
  api.ActivityRegisterTimestampCallback = [](CUpti_TimestampCallbackFunc function) {
    played->clock = function;
    played->calls.emplace_back("clock");
    return CUPTI_SUCCESS;
  };
  return api;
}

// The guest's side.
constexpr size_t kGuestBytes = 4 * sizeof(CUpti_ActivityKernel10);
std::map<uint8_t*, std::unique_ptr<uint8_t[]>> lent;  // that CUPTI has, as the guest sees it
std::vector<uint32_t> received;                       // correlation ids
int requested_buffers = 0;
int forwarded = 0;
size_t most_records = 0;

void CUPTIAPI GuestRequest(uint8_t** buffer, size_t* bytes, size_t* records) {
  auto made = std::make_unique<uint8_t[]>(kGuestBytes);
  *buffer = made.get();
  lent[*buffer] = std::move(made);
  std::memset(*buffer, 0xa5, kGuestBytes);
  *bytes = kGuestBytes;
  *records = most_records;
  ++requested_buffers;
}
void CUPTIAPI GuestComplete(CUcontext, uint32_t, uint8_t* buffer, size_t bytes, size_t valid) {
  EXPECT_EQ(bytes, kGuestBytes);
  CUpti_Activity* record = nullptr;
  while (testing::FakeGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) {
    if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL)
      received.push_back(reinterpret_cast<CUpti_ActivityKernel10*>(record)->correlationId);
  }
  EXPECT_EQ(lent.erase(buffer), 1u);
}
void CUPTIAPI GuestCallback(void* data, CUpti_CallbackDomain, CUpti_CallbackId, const void*) {
  EXPECT_EQ(data, &forwarded);
  ++forwarded;
}

class Broker : public ::testing::Test {
 protected:
  void SetUp() override {
    played = &played_;
    received.clear();
    lent.clear();
    requested_buffers = forwarded = 0;
    most_records = 0;
    api_ = Api();
    if (subscribed_) Receive(/*others_allowed=*/false);
    played_.kinds = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL};
    played_.callbacks = {{CUPTI_CB_DOMAIN_DRIVER_API, 307}};
  }
  void TearDown() override { graphs = false; }

  void Receive(bool others_allowed) {
    WatchForGuests(&api_);
    ReceiveGuests({.subscriber = Ours(),
                   .others_allowed = others_allowed,
                   .needs_kind =
                       [](void*, CUpti_ActivityKind kind) noexcept {
                         return kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
                       },
                   .needs_callback =
                       [](CUpti_CallbackDomain domain, CUpti_CallbackId cbid) noexcept {
                         return domain == CUPTI_CB_DOMAIN_DRIVER_API && cbid == 307;
                       },
                   .graphs_made = []() noexcept { return graphs; },
                   .take_buffers_back = [](void*) noexcept { played->calls.emplace_back("take back"); },
                   .flush = [](void*) noexcept { played->calls.emplace_back("flush"); },
                   .self = nullptr});
  }

  template <typename Function>
  Function Guest(const char* name, Function real) {
    void* replacement = BrokerReplacement(name, reinterpret_cast<const void*>(real));
    EXPECT_NE(replacement, nullptr) << name;
    return reinterpret_cast<Function>(replacement);
  }
  CUptiResult Enable(CUpti_ActivityKind kind) {
    return Guest("cuptiActivityEnable", api_.ActivityEnable)(kind);
  }
  CUptiResult Disable(CUpti_ActivityKind kind) {
    return Guest("cuptiActivityDisable", api_.ActivityDisable)(kind);
  }
  void Register() {
    EXPECT_EQ(
        Guest("cuptiActivityRegisterCallbacks", api_.ActivityRegisterCallbacks)(GuestRequest, GuestComplete),
        CUPTI_SUCCESS);
  }
  void RegisterClock(CUpti_TimestampCallbackFunc clock) {
    EXPECT_EQ(Guest("cuptiActivityRegisterTimestampCallback", api_.ActivityRegisterTimestampCallback)(clock),
              CUPTI_SUCCESS);
  }
  void Flush() { EXPECT_EQ(Guest("cuptiActivityFlushAll", api_.ActivityFlushAll)(0), CUPTI_SUCCESS); }
  static uint64_t Now() {
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
  }
  // Kernels with these correlation ids, which ran now.
  static testing::RecordBuffer Kernels(uint32_t first, uint32_t count) {
    testing::RecordBuffer records;
    for (uint32_t i = 0; i < count; ++i) {
      CUpti_ActivityKernel10 kernel{};
      kernel.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
      kernel.start = Now();
      kernel.end = kernel.start + 100;
      kernel.correlationId = first + i;
      records.Add(kernel);
    }
    return records;
  }
  static void Feed(testing::RecordBuffer records) { FeedGuest(nullptr, 7, records.data(), records.size()); }

  static inline bool graphs = false;
  bool subscribed_ = true;  // the probe, before the test begins
  Played played_;
  CuptiApi api_;
};

TEST_F(Broker, AGuestGetsCopiesOfItsKindsWhileTheyAreEnabledAndNothingElse) {
  Register();
  Feed(Kernels(1, 3));
  EXPECT_EQ(Enable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), CUPTI_SUCCESS);
  auto late = Kernels(10, 2);  // recorded while it was enabled, completed after it was disabled
  Feed(Kernels(20, 9));
  EXPECT_EQ(received, (std::vector<uint32_t>{20, 21, 22, 23, 24, 25, 26, 27})) << "of full buffers only";
  Flush();
  EXPECT_EQ(received.size(), 9u);
  EXPECT_EQ(Disable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), CUPTI_SUCCESS);
  Feed(std::move(late));
  Feed(Kernels(30, 3));
  Flush();
  EXPECT_EQ(received.size(), 11u);
  EXPECT_EQ(requested_buffers, 4);
  EXPECT_TRUE(played_.kinds.contains(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL)) << "ours";
  EXPECT_TRUE(played_.calls.empty()) << "CUPTI's buffer callbacks stay ours";
  EXPECT_FALSE(GuestIsActive());
}

TEST_F(Broker, AGuestIsAskedForABufferBeforeThereIsARecord) {
  Register();
  GiveGuestABuffer();
  EXPECT_EQ(requested_buffers, 0) << "it records nothing";
  Enable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  GiveGuestABuffer();
  GiveGuestABuffer();
  EXPECT_EQ(requested_buffers, 1);
  Feed(Kernels(1, 2));
  EXPECT_EQ(requested_buffers, 1) << "and that is the one that is filled";
  Flush();
  EXPECT_EQ(received.size(), 2u);
  GiveGuestABuffer();
  EXPECT_EQ(requested_buffers, 2);
}

TEST_F(Broker, AKindThatOnlyTheGuestHasIsEnabledAndDisabledForIt) {
  Register();
  EXPECT_EQ(Enable(CUPTI_ACTIVITY_KIND_RUNTIME), CUPTI_SUCCESS);
  EXPECT_TRUE(played_.kinds.contains(CUPTI_ACTIVITY_KIND_RUNTIME));
  EXPECT_TRUE(GuestNeedsKind(CUPTI_ACTIVITY_KIND_RUNTIME));
  EXPECT_EQ(Disable(CUPTI_ACTIVITY_KIND_RUNTIME), CUPTI_SUCCESS);
  EXPECT_FALSE(played_.kinds.contains(CUPTI_ACTIVITY_KIND_RUNTIME));
  EXPECT_TRUE(IsGuestsKind(CUPTI_ACTIVITY_KIND_RUNTIME)) << "records of it may still come";
}

TEST_F(Broker, AGuestsLimitOfRecordsIsKept) {
  most_records = 1;
  Register();
  Enable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  Feed(Kernels(1, 3));
  EXPECT_EQ(requested_buffers, 3);
  EXPECT_EQ(received, (std::vector<uint32_t>{1, 2}));
}

TEST_F(Broker, AnotherToolDoesNotGetTheBufferOfTheOneBefore) {
  Register();
  Enable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  GiveGuestABuffer();
  uint8_t* const first = lent.begin()->first;
  static uint8_t* filled = nullptr;
  static uint8_t own[kGuestBytes];
  EXPECT_EQ(Guest("cuptiActivityRegisterCallbacks", api_.ActivityRegisterCallbacks)(
                [](uint8_t** buffer, size_t* bytes, size_t* records) {
                  *buffer = own;
                  *bytes = kGuestBytes;
                  *records = 0;
                },
                [](CUcontext, uint32_t, uint8_t* buffer, size_t, size_t) { filled = buffer; }),
            CUPTI_SUCCESS);
  Feed(Kernels(1, 1));
  Flush();
  EXPECT_EQ(filled, own);
  EXPECT_NE(filled, first);
}

TEST_F(Broker, WhatAGuestHasNoRoomForIsCountedAsItsOwn) {
  EXPECT_EQ(Guest("cuptiActivityRegisterCallbacks", api_.ActivityRegisterCallbacks)(
                [](uint8_t** buffer, size_t*, size_t*) { *buffer = nullptr; }, GuestComplete),
            CUPTI_SUCCESS);
  Enable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  Feed(Kernels(1, 3));
  size_t dropped = 0;
  EXPECT_EQ(
      Guest("cuptiActivityGetNumDroppedRecords", api_.ActivityGetNumDroppedRecords)(nullptr, 0, &dropped),
      CUPTI_SUCCESS);
  EXPECT_EQ(dropped, 3u);
  EXPECT_EQ(LossCount(wire::LossReason::kLossForeignBuffer), 0u) << "we have them";
}

TEST_F(Broker, AHandleFromBeforeWeLeftNeverReachesCupti) {
  CUpti_SubscriberHandle handle = nullptr;
  ASSERT_EQ(Guest("cuptiSubscribe", api_.Subscribe)(&handle, GuestCallback, &forwarded), CUPTI_SUCCESS);
  SendGuestsAway();
  EXPECT_EQ(Guest("cuptiUnsubscribe", api_.Unsubscribe)(handle), CUPTI_ERROR_INVALID_PARAMETER);
  EXPECT_EQ(Guest("cuptiEnableCallback", api_.EnableCallback)(1, handle, CUPTI_CB_DOMAIN_RUNTIME_API, 20),
            CUPTI_ERROR_INVALID_PARAMETER);
  EXPECT_TRUE(played_.calls.empty());
}

TEST_F(Broker, AGuestSubscribesAndIsCalledForWhatItEnabled) {
  CUpti_SubscriberHandle handle = nullptr;
  const auto subscribe = Guest("cuptiSubscribe", api_.Subscribe);
  ASSERT_EQ(subscribe(&handle, GuestCallback, &forwarded), CUPTI_SUCCESS);
  CUpti_SubscriberHandle other = nullptr;
  EXPECT_EQ(subscribe(&other, GuestCallback, &forwarded), CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
  const auto enable = Guest("cuptiEnableCallback", api_.EnableCallback);
  EXPECT_EQ(enable(1, handle, CUPTI_CB_DOMAIN_DRIVER_API, 307), CUPTI_SUCCESS);
  EXPECT_EQ(enable(1, handle, CUPTI_CB_DOMAIN_RUNTIME_API, 20), CUPTI_SUCCESS);
  EXPECT_EQ(enable(1, handle, CUPTI_CB_DOMAIN_RUNTIME_API, 950), CUPTI_ERROR_INVALID_PARAMETER);
  ForwardToGuest(CUPTI_CB_DOMAIN_DRIVER_API, 307, nullptr);
  ForwardToGuest(CUPTI_CB_DOMAIN_DRIVER_API, 308, nullptr);
  ForwardToGuest(CUPTI_CB_DOMAIN_RUNTIME_API, 20, nullptr);
  EXPECT_EQ(forwarded, 2);
  EXPECT_EQ(Guest("cuptiEnableDomain", api_.EnableDomain)(1, handle, CUPTI_CB_DOMAIN_RESOURCE),
            CUPTI_SUCCESS);
  ForwardToGuest(CUPTI_CB_DOMAIN_RESOURCE, 3, nullptr);
  EXPECT_EQ(forwarded, 3);
  EXPECT_EQ(Guest("cuptiUnsubscribe", api_.Unsubscribe)(handle), CUPTI_SUCCESS);
  ForwardToGuest(CUPTI_CB_DOMAIN_DRIVER_API, 307, nullptr);
  EXPECT_EQ(forwarded, 3);
  EXPECT_EQ(played_.callbacks, (std::set<std::pair<int, uint32_t>>{{CUPTI_CB_DOMAIN_DRIVER_API, 307}}))
      << "ours";
  EXPECT_TRUE(played_.calls.empty());
  EXPECT_FALSE(GuestIsActive());
  ASSERT_EQ(subscribe(&handle, GuestCallback, &forwarded), CUPTI_SUCCESS) << "again";
}

TEST_F(Broker, AGuestsFinalizeEndsTheGuest) {
  CUpti_SubscriberHandle handle = nullptr;
  ASSERT_EQ(Guest("cuptiSubscribe", api_.Subscribe)(&handle, GuestCallback, &forwarded), CUPTI_SUCCESS);
  Register();
  Enable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  Feed(Kernels(1, 1));
  EXPECT_EQ(Guest("cuptiFinalize", api_.Finalize)(), CUPTI_SUCCESS);
  Feed(Kernels(2, 1));
  Flush();
  GiveGuestABuffer();
  EXPECT_TRUE(received.empty()) << "a tool flushes first, and may be gone now";
  EXPECT_EQ(requested_buffers, 1);
  EXPECT_FALSE(GuestIsActive());
  EXPECT_TRUE(played_.calls.empty()) << "CUPTI is still ours";
  EXPECT_TRUE(played_.kinds.contains(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL));
}

uint64_t Ticks() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec)) * 3;
}

std::atomic<int> readings{0};
uint64_t CountedTicks() {
  ++readings;
  return Ticks();
}

TEST_F(Broker, AGuestsClockGoesOnWithoutItWhenItHasGone) {
  for (const bool finalizes : {true, false}) {
    RegisterClock(CountedTicks);
    Enable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
    const timespec pause{0, 20'000'000};
    nanosleep(&pause, nullptr);
    ReadGuestClock();
    if (finalizes) {
      EXPECT_EQ(Guest("cuptiFinalize", api_.Finalize)(), CUPTI_SUCCESS);
    } else {
      Disable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
    }
    const int before = readings;
    nanosleep(&pause, nullptr);
    ReadGuestClock();
    EXPECT_NEAR(static_cast<double>(played_.clock()), static_cast<double>(Ticks()), 500'000.0);
    EXPECT_EQ(readings, before) << "its library may be unloaded";
  }
  Enable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  const int before = readings;
  played_.clock();
  EXPECT_EQ(readings, before + 1) << "it is back";
}

TEST_F(Broker, NothingOfAGuestIsCalledInsideItsOwnCallsButTheFlush) {
  Register();
  Enable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  Feed(Kernels(1, 2));
  Register();
  EXPECT_TRUE(received.empty());
  Disable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  EXPECT_TRUE(received.empty());
  Flush();
  EXPECT_EQ(received, (std::vector<uint32_t>{1, 2})) << "the functions that it registered again get them";
}

std::atomic<bool> in_callback{false};
std::atomic<bool> may_leave{false};
void CUPTIAPI SlowCallback(void*, CUpti_CallbackDomain, CUpti_CallbackId, const void*) {
  in_callback = true;
  while (!may_leave) std::this_thread::yield();
  in_callback = false;
}

TEST_F(Broker, FinalizeReturnsWhenNoOtherThreadIsInsideTheGuest) {
  in_callback = may_leave = false;
  CUpti_SubscriberHandle handle = nullptr;
  ASSERT_EQ(Guest("cuptiSubscribe", api_.Subscribe)(&handle, SlowCallback, nullptr), CUPTI_SUCCESS);
  Guest("cuptiEnableCallback", api_.EnableCallback)(1, handle, CUPTI_CB_DOMAIN_DRIVER_API, 307);
  std::thread other([] { ForwardToGuest(CUPTI_CB_DOMAIN_DRIVER_API, 307, nullptr); });
  while (!in_callback) std::this_thread::yield();
  std::thread lets_go([] {
    const timespec pause{0, 10'000'000};
    nanosleep(&pause, nullptr);
    may_leave = true;
  });
  EXPECT_EQ(Guest("cuptiFinalize", api_.Finalize)(), CUPTI_SUCCESS);
  EXPECT_FALSE(in_callback);
  other.join();
  lets_go.join();
}

// A callback that finalizes CUPTI, as NVIDIA advises, and one that waits for a lock that the tool holds.
TEST_F(Broker, FinalizeDoesNotWaitForItselfNorForEver) {
  static CUptiResult (*finalize)() = nullptr;
  finalize = Guest("cuptiFinalize", api_.Finalize);
  static CUptiResult result = CUPTI_ERROR_UNKNOWN;
  CUpti_SubscriberHandle handle = nullptr;
  const auto subscribe = Guest("cuptiSubscribe", api_.Subscribe);
  const auto enable = Guest("cuptiEnableCallback", api_.EnableCallback);
  ASSERT_EQ(
      subscribe(
          &handle, [](void*, CUpti_CallbackDomain, CUpti_CallbackId, const void*) { result = finalize(); },
          nullptr),
      CUPTI_SUCCESS);
  enable(1, handle, CUPTI_CB_DOMAIN_DRIVER_API, 307);
  ForwardToGuest(CUPTI_CB_DOMAIN_DRIVER_API, 307, nullptr);
  EXPECT_EQ(result, CUPTI_SUCCESS);

  in_callback = may_leave = false;
  ASSERT_EQ(subscribe(&handle, SlowCallback, nullptr), CUPTI_SUCCESS);
  enable(1, handle, CUPTI_CB_DOMAIN_DRIVER_API, 307);
  std::thread other([] { ForwardToGuest(CUPTI_CB_DOMAIN_DRIVER_API, 307, nullptr); });
  while (!in_callback) std::this_thread::yield();
  EXPECT_EQ(finalize(), CUPTI_SUCCESS);
  EXPECT_TRUE(in_callback);
  may_leave = true;
  other.join();
}

// The probe subscribes while the tool's call is inside CUPTI: the call becomes ours.
class BrokerThatSubscribesLater : public Broker {
 protected:
  BrokerThatSubscribesLater() { subscribed_ = false; }
  void SetUp() override {
    Broker::SetUp();
    subscribes = [this] { Receive(/*others_allowed=*/false); };
  }
  static inline std::function<void()> subscribes;
};

TEST_F(BrokerThatSubscribesLater, GetsASubscriptionOnItsWay) {
  api_.Subscribe = [](CUpti_SubscriberHandle*, CUpti_CallbackFunc, void*) {
    subscribes();
    return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  };
  WatchForGuests(&api_);
  CUpti_SubscriberHandle handle = nullptr;
  EXPECT_EQ(Guest("cuptiSubscribe", api_.Subscribe)(&handle, GuestCallback, &forwarded), CUPTI_SUCCESS);
}

TEST_F(BrokerThatSubscribesLater, GetsBuffersOnTheirWay) {
  api_.ActivityRegisterCallbacks = [](CUpti_BuffersCallbackRequestFunc, CUpti_BuffersCallbackCompleteFunc) {
    subscribes();
    return CUPTI_SUCCESS;
  };
  WatchForGuests(&api_);
  Register();
  EXPECT_EQ(played_.calls, (std::vector<std::string>{"take back"}));
}

TEST_F(Broker, TimesOfAGuestsClockAreConverted) {
  RegisterClock(CountedTicks);
  EXPECT_EQ(played_.clock, nullptr) << "it records nothing yet";
  Enable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  ASSERT_NE(played_.clock, nullptr);
  EXPECT_NE(played_.clock, &CountedTicks) << "CUPTI keeps it for good";
  EXPECT_NEAR(static_cast<double>(played_.clock()), static_cast<double>(Ticks()), 100'000.0);
  timespec pause{0, 20'000'000};
  nanosleep(&pause, nullptr);
  auto records = Kernels(1, 2);
  auto* kernels = reinterpret_cast<CUpti_ActivityKernel10*>(records.data());
  const uint64_t real = kernels[0].start;
  kernels[1].start = Ticks();
  kernels[1].end = kernels[1].start + 3000;
  const uint64_t after = Now();
  RestoreTimes(records.data(), records.size());
  EXPECT_EQ(kernels[0].start, real) << "from before: CUPTI's own clock";
  EXPECT_NEAR(static_cast<double>(kernels[1].start), static_cast<double>(after), 20'000.0);
  EXPECT_NEAR(static_cast<double>(kernels[1].end - kernels[1].start), 1000.0, 50.0);
}

// Records lose their times if they wait in CUPTI meanwhile.
TEST_F(Broker, RecordsAreFetchedBeforeAClockIsGivenToCupti) {
  RegisterClock(CountedTicks);
  EXPECT_TRUE(played_.calls.empty());
  Enable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  EXPECT_EQ(played_.calls, (std::vector<std::string>{"flush", "clock"}));
  RegisterClock(CountedTicks);
  EXPECT_EQ(played_.calls.size(), 2u) << "it has it";
  RegisterClock(Ticks);
  EXPECT_EQ(played_.calls, (std::vector<std::string>{"flush", "clock", "clock"}))
      << "another one; the guest's own functions would be called while it waits";
}

TEST_F(Broker, WhatConcernsOurBuffersIsNotTheGuestsToSay) {
  const auto set = Guest("cuptiActivitySetAttribute", api_.ActivitySetAttribute);
  EXPECT_EQ(set(CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER, nullptr, nullptr), CUPTI_SUCCESS);
  EXPECT_EQ(set(CUPTI_ACTIVITY_ATTR_PER_THREAD_ACTIVITY_BUFFER, nullptr, nullptr), CUPTI_SUCCESS);
  EXPECT_TRUE(played_.calls.empty());
  EXPECT_EQ(set(CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_SIZE, nullptr, nullptr), CUPTI_SUCCESS);
  EXPECT_EQ(played_.calls.size(), 1u);
}

TEST_F(Broker, GraphTraceIsRefusedOnceThereAreGraphs) {
  graphs = true;
  EXPECT_EQ(Enable(CUPTI_ACTIVITY_KIND_GRAPH_TRACE), CUPTI_ERROR_NOT_COMPATIBLE);
  EXPECT_FALSE(played_.kinds.contains(CUPTI_ACTIVITY_KIND_GRAPH_TRACE));
}

TEST_F(Broker, WhenWeHaveLeftCallsGoToCupti) {
  SendGuestsAway();
  CUpti_SubscriberHandle handle = nullptr;
  EXPECT_EQ(Guest("cuptiSubscribe", api_.Subscribe)(&handle, GuestCallback, nullptr),
            CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
  Register();
  EXPECT_EQ(Guest("cuptiFinalize", api_.Finalize)(), CUPTI_SUCCESS);
  EXPECT_EQ(played_.calls, (std::vector<std::string>{"subscribe", "register", "finalize"}));
}

TEST_F(Broker, OnlyTheBoundCopysFunctionsAreReplaced) {
  const int another = 0;
  EXPECT_EQ(BrokerReplacement("cuptiSubscribe", &another), nullptr) << "another libcupti's";
  EXPECT_NE(BrokerReplacement("cuptiSubscribe", nullptr), nullptr);
  EXPECT_EQ(BrokerReplacement("cuptiGetVersion", nullptr), nullptr);
  EXPECT_EQ(BrokerReplacement("cudaFree", nullptr), nullptr);
}

// -- where CUPTI has several subscribers

v2::SubscriberParams asked_of_cupti;

CuptiApi ApiOfMany() {
  CuptiApi api = Api();
  api.Subscribe_v2 = [](CUpti_SubscriberHandle* handle, CUpti_CallbackFunc, void*,
                        v2::SubscriberParams* params) {
    asked_of_cupti = *params;
    *handle = reinterpret_cast<CUpti_SubscriberHandle>(&asked_of_cupti);
    return CUPTI_SUCCESS;
  };
  api.ActivityEnable_v2 = [](CUpti_SubscriberHandle handle, CUpti_ActivityKind kind, void*) {
    EXPECT_EQ(handle, reinterpret_cast<CUpti_SubscriberHandle>(&asked_of_cupti)) << "unknown to CUPTI";
    played->kinds.insert(kind);
    return CUPTI_SUCCESS;
  };
  return api;
}

TEST_F(Broker, AToolThatWantsCompanyIsRefusedByNameWhereThereIsNone) {
  api_ = ApiOfMany();
  Receive(/*others_allowed=*/false);
  char old_name[16] = "";
  v2::SubscriberParams params{sizeof(params), "theirs", old_name, sizeof(old_name), 1, {}};
  CUpti_SubscriberHandle handle = nullptr;
  const auto subscribe = Guest("cuptiSubscribe_v2", api_.Subscribe_v2);
  EXPECT_EQ(subscribe(&handle, GuestCallback, &forwarded, &params),
            CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
  EXPECT_STREQ(old_name, "CUPTI for gpupr");
}

TEST_F(Broker, AGuestsHandleNeverReachesCuptisFunctionsForSubscriptions) {
  api_ = ApiOfMany();
  Receive(/*others_allowed=*/false);
  v2::SubscriberParams params{sizeof(params), "theirs", nullptr, 0, 0, {}};
  CUpti_SubscriberHandle handle = nullptr;
  const auto subscribe = Guest("cuptiSubscribe_v2", api_.Subscribe_v2);
  ASSERT_EQ(subscribe(&handle, GuestCallback, &forwarded, &params), CUPTI_SUCCESS);
  const auto enable = Guest("cuptiActivityEnable_v2", api_.ActivityEnable_v2);
  EXPECT_EQ(enable(handle, CUPTI_ACTIVITY_KIND_MEMSET, nullptr),
            CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
  EXPECT_EQ(played_.kinds.count(CUPTI_ACTIVITY_KIND_MEMSET), 0u);
}

TEST_F(Broker, WhereThereIsCompanyAToolGetsASubscriptionOfItsOwn) {
  api_ = ApiOfMany();
  Receive(/*others_allowed=*/true);
  const auto subscribe = Guest("cuptiSubscribe_v2", api_.Subscribe_v2);
  const auto enable = Guest("cuptiActivityEnable_v2", api_.ActivityEnable_v2);
  CUpti_SubscriberHandle handle = nullptr;
  // One of CUPTI 13.0's time, which knows of no others.
  v2::SubscriberParams params{v2::kParamsWithoutOthers, "theirs", nullptr, 0, 0, {}};
  ASSERT_EQ(subscribe(&handle, GuestCallback, &forwarded, &params), CUPTI_SUCCESS);
  EXPECT_STREQ(asked_of_cupti.name, "theirs");
  EXPECT_EQ(asked_of_cupti.allow_others, 1);
  EXPECT_EQ(asked_of_cupti.bytes, sizeof(v2::SubscriberParams));
  EXPECT_EQ(enable(handle, CUPTI_ACTIVITY_KIND_MEMSET, nullptr), CUPTI_SUCCESS);
  EXPECT_EQ(played_.kinds.count(CUPTI_ACTIVITY_KIND_MEMSET), 1u);
  ASSERT_EQ(subscribe(&handle, GuestCallback, &forwarded, nullptr), CUPTI_SUCCESS);
  EXPECT_EQ(asked_of_cupti.allow_others, 1);
}

}  // namespace
}  // namespace gpuprobe::injector
