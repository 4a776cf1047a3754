#include "collector/recording/capture_director.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
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
    CaptureDirector::Process process;  // as the director sees it
    v1::CaptureState state;            // as it is
    v1::Capture order;
  };

  void SetUp() override {
    for (int rank = 0; rank < 2; ++rank) Join(rank);
  }

  Rank& Join(int rank, bool idle = true) {
    Rank& joined = ranks_.emplace_back();
    joined.process.facts.set_number(static_cast<uint32_t>(rank + 1));
    joined.process.facts.set_rank(rank);
    joined.process.facts.set_world_size(2);
    joined.process.facts.set_pid(static_cast<uint32_t>(100 + rank));
    joined.process.facts.set_idle(idle);
    joined.process.facts.set_connected(true);
    return joined;
  }
  // Puts a rank on another host.
  static void Move(Rank& rank, const std::string& host) {
    rank.process.instance = 7;
    rank.process.host = host;
  }

  CaptureDirector::Processes All() const {
    CaptureDirector::Processes all;
    for (const Rank& rank : ranks_) all.push_back(rank.process);
    return all;
  }

  static v1::CaptureRequest Steps(uint64_t steps) {
    v1::CaptureRequest request;
    request.set_steps(steps);
    request.set_limit_ms(60'000);
    return request;
  }

  void Begin(const v1::CaptureRequest& request) {
    ASSERT_TRUE(CaptureDirector::Check(request, All()).ok());
    director_ = std::make_unique<CaptureDirector>(
        request, All(), 1000, [this](const CaptureDirector::Process& process, const v1::Capture& order) {
          for (Rank& rank : ranks_) {
            if (rank.process.facts.rank() == process.facts.rank()) rank.order = order;
          }
        });
    Tick(0);
  }

  void Tick(uint64_t ms) {
    now_ns_ += ms * kMs;
    director_->Update(All());
    director_->Tick(now_ns_, now_ns_ + kSecond);
    while (!director_->progress().empty()) {
      last_ = director_->progress().front();
      words_.push_back(last_.words());
      director_->progress().pop_front();
    }
  }

  static void Answer(Rank& rank, v1::CapturePhase phase) {
    rank.state.set_id(rank.order.id());
    rank.state.set_clock(rank.order.clock());
    rank.state.set_phase(phase);
    *rank.process.facts.mutable_state() = rank.state;
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

  // Five steps, from the question until all ranks have the order.
  void BeginArmed() {
    Begin(Steps(5));
    AskTwice(20);
    AnswerAll(v1::CAPTURE_PHASE_ARMED);
    Tick(10);
  }
  static void MarkDone(Rank& rank) {
    rank.state.set_steps(5);
    Answer(rank, v1::CAPTURE_PHASE_DONE);
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
  BeginArmed();
  ranks_[1].process.facts.set_connected(false);
  Tick(10);
  EXPECT_THAT(words_, ::testing::Contains(HasSubstr("rank 1 has left")));
  EXPECT_FALSE(director_->over());
  MarkDone(ranks_[0]);
  Tick(10);
  EXPECT_TRUE(director_->over());
  EXPECT_TRUE(last_.failed());
  EXPECT_THAT(last_.words(), HasSubstr("rank 1"));
}

TEST_F(CaptureDirectorTest, WhatCannotBeCapturedIsRefused) {
  v1::CaptureRequest request = Steps(5);
  EXPECT_EQ(CaptureDirector::Check(request, {}).code(), absl::StatusCode::kFailedPrecondition);
  request.add_ranks(7);
  EXPECT_THAT(CaptureDirector::Check(request, All()).message(), HasSubstr("rank 7"));
  Join(2, /*idle=*/false);
  EXPECT_THAT(CaptureDirector::Check(Steps(5), All()).message(), HasSubstr("rank 2 is at level full"));
  ranks_.erase(ranks_.begin(), ranks_.begin() + 2);
  EXPECT_TRUE(absl::IsAlreadyExists(CaptureDirector::Check(Steps(5), All())));
}

TEST_F(CaptureDirectorTest, TheFirstStepIsAsFarAheadAsAnswersOfOtherHostsAreSlow) {
  for (Rank& rank : ranks_) rank.state.set_has_marker(true);
  Move(ranks_[1], "n2");
  Begin(Steps(5));
  AnswerAll(v1::CAPTURE_PHASE_NONE);
  Tick(10);
  Tick(1000);
  ranks_[0].state.set_steps_begun(20);
  ranks_[1].state.set_steps_begun(20);
  Answer(ranks_[0], v1::CAPTURE_PHASE_NONE);
  Tick(6000);
  EXPECT_EQ(ranks_[1].order.clock(), v1::CAPTURE_CLOCK_NONE) << "n2 has not answered";
  Answer(ranks_[1], v1::CAPTURE_PHASE_NONE);
  Tick(0);
  // 20 a second: the answers are up to 6 s old, and the order may take as long.
  EXPECT_GT(ranks_[0].order.begin(), 20 + 20 * 12);
  EXPECT_EQ(ranks_[0].order.begin(), ranks_[1].order.begin());
}

TEST_F(CaptureDirectorTest, HowFastARankIsGoesByWhenItWasThereNotByWhenThatArrived) {
  for (Rank& rank : ranks_) {
    rank.state.set_has_marker(true);
    rank.process.facts.set_state_ns(100 * kSecond);
  }
  Move(ranks_[1], "n2");
  Begin(Steps(5));
  Tick(3000);  // the first answer waited for a post
  AnswerAll(v1::CAPTURE_PHASE_NONE);
  Tick(10);
  Tick(0);
  for (Rank& rank : ranks_) {
    rank.state.set_steps_begun(100);
    rank.process.facts.set_state_ns(101 * kSecond);
  }
  AnswerAll(v1::CAPTURE_PHASE_NONE);
  Tick(500);
  ASSERT_EQ(ranks_[0].order.clock(), v1::CAPTURE_CLOCK_MARKER);
  EXPECT_GT(ranks_[0].order.begin(), 100 + 100 * 3) << "100 a second, three seconds ahead";
}

TEST_F(CaptureDirectorTest, AWindowOfTimeIsInTheTimeOfEachHost) {
  Move(ranks_[1], "n2");
  ranks_[1].process.clock_ahead_ns = -3 * static_cast<int64_t>(kSecond);
  v1::CaptureRequest request = Steps(0);
  request.set_duration_ms(500);
  Begin(request);
  AnswerAll(v1::CAPTURE_PHASE_NONE);
  Tick(10);
  EXPECT_EQ(ranks_[1].order.begin(), ranks_[0].order.begin() - 3 * kSecond);
  EXPECT_EQ(ranks_[1].order.end(), ranks_[1].order.begin() + 500 * kMs);
}

TEST_F(CaptureDirectorTest, AHostThatIsAwayIsRefusedNamedAndNotWaitedFor) {
  for (Rank& rank : ranks_) rank.state.set_has_marker(true);
  Move(ranks_[1], "n2");
  ranks_[1].process.silent_ns = 40 * kSecond;
  EXPECT_THAT(CaptureDirector::Check(Steps(5), All()).message(),
              HasSubstr("n2 has sent nothing for 40 s, so rank 1 on n2 cannot be captured"));
  v1::CaptureRequest first = Steps(5);
  first.add_ranks(0);
  EXPECT_TRUE(CaptureDirector::Check(first, All()).ok());
  ranks_[1].process.silent_ns = 0;

  BeginArmed();
  ranks_[1].process.silent_ns = 16 * kSecond;
  Tick(16'000);
  EXPECT_THAT(words_,
              ::testing::Contains("n2 has sent nothing for 16 s; its ranks end the capture by themselves"));
  EXPECT_FALSE(director_->over());
  MarkDone(ranks_[0]);
  Tick(10);
  EXPECT_TRUE(director_->over());
  EXPECT_TRUE(last_.failed());
  EXPECT_THAT(last_.words(),
              HasSubstr("on 1 process; not known of rank 1 on n2: n2 has sent nothing for 16 s"));
}

TEST_F(CaptureDirectorTest, AHostThatComesBackIsWaitedForAgain) {
  for (Rank& rank : ranks_) rank.state.set_has_marker(true);
  Move(ranks_[1], "n2");
  BeginArmed();
  ranks_[1].process.silent_ns = 16 * kSecond;
  Tick(16'000);
  ranks_[1].process.silent_ns = 0;
  MarkDone(ranks_[0]);
  Tick(10);
  EXPECT_FALSE(director_->over());
  MarkDone(ranks_[1]);
  Tick(10);
  EXPECT_TRUE(director_->over());
  EXPECT_FALSE(last_.failed());
  EXPECT_THAT(last_.words(), HasSubstr("on 2 processes of 2 hosts"));
}

TEST_F(CaptureDirectorTest, AHostThatGoesAwayBeforeTheOrderHasTheOthersLetGo) {
  for (Rank& rank : ranks_) rank.state.set_has_marker(true);
  Move(ranks_[1], "n2");
  Begin(Steps(5));
  AskTwice(20);
  Answer(ranks_[0], v1::CAPTURE_PHASE_ARMED);
  ranks_[1].process.silent_ns = 16 * kSecond;
  Tick(10);
  EXPECT_TRUE(director_->over());
  EXPECT_THAT(last_.words(), HasSubstr("n2 has sent nothing for 16 s, so rank 1 on n2 cannot be captured"));
  for (const Rank& rank : ranks_) EXPECT_GE(rank.order.begin(), rank.order.end()) << "taken back";
}

TEST_F(CaptureDirectorTest, RanksThatAreNotConnectedAreCounted) {
  for (Rank& rank : ranks_) {
    rank.state.set_has_marker(true);
    rank.process.facts.set_world_size(8);
  }
  Begin(Steps(5));
  EXPECT_THAT(words_, ::testing::ElementsAre(
                          "the job has 8 ranks, of which 2 are connected; the others are not captured"));
}

}  // namespace
}  // namespace gpuprobe::recording
