#include "collector/recording/capture_director.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/collector/testing/batch_builder.h"

namespace gpuprobe::recording {
namespace {

using gpuprobe::testing::kMs;
using gpuprobe::testing::kSecond;
using ::testing::HasSubstr;

// Two ranks at level idle, each with what it would answer.
class CaptureDirectorTest : public ::testing::Test {
 protected:
  struct Rank {
    std::unique_ptr<model::ProcessModel> model;
    v1::CaptureState state;
    v1::Capture order;
    uint64_t sequence = 0;
  };

  void SetUp() override {
    for (int rank = 0; rank < 2; ++rank) Join(rank, v1::RECORDING_LEVEL_IDLE);
  }

  void Join(int rank, v1::RecordingLevel level) {
    v1::Hello hello = testing::MakeHello(rank, 2, static_cast<uint32_t>(100 + rank));
    hello.set_level(level);
    ranks_.push_back(
        {.model = std::make_unique<model::ProcessModel>(std::move(hello), model::ProcessEvents()),
         .state = {},
         .order = {}});
  }

  std::vector<const model::ProcessModel*> Connected() const {
    std::vector<const model::ProcessModel*> connected;
    for (const Rank& rank : ranks_) connected.push_back(rank.model.get());
    return connected;
  }

  static v1::CaptureRequest Steps(uint64_t steps) {
    v1::CaptureRequest request;
    request.set_steps(steps);
    request.set_limit_ms(60'000);
    return request;
  }

  void Begin(const v1::CaptureRequest& request) {
    ASSERT_TRUE(CaptureDirector::Check(request, Connected()).ok());
    director_ = std::make_unique<CaptureDirector>(
        request, Connected(), 1000, [this](const model::ProcessModel& process, const v1::Capture& order) {
          for (Rank& rank : ranks_) {
            if (rank.model.get() == &process) rank.order = order;
          }
        });
    Tick(0);
  }

  void Tick(uint64_t ms) {
    now_ns_ += ms * kMs;
    director_->Tick(now_ns_, now_ns_ + kSecond);
    while (!director_->progress().empty()) {
      last_ = director_->progress().front();
      words_.push_back(last_.words());
      director_->progress().pop_front();
    }
  }

  void Answer(Rank& rank, v1::CapturePhase phase) {
    rank.state.set_id(rank.order.id());
    rank.state.set_clock(rank.order.clock());
    rank.state.set_phase(phase);
    v1::Batch batch;
    batch.set_sequence(++rank.sequence);
    *batch.mutable_capture() = rank.state;
    ASSERT_TRUE(rank.model->Apply(batch).ok());
  }
  void AnswerAll(v1::CapturePhase phase) {
    for (Rank& rank : ranks_) Answer(rank, phase);
  }

  // Both rounds of questions, with so many steps or calls begun meanwhile.
  void AskTwice(uint64_t more) {
    AnswerAll(v1::CAPTURE_PHASE_NONE);
    Tick(10);
    Tick(1000);
    for (Rank& rank : ranks_) {
      if (rank.state.has_marker()) rank.state.set_steps_begun(rank.state.steps_begun() + more);
      rank.state.set_calls(rank.state.calls() + more);
    }
    AnswerAll(v1::CAPTURE_PHASE_NONE);
    Tick(10);
  }

  std::vector<Rank> ranks_;
  std::unique_ptr<CaptureDirector> director_;
  v1::CaptureProgress last_;
  std::vector<std::string> words_;  // all
  uint64_t now_ns_ = 5 * kSecond;
};

TEST_F(CaptureDirectorTest, StepsOfTheMarkerAreChosenAheadOfTheFastestRank) {
  for (Rank& rank : ranks_) rank.state.set_has_marker(true);
  ranks_[0].state.set_steps_begun(97);
  ranks_[1].state.set_steps_begun(90);
  Begin(Steps(5));
  EXPECT_EQ(ranks_[0].order.clock(), v1::CAPTURE_CLOCK_NONE) << "a question";
  AskTwice(20);
  const v1::Capture order = ranks_[0].order;
  EXPECT_EQ(order.clock(), v1::CAPTURE_CLOCK_MARKER);
  EXPECT_GE(order.begin(), 117 + 40) << "two seconds ahead";
  EXPECT_LE(order.begin(), 117 + 80);
  EXPECT_EQ(order.end(), order.begin() + 5);
  EXPECT_EQ(order.SerializeAsString(), ranks_[1].order.SerializeAsString());
  AnswerAll(v1::CAPTURE_PHASE_ARMED);
  Tick(10);
  for (Rank& rank : ranks_) rank.state.set_steps(5);
  AnswerAll(v1::CAPTURE_PHASE_DONE);
  Tick(1000);
  EXPECT_TRUE(director_->over());
  EXPECT_FALSE(last_.failed());
  EXPECT_THAT(last_.words(), HasSubstr("on 2 processes"));
}

TEST_F(CaptureDirectorTest, WhoHasPassedTheBeginGetsALaterOne) {
  for (Rank& rank : ranks_) rank.state.set_has_marker(true);
  Begin(Steps(5));
  AskTwice(20);
  const uint64_t first = ranks_[0].order.begin();
  Answer(ranks_[0], v1::CAPTURE_PHASE_ARMED);
  Answer(ranks_[1], v1::CAPTURE_PHASE_PASSED);
  Tick(10);
  EXPECT_GE(ranks_[0].order.begin(), ranks_[0].order.end()) << "taken back";
  AnswerAll(v1::CAPTURE_PHASE_NONE);
  Tick(1000);
  for (Rank& rank : ranks_) rank.state.set_steps_begun(40);
  AnswerAll(v1::CAPTURE_PHASE_NONE);
  Tick(10);
  EXPECT_GT(ranks_[0].order.begin(), first);
  AnswerAll(v1::CAPTURE_PHASE_ARMED);
  Tick(10);
  EXPECT_FALSE(director_->over());
}

TEST_F(CaptureDirectorTest, WithoutAMarkerWholeStepsOfCallsAreChosen) {
  for (Rank& rank : ranks_) {
    rank.state.set_communicator(0xc0ffee);
    rank.state.set_communicator_ranks(2);
    rank.state.set_calls(100);
    rank.state.set_calls_per_step(4);
    rank.state.set_step_call(98);
  }
  ranks_[1].state.set_calls_per_step(0);  // it has not seen enough; the numbers are the same
  Begin(Steps(3));
  AskTwice(8);
  const v1::Capture order = ranks_[1].order;
  EXPECT_EQ(order.clock(), v1::CAPTURE_CLOCK_CALLS);
  EXPECT_EQ(order.communicator(), 0xc0ffee);
  EXPECT_EQ(order.calls_per_step(), 4u);
  EXPECT_GT(order.begin(), 108u);
  EXPECT_EQ(order.begin() % 4, 98 % 4u) << "where a step begins";
  EXPECT_EQ(order.end(), order.begin() + 12);
}

TEST_F(CaptureDirectorTest, WhereNothingIsCommonTheRemedyIsSaid) {
  ranks_[0].state.set_has_marker(true);
  Begin(Steps(3));
  AnswerAll(v1::CAPTURE_PHASE_NONE);
  Tick(10);
  EXPECT_TRUE(director_->over());
  EXPECT_TRUE(last_.failed());
  EXPECT_THAT(last_.words(), HasSubstr("--seconds"));
}

TEST_F(CaptureDirectorTest, AWindowOfTimeBeginsInTheFuture) {
  v1::CaptureRequest request = Steps(0);
  request.set_duration_ms(500);
  Begin(request);
  AnswerAll(v1::CAPTURE_PHASE_NONE);
  Tick(10);
  EXPECT_EQ(ranks_[0].order.clock(), v1::CAPTURE_CLOCK_TIME);
  EXPECT_GT(ranks_[0].order.begin(), now_ns_ + kSecond);
  EXPECT_EQ(ranks_[0].order.end(), ranks_[0].order.begin() + 500 * kMs);
}

TEST_F(CaptureDirectorTest, ARankThatDoesNotAnswerIsNamedAndTheOthersLetGo) {
  for (Rank& rank : ranks_) rank.state.set_has_marker(true);
  Begin(Steps(5));
  AskTwice(20);
  Answer(ranks_[0], v1::CAPTURE_PHASE_ARMED);
  Tick(14'000);
  EXPECT_FALSE(director_->over());
  Tick(2'000);
  EXPECT_TRUE(director_->over());
  EXPECT_THAT(last_.words(), HasSubstr("rank 1 did not answer"));
  EXPECT_GE(ranks_[0].order.begin(), ranks_[0].order.end());
}

TEST_F(CaptureDirectorTest, ARankThatLeavesIsNamedAndTheOthersAreWaitedFor) {
  for (Rank& rank : ranks_) rank.state.set_has_marker(true);
  Begin(Steps(5));
  AskTwice(20);
  AnswerAll(v1::CAPTURE_PHASE_ARMED);
  Tick(10);
  director_->OnLeft(*ranks_[1].model);
  Tick(10);
  EXPECT_THAT(words_, ::testing::Contains(HasSubstr("rank 1 has left")));
  EXPECT_FALSE(director_->over());
  ranks_[0].state.set_steps(5);
  Answer(ranks_[0], v1::CAPTURE_PHASE_DONE);
  Tick(10);
  EXPECT_TRUE(director_->over());
  EXPECT_TRUE(last_.failed());
  EXPECT_THAT(last_.words(), HasSubstr("rank 1"));
}

TEST_F(CaptureDirectorTest, WhatCannotBeCapturedIsRefused) {
  v1::CaptureRequest request = Steps(5);
  EXPECT_EQ(CaptureDirector::Check(request, {}).code(), absl::StatusCode::kFailedPrecondition);
  request.add_ranks(7);
  EXPECT_THAT(CaptureDirector::Check(request, Connected()).message(), HasSubstr("rank 7"));
  Join(2, v1::RECORDING_LEVEL_FULL);
  EXPECT_THAT(CaptureDirector::Check(Steps(5), Connected()).message(), HasSubstr("rank 2 is at level full"));
  ranks_.erase(ranks_.begin(), ranks_.begin() + 2);
  EXPECT_TRUE(absl::IsAlreadyExists(CaptureDirector::Check(Steps(5), Connected())));
}

}  // namespace
}  // namespace gpuprobe::recording
