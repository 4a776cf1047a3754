#include "collector/model/process/host_witness.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>

#include <map>
#include <string>
#include <vector>

#include "collector/model/process/host_frames.h"
#include "collector/records/process_names.h"

namespace gpuprobe::model {
namespace {

constexpr uint32_t kMainThread = 1;
constexpr uint32_t kAutogradThread = 2;
constexpr uint32_t kOtherThread = 3;

class HostWitnessTest : public ::testing::Test {
 protected:
  uint32_t String(const std::string& text) {
    const auto [known, added] = strings_.try_emplace(text, strings_.size() + 1);
    v1::StringDef def;
    def.set_id(known->second);
    def.set_value(text);
    if (added) {
      EXPECT_TRUE(names_.On(def).ok());
    }
    return known->second;
  }
  uint32_t Frame(const std::string& function, const std::string& file, uint32_t line, uint32_t caller = 0) {
    v1::HostFrame def;
    def.set_id(++frame_);
    def.set_caller(caller);
    def.set_function(String(function));
    def.set_file(String(file));
    def.set_line(line);
    frames_.On(def, names_);
    return frame_;
  }
  void Thread(uint32_t thread, v1::ThreadState state, int32_t system_call, uint32_t frame = 0,
              const std::string& call = "") {
    threads_.push_back({.time_ns = 20,
                        .since_ns = 10,
                        .thread = thread,
                        .in_gap = true,
                        .state = state,
                        .call = call.empty() ? 0 : String(call),
                        .system_call = system_call,
                        .frame = frame});
  }
  HostSample Witness() const { return WitnessOf(threads_, kMainThread, kAutogradThread, frames_); }
  const std::string& Text(uint32_t id) const { return names_.String(id); }

  std::map<std::string, uint32_t> strings_;
  uint32_t frame_ = 0;
  ProcessNames names_;
  HostFrames frames_;
  std::vector<HostSampleRecord> threads_;
};

TEST_F(HostWitnessTest, TheProgramsOwnLineIsTheInnermostOutsideOfLibraries) {
  const uint32_t train = Frame("train", "/home/me/train.py", 14);
  const uint32_t empty =
      Frame("empty_cache", "/usr/lib/python3/dist-packages/torch/cuda/memory.py", 162, train);
  Thread(kMainThread, v1::THREAD_STATE_RUNNING, -1, empty, "cuMemFree_v2");
  const HostPlace place = Witness().place;
  EXPECT_EQ(Text(place.call), "cuMemFree_v2");
  EXPECT_EQ(Text(place.at.function), "empty_cache");
  EXPECT_EQ(Text(place.own.function), "train");
  EXPECT_EQ(place.own.line, 14);
  EXPECT_EQ(place.task, HostTask::kEmptiesCache);
}

TEST_F(HostWitnessTest, AThreadThatWaitsForOneAtWorkIsExplainedByThatOne) {
  const uint32_t train = Frame("train", "train.py", 20);
  const uint32_t backward = Frame("backward", "/x/site-packages/torch/_tensor.py", 522, train);
  Thread(kMainThread, v1::THREAD_STATE_SLEEPING, SYS_futex, backward);
  Thread(kAutogradThread, v1::THREAD_STATE_RUNNING, -1, 0, "cuMemAlloc_v2");
  const HostPlace place = Witness().place;
  EXPECT_EQ(Text(place.call), "cuMemAlloc_v2");
  EXPECT_EQ(Text(place.own.function), "train") << "that is where the main thread waits for it";
  EXPECT_EQ(place.own.line, 20);
}

TEST_F(HostWitnessTest, AThreadInItsOwnCodeExplainsItself) {
  const uint32_t train = Frame("train", "train.py", 20);
  const uint32_t log = Frame("send", "logger.py", 5);
  Thread(kMainThread, v1::THREAD_STATE_RUNNING, -1, train);
  Thread(kOtherThread, v1::THREAD_STATE_RUNNING, -1, log);
  EXPECT_EQ(Text(Witness().place.own.function), "train");
  threads_.clear();
  Thread(kMainThread, v1::THREAD_STATE_SLEEPING, SYS_write, train);
  Thread(kOtherThread, v1::THREAD_STATE_RUNNING, -1, log);
  EXPECT_EQ(Text(Witness().place.own.function), "train") << "it waits for a file";
}

TEST_F(HostWitnessTest, AThreadThatHoldsTheInterpreterExplainsTheOneThatWaitsForIt) {
  const uint32_t train = Frame("train", "train.py", 20);
  const uint32_t step = Frame("step", "/x/site-packages/torch/optim/adam.py", 230, train);
  const uint32_t busy = Frame("index", "indexer.py", 7);
  Thread(kMainThread, v1::THREAD_STATE_SLEEPING, SYS_futex, step);
  Thread(kAutogradThread, v1::THREAD_STATE_SLEEPING, SYS_futex);
  Thread(kOtherThread, v1::THREAD_STATE_RUNNING, -1, busy);
  EXPECT_EQ(Text(Witness().place.own.function), "index");
  EXPECT_EQ(Witness().place.task, HostTask::kUnknown) << "the optimizer only waits";
}

TEST_F(HostWitnessTest, TheLineOfAThreadThatHoldsPythonsLockIsSaidToBeThatThreads) {
  const uint32_t train = Frame("train", "train.py", 20);
  const uint32_t busy = Frame("index", "indexer.py", 7);
  Thread(kMainThread, v1::THREAD_STATE_SLEEPING, SYS_futex, train);
  Thread(kOtherThread, v1::THREAD_STATE_RUNNING, -1, busy);
  EXPECT_EQ(Witness().place.kind, HostPlace::Kind::kCode) << "which lock is not known";
  threads_[0].call = kTakesLock;
  EXPECT_EQ(Witness().place.kind, HostPlace::Kind::kLockHeld);
  EXPECT_EQ(Text(Witness().place.own.function), "index");
  threads_.pop_back();
  EXPECT_EQ(Witness().place, HostPlace{.kind = HostPlace::Kind::kLockHeld}) << "who holds it was not seen";
}

TEST_F(HostWitnessTest, ALoaderThatWaitsForPythonsLockIsNoLoading) {
  Thread(kMainThread, v1::THREAD_STATE_SLEEPING, SYS_futex, Frame("Samples.__getitem__", "data.py", 5));
  Thread(kOtherThread, v1::THREAD_STATE_RUNNING, -1, Frame("index", "indexer.py", 7));
  EXPECT_EQ(Witness().place.task, HostTask::kLoads) << "its own lock";
  threads_[0].call = kTakesLock;
  EXPECT_EQ(Witness().place.kind, HostPlace::Kind::kLockHeld);
  EXPECT_EQ(Text(Witness().place.own.function), "index");
}

TEST_F(HostWitnessTest, WhereAllWaitTheLauncherExplainsItself) {
  const uint32_t train = Frame("train", "train.py", 20);
  Thread(kOtherThread, v1::THREAD_STATE_SLEEPING, SYS_ppoll, Frame("run", "server.py", 1));
  Thread(kMainThread, v1::THREAD_STATE_SLEEPING, SYS_futex, train);
  EXPECT_EQ(Text(Witness().place.own.function), "train");
  EXPECT_EQ(Witness().place.system_call, SYS_futex);
}

TEST_F(HostWitnessTest, WaitingForLoaderWorkersIsLoading) {
  const uint32_t train = Frame("train", "train.py", 12);
  const uint32_t next = Frame("_MultiProcessingDataLoaderIter._try_get_data",
                              "/x/site-packages/torch/utils/data/dataloader.py", 1251, train);
  const uint32_t get = Frame("get", "/usr/lib/python3.11/multiprocessing/queues.py", 113, next);
  Thread(kMainThread, v1::THREAD_STATE_SLEEPING, SYS_futex, get);
  Thread(kOtherThread, v1::THREAD_STATE_RUNNING, -1, Frame("flush", "writer.py", 3));
  EXPECT_EQ(Witness().place.task, HostTask::kLoads);
  EXPECT_EQ(Text(Witness().place.own.function), "train");
}

TEST_F(HostWitnessTest, ReadingAFileIsLoadingUnlessTheCodeDoesSomethingElse) {
  Thread(kMainThread, v1::THREAD_STATE_SLEEPING, SYS_pread64, Frame("tokens", "train.py", 30));
  EXPECT_EQ(Witness().place.task, HostTask::kLoads);
  threads_.clear();
  Thread(kMainThread, v1::THREAD_STATE_SLEEPING, SYS_read,
         Frame("_save", "/x/site-packages/torch/serialization.py", 1000));
  EXPECT_EQ(Witness().place.task, HostTask::kSaves);
}

TEST_F(HostWitnessTest, FramesThatReferToNoneAreBoundedAndHarmless) {
  v1::HostFrame def;
  def.set_function(String("f"));
  def.set_file(String("f.py"));
  for (const uint32_t id : {uint32_t{0}, uint32_t{kMaxFrames}, UINT32_MAX}) {
    def.set_id(id);
    def.set_caller(id);
    frames_.On(def, names_);
    EXPECT_EQ(frames_.Of(id).at.function, 0);
  }
  def.set_id(7);
  def.set_caller(7);
  frames_.On(def, names_);
  EXPECT_EQ(Text(frames_.Of(7).own.function), "f");
  def.set_function(String("g"));
  frames_.On(def, names_);
  EXPECT_EQ(Text(frames_.Of(7).at.function), "f") << "an id keeps its meaning";
}

}  // namespace
}  // namespace gpuprobe::model
