// The state of a running job: through its file, and on the screens of `gpuprobe top`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "collector/analysis/live_status.h"
#include "collector/render/live_json.h"
#include "collector/render/live_text.h"

namespace gpuprobe::render {
namespace {

using analysis::LiveRank;
using analysis::LiveStatus;
using analysis::LiveStep;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

LiveRank RankNumber(int number, double late_ns) {
  LiveRank r;
  r.rank = number;
  r.label = std::to_string(number);
  r.host = "n1";
  r.pid = 4000 + number;
  r.steps = 100;
  r.step =
      LiveStep{.total_ns = 20e6, .compute_ns = 12e6, .exposed_comm_ns = 4e6, .copy_ns = 1e6, .idle_ns = 3e6};
  r.late_ns = late_ns;
  r.waited_ns = 1e6 * number;
  r.memory_bytes = (uint64_t{8} - static_cast<uint64_t>(number)) << 30;
  return r;
}

LiveStatus Job(int ranks) {
  LiveStatus status;
  for (int i = 0; i < ranks; ++i) status.ranks.push_back(RankNumber(i, i == 2 ? 5e6 : 0));
  status.ranks.back().blocked_in = "cudaStreamSynchronize";
  status.ranks.back().python = "Loader.fetch (train.py:14)";
  status.ranks.back().blocked_ns = 2'500'000'000;
  status.ranks.back().host_in = "read of /data/shard-7, called from load (train.py:88)";
  status.ranks.back().host_in_ago_ns = 120'000'000;
  status.ranks.back().silent_ns = 3'200'000'000;
  status.ranks.back().range = "step/forward";
  status.ranks.back().last_call = "AllReduce seq 482";
  status.ranks.back().last_call_ago_ns = 3'000'000'000;
  status.ranks.back().trouble = "stopped (SIGSTOP)";
  status.hangs = {"AllReduce seq 483 has waited for 61 s."};
  status.idle_ns = 7;
  status.world_size = ranks;
  status.hosts = {"n1"};
  status.devices = {"NVIDIA H100"};
  status.cuda = "13.0";
  status.nccl = "2.28.9";
  status.steps = 100;
  status.step = status.ranks.front().step;
  status.wait_share = 0.25;
  if (ranks > 2) status.slowest = 2;
  status.memory_bytes = uint64_t{8} << 30;
  status.records = (uint64_t{1} << 53) - 1;
  status.lost = 3;
  return status;
}

TEST(LiveJson, WhatIsWrittenIsRead) {
  const std::string text = LiveJson(Job(4));
  const absl::StatusOr<LiveStatus> read = ParseLiveJson(text);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(LiveJson(*read), text);
  EXPECT_EQ(read->records, (uint64_t{1} << 53) - 1);
  EXPECT_EQ(read->ranks[3].blocked_in, "cudaStreamSynchronize");
  EXPECT_EQ(read->ranks[3].python, "Loader.fetch (train.py:14)");
  EXPECT_EQ(read->ranks[3].host_in, "read of /data/shard-7, called from load (train.py:88)");
  EXPECT_EQ(read->ranks[3].host_in_ago_ns, 120'000'000U);
  EXPECT_EQ(read->ranks[3].silent_ns, 3'200'000'000U);
  EXPECT_EQ(read->slowest, 2U);
}

TEST(LiveJson, WhatSomebodyElseWroteIsReadOrRefused) {
  for (const std::string text : {"", "[]", "7", "{", "\xff", "nul"})
    EXPECT_FALSE(ParseLiveJson(text).ok()) << text;
  const absl::StatusOr<LiveStatus> read = ParseLiveJson(
      R"({"hangs": [1, "x"], "steps": -4, "lost": 1e300, "world_size": 3e9, "slowest": 7, "step": 5, "hosts": {},
          "records": "many", "ranks": [3, {"rank": "a", "steps": true, "host": "\u001b[2J", "memory_bytes": 12.7}]})");
  ASSERT_TRUE(read.ok());
  EXPECT_THAT(read->hangs, ElementsAre("", "x"));
  EXPECT_EQ(read->steps + read->lost + read->records + read->ranks.at(0).steps, 0U);
  EXPECT_EQ(read->world_size, 0);
  EXPECT_EQ(read->slowest, std::nullopt) << "there is no such rank";
  EXPECT_EQ(read->ranks[0].memory_bytes, 12U);
  EXPECT_THAT(LiveScreen(*read), Not(HasSubstr("\x1b")));
  EXPECT_THAT(LiveRankScreen(*read, 0, {}), Not(HasSubstr("\x1b")));
}

TEST(LiveJson, NamesInAnyEncodingAreWritten) {
  LiveStatus status = Job(1);
  status.ranks[0].host = "n\xff";
  EXPECT_TRUE(ParseLiveJson(LiveJson(status)).ok());
}

TEST(OrderOf, LargestFirstAndRanksAsTheyCome) {
  const LiveStatus status = Job(4);
  EXPECT_THAT(OrderOf(status, LiveOrder::kRank), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(OrderOf(status, LiveOrder::kLate), ElementsAre(2, 0, 1, 3));
  EXPECT_THAT(OrderOf(status, LiveOrder::kWaited), ElementsAre(3, 2, 1, 0));
  EXPECT_THAT(OrderOf(status, LiveOrder::kMemory), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(OrderOf(status, LiveOrder::kStep), ElementsAre(0, 1, 2, 3)) << "all are the same";
}

TEST(LiveScreen, SaysWhatTheHostOfASilentRankIsIn) {
  constexpr char kWords[] =
      "has launched nothing for 3.20 s: in read of /data/shard-7, called from load (train.py:88) (seen 120 "
      "ms ago)";
  LiveStatus status = Job(4);
  Screen wide;
  wide.width = 200;
  EXPECT_THAT(LiveScreen(status, {}, wide), HasSubstr(std::string("rank 3 ") + kWords));
  EXPECT_THAT(LiveRankScreen(status, 3, {}, wide), HasSubstr(std::string("its host ") + kWords));
  status.ranks[3].silent_ns = 300'000'000;
  EXPECT_THAT(LiveScreen(status, {}, wide), Not(HasSubstr("has launched nothing")))
      << "a pause of 300 ms is nothing to say of a rank that nobody waits for";
  status.slowest = 3;
  EXPECT_THAT(LiveScreen(status, {}, wide), HasSubstr("rank 3 has launched nothing for 300 ms: in read of"));
  status.ranks[3].host_in.clear();
  EXPECT_THAT(LiveScreen(status, {}, wide), Not(HasSubstr("has launched nothing")));
}

TEST(LiveScreen, RanksThatWaitForTheirDeviceComeAfterTheOthers) {
  LiveStatus status = Job(8);
  for (LiveRank& r : status.ranks) {
    r.host_in = "cuStreamSynchronize";
    r.blocked_in = "cuStreamSynchronize";
    r.silent_ns = 9'000'000'000;
  }
  status.ranks[5].host_in = "load (train.py:88)";
  status.ranks[5].blocked_in.clear();
  status.ranks[5].silent_ns = 8'000'000'000;
  const std::string screen = LiveScreen(status);
  const size_t first = screen.find("rank 5 has launched nothing");
  ASSERT_NE(first, std::string::npos);
  EXPECT_EQ(screen.find("has launched nothing"), first + std::string("rank 5 ").size());
  size_t said = 0;
  for (size_t at = 0; (at = screen.find("has launched nothing", at)) != std::string::npos; ++at) ++said;
  EXPECT_EQ(said, 3U);
}

TEST(LiveScreen, ManyRanksAreThoseInTroubleOrLate) {
  const std::string screen = LiveScreen(Job(40));
  EXPECT_THAT(screen, HasSubstr("the 32 latest of 40 ranks"));
  EXPECT_THAT(screen, HasSubstr("n1/39"));
  EXPECT_LT(screen.find("n1/39"), screen.find("n1/2 "));
}

TEST(LiveScreen, ASelectionScrolls) {
  LiveView view;
  view.rows = 3;
  view.first = 3;
  view.selected = 4;
  const std::string screen = LiveScreen(Job(8), view);
  EXPECT_THAT(screen, HasSubstr("> n1/4"));
  EXPECT_THAT(screen, HasSubstr("  n1/3"));
  EXPECT_THAT(screen, HasSubstr("3 of 8 ranks, from the 4. on"));
  EXPECT_THAT(screen, Not(HasSubstr("n1/2 ")));
  EXPECT_THAT(screen, Not(HasSubstr("n1/6 ")));
}

TEST(LiveLine, LeavesOutWhatIsLeastNeeded) {
  analysis::LiveStatus status = Job(4);
  status.ranks.back().trouble.clear();
  status.idle_ns = 0;
  status.lost = 0;
  const std::string whole = LiveLine(status, {.width = 200});
  EXPECT_EQ(LiveLineWithin(status, {.width = 200}, whole.size()), whole);
  size_t before = whole.size() + 1;
  for (size_t columns = whole.size(); columns >= 50; --columns) {
    const std::string line = LiveLineWithin(status, {.width = 200}, columns);
    EXPECT_LE(line.size(), columns) << line;
    EXPECT_LE(line.size(), before);
    before = line.size();
    EXPECT_THAT(line, AllOf(HasSubstr("step "), HasSubstr(" late by ")));
  }
  status.lost = 7;
  EXPECT_THAT(LiveLineWithin(status, {.width = 200}, 10), AllOf(HasSubstr(" late by "), HasSubstr("lost 7")));
}

TEST(LiveScreen, HangsAreRedOnlyWhereThereAreColours) {
  EXPECT_THAT(LiveScreen(Job(2)), HasSubstr("HANG  AllReduce seq 483"));
  EXPECT_THAT(LiveScreen(Job(2), {}, {.width = 100, .colors = true}), HasSubstr("\x1b[1;31mHANG"));
}

TEST(LiveRankScreen, SaysWhatTheRankDoesAndDid) {
  const LiveStatus status = Job(4);
  const std::string screen = LiveRankScreen(
      status, 3,
      {{.ago_ns = 0, .rank = status.ranks[3]}, {.ago_ns = 1'000'000'000, .rank = RankNumber(3, 0)}});
  EXPECT_THAT(screen, HasSubstr("rank 3 on n1, process 4003\n  stopped (SIGSTOP)\n"));
  EXPECT_THAT(
      screen,
      HasSubstr("its main thread has waited in cudaStreamSynchronize for 2.50 s in range step/forward"));
  EXPECT_THAT(screen, HasSubstr("\n  in Python it stays in Loader.fetch (train.py:14)\n"));
  EXPECT_THAT(screen, HasSubstr("its last call of a collective was AllReduce seq 482, 3.00 s ago"));
  EXPECT_THAT(screen, HasSubstr("\n    now    100  20.0 ms"));
  EXPECT_THAT(screen, HasSubstr("\n 1.00 s    100  20.0 ms"));
}

}  // namespace
}  // namespace gpuprobe::render
