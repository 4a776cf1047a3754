#include "collector/ingest/session.h"

#include <unistd.h>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "proto/limits.h"

namespace gpuprobe::ingest {
namespace {

// The client would not accept longer ones.
constexpr size_t kMaxRunDirectory = 2048;

void Append(const v1::Control& control, std::string& reply) {
  v1::Frame frame;
  *frame.mutable_control() = control;
  framing::AppendDelimited(frame.SerializeAsString(), reply);
}

void AppendRecordingTo(const std::string& directory, std::string& reply) {
  v1::Frame frame;
  frame.mutable_control()->set_recording_to(directory);
  framing::AppendDelimited(frame.SerializeAsString(), reply);
}

}  // namespace

void AppendRefusal(const std::string& reason, std::string& reply) {
  v1::Control control;
  control.set_refused(reason);
  Append(control, reply);
}

void AppendEnded(std::string& reply) {
  v1::Control control;
  control.set_ended(true);
  Append(control, reply);
}

Session::Session(const SinkFactory& make_sink, const ClientLimits& limits,
                 const AnswererFactory& make_answerer)
    : make_sink_(make_sink), make_answerer_(make_answerer), limits_(limits) {
  decoder_.SetLargestFrame(limits_.hello_bytes);
}

Session::~Session() {
  if (descriptor_ >= 0) close(descriptor_);
  if (sink_ != nullptr) sink_->OnClosed(!said_bye_ && !left_);
}

absl::Status Session::Receive(std::string_view bytes, std::string& reply) {
  decoder_.Append(bytes);
  while (true) {
    absl::StatusOr<framing::FrameDecoder::Next> next = decoder_.Take();
    if (!next.ok()) return next.status();
    if (!next->has_frame) return absl::OkStatus();
    if (absl::Status s = Handle(next->frame, reply); !s.ok()) return s;
  }
}

absl::Status Session::Handle(std::string_view bytes, std::string& reply) {
  // Nothing stays between frames: a thousand sessions would hold their last batches.
  const absl::Cleanup forget = [this] { arena_.Reset(); };
  auto* frame = google::protobuf::Arena::CreateMessage<v1::Frame>(&arena_);
  if (!frame->ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return absl::InvalidArgumentError("it sent something that is not a gpuprobe frame");
  }
  if (frame->body_case() == v1::Frame::kHello) return HandleHello(frame->hello(), bytes, reply);
  if (answerer_ != nullptr) return absl::OkStatus();
  if (sink_ == nullptr && frame->body_case() == v1::Frame::kCaptureRequest)
    return HandleRequest(frame->capture_request(), reply);
  if (sink_ == nullptr) return absl::InvalidArgumentError("it did not begin with Hello");
  switch (frame->body_case()) {
    case v1::Frame::kBatch:
      if (absl::Status s = sink_->OnBatch(frame->batch(), bytes); !s.ok()) return s;
      if (sink_->AsksForUnfinished()) {
        v1::Control control;
        control.set_flush_unfinished(true);
        Append(control, reply);
      }
      return absl::OkStatus();
    case v1::Frame::kBye:
      said_bye_ = true;
      sink_->OnBye(frame->bye(), bytes);
      AppendComplete(reply);
      return absl::OkStatus();
    default:
      return absl::OkStatus();  // a newer minor version's frame: not ours to understand
  }
}

absl::Status Session::HandleRequest(const v1::CaptureRequest& request, std::string& reply) {
  name_ = "gpuprobe capture";
  absl::Status refused = absl::UnimplementedError("this collector takes no requests");
  if (request.protocol_major() != wire::kProtocolMajor) {
    refused = absl::FailedPreconditionError(
        "the run's collector is of another release; use the gpuprobe that records it");
  } else if (make_answerer_ != nullptr) {
    absl::StatusOr<std::unique_ptr<Answerer>> answerer = make_answerer_(request);
    refused = answerer.status();
    if (answerer.ok()) answerer_ = *std::move(answerer);
  }
  if (answerer_ != nullptr) return absl::OkStatus();
  v1::Frame frame;
  frame.mutable_capture_progress()->set_words(std::string(refused.message()));
  frame.mutable_capture_progress()->set_over(true);
  frame.mutable_capture_progress()->set_failed(true);
  framing::AppendDelimited(frame.SerializeAsString(), reply);
  return absl::OkStatus();
}

absl::Status Session::HandleHello(const v1::Hello& hello, std::string_view frame, std::string& reply) {
  if (sink_ != nullptr) return absl::InvalidArgumentError("it sent a second Hello");
  const v1::Identity& id = hello.identity();
  name_ = id.rank() >= 0 && id.rank_source() != v1::RANK_SOURCE_NONE
              ? absl::StrCat("rank ", id.rank(), " (pid ", id.pid(), ")")
              : absl::StrCat("pid ", id.pid());
  if (hello.rolled_up()) return absl::InvalidArgumentError("it sent roll-ups, which no process makes");
  if (hello.protocol_major() != wire::kProtocolMajor) {
    const std::string reason =
        absl::StrCat("this client speaks protocol ", hello.protocol_major(), ".", hello.protocol_minor(),
                     ", this collector ", wire::kProtocolMajor, ".", wire::kProtocolMinor,
                     "; use libgpuprobe.so and gpuprobe of the same release");
    AppendRefusal(reason, reply);
    return absl::FailedPreconditionError(reason);
  }
  absl::StatusOr<std::unique_ptr<FrameSink>> sink = make_sink_(hello, frame);
  if (!sink.ok()) {
    AppendRefusal(std::string(sink.status().message()), reply);
    return sink.status();
  }
  sink_ = *std::move(sink);
  if (socket_ >= 0) {
    sink_->OnConnected(socket_);
    descriptor_ = sink_->TakeDescriptor();
  }
  decoder_.SetLargestFrame(limits_.frame_bytes);
  if (const std::string directory = sink_->TellsUser(); !directory.empty())
    AppendRecordingTo(directory, reply);
  if (const std::optional<uint64_t> on_record = sink_->OnRecord(); on_record.has_value()) {
    acknowledged_ = *on_record;
    v1::Control control;
    control.mutable_welcome()->set_last_sequence(*on_record);
    const std::string directory = sink_->RunDirectory();
    if (directory.size() <= kMaxRunDirectory) control.mutable_welcome()->set_run_directory(directory);
    Append(control, reply);
  }
  return absl::OkStatus();
}

void Session::Acknowledge(std::string& reply) {
  if (answerer_ != nullptr) answerer_->AppendAnswers(reply);
  if (sink_ == nullptr) return;
  sink_->AppendOrders(reply);
  const std::optional<uint64_t> on_record = sink_->OnRecord();
  if (!on_record.has_value() || *on_record <= acknowledged_) return;
  acknowledged_ = *on_record;
  v1::Control control;
  control.set_acknowledged(acknowledged_);
  Append(control, reply);
}

void Session::AppendComplete(std::string& reply) {
  const std::optional<uint64_t> on_record = sink_->OnRecord();
  if (!on_record.has_value()) return;
  acknowledged_ = *on_record;
  v1::Control control;
  control.set_acknowledged(acknowledged_);
  control.set_complete(true);
  Append(control, reply);
}

}  // namespace gpuprobe::ingest
