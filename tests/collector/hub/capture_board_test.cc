// What a hub knows of other hosts' processes, and that orders get there whatever is lost on the way.
#include "collector/hub/capture_board.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <vector>

namespace gpuprobe::hub {
namespace {

using std::chrono::seconds;

constexpr uint64_t kInstance = 7;
constexpr uint64_t kSecondNs = 1'000'000'000;

struct Board {
  // One process of n2, which says this of the capture `id`.
  v1::HubAnswer Post(uint64_t id, v1::CapturePhase phase, bool behind = false, bool ended = false) {
    v1::HubPost post;
    post.set_instance(kInstance);
    post.set_behind(behind);
    post.set_ended(ended);
    post.set_now_ns(102 * kSecondNs);
    v1::CapturedProcess& process = *post.add_processes();
    process.set_number(1);
    process.set_connected(true);
    process.mutable_state()->set_id(id);
    process.mutable_state()->set_phase(phase);
    v1::HubAnswer answer;
    board.Take(post, "n2", now, 100 * kSecondNs, answer);
    return answer;
  }
  const v1::CapturedProcess& Process() {
    hosts = board.Hosts();
    EXPECT_EQ(hosts.size(), 1U);
    return hosts.front().processes.front();
  }

  CaptureBoard board;
  std::vector<CaptureBoard::Host> hosts;
  CaptureBoard::Clock::time_point now{seconds(1000)};
};

v1::Capture Order(uint64_t id) {
  v1::Capture order;
  order.set_id(id);
  return order;
}

TEST(CaptureBoard, WhatCameOfACaptureIsInTheAnswersOfHalfAMinute) {
  Board n2;
  v1::DetailRaise raise;
  raise.set_rank(3);
  n2.board.Note(raise, n2.now);
  for (int post = 0; post < 2; ++post) {
    const v1::HubAnswer answer = n2.Post(0, v1::CAPTURE_PHASE_NONE);
    ASSERT_EQ(answer.raises_size(), 1);
    EXPECT_EQ(answer.raises(0).rank(), 3);
    n2.now += CaptureBoard::kNotedFor;
  }
  n2.now += seconds(1);
  EXPECT_EQ(n2.Post(0, v1::CAPTURE_PHASE_NONE).raises_size(), 0);
}

TEST(CaptureBoard, AnOrderIsInEveryAnswerUntilItIsAnswered) {
  Board n2;
  EXPECT_EQ(n2.Post(0, v1::CAPTURE_PHASE_NONE).orders_size(), 0);
  n2.board.Order(kInstance, 1, Order(40));
  n2.board.Order(kInstance, 1, Order(41));
  for (int lost = 0; lost < 3; ++lost) {
    const v1::HubAnswer answer = n2.Post(0, v1::CAPTURE_PHASE_NONE);
    ASSERT_EQ(answer.orders_size(), 1);
    EXPECT_EQ(answer.orders(0).number(), 1U);
    EXPECT_EQ(answer.orders(0).capture().id(), 41U) << "in place of the one before";
  }
  EXPECT_EQ(n2.Post(41, v1::CAPTURE_PHASE_ARMED).orders_size(), 0);
  EXPECT_EQ(n2.Post(0, v1::CAPTURE_PHASE_NONE).orders_size(), 0);
}

TEST(CaptureBoard, WhatIsOverIsSaidWhenItsRecordsAreHere) {
  Board n2;
  n2.Post(41, v1::CAPTURE_PHASE_RECORDING);
  n2.Post(41, v1::CAPTURE_PHASE_DONE, /*behind=*/true);
  EXPECT_EQ(n2.Process().state().phase(), v1::CAPTURE_PHASE_RECORDING);
  n2.Post(41, v1::CAPTURE_PHASE_DONE);
  EXPECT_EQ(n2.Process().state().phase(), v1::CAPTURE_PHASE_DONE);
}

TEST(CaptureBoard, HostsPostMoreOftenWhileSomebodyCaptures) {
  Board n2;
  EXPECT_EQ(n2.Post(0, v1::CAPTURE_PHASE_NONE).again_ms(), 0U);
  n2.board.SetCapturing(true);
  EXPECT_EQ(n2.Post(0, v1::CAPTURE_PHASE_NONE).again_ms(), 250U);
  n2.board.SetCapturing(false);
  EXPECT_EQ(n2.Post(0, v1::CAPTURE_PHASE_NONE).again_ms(), 0U);
}

TEST(CaptureBoard, HostsOfALargeJobPostLessOften) {
  Board n2;
  const auto with = [&n2](uint64_t hosts) {
    v1::HubAnswer answer;
    for (uint64_t instance = 1; instance <= hosts; ++instance) {
      v1::HubPost post;
      post.set_instance(instance);
      answer.Clear();
      n2.board.Take(post, "n3", n2.now, 0, answer);
    }
    return answer.again_ms();
  };
  EXPECT_EQ(with(400), 0U) << "every second";
  EXPECT_EQ(with(1250), 3125U);
  EXPECT_EQ(with(4000), 5000U) << "or what it names would be old";
  n2.board.SetCapturing(true);
  EXPECT_EQ(with(1), 5000U) << "all of them would come four times a second";
}

TEST(CaptureBoard, AHostThatHasEndedHasNobodyConnected) {
  Board n2;
  n2.Post(0, v1::CAPTURE_PHASE_NONE);
  EXPECT_TRUE(n2.Process().connected());
  EXPECT_EQ(n2.hosts.front().name, "n2");
  EXPECT_EQ(n2.hosts.front().clock_ahead_ns, 2 * static_cast<int64_t>(kSecondNs));
  n2.Post(0, v1::CAPTURE_PHASE_NONE, /*behind=*/false, /*ended=*/true);
  EXPECT_FALSE(n2.Process().connected());
}

TEST(CaptureBoard, IsBounded) {
  Board n2;
  n2.Post(0, v1::CAPTURE_PHASE_NONE);
  n2.board.Order(kInstance, 1, Order(40));
  v1::HubPost post;
  for (int i = 0; i < 2 * CaptureBoard::kMostProcesses; ++i) post.add_processes();
  for (uint64_t instance = 100; instance < 100 + 2 * CaptureBoard::kMostHosts; ++instance) {
    v1::HubAnswer answer;
    post.set_instance(instance);
    n2.board.Take(post, "n3", n2.now, 0, answer);
    post.clear_processes();
  }
  n2.hosts = n2.board.Hosts();
  EXPECT_EQ(n2.hosts.size(), CaptureBoard::kMostHosts);
  for (const CaptureBoard::Host& host : n2.hosts)
    EXPECT_LE(host.processes.size(), static_cast<size_t>(CaptureBoard::kMostProcesses));
  n2.now += CaptureBoard::kForgotten + seconds(1);
  EXPECT_EQ(n2.Post(0, v1::CAPTURE_PHASE_NONE).orders_size(), 0) << "the order was for who is forgotten";
  EXPECT_EQ(n2.board.Hosts().size(), 1U);
}

}  // namespace
}  // namespace gpuprobe::hub
