// Samples of threads become stretches in one place, with the words for it.
#include "collector/records/host_stretches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>

#include <string>
#include <vector>

namespace gpuprobe::model {
namespace {

using ::testing::ElementsAre;

constexpr uint64_t kMillisecondNs = 1'000'000;

HostSampleRecord Sample(uint64_t since_ms, uint64_t time_ms, uint32_t frame = 1, uint32_t thread = 7) {
  HostSampleRecord r{};
  r.since_ns = since_ms * kMillisecondNs;
  r.time_ns = time_ms * kMillisecondNs;
  r.frame = frame;
  r.thread = thread;
  r.in_gap = true;
  r.system_call = -1;
  r.state = v1::THREAD_STATE_RUNNING;
  r.run_delay_ns = kMillisecondNs;
  return r;
}

// "7: 10-40 x3 frame 1 delayed 3"
std::vector<std::string> StretchesOf(const std::vector<HostSampleRecord>& samples) {
  std::vector<std::string> out;
  const auto ended = [&](const HostStretch& s) {
    out.push_back(std::to_string(s.last.thread) + ": " + std::to_string(s.start_ns / kMillisecondNs) + "-" +
                  std::to_string(s.end_ns / kMillisecondNs) + " x" + std::to_string(s.samples) + " frame " +
                  std::to_string(s.last.frame) + " delayed " +
                  std::to_string(s.run_delay_ns / kMillisecondNs));
  };
  HostStretches stretches;
  for (const HostSampleRecord& r : samples) stretches.Add(r, ended);
  stretches.Finish(ended);
  return out;
}

TEST(HostStretches, SamplesInOnePlaceAreOneStretch) {
  EXPECT_THAT(StretchesOf({Sample(10, 20), Sample(20, 30), Sample(30, 40), Sample(40, 50, 2)}),
              ElementsAre("7: 10-40 x3 frame 1 delayed 3", "7: 40-50 x1 frame 2 delayed 1"));
}

TEST(HostStretches, AGapBetweenSamplesEndsTheStretch) {
  EXPECT_THAT(StretchesOf({Sample(10, 20), Sample(25, 30)}),
              ElementsAre("7: 10-20 x1 frame 1 delayed 1", "7: 25-30 x1 frame 1 delayed 1"));
}

TEST(HostStretches, ThreadsAreApart) {
  EXPECT_THAT(
      StretchesOf({Sample(10, 20, 1, 7), Sample(10, 20, 1, 8), Sample(20, 30, 1, 7), Sample(20, 30, 1, 8)}),
      ElementsAre("7: 10-30 x2 frame 1 delayed 2", "8: 10-30 x2 frame 1 delayed 2"));
}

TEST(HostStretches, ASampleWhileItLaunchesIsAMoment) {
  HostSampleRecord launching = Sample(20, 30);
  launching.in_gap = false;
  EXPECT_THAT(StretchesOf({Sample(10, 20), launching, Sample(30, 40)}),
              ElementsAre("7: 10-20 x1 frame 1 delayed 1", "7: 30-30 x1 frame 1 delayed 1",
                          "7: 30-40 x1 frame 1 delayed 1"));
}

TEST(HostStretches, StretchesOfAThreadDoNotOverlap) {
  EXPECT_THAT(StretchesOf({Sample(10, 20), Sample(5, 30, 2), Sample(40, 35, 3)}),
              ElementsAre("7: 10-20 x1 frame 1 delayed 1", "7: 20-30 x1 frame 2 delayed 1",
                          "7: 35-35 x1 frame 3 delayed 1"));
}

TEST(HostStretches, AnotherFileOrStateIsAnotherPlace) {
  HostSampleRecord file = Sample(20, 30);
  file.file = 5;
  HostSampleRecord state = file;
  state.since_ns = 30 * kMillisecondNs;
  state.time_ns = 40 * kMillisecondNs;
  state.state = v1::THREAD_STATE_SLEEPING;
  EXPECT_EQ(StretchesOf({Sample(10, 20), file, state}).size(), 3u);
}

class HostWords : public ::testing::Test {
 protected:
  HostWords() {
    v1::Batch batch;
    const auto name = [&](uint32_t id, const char* text) {
      v1::StringDef& def = *batch.add_strings();
      def.set_id(id);
      def.set_value(text);
    };
    name(1, "main");
    name(2, "train.py");
    name(3, "Loader.fetch");
    name(4, "/opt/loader.py");
    name(5, "cuMemFree_v2");
    const auto frame = [&](uint32_t id, uint32_t caller, uint32_t function, uint32_t file, uint32_t line) {
      v1::HostFrame& def = *batch.add_host_frames();
      def.set_id(id);
      def.set_caller(caller);
      def.set_function(function);
      def.set_file(file);
      def.set_line(line);
    };
    frame(1, 0, 1, 2, 14);
    frame(2, 1, 3, 4, 0);
    for (uint32_t id = 3; id < 400; ++id) frame(id, id - 1, 3, 4, id);
    definitions_.Learn(batch);
  }
  std::string NameOf(const HostSampleRecord& r) const { return std::string(HostPlaceName(r, definitions_)); }

  Definitions definitions_;
};

TEST_F(HostWords, ACallComesBeforePythonAndThatBeforeTheSystemCall) {
  HostSampleRecord r = Sample(10, 20, 0);
  EXPECT_EQ(NameOf(r), "running");
  r.system_call = SYS_read;
  EXPECT_EQ(NameOf(r), "read");
  r.frame = 2;
  EXPECT_EQ(NameOf(r), "Loader.fetch");
  r.call = 5;
  EXPECT_EQ(NameOf(r), "cuMemFree_v2");
}

TEST_F(HostWords, AStackIsInnermostFirstAndBounded) {
  EXPECT_THAT(PythonStackOf(Sample(10, 20, 2), definitions_),
              ElementsAre("Loader.fetch (/opt/loader.py)", "main (train.py:14)"));
  const std::vector<std::string> deep = PythonStackOf(Sample(10, 20, 399), definitions_);
  EXPECT_EQ(deep.size(), kDeepestShown);
  EXPECT_EQ(deep.back(), "...");
  EXPECT_TRUE(PythonStackOf(Sample(10, 20, 4711), definitions_).empty());
}

}  // namespace
}  // namespace gpuprobe::model
