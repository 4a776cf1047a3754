#include "collector/timeline/reorder_window.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gpuprobe::timeline {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<int> Drained(ReorderWindow<int>& window, bool all) {
  std::vector<int> out;
  window.Drain(all, [&](int record) { out.push_back(record); });
  return out;
}

TEST(ReorderWindow, HoldsBackAsManyAsItsSize) {
  ReorderWindow<int> window(2);
  for (const int time : {3, 1, 2}) window.Add(static_cast<uint64_t>(time), 10, 0, time);
  EXPECT_THAT(Drained(window, false), IsEmpty());
  window.Add(4, 10, 0, 4);
  EXPECT_THAT(Drained(window, false), ElementsAre(1, 2));
  window.Add(0, 10, 0, 0);  // comes late
  EXPECT_THAT(Drained(window, true), ElementsAre(0, 3, 4));
}

TEST(ReorderWindow, AnEnclosingRangeComesBeforeWhatIsInIt) {
  ReorderWindow<int> window(8);
  window.Add(5, 6, 2, 3);
  window.Add(5, 9, 1, 1);
  window.Add(5, 6, 1, 2);
  EXPECT_THAT(Drained(window, true), ElementsAre(1, 2, 3));
}

}  // namespace
}  // namespace gpuprobe::timeline
