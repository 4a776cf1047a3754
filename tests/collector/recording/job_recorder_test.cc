#include "collector/recording/job_recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "absl/strings/str_cat.h"
#include "collector/store/run_directory.h"
#include "tests/collector/testing/batch_builder.h"
#include "tests/collector/testing/temp_dir.h"

namespace gpuprobe::recording {
namespace {

using gpuprobe::testing::HelloFrame;
using gpuprobe::testing::MakeHello;
using gpuprobe::testing::TempDir;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

constexpr uint64_t kKeep = 64 << 20;
constexpr uint32_t kNoPid = 2'000'000'000;  // above every process

class JobRecorderTest : public ::testing::Test {
 protected:
  using Sink = std::unique_ptr<ingest::FrameSink>;

  static v1::Hello HelloOf(const std::string& run, int rank = 0) {
    v1::Hello hello = MakeHello(rank, 4, kNoPid + next_pid++);
    hello.mutable_identity()->set_run(run);
    return hello;
  }

  absl::StatusOr<Sink> Open(JobRecorder& recorder, const v1::Hello& hello) {
    return recorder.Open(hello, HelloFrame(hello).SerializeAsString());
  }

  Sink Opened(JobRecorder& recorder, const v1::Hello& hello) {
    absl::StatusOr<Sink> sink = Open(recorder, hello);
    EXPECT_TRUE(sink.ok()) << sink.status();
    return sink.ok() ? *std::move(sink) : nullptr;
  }

  static void Leave(Sink& sink) {
    sink->OnClosed(false);
    sink.reset();
  }

  // As the server's thread does it, until there are so many runs or `limit` is over.
  static void TickUntil(JobRecorder& recorder, size_t runs, std::chrono::milliseconds limit) {
    const auto until = std::chrono::steady_clock::now() + limit;
    while (recorder.runs() != runs && std::chrono::steady_clock::now() < until) {
      recorder.Tick();
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }

  JobRecorder Make(JobRecorder::Options options = {}) {
    return {std::move(options),
            [this](const v1::Hello& hello) -> absl::StatusOr<JobRecorder::Place> {
              if (!refusal_.ok()) return refusal_;
              asked_.push_back(hello.identity().run());
              bool unfinished = false;
              absl::StatusOr<store::Directory> made = store::PrepareRunDirectory(
                  dir_.File(absl::StrCat("run-", asked_.size())), may_resume_ ? &unfinished : nullptr);
              if (!made.ok()) return made.status();
              return JobRecorder::Place{*std::move(made), kKeep, unfinished};
            },
            [this](const std::string& text) { said_.push_back(text); }};
  }

  TempDir dir_;
  absl::Status refusal_;
  bool may_resume_ = false;
  std::vector<std::string> asked_;
  std::vector<std::string> said_;
  static inline uint32_t next_pid = 1;
};

TEST_F(JobRecorderTest, ProcessesOfOneJobShareARunAndJobsDoNot) {
  JobRecorder recorder = Make();
  Sink first = Opened(recorder, HelloOf("one", 0));
  Sink second = Opened(recorder, HelloOf("one", 1));
  Sink other = Opened(recorder, HelloOf("two", 0));
  EXPECT_EQ(recorder.runs(), 2u);
  EXPECT_EQ(recorder.processes(), 3u);
  EXPECT_EQ(recorder.keep_bytes(), 2 * kKeep);
  EXPECT_THAT(asked_, ElementsAre("one", "two"));
  EXPECT_EQ(first->RunDirectory(), second->RunDirectory());
  EXPECT_NE(first->RunDirectory(), other->RunDirectory());
  EXPECT_TRUE(recorder.Records(other->RunDirectory()));
  EXPECT_FALSE(recorder.Records(dir_.File("elsewhere")));
  for (Sink* sink : {&first, &second, &other}) Leave(*sink);
  recorder.Finish();
  EXPECT_EQ(recorder.runs(), 0u);
  EXPECT_THAT(said_, UnorderedElementsAre("2 ranks, " + dir_.File("run-1"), "1 rank, " + dir_.File("run-2")));
  for (const char* run : {"run-1", "run-2"})
    EXPECT_TRUE(std::filesystem::exists(dir_.File(run) + "/report.json")) << run;
}

// A process that this one, the launcher, has started.
class Child {
 public:
  Child() : pid_(fork()) {
    if (pid_ != 0) return;
    for (;;) pause();
  }
  ~Child() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  v1::Hello HelloOf(const std::string& run, int rank) const {
    v1::Hello hello = MakeHello(rank, 2, static_cast<uint32_t>(pid_));
    hello.mutable_identity()->set_run(run);
    return hello;
  }

 private:
  pid_t pid_;
};

v1::Hello LauncherHello(const std::string& run) {
  v1::Hello hello = MakeHello(-1, 0, static_cast<uint32_t>(getpid()));
  hello.mutable_identity()->set_run(run);
  return hello;
}

TEST_F(JobRecorderTest, ALauncherSharesTheRunOfItsRanks) {
  const Child first;
  const Child second;
  JobRecorder recorder = Make();
  Sink launcher = Opened(recorder, LauncherHello("terminal"));
  Sink ranks[] = {Opened(recorder, first.HelloOf("job", 0)), Opened(recorder, second.HelloOf("job", 1))};
  EXPECT_EQ(recorder.runs(), 1u);
  EXPECT_EQ(recorder.processes(), 3u);
  // The next job of the same launcher is a run of its own, and so is a rank that somebody else started.
  Sink next = Opened(recorder, first.HelloOf("next job", 0));
  Sink other = Opened(recorder, HelloOf("elsewhere", 0));
  EXPECT_THAT(asked_, ElementsAre("terminal", "next job", "elsewhere"));
  for (Sink* sink : {&launcher, &ranks[0], &ranks[1], &next, &other}) Leave(*sink);
  recorder.Finish();
  EXPECT_THAT(said_, ::testing::Contains("2 ranks, " + dir_.File("run-1")));
}

TEST_F(JobRecorderTest, ALauncherThatConnectsAfterItsRanksJoinsThem) {
  const Child child;
  JobRecorder recorder = Make();
  Sink rank = Opened(recorder, child.HelloOf("job", 0));
  Sink launcher = Opened(recorder, LauncherHello("terminal"));
  EXPECT_EQ(recorder.runs(), 1u);
  for (Sink* sink : {&rank, &launcher}) Leave(*sink);
}

TEST_F(JobRecorderTest, OlderProbesAreToldApartByTheirLaunchersJob) {
  JobRecorder recorder = Make();
  std::vector<Sink> sinks;
  for (const char* job : {"slurm-1", "slurm-1", "slurm-2"}) {
    v1::Hello hello = HelloOf("");
    hello.mutable_identity()->set_job(job);
    sinks.push_back(Opened(recorder, hello));
  }
  EXPECT_EQ(recorder.runs(), 2u);
  for (Sink& sink : sinks) Leave(sink);
  recorder.Finish();
}

TEST_F(JobRecorderTest, WithoutAPlaceTheProcessIsRefusedAndNothingIsLeft) {
  JobRecorder recorder = Make();
  refusal_ = absl::ResourceExhaustedError("this user has 64 runs");
  const absl::StatusOr<Sink> refused = Open(recorder, HelloOf("one"));
  EXPECT_EQ(refused.status(), refusal_);
  EXPECT_EQ(recorder.runs(), 0u);
  EXPECT_EQ(recorder.keep_bytes(), 0u);
  refusal_ = absl::OkStatus();
  Sink sink = Opened(recorder, HelloOf("one"));
  EXPECT_EQ(recorder.runs(), 1u);
  refusal_ = absl::ResourceExhaustedError("this user has 64 runs");
  Sink second = Opened(recorder, HelloOf("one", 1));  // a run that is there needs no place
  Leave(sink);
  Leave(second);
  recorder.Finish();
}

TEST_F(JobRecorderTest, ARunIsReportedAWhileAfterItsLastProcess) {
  JobRecorder recorder = Make();
  Sink stays = Opened(recorder, HelloOf("stays"));
  Sink leaves = Opened(recorder, HelloOf("leaves"));
  const std::string directory = leaves->RunDirectory();
  Leave(leaves);
  recorder.Tick();
  EXPECT_EQ(recorder.runs(), 2u) << "a rank may come a little later";
  Sink late = Opened(recorder, HelloOf("leaves", 1));
  EXPECT_EQ(late->RunDirectory(), directory);
  const auto left = std::chrono::steady_clock::now();
  Leave(late);
  TickUntil(recorder, 1, std::chrono::seconds(30));
  EXPECT_GE(std::chrono::steady_clock::now() - left, JobRecorder::kGoneWait);
  EXPECT_EQ(recorder.runs(), 1u);
  EXPECT_TRUE(recorder.Records(stays->RunDirectory()));
  EXPECT_THAT(said_, ElementsAre("2 ranks, " + directory));
  // The same job again is another run.
  Sink again = Opened(recorder, HelloOf("leaves"));
  EXPECT_NE(again->RunDirectory(), directory);
  Leave(again);
  Leave(stays);
  recorder.Finish();
  EXPECT_EQ(said_.size(), 3u);
}

TEST_F(JobRecorderTest, TheFirstProcessOfEachJobTellsItsUser) {
  JobRecorder recorder = Make({.ranks = {}, .marker = {}, .processes_tell = true});
  Sink first = Opened(recorder, HelloOf("one", 0));
  Sink second = Opened(recorder, HelloOf("one", 1));
  Sink other = Opened(recorder, HelloOf("two", 0));
  EXPECT_EQ(first->TellsUser(), first->RunDirectory());
  EXPECT_EQ(second->TellsUser(), "");
  EXPECT_EQ(other->TellsUser(), other->RunDirectory());
  for (Sink* sink : {&first, &second, &other}) Leave(*sink);
  recorder.Finish();
}

TEST_F(JobRecorderTest, AnUnfinishedRunGoesOn) {
  const v1::Hello hello = HelloOf("one", 0);
  {
    JobRecorder killed = Make();
    Sink sink = Opened(killed, hello);
    sink->OnClosed(true);
  }
  asked_.clear();  // the same directory again
  may_resume_ = true;
  JobRecorder recorder = Make({.ranks = {}, .marker = {}, .processes_tell = true});
  Sink sink = Opened(recorder, HelloOf("one", 1));
  EXPECT_EQ(recorder.processes(), 2u) << "the one from before, and this one";
  EXPECT_EQ(sink->TellsUser(), "") << "the user knows";
  Leave(sink);
  recorder.Finish();
  EXPECT_THAT(said_, ElementsAre("2 ranks, " + dir_.File("run-1")));
}

TEST_F(JobRecorderTest, AReportThatCannotBeWrittenIsSaid) {
  JobRecorder recorder = Make();
  Sink sink = Opened(recorder, HelloOf("one"));
  const std::string directory = sink->RunDirectory();
  std::filesystem::create_directories(directory + "/report.json/in the way");
  Leave(sink);
  recorder.Finish();
  ASSERT_EQ(said_.size(), 1u);
  EXPECT_THAT(said_.front(), HasSubstr("could not write the report of " + directory + ": "));
}

}  // namespace
}  // namespace gpuprobe::recording
