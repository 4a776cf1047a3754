#include "collector/ingest/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "tests/collector/testing/batch_builder.h"

namespace gpuprobe::ingest {
namespace {

using gpuprobe::testing::BatchBuilder;
using gpuprobe::testing::ByeFrame;
using gpuprobe::testing::HelloFrame;
using gpuprobe::testing::MakeHello;
using gpuprobe::testing::Stream;
using ::testing::HasSubstr;

struct Seen {
  int hellos = 0;
  int batches = 0;
  int byes = 0;
  int closed = 0;
  bool cut_off = false;
  bool asks = false;
  std::optional<uint64_t> on_record;
  std::vector<std::string> raw;
  absl::Status batch_status;
};

class RecordingSink : public FrameSink {
 public:
  explicit RecordingSink(Seen& seen) : seen_(seen) {}
  absl::Status OnBatch(const v1::Batch&, std::string_view raw) override {
    ++seen_.batches;
    seen_.raw.emplace_back(raw);
    return seen_.batch_status;
  }
  void OnBye(const v1::Bye&, std::string_view) override { ++seen_.byes; }
  bool AsksForUnfinished() override { return std::exchange(seen_.asks, false); }
  std::optional<uint64_t> OnRecord() override { return seen_.on_record; }
  std::string RunDirectory() override { return "/runs/7"; }
  void OnClosed(bool cut_off) override {
    ++seen_.closed;
    seen_.cut_off = cut_off;
  }

 private:
  Seen& seen_;
};

class SessionTest : public ::testing::Test {
 protected:
  // Everything to one session, then the connection ends.
  absl::Status Converse(const std::string& bytes) {
    Session session(factory_);
    absl::Status status = session.Receive(bytes, reply_);
    name_ = session.name();
    return status;
  }
  std::string Refusal() const {
    v1::Frame frame;
    framing::FrameDecoder decoder;
    decoder.Append(reply_);
    const auto next = decoder.Take();
    if (!next.ok() || !next->has_frame) return "";
    frame.ParseFromArray(next->frame.data(), static_cast<int>(next->frame.size()));
    return frame.control().refused();
  }

  Seen seen_;
  std::string reply_;
  std::string name_;
  SinkFactory factory_ = [this](const v1::Hello&,
                                std::string_view) -> absl::StatusOr<std::unique_ptr<FrameSink>> {
    ++seen_.hellos;
    return std::make_unique<RecordingSink>(seen_);
  };
};

TEST_F(SessionTest, PassesFramesOnAsTheyCame) {
  const v1::Frame batch = BatchBuilder().String(1, "k").Site(1, 1).Kernel(10, 20, 1).Frame();
  EXPECT_TRUE(Converse(Stream({HelloFrame(MakeHello(3)), batch, batch, ByeFrame(2)})).ok());
  EXPECT_EQ(seen_.batches, 2);
  EXPECT_EQ(seen_.raw[0], batch.SerializeAsString());
  EXPECT_EQ(seen_.byes, 1);
  EXPECT_EQ(seen_.closed, 1);
  EXPECT_FALSE(seen_.cut_off);
  EXPECT_EQ(name_, "rank 3 (pid 1003)");
}

TEST_F(SessionTest, AClientIsAskedForWhatIsUnfinishedWhenItsSinkWantsThat) {
  seen_.asks = true;
  const v1::Frame batch = BatchBuilder().Frame();
  EXPECT_TRUE(Converse(Stream({HelloFrame(MakeHello(3)), batch, batch, ByeFrame(2)})).ok());
  v1::Frame asked;
  asked.mutable_control()->set_flush_unfinished(true);
  EXPECT_EQ(reply_, Stream({asked}));
}

v1::Frame ControlFrame(const v1::Control& control) {
  v1::Frame frame;
  *frame.mutable_control() = control;
  return frame;
}

v1::Frame Acknowledged(uint64_t sequence, bool complete = false) {
  v1::Control control;
  control.set_acknowledged(sequence);
  control.set_complete(complete);
  return ControlFrame(control);
}

TEST_F(SessionTest, HelloIsAnsweredWithWhatIsOnRecordAndWhere) {
  seen_.on_record = 33;
  Session session(factory_);
  EXPECT_TRUE(session.Receive(Stream({HelloFrame(MakeHello(3))}), reply_).ok());
  v1::Control control;
  control.mutable_welcome()->set_last_sequence(33);
  control.mutable_welcome()->set_run_directory("/runs/7");
  EXPECT_EQ(reply_, Stream({ControlFrame(control)}));
}

TEST_F(SessionTest, WhatHasComeToBeOnRecordIsAcknowledgedOnce) {
  seen_.on_record = 0;
  Session session(factory_);
  EXPECT_TRUE(session.Receive(Stream({HelloFrame(MakeHello(3)), BatchBuilder().Frame()}), reply_).ok());
  reply_.clear();
  session.Acknowledge(reply_);
  EXPECT_EQ(reply_, "");
  seen_.on_record = 5;
  session.Acknowledge(reply_);
  session.Acknowledge(reply_);
  EXPECT_EQ(reply_, Stream({Acknowledged(5)}));
}

TEST_F(SessionTest, ByeIsAnsweredWhenEverythingIsOnRecord) {
  seen_.on_record = 0;
  Session session(factory_);
  EXPECT_TRUE(session.Receive(Stream({HelloFrame(MakeHello(3))}), reply_).ok());
  reply_.clear();
  seen_.on_record = 2;
  EXPECT_TRUE(session.Receive(Stream({ByeFrame(2)}), reply_).ok());
  EXPECT_EQ(reply_, Stream({Acknowledged(2, true)}));
}

TEST_F(SessionTest, AConnectionWithoutByeIsCutOff) {
  EXPECT_TRUE(Converse(Stream({HelloFrame(MakeHello(0)), BatchBuilder().Frame()})).ok());
  EXPECT_EQ(seen_.closed, 1);
  EXPECT_TRUE(seen_.cut_off);
}

TEST_F(SessionTest, AnotherMajorVersionIsRefusedWithBothNamed) {
  v1::Hello hello = MakeHello(0);
  hello.set_protocol_major(7);
  hello.set_protocol_minor(2);
  EXPECT_FALSE(Converse(Stream({HelloFrame(hello)})).ok());
  EXPECT_EQ(seen_.hellos, 0);
  EXPECT_THAT(Refusal(), HasSubstr("7.2"));
  EXPECT_THAT(Refusal(), HasSubstr("1.0"));
}

TEST_F(SessionTest, ANewerMinorVersionIsTaken) {
  v1::Hello hello = MakeHello(0);
  hello.set_protocol_minor(99);
  EXPECT_TRUE(Converse(Stream({HelloFrame(hello), v1::Frame()})).ok());
  EXPECT_EQ(seen_.hellos, 1);
}

TEST_F(SessionTest, GarbageEndsTheSession) {
  EXPECT_FALSE(Converse("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" + std::string(200, 'x')).ok());
  EXPECT_EQ(seen_.hellos, 0);
}

TEST_F(SessionTest, ABatchBeforeHelloEndsTheSession) {
  EXPECT_FALSE(Converse(Stream({BatchBuilder().Frame()})).ok());
  EXPECT_EQ(seen_.batches, 0);
}

TEST_F(SessionTest, ASecondHelloEndsTheSession) {
  EXPECT_FALSE(Converse(Stream({HelloFrame(MakeHello(0)), HelloFrame(MakeHello(0))})).ok());
  EXPECT_TRUE(seen_.cut_off);
}

TEST_F(SessionTest, ASinkThatRefusesABatchEndsTheSession) {
  seen_.batch_status = absl::InvalidArgumentError("columns differ");
  EXPECT_FALSE(
      Converse(Stream({HelloFrame(MakeHello(0)), BatchBuilder().Frame(), BatchBuilder().Frame()})).ok());
  EXPECT_EQ(seen_.batches, 1);
}

TEST_F(SessionTest, WhoCannotBeRecordedIsToldWhy) {
  factory_ = [](const v1::Hello&, std::string_view) -> absl::StatusOr<std::unique_ptr<FrameSink>> {
    return absl::UnavailableError("no space left");
  };
  EXPECT_FALSE(Converse(Stream({HelloFrame(MakeHello(0))})).ok());
  EXPECT_EQ(Refusal(), "no space left");
}

}  // namespace
}  // namespace gpuprobe::ingest
