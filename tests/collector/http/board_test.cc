// What is put on the board, and who is woken by it.
#include "collector/http/board.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace gpuprobe::http {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kNow{0};
constexpr milliseconds kLong{60'000};  // never reached: what is waited for comes

std::shared_ptr<const Moment> MomentOf(uint64_t number, uint64_t changes = 0) {
  auto moment = std::make_shared<Moment>();
  moment->number = number;
  moment->changes = changes;
  return moment;
}

std::shared_ptr<const Documents> DocumentsOf(uint64_t version, uint64_t changes = 0) {
  auto documents = std::make_shared<Documents>();
  documents->version = version;
  documents->changes = changes;
  return documents;
}

TEST(Board, GivesEachViewerWhatItHasNotSeen) {
  Board board;
  Board::Seen seen;
  Board::News news = board.Await(seen, kNow);
  EXPECT_EQ(news.moment, nullptr);
  EXPECT_EQ(news.documents, nullptr);

  board.Put(MomentOf(1));
  board.Put(DocumentsOf(1));
  news = board.Await(seen, kLong);
  ASSERT_NE(news.moment, nullptr);
  ASSERT_NE(news.documents, nullptr);
  EXPECT_EQ(board.Await(seen, kNow).moment, nullptr) << "it has seen both";

  board.Put(MomentOf(2));
  news = board.Await(seen, kLong);
  EXPECT_EQ(news.moment->number, 2U);
  EXPECT_EQ(news.documents, nullptr);
  Board::Seen other;
  EXPECT_EQ(board.Await(other, kLong).documents->version, 1U) << "who comes later sees what there is";
}

TEST(Board, KeepsTheLastDocumentsWhenOlderOnesAreMadeLate) {
  Board board;
  board.Put(DocumentsOf(UINT64_MAX));
  board.End();
  board.Put(DocumentsOf(7));
  EXPECT_EQ(board.documents()->version, UINT64_MAX);
}

TEST(Board, WakesViewersAtTheEndAndWhenItCloses) {
  Board board;
  std::thread ending([&] { board.End(); });
  Board::Seen seen;
  while (!board.Await(seen, kLong).ended) {
  }
  ending.join();
  EXPECT_TRUE(board.ended());
  std::thread closing([&] { board.Close(); });
  while (!board.Await(seen, kLong).closed) {
  }
  closing.join();
}

TEST(Board, WantsDocumentsWhileSomebodyLooks) {
  Board board;
  EXPECT_FALSE(board.WantsDocuments()) << "nobody looks: nothing is made";
  board.Enter();
  EXPECT_TRUE(board.WantsDocuments());
  EXPECT_EQ(board.viewers(), 1U);
  board.Leave();
  EXPECT_EQ(board.viewers(), 0U);
  EXPECT_FALSE(board.WantsDocuments());
  EXPECT_EQ(board.FreshDocuments(kNow), nullptr);
  EXPECT_TRUE(board.WantsDocuments()) << "somebody asked a moment ago";
}

TEST(Board, TheFirstWhoAsksWaitsForDocumentsAsNewAsTheMoment) {
  Board board;
  board.Put(MomentOf(1, /*changes=*/5));
  board.Put(DocumentsOf(1, /*changes=*/3));
  std::thread making([&] { board.Put(DocumentsOf(2, /*changes=*/5)); });
  EXPECT_EQ(board.FreshDocuments(kLong)->version, 2U);
  making.join();
  // Others look already, so that what there is is kept up to date.
  board.Put(MomentOf(2, /*changes=*/9));
  EXPECT_EQ(board.FreshDocuments(kNow)->version, 2U);
}

TEST(Board, AStepThatSomebodyAskedForIsWaitedFor) {
  Board board;
  board.Put(DocumentsOf(1));
  EXPECT_FALSE(board.LacksWantedStep());
  std::thread making([&] {
    while (!board.LacksWantedStep()) std::this_thread::yield();
    auto documents = std::make_shared<Documents>();
    documents->version = 2;
    documents->wanted_steps = board.wanted_steps();
    board.Put(std::shared_ptr<const Documents>(std::move(documents)));
  });
  EXPECT_EQ(board.DocumentsWith(7, std::chrono::seconds(20))->version, 2U);
  making.join();
  EXPECT_FALSE(board.LacksWantedStep());
  for (uint64_t step = 8; step < 12; ++step) board.DocumentsWith(step, std::chrono::milliseconds(0));
  EXPECT_EQ(board.wanted_steps(), (std::vector<uint64_t>{8, 9, 10, 11})) << "only the last ones are kept";
}

TEST(Board, DoesNotWaitForNewerDocumentsOfARunThatIsOver) {
  Board board;
  board.Put(MomentOf(1, /*changes=*/5));
  board.Put(DocumentsOf(1, /*changes=*/3));
  board.End();
  EXPECT_EQ(board.FreshDocuments(kLong)->version, 1U);
  EXPECT_TRUE(board.IsAlive());
}

TEST(LazyText, IsMadeOnceByTheFirstWhoAsks) {
  const LazyText text;
  int made = 0;
  const auto make = [&] { return std::to_string(++made); };
  EXPECT_EQ(text.Get(make), "1");
  EXPECT_EQ(text.Get(make), "1");
  EXPECT_EQ(made, 1);
}

}  // namespace
}  // namespace gpuprobe::http
