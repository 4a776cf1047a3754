#include "injector/probe/sender.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <memory>
#include <string>
#include <thread>

#include "injector/base/losses.h"
#include "proto/limits.h"
#include "tests/injector/support/frames.h"
#include "tests/injector/support/send_queue_counts.h"

namespace gpuprobe::injector {
namespace {

using testing::ParseFrames;

class SenderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    connection_.Adopt(ends[0]);
    peer_ = ends[1];
    history_.Init();
    ASSERT_TRUE(queue_.Init(size_t{8} << 20));
    identity_.rank = 3;
    std::strcpy(identity_.host, "n1");
    std::memcpy(identity_.command_line, "python\0train.py\0", 16);
    identity_.command_line_bytes = 16;
  }
  void TearDown() override { ClosePeer(); }
  // Another collector.
  void Reconnect() {
    ClosePeer();
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    connection_.Adopt(ends[0]);
    peer_ = ends[1];
  }
  void Welcome(uint64_t last_sequence) {
    v1::Control control;
    control.mutable_welcome()->set_last_sequence(last_sequence);
    Say(control);
  }
  void Acknowledge(uint64_t sequence) {
    v1::Control control;
    control.set_acknowledged(sequence);
    Say(control);
  }
  void ClosePeer() {
    if (peer_ >= 0) close(peer_);
    peer_ = -1;
  }
  void PutBatch(uint64_t sequence, size_t padding = 0) {
    char* memory = queue_.Reserve(padding + 64);
    ASSERT_NE(memory, nullptr);
    WireBuffer body{memory + kFramePrefixBytes, padding + 32};
    {
      WireWriter batch(body);
      batch.add_uint64(1, sequence);
      if (padding > 32) batch.add_bytes(1000, std::string(padding - 32, 'p'));
    }
    const size_t prefix = WriteFramePrefix(memory, wire::FrameTag::kBatch, body.size);
    queue_.Commit(kFramePrefixBytes - prefix, prefix + body.size, 10, sequence);
  }
  std::string ReadAvailable() {
    std::string bytes;
    char buffer[65536];
    ssize_t got = 0;
    while ((got = recv(peer_, buffer, sizeof(buffer), MSG_DONTWAIT)) > 0)
      bytes.append(buffer, static_cast<size_t>(got));
    return bytes;
  }
  void Say(const v1::Control& control) {
    v1::Frame frame;
    *frame.mutable_control() = control;
    const std::string body = frame.SerializeAsString();
    const std::string bytes = std::string(1, static_cast<char>(body.size())) + body;
    ASSERT_EQ(write(peer_, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  }

  Identity identity_;
  SendQueue queue_;
  Connection connection_;
  DefinitionHistory history_;
  Sender sender_{&queue_, &connection_, &history_};
  int peer_ = -1;
};

TEST_F(SenderTest, HelloGoesFirstThenTheQueueThenBye) {
  PutBatch(1);
  ASSERT_TRUE(
      sender_.Greet(identity_, {.has_gpu_times = true, .loaded_by = wire::LoadedBy::kLoadedByPreload}));
  PutBatch(2);
  ASSERT_TRUE(sender_.Pump(100));
  ASSERT_TRUE(sender_.SayBye({.reason = wire::ByeReason::kByeReasonExit, .batches = 2, .records = 20}, 100));
  const auto frames = ParseFrames(ReadAvailable());
  ASSERT_EQ(frames.size(), 4u);
  const v1::Hello& hello = frames[0].hello();
  EXPECT_EQ(hello.protocol_major(), wire::kProtocolMajor);
  EXPECT_EQ(hello.identity().rank(), 3);
  EXPECT_EQ(hello.identity().host(), "n1");
  ASSERT_EQ(hello.identity().command_line_size(), 2);
  EXPECT_EQ(hello.identity().command_line(1), "train.py");
  EXPECT_EQ(hello.timing_source(), v1::TIMING_SOURCE_CUPTI_ACTIVITY);
  EXPECT_EQ(hello.loaded_by(), v1::LOADED_BY_PRELOAD);
  EXPECT_EQ(frames[1].batch().sequence(), 1u);
  EXPECT_EQ(frames[2].batch().sequence(), 2u);
  EXPECT_EQ(frames[3].bye().reason(), v1::BYE_REASON_EXIT);
  EXPECT_EQ(frames[3].bye().batches(), 2u);
  EXPECT_EQ(frames[3].bye().records(), 20u);
}

TEST_F(SenderTest, TheCollectorMayEndTheRecording) {
  ASSERT_TRUE(sender_.Greet(identity_, {}));
  ASSERT_TRUE(sender_.Pump(100));
  EXPECT_FALSE(sender_.asked_to_detach());
  v1::Control control;
  control.set_detach(true);
  Say(control);
  sender_.ListenForFlush();
  EXPECT_TRUE(sender_.asked_to_detach());
  EXPECT_FALSE(sender_.ended()) << "what waits is still delivered";
}

TEST_F(SenderTest, ASlowCollectorGetsEveryByteInTheEnd) {
  ASSERT_TRUE(sender_.Greet(identity_, {}));
  for (uint64_t i = 1; i <= 5; ++i) PutBatch(i, 1 << 20);
  EXPECT_FALSE(sender_.Pump(0));  // the socket's buffer is far smaller
  EXPECT_FALSE(sender_.ended());
  std::string bytes;
  std::thread reader([&] {
    char buffer[4096];
    ssize_t got = 0;
    while ((got = read(peer_, buffer, sizeof(buffer))) > 0) bytes.append(buffer, static_cast<size_t>(got));
  });
  EXPECT_TRUE(sender_.Pump(20000));
  connection_.Close();
  reader.join();
  const auto frames = ParseFrames(bytes);
  ASSERT_EQ(frames.size(), 6u);
  EXPECT_EQ(frames[5].batch().sequence(), 5u);
}

TEST_F(SenderTest, WhatADeadCollectorHadNotAcknowledgedGoesToTheNextOne) {
  signal(SIGPIPE, SIG_DFL);  // would end this process
  ASSERT_TRUE(sender_.Greet(identity_, {}));
  ASSERT_TRUE(sender_.Pump(100));
  ClosePeer();
  PutBatch(1);
  PutBatch(2);
  EXPECT_FALSE(sender_.Pump(100));
  EXPECT_TRUE(sender_.broken());
  EXPECT_FALSE(sender_.ended());
  EXPECT_FALSE(connection_.open());
  EXPECT_FALSE(sender_.SayBye({.batches = 2}, 100));
  EXPECT_EQ(SendQueueCounts::Kept(queue_), 2u);
  Reconnect();
  ASSERT_TRUE(sender_.Greet(identity_, {.instance = 7}));
  EXPECT_FALSE(sender_.Pump(20)) << "only the collector knows where to go on";
  auto frames = ParseFrames(ReadAvailable());
  ASSERT_EQ(frames.size(), 1u);
  EXPECT_EQ(frames[0].hello().instance(), 7u);
  EXPECT_EQ(frames[0].hello().first_sequence(), 1u);
  Welcome(1);
  ASSERT_TRUE(sender_.Pump(1000));
  frames = ParseFrames(ReadAvailable());
  ASSERT_EQ(frames.size(), 1u);
  EXPECT_EQ(frames[0].batch().sequence(), 2u);
  EXPECT_EQ(LossCount(wire::LossReason::kLossNotConnected), 0u);
}

TEST_F(SenderTest, DefinitionsAreRestatedBeforeTheBatchesThatACollectorLacks) {
  const std::string names = "names, encoded";
  {
    char bytes[64];
    WireBuffer out{bytes, sizeof(bytes)};
    WireWriter(out).add_bytes(1000, names);
    history_.Append(out.data, out.size);
  }
  ASSERT_TRUE(sender_.Greet(identity_, {}));
  Welcome(0);
  for (uint64_t i = 1; i <= 4; ++i) PutBatch(i);
  ASSERT_TRUE(sender_.Pump(100));
  Acknowledge(3);
  sender_.ListenForFlush();
  EXPECT_EQ(SendQueueCounts::Kept(queue_), 1u);
  ClosePeer();
  sender_.ListenForFlush();
  ASSERT_TRUE(sender_.broken());
  Reconnect();
  ASSERT_TRUE(sender_.Greet(identity_, {}));
  Welcome(0);  // a new run: it has nothing of us
  ASSERT_TRUE(sender_.Pump(1000));
  const auto frames = ParseFrames(ReadAvailable());
  ASSERT_EQ(frames.size(), 3u);
  EXPECT_EQ(frames[0].hello().first_sequence(), 4u);
  EXPECT_EQ(frames[0].hello().records_before(), 30u);
  EXPECT_TRUE(frames[1].batch().restated());
  EXPECT_THAT(frames[1].SerializeAsString(), ::testing::HasSubstr(names));
  EXPECT_EQ(frames[2].batch().sequence(), 4u);
}

TEST_F(SenderTest, AnAcknowledgementFreesOnlyWhatWasSent) {
  ASSERT_TRUE(sender_.Greet(identity_, {}));
  Welcome(0);
  PutBatch(1);
  ASSERT_TRUE(sender_.Pump(100));
  PutBatch(2);
  Acknowledge(5);
  sender_.ListenForFlush();
  EXPECT_EQ(SendQueueCounts::Kept(queue_), 1u);
  ASSERT_TRUE(sender_.Pump(100));
  EXPECT_EQ(ParseFrames(ReadAvailable()).back().batch().sequence(), 2u);
}

TEST_F(SenderTest, ACollectorThatEndsInOrderIsNotLookedForAgain) {
  ASSERT_TRUE(sender_.Greet(identity_, {}));
  PutBatch(1);
  v1::Control control;
  control.set_ended(true);
  Say(control);
  ClosePeer();
  EXPECT_FALSE(sender_.ListenForFlush());
  EXPECT_TRUE(sender_.ended());
  EXPECT_FALSE(sender_.broken());
  EXPECT_EQ(LossCount(wire::LossReason::kLossNotConnected), 10u);
}

TEST_F(SenderTest, ByeIsOverWhenTheCollectorSaysSo) {
  ASSERT_TRUE(sender_.Greet(identity_, {}));
  Welcome(0);
  ASSERT_TRUE(sender_.SayBye({}, 100));
  EXPECT_FALSE(sender_.AwaitComplete(1000, 30)) << "it said nothing";
  v1::Control control;
  control.set_complete(true);
  Say(control);
  EXPECT_TRUE(sender_.AwaitComplete(1000, 1000));
}

TEST_F(SenderTest, ARefusalEndsSendingWithItsReason) {
  ASSERT_TRUE(sender_.Greet(identity_, {}));
  v1::Control control;
  control.set_refused("this collector speaks protocol 2, the probe 1");
  Say(control);
  EXPECT_FALSE(sender_.ListenForFlush());
  EXPECT_TRUE(sender_.ended());
  EXPECT_STREQ(sender_.refusal(), "this collector speaks protocol 2, the probe 1");
}

TEST_F(SenderTest, AFlushThatArrivesInPiecesIsUnderstood) {
  v1::Frame frame;
  frame.mutable_control()->set_flush(true);
  const std::string body = frame.SerializeAsString();
  const std::string bytes = std::string(1, static_cast<char>(body.size())) + body;
  for (size_t i = 0; i < bytes.size(); ++i) {
    ASSERT_EQ(write(peer_, &bytes[i], 1), 1);
    EXPECT_EQ(sender_.ListenForFlush(), i + 1 == bytes.size());
  }
  EXPECT_FALSE(sender_.ListenForFlush());
  EXPECT_FALSE(sender_.ended());
}

TEST_F(SenderTest, WhatIsUnfinishedIsAskedForOnceAndMeansAFlush) {
  v1::Control control;
  control.set_flush_unfinished(true);
  Say(control);
  EXPECT_TRUE(sender_.ListenForFlush());
  EXPECT_TRUE(sender_.TakeUnfinished());
  EXPECT_FALSE(sender_.TakeUnfinished());
  control.Clear();
  control.set_flush(true);
  Say(control);
  EXPECT_TRUE(sender_.ListenForFlush());
  EXPECT_FALSE(sender_.TakeUnfinished());
}

TEST_F(SenderTest, GarbageFromTheCollectorEndsSending) {
  const char garbage[] = "\xff\xff\xff\xff\xff\xff\xff\x7f garbage";
  ASSERT_GT(write(peer_, garbage, sizeof(garbage)), 0);
  EXPECT_FALSE(sender_.ListenForFlush());
  EXPECT_TRUE(sender_.ended());
}

TEST_F(SenderTest, ADescriptorThatTheProgramTookOverIsNotWrittenTo) {
  // Daemons close descriptors that they do not know and open their own under the same numbers.
  ASSERT_TRUE(sender_.Greet(identity_, {}));
  ASSERT_TRUE(sender_.Pump(100));
  int victim = -1;
  for (int fd = 512; fd < 1024; ++fd) {
    if (fcntl(fd, F_GETFD) >= 0) victim = fd;
  }
  ASSERT_GE(victim, 512) << "the connection keeps away from low descriptor numbers";
  char path[] = "/tmp/gpuprobe-sender-test-XXXXXX";
  const int file = mkstemp(path);
  ASSERT_GE(file, 0);
  ASSERT_EQ(dup2(file, victim), victim);
  PutBatch(1);
  EXPECT_FALSE(sender_.Pump(100));
  EXPECT_TRUE(sender_.broken());
  EXPECT_EQ(lseek(file, 0, SEEK_END), 0) << "the program's file was written to";
  EXPECT_GE(fcntl(victim, F_GETFD), 0) << "the program's descriptor was closed";
  close(victim);
  close(file);
  unlink(path);
}

}  // namespace
}  // namespace gpuprobe::injector
