// The conversation with one client: Hello first, then batches, then Bye; anything else ends this client and
// no other.
//
// The protocol's rules work on bytes alone, without a socket. Frames go, decoded and raw, to a FrameSink; one
// sink for each connected process.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "collector/framing/frame_decoder.h"
#include "collector/ingest/limits.h"
#include "google/protobuf/arena.h"
#include "gpuprobe/v1/wire.pb.h"

namespace gpuprobe::ingest {

// Takes the frames of one client. `raw` is the frame's bytes without its length.
class FrameSink {
 public:
  virtual ~FrameSink() = default;
  virtual absl::Status OnBatch(const v1::Batch& batch, std::string_view raw) = 0;
  // When it returns, everything that the client sent before is on disk, unless writing failed.
  virtual void OnBye(const v1::Bye& bye, std::string_view raw) = 0;
  // Before everything else: the connection, for those who want to know which process is at its other end. It
  // stays open until OnClosed returns.
  virtual void OnConnected(int /*socket*/) {}
  // Highest sequence of a batch that the client need not keep any more; 0: none. nullopt: this sink does not
  // acknowledge, and the client never gets an acknowledgement.
  virtual std::optional<uint64_t> OnRecord() { return std::nullopt; }
  // A descriptor for the client, asked for once, after OnConnected; who asks closes it. -1: none.
  virtual int TakeDescriptor() { return -1; }
  // Where the records go, for the client to know; absolute, or empty.
  virtual std::string RunDirectory() { return ""; }
  // Whether to send the client Control.flush_unfinished; asked after each batch.
  virtual bool AsksForUnfinished() { return false; }
  // Appends what else the client is to be told, as delimited frames; asked a few times a second.
  virtual void AppendOrders(std::string& /*reply*/) {}
  // The run's directory, if this client should print it; empty: it should not. Called once, after Hello.
  virtual std::string TellsUser() { return ""; }
  // The connection ended; `cut_off`: by the client, without Bye.
  virtual void OnClosed(bool cut_off) = 0;
};

// Makes the sink for a client whose Hello was accepted.
using SinkFactory =
    std::function<absl::StatusOr<std::unique_ptr<FrameSink>>(const v1::Hello&, std::string_view raw)>;

// Answers a client that asks for something instead of being recorded (CaptureRequest).
class Answerer {
 public:
  virtual ~Answerer() = default;
  // Appends what the client is to be told now, as delimited frames; asked a few times a second.
  virtual void AppendAnswers(std::string& reply) = 0;
};
using AnswererFactory = std::function<absl::StatusOr<std::unique_ptr<Answerer>>(const v1::CaptureRequest&)>;

class Session {
 public:
  // `make_answerer`: null: requests are refused.
  Session(const SinkFactory& make_sink, const ClientLimits& limits = {},
          const AnswererFactory& make_answerer = nullptr);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // The connection that the bytes come from; -1: none.
  void SetSocket(int socket) { socket_ = socket; }
  // Bytes from the client. `reply` then holds what to send it, if anything. An error ends the session.
  absl::Status Receive(std::string_view bytes, std::string& reply);
  // A descriptor to pass to the client with the reply; the caller closes it. -1: none.
  int TakeDescriptor() { return std::exchange(descriptor_, -1); }
  // Appends an acknowledgement if more batches are on record than at the last one, and what else is to be
  // said.
  void Acknowledge(std::string& reply);

  // We end the connection, not the client, which may go on.
  void Leave() { left_ = true; }

  bool greeted() const { return sink_ != nullptr || answerer_ != nullptr; }
  // Memory that unfinished frames take.
  size_t held_bytes() const { return decoder_.held(); }
  // Frees buffer memory that it does not need.
  void Shrink() { decoder_.Shrink(); }
  bool finished() const { return said_bye_; }
  // "rank 3 (pid 4711)", or "a client" before Hello.
  const std::string& name() const { return name_; }

 private:
  absl::Status Handle(std::string_view frame, std::string& reply);
  void AppendComplete(std::string& reply);
  absl::Status HandleRequest(const v1::CaptureRequest& request, std::string& reply);
  absl::Status HandleHello(const v1::Hello& hello, std::string_view frame, std::string& reply);

  const SinkFactory& make_sink_;
  AnswererFactory make_answerer_;
  ClientLimits limits_;
  framing::FrameDecoder decoder_;
  std::unique_ptr<FrameSink> sink_;
  std::unique_ptr<Answerer> answerer_;
  google::protobuf::Arena arena_;
  std::string name_ = "a client";
  int socket_ = -1;
  int descriptor_ = -1;
  bool said_bye_ = false;
  bool left_ = false;
  uint64_t acknowledged_ = 0;
};

// The reply to a client that will not be served, and when the collector ends in order.
void AppendRefusal(const std::string& reason, std::string& reply);
void AppendEnded(std::string& reply);

}  // namespace gpuprobe::ingest
