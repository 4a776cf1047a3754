#include "collector/store/run_recording.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <random>

#include "collector/analysis/build_report.h"
#include "collector/render/json_report.h"
#include "collector/store/growing_run.h"
#include "collector/store/run_directory.h"
#include "collector/store/run_files.h"
#include "collector/store/run_resume.h"
#include "tests/collector/testing/batch_builder.h"
#include "tests/collector/testing/temp_dir.h"

namespace gpuprobe::store {
namespace {

using gpuprobe::testing::BatchBuilder;
using gpuprobe::testing::kSecond;
using gpuprobe::testing::kStart;
using gpuprobe::testing::TempDir;
using gpuprobe::testing::TrainingRank;

constexpr int kRanks = 3;

// What a collector hears: the ranks' frames in turn.
struct Heard {
  int rank;
  v1::Frame frame;
};

// What fills logs and not the model: `count` synchronisations of random length.
void AddSyncs(v1::Frame& frame, int count) {
  static std::mt19937_64 random(11);
  v1::Batch& batch = *frame.mutable_batch();
  BatchBuilder builder(batch.sequence(), batch.base_ns());
  uint64_t at_ns = batch.base_ns();
  for (int i = 0; i < count; ++i) {
    const uint64_t start_ns = at_ns + random() % 1000;
    at_ns = start_ns + random() % 100'000;
    builder.Sync(start_ns, at_ns, v1::SYNC_KIND_STREAM);
  }
  *batch.mutable_syncs() = builder.batch().syncs();
}

std::vector<Heard> Job(int steps, int syncs = 0) {
  std::vector<std::vector<v1::Frame>> ranks;
  size_t longest = 0;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.push_back(TrainingRank(rank, kRanks, steps));
    longest = std::max(longest, ranks.back().size());
  }
  for (auto& rank : ranks) {
    for (v1::Frame& frame : rank) {
      if (syncs > 0 && frame.has_batch()) AddSyncs(frame, syncs);
    }
  }
  std::vector<Heard> heard;
  for (size_t i = 0; i < longest; ++i) {
    for (int rank = 0; rank < kRanks; ++rank) {
      if (i < ranks[static_cast<size_t>(rank)].size())
        heard.push_back({rank, ranks[static_cast<size_t>(rank)][i]});
    }
  }
  return heard;
}

// Everything that a report says.
std::string ReportOf(const model::JobModel& job) {
  return render::JsonReport(analysis::BuildReport(job, {}));
}

// Feeds frames to a model as the recorder does.
class Listener {
 public:
  void Hear(model::JobModel& job, const Heard& heard) {
    if (heard.frame.has_hello()) hellos_[heard.rank] = heard.frame.hello();
    model::ProcessModel* process = nullptr;
    for (const auto& known : job.processes()) {
      if (known->identity().pid() == hellos_[heard.rank].identity().pid()) process = known.get();
    }
    if (process == nullptr) process = &job.Join(hellos_[heard.rank]);
    if (heard.frame.has_batch()) {
      ASSERT_TRUE(process->Apply(heard.frame.batch()).ok());
    }
    if (heard.frame.has_bye()) process->ApplyBye(heard.frame.bye());
  }

 private:
  std::map<int, v1::Hello> hellos_;
};

TEST(ModelState, AModelLoadedAnywhereGoesOnExactlyLikeTheOneThatWasSaved) {
  const std::vector<Heard> heard = Job(12);
  model::JobModel straight;
  Listener listener;
  for (const Heard& h : heard) listener.Hear(straight, h);
  straight.Finish();
  const std::string expected = ReportOf(straight);
  for (size_t cut = 1; cut < heard.size(); cut += 2) {
    model::JobModel before;
    Listener one;
    for (size_t i = 0; i < cut; ++i) one.Hear(before, heard[i]);
    model::JobModel after;
    ASSERT_TRUE(after.LoadState(before.SaveState()).ok()) << cut;
    for (size_t i = cut; i < heard.size(); ++i) one.Hear(after, heard[i]);
    after.Finish();
    ASSERT_EQ(ReportOf(after), expected) << "saved after " << cut << " of " << heard.size() << " frames";
  }
}

TEST(ModelState, DamagedBytesAreRefusedOrHarmless) {
  model::JobModel job;
  Listener listener;
  for (const Heard& h : Job(3)) listener.Hear(job, h);
  const std::string state = job.SaveState();
  std::mt19937_64 random(7);
  for (size_t size = 0; size < state.size(); size += 1 + state.size() / 200) {
    model::JobModel cut;
    EXPECT_EQ(cut.LoadState(std::string_view(state).substr(0, size)).code(), absl::StatusCode::kDataLoss);
    EXPECT_TRUE(cut.processes().empty());
  }
  for (int i = 0; i < 200; ++i) {
    std::string damaged = state;
    damaged[random() % damaged.size()] = static_cast<char>(random());
    model::JobModel loaded;
    loaded.LoadState(damaged).IgnoreError();
    loaded.Finish();
    EXPECT_FALSE(ReportOf(loaded).empty());
  }
}

class RunRecordingTest : public ::testing::Test {
 protected:
  // Records `steps` of the job in at most `keep_bytes`, and what the live report says in expected_. `look` is
  // called after every frame.
  void Record(
      uint64_t keep_bytes, int steps, const std::function<void()>& look = [] {}) {
    const Directory directory = *Directory::Make(dir_.path());
    RunRecording recording(directory, "test", keep_bytes, kStart);
    model::JobModel job;
    Listener listener;
    std::map<int, RunRecording::Log*> logs;
    uint64_t now_ns = kStart;
    for (const Heard& heard : Job(steps, 400)) {
      listener.Hear(job, heard);
      now_ns += kSecond;
      const std::string raw = heard.frame.SerializeAsString();
      recorded_bytes_ += raw.size();
      if (heard.frame.has_hello()) {
        const auto log = recording.Open(heard.frame.hello(), raw, now_ns);
        ASSERT_TRUE(log.ok()) << log.status();
        logs[heard.rank] = *log;
      } else if (heard.frame.has_batch()) {
        ASSERT_TRUE(logs[heard.rank]->AppendBatch(heard.frame.batch(), raw, now_ns).ok());
      } else {
        ASSERT_TRUE(logs[heard.rank]->Append(raw, now_ns).ok());
      }
      ASSERT_TRUE(recording.FlushIfDue(now_ns + 2 * kSecond).ok());
      if (recording.Due()) {
        const auto state = [&job](absl::FunctionRef<void(std::string_view)> part) { job.SaveState(part); };
        ASSERT_TRUE(recording.Rotate(state, now_ns).ok());
        ++rotations_;
      }
      uint64_t size = 0;
      for (const auto& file : std::filesystem::directory_iterator(dir_.path())) size += file.file_size();
      largest_ = std::max(largest_, size);
      look();
    }
    ASSERT_TRUE(recording.Close().ok());
    EXPECT_EQ(recording.unrecorded_frames(), 0u);
    detail_since_ns_ = recording.detail_since_ns();
    job.Finish();
    expected_ = ReportOf(job);
  }
  RunFiles Files() const { return *ListRun(dir_.path()); }
  static void Flip(const std::string& path) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1, std::ios::end);
    const int last = file.peek();
    file.put(static_cast<char>(last ^ 1));
  }

  TempDir dir_;
  std::string expected_;
  uint64_t largest_ = 0;
  uint64_t recorded_bytes_ = 0;
  uint64_t detail_since_ns_ = 0;
  int rotations_ = 0;
};

constexpr int kSteps = 300;
constexpr uint64_t kKeep = 800'000;

TEST_F(RunRecordingTest, WithinItsSizeARunIsKeptWhole) {
  Record(uint64_t{1} << 30, 100);
  EXPECT_EQ(rotations_, 0);
  EXPECT_EQ(Files().segments.size(), static_cast<size_t>(kRanks));
  EXPECT_EQ(detail_since_ns_, 0u);
  model::JobModel job;
  const auto replayed = Replay(dir_.path(), job);
  ASSERT_TRUE(replayed.ok());
  EXPECT_EQ(replayed->detail_since_ns, 0u);
  EXPECT_EQ(ReportOf(job), expected_);
}

TEST_F(RunRecordingTest, BeyondItsSizeDetailGoesAndTotalsStay) {
  Record(kKeep, kSteps);
  EXPECT_GT(rotations_, 10);
  EXPECT_LT(largest_, kKeep * 5 / 4);
  EXPECT_GT(recorded_bytes_, kKeep * 2);
  const RunFiles files = Files();
  EXPECT_GT(files.FirstGeneration(), 1u);
  EXPECT_LE(files.totals.size(), 2u);
  model::JobModel job;
  const auto replayed = Replay(dir_.path(), job);
  ASSERT_TRUE(replayed.ok());
  EXPECT_TRUE(replayed->damages.empty());
  EXPECT_EQ(ReportOf(job), expected_);
  EXPECT_GT(replayed->detail_since_ns, kStart);
  EXPECT_EQ(replayed->detail_since_ns, detail_since_ns_) << "as the live report says";
}

TEST_F(RunRecordingTest, WhoReadsItAsItGrowsHasAllOfIt) {
  GrowingRun growing(dir_.path());
  model::JobModel job;
  int frames = 0;
  Record(kKeep, kSteps, [&] {
    if (++frames % 7 == 0) {
      ASSERT_TRUE(growing.Look(job).ok());
    }
  });
  EXPECT_GT(Files().FirstGeneration(), 1u) << "some was dropped";
  ASSERT_TRUE(growing.Look(job).ok());
  ASSERT_TRUE(growing.Look(job).ok()) << "nothing is read twice";
  job.Finish();
  EXPECT_EQ(ReportOf(job), expected_);
}

TEST_F(RunRecordingTest, AChunkThatIsNotWholeIsReadWhenItIs) {
  Record(uint64_t{1} << 30, 20);
  const TempDir copy;
  GrowingRun growing(copy.path());
  model::JobModel job;
  EXPECT_FALSE(growing.Look(job).ok()) << "there is no run yet";
  const RunFiles files = Files();
  for (uint64_t size = 0, largest = 1; size < largest; size += 997) {
    for (const Segment& segment : files.segments) {
      largest = std::max<uint64_t>(largest, std::filesystem::file_size(segment.path) + 997);
      std::ifstream from(segment.path, std::ios::binary);
      std::string bytes(size, '\0');
      from.read(bytes.data(), static_cast<std::streamsize>(size));
      bytes.resize(static_cast<size_t>(from.gcount()));
      std::ofstream(std::filesystem::path(copy.path()) / segment.name, std::ios::binary) << bytes;
    }
    ASSERT_TRUE(growing.Look(job).ok());
  }
  job.Finish();
  EXPECT_EQ(ReportOf(job), expected_);
}

TEST_F(RunRecordingTest, EverySegmentCanBeReadAlone) {
  Record(kKeep, kSteps);
  for (const Segment& segment : Files().segments) {
    const auto file = MappedFile::Open(segment.path);
    ASSERT_TRUE(file.ok());
    RunLogReader reader(segment.path, **file);
    model::JobModel job;
    Listener listener;
    v1::Frame frame;
    std::string_view raw;
    while (reader.Next(frame, raw)) listener.Hear(job, {0, frame});
    EXPECT_FALSE(reader.damage().has_value()) << segment.path;
    ASSERT_EQ(job.processes().size(), 1u);
    for (const auto& kernel : job.processes().front()->kernels()) {
      EXPECT_FALSE(job.processes().front()->String(kernel->name).empty()) << segment.path;
    }
  }
}

TEST_F(RunRecordingTest, DamageToOldDetailIsNamedAndCostsNoTotals) {
  Record(kKeep, kSteps);
  const Segment oldest = Files().segments.front();
  Flip(oldest.path);
  model::JobModel job;
  const auto replayed = Replay(dir_.path(), job);
  ASSERT_TRUE(replayed.ok());
  ASSERT_EQ(replayed->damages.size(), 1u);
  EXPECT_EQ(replayed->damages.front().file, std::filesystem::path(oldest.path).filename());
  EXPECT_EQ(replayed->damages.front().what, "bad checksum");
  EXPECT_TRUE(replayed->damages.front().totals_whole);
  EXPECT_EQ(ReportOf(job), expected_);
}

TEST_F(RunRecordingTest, DamagedTotalsAreNamedAndTheOnesBeforeThemAreTaken) {
  Record(kKeep, kSteps);
  const auto [generation, path] = *Files().totals.rbegin();
  Flip(path);
  model::JobModel job;
  const auto replayed = Replay(dir_.path(), job);
  ASSERT_TRUE(replayed.ok());
  ASSERT_EQ(replayed->damages.size(), 1u);
  EXPECT_EQ(replayed->damages.front().file, TotalsName(generation));
  EXPECT_EQ(ReportOf(job), expected_);
}

TEST_F(RunRecordingTest, ACollectorThatDiedLosesItsOpenChunkOnly) {
  Record(kKeep, kSteps);
  const RunFiles files = Files();
  const Segment newest =
      *std::max_element(files.segments.begin(), files.segments.end(),
                        [](const Segment& a, const Segment& b) { return a.generation < b.generation; });
  std::filesystem::resize_file(newest.path, std::filesystem::file_size(newest.path) - 10);
  model::JobModel job;
  const auto replayed = Replay(dir_.path(), job);
  ASSERT_TRUE(replayed.ok());
  ASSERT_EQ(replayed->damages.size(), 1u);
  EXPECT_EQ(replayed->damages.front().what, "cut off");
  EXPECT_FALSE(replayed->damages.front().totals_whole);
  EXPECT_EQ(job.processes().size(), static_cast<size_t>(kRanks));
}

// --- a run whose collector died

// What the recorder does with a client that resumes: applies and writes what is not on record yet.
class Resuming {
 public:
  Resuming(const std::string& path, uint64_t keep_bytes) : directory_(*Directory::Make(path)) {
    EXPECT_TRUE(directory_.Lock().ok());
    absl::StatusOr<Resumed> resumed = ResumeRun(directory_, job_, kStart);
    EXPECT_TRUE(resumed.ok()) << resumed.status();
    recording_ = std::make_unique<RunRecording>(directory_, "test", keep_bytes, resumed->recording);
    for (size_t i = 0; i < resumed->processes.size(); ++i) logs_[resumed->processes[i]] = recording_->log(i);
  }
  // As many frames of a rank as there are, from behind what is on record.
  void Hear(const v1::Hello& hello, const std::vector<v1::Frame>& frames, size_t until) {
    model::ProcessModel& process = job_.Join(hello);
    const std::string greeting = [&] {
      v1::Frame frame;
      *frame.mutable_hello() = hello;
      return frame.SerializeAsString();
    }();
    RunRecording::Log*& log = logs_[&process];
    if (log == nullptr) {
      log = *recording_->Open(hello, greeting, 0);
    } else {
      EXPECT_TRUE(log->AppendHello(greeting, 0).ok());
    }
    for (size_t i = 0; i < until; ++i) {
      const v1::Frame& frame = frames[i];
      if (frame.has_batch() && !process.Knows(frame.batch())) {
        EXPECT_TRUE(process.Apply(frame.batch()).ok());
        EXPECT_TRUE(log->AppendBatch(frame.batch(), frame.SerializeAsString(), 0).ok());
      }
      if (frame.has_bye()) {
        process.ApplyBye(frame.bye());
        EXPECT_TRUE(log->Append(frame.SerializeAsString(), 0).ok());
      }
    }
    EXPECT_TRUE(log->Flush().ok());
    EXPECT_EQ(log->on_record(), process.last_sequence());
  }
  void RotateIfDue() {
    if (recording_->Due()) {
      EXPECT_TRUE(
          recording_
              ->Rotate([this](absl::FunctionRef<void(std::string_view)> part) { job_.SaveState(part); },
                       kStart)
              .ok());
    }
  }

 private:
  Directory directory_;
  model::JobModel job_;
  std::unique_ptr<RunRecording> recording_;
  std::map<const model::ProcessModel*, RunRecording::Log*> logs_;
};

std::vector<v1::Frame> ResumableRank(int steps) {
  std::vector<v1::Frame> frames = TrainingRank(0, 1, steps);
  for (v1::Frame& frame : frames) {
    if (frame.has_hello()) frame.mutable_hello()->set_instance(7);
  }
  return frames;
}

std::string ReportOf(const std::string& directory) {
  model::JobModel job;
  const absl::StatusOr<Replayed> replayed = Replay(directory, job);
  EXPECT_TRUE(replayed.ok()) << replayed.status();
  EXPECT_TRUE(replayed.ok() && replayed->damages.empty());
  return ReportOf(job);
}

TEST(ResumedRun, WhateverTheDeadCollectorHadWrittenTheRestFollowsAndNothingTwice) {
  const std::vector<v1::Frame> frames = ResumableRank(6);
  const v1::Hello hello = frames.front().hello();
  TempDir whole;
  Resuming(whole.path(), uint64_t{1} << 30).Hear(hello, frames, frames.size());
  const std::string expected = ReportOf(whole.path());
  std::ifstream file(whole.File("rank-0.gpr"), std::ios::binary);
  const std::string log((std::istreambuf_iterator<char>(file)), {});
  std::mt19937 random(3);
  for (int i = 0; i < 40; ++i) {
    // Killed while it wrote: the log ends anywhere, in its first chunk too.
    const size_t size = i < 4 ? static_cast<size_t>(i) : random() % log.size();
    TempDir dir;
    std::ofstream(dir.File("rank-0.gpr"), std::ios::binary) << log.substr(0, size);
    Resuming(dir.path(), uint64_t{1} << 30).Hear(hello, frames, frames.size());
    EXPECT_EQ(ReportOf(dir.path()), expected) << "cut after " << size << " of " << log.size() << " bytes";
  }
}

TEST(ResumedRun, GoesOnThroughManyDeathsAndGenerations) {
  std::vector<v1::Frame> frames = ResumableRank(40);
  for (v1::Frame& frame : frames) {
    if (frame.has_batch()) AddSyncs(frame, 2000);
  }
  const v1::Hello hello = frames.front().hello();
  TempDir whole;
  Resuming(whole.path(), uint64_t{1} << 30).Hear(hello, frames, frames.size());
  TempDir dir;
  for (size_t until = 3; until < frames.size(); until += 3) {
    Resuming resuming(dir.path(), 160 << 10);
    resuming.Hear(hello, frames, until);
    resuming.RotateIfDue();
  }
  Resuming(dir.path(), 160 << 10).Hear(hello, frames, frames.size());
  const absl::StatusOr<RunFiles> files = ListRun(dir.path());
  ASSERT_TRUE(files.ok());
  EXPECT_GT(files->totals.size(), 0u) << "no generation was full";
  EXPECT_EQ(ReportOf(dir.path()), ReportOf(whole.path()));
}

TEST(ResumedRun, AFinishedRunAndOneThatIsBeingRecordedAreLeftAlone) {
  TempDir dir;
  bool unfinished = true;
  EXPECT_TRUE(PrepareRunDirectory(dir.path(), &unfinished).ok());
  EXPECT_FALSE(unfinished);
  const std::vector<v1::Frame> frames = ResumableRank(2);
  Resuming(dir.path(), uint64_t{1} << 30).Hear(frames.front().hello(), frames, frames.size());
  EXPECT_FALSE(PrepareRunDirectory(dir.path()).ok()) << "only who asks for it goes on";
  const absl::StatusOr<Directory> first = PrepareRunDirectory(dir.path(), &unfinished);
  ASSERT_TRUE(first.ok() && first->Lock().ok());
  EXPECT_TRUE(unfinished);
  const absl::StatusOr<Directory> second = PrepareRunDirectory(dir.path(), &unfinished);
  ASSERT_TRUE(second.ok());
  EXPECT_THAT(second->Lock().message(), ::testing::HasSubstr("another collector"));
  std::ofstream(dir.File("report.json")) << "{}";
  EXPECT_FALSE(PrepareRunDirectory(dir.path(), &unfinished).ok());
}

}  // namespace
}  // namespace gpuprobe::store
