// The bounds against a count over all moments, and against courses that can have happened.
#include "collector/model/memory/level_bounds.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "collector/model/memory/memory_ledger.h"
#include "injector/core/small_run.h"

namespace gpuprobe::model {
namespace {

struct Call {
  uint64_t began_ns;
  uint64_t ended_ns;
  int64_t bytes;  // negative: released
};

// What each of `threads` does, one call after the other; in the order of the calls' ends.
std::vector<Call> Calls(int threads, int count, std::mt19937& random) {
  std::vector<Call> calls;
  std::vector<uint64_t> now(static_cast<size_t>(threads), 1000);
  std::vector<std::vector<int64_t>> held(static_cast<size_t>(threads));
  const auto upto = [&](uint64_t most) { return std::uniform_int_distribution<uint64_t>(0, most)(random); };
  for (int i = 0; i < count; ++i) {
    const size_t thread = upto(static_cast<uint64_t>(threads) - 1);
    const uint64_t began = now[thread] + 1 + upto(5);
    now[thread] = began + 1 + upto(i % 7 == 0 ? 200 : 8);
    if (!held[thread].empty() && upto(99) < 45) {
      std::swap(held[thread][upto(held[thread].size() - 1)], held[thread].back());
      calls.push_back({began, now[thread], -held[thread].back()});
      held[thread].pop_back();
    } else {
      held[thread].push_back(static_cast<int64_t>(1 + upto(100)));
      calls.push_back({began, now[thread], held[thread].back()});
    }
  }
  std::stable_sort(calls.begin(), calls.end(),
                   [](const Call& a, const Call& b) { return a.ended_ns < b.ended_ns; });
  return calls;
}

// The highest level if each call did what it does at that time. Where one ends as another begins, the one
// that ends was first.
template <typename TimeOf>
uint64_t Highest(const std::vector<Call>& calls, TimeOf time_of) {
  std::map<std::pair<uint64_t, int>, int64_t> changes;
  for (const Call& call : calls) {
    const uint64_t time = time_of(call);
    changes[{time, time == call.ended_ns ? 0 : 1}] += call.bytes;
  }
  int64_t level = 0;
  int64_t highest = 0;
  for (const auto& [time, change] : changes) highest = std::max(highest, level += change);
  return static_cast<uint64_t>(highest);
}

LevelBounds BoundsOf(const std::vector<Call>& calls, uint64_t* mark) {
  LevelBounds bounds;
  uint64_t level = 0;
  *mark = 0;
  for (const Call& call : calls) {
    level += static_cast<uint64_t>(call.bytes);
    *mark = std::max(*mark, level);
    if (call.bytes > 0) {
      bounds.Raised(call.began_ns, call.ended_ns, static_cast<uint64_t>(call.bytes), level);
    } else {
      bounds.Lowered(call.began_ns, call.ended_ns, static_cast<uint64_t>(-call.bytes), level);
    }
  }
  return bounds;
}

uint64_t Begin(const Call& call) { return call.began_ns; }
uint64_t End(const Call& call) { return call.ended_ns; }

TEST(LevelBounds, AreThoseOfTheEarliestAndTheLatestCourse) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    const std::vector<Call> calls = Calls(2 + static_cast<int>(seed % 5), 60, random);
    uint64_t mark = 0;
    const LevelBounds bounds = BoundsOf(calls, &mark);
    EXPECT_EQ(bounds.most_bytes(),
              Highest(calls, [](const Call& c) { return c.bytes > 0 ? Begin(c) : End(c); }))
        << seed;
    EXPECT_EQ(bounds.least_bytes(),
              Highest(calls, [](const Call& c) { return c.bytes > 0 ? End(c) : Begin(c); }))
        << seed;
  }
}

TEST(LevelBounds, HoldWhateverHappenedAndHoweverLong) {
  for (unsigned seed = 0; seed < 40; ++seed) {
    std::mt19937 random(seed);
    const std::vector<Call> calls = Calls(1 + static_cast<int>(seed % 16), 1500, random);
    uint64_t mark = 0;
    const LevelBounds bounds = BoundsOf(calls, &mark);
    for (int course = 0; course < 20; ++course) {
      const uint64_t highest = Highest(calls, [&](const Call& c) {
        return std::uniform_int_distribution<uint64_t>(c.began_ns, c.ended_ns)(random);
      });
      EXPECT_LE(highest, bounds.most_bytes()) << seed;
      EXPECT_GE(highest, bounds.least_bytes()) << seed;
    }
    EXPECT_LE(mark, bounds.most_bytes());
    EXPECT_GE(mark, bounds.least_bytes());
  }
}

TEST(LevelBounds, AreTheMarkItselfWhereNoCallsOverlap) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    uint64_t mark = 0;
    const LevelBounds bounds = BoundsOf(Calls(1, 2000, random), &mark);
    EXPECT_EQ(bounds.ErrorOf(mark), 0u) << seed;
  }
}

TEST(LevelBounds, OneReleaseDuringAnAllocation) {
  LevelBounds bounds;
  bounds.Raised(10, 20, 100, 100);
  bounds.Lowered(25, 40, 100, 0);
  bounds.Raised(30, 50, 70, 70);  // 170, if it was there before the release
  EXPECT_EQ(bounds.least_bytes(), 100u);
  EXPECT_EQ(bounds.most_bytes(), 170u);
  EXPECT_EQ(bounds.ErrorOf(100), 70u);
}

// Calls of less than `smallest` bytes come as runs, as a probe adds them up.
LevelBounds BoundsOfRuns(const std::vector<Call>& calls, int64_t smallest) {
  MemoryLedger ledger;
  injector::SmallRun run;
  const auto end_run = [&] {
    if (run.empty()) return;
    ledger.AddSmall({.highest_ns = run.highest_ns(),
                     .end_ns = run.end_ns(),
                     .memory = v1::MEMORY_KIND_DEVICE,
                     .device = 0,
                     .allocations = run.allocations(),
                     .frees = run.frees(),
                     .rise_bytes = run.rise_bytes(),
                     .change_bytes = run.change_bytes(),
                     .range = 0,
                     .obtained_bytes = run.obtained().bytes,
                     .obtained_before_bytes = run.obtained().before_bytes,
                     .obtained_since_ns = run.obtained().since_ns,
                     .released_bytes = run.released().bytes,
                     .released_before_bytes = run.released().before_bytes,
                     .released_since_ns = run.released().since_ns});
    run = {};
  };
  uint64_t last_ns = 0;
  uint64_t told_ns = 0;
  bool told_small = true;
  for (const Call& call : calls) {
    const uint64_t bytes = static_cast<uint64_t>(std::abs(call.bytes));
    const auto op = call.bytes < 0 ? v1::ALLOCATION_OP_FREE : v1::ALLOCATION_OP_ALLOC;
    const bool small = std::abs(call.bytes) < smallest;
    told_ns = std::max(call.ended_ns, told_ns + (small && !told_small ? 1 : 0));
    told_small = small;
    if (small) {
      injector::AllocationEvent event{};
      event.time_ns = told_ns;
      event.began_ns = call.began_ns;
      event.bytes = bytes;
      event.op = static_cast<uint8_t>(op);
      run.Add(event, last_ns);
    } else {
      end_run();
      AllocationRecord record{};
      record.time_ns = told_ns;
      record.duration_ns = told_ns - call.began_ns;
      record.memory = v1::MEMORY_KIND_DEVICE;
      record.op = op;
      record.bytes = bytes;
      ledger.Add(record);
    }
    last_ns = call.ended_ns;
  }
  end_run();
  ledger.Finish();
  return ledger.kinds()[v1::MEMORY_KIND_DEVICE].bounds;
}

TEST(LevelBounds, HoldWhereSmallCallsComeAsRuns) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const int threads = 1 + static_cast<int>(seed % 16);
    const std::vector<Call> calls = Calls(threads, 600, random);
    uint64_t mark = 0;
    const LevelBounds exact = BoundsOf(calls, &mark);
    for (const int64_t smallest : {20, 60, 95, 1000}) {
      const LevelBounds bounds = BoundsOfRuns(calls, smallest);
      EXPECT_LE(bounds.least_bytes(), exact.least_bytes()) << seed;
      EXPECT_GE(bounds.most_bytes(), exact.most_bytes()) << seed;
      // Per run: the most that was under way at once, and all calls that began in it and ended later.
      const uint64_t most = threads == 1 ? 0 : 3 * static_cast<uint64_t>(threads) * 100;
      EXPECT_LE(bounds.ErrorOf(mark), most) << seed;
    }
  }
}

}  // namespace
}  // namespace gpuprobe::model
