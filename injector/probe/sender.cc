#include "injector/probe/sender.h"

#include <utility>

#include "injector/base/futex.h"
#include "injector/base/losses.h"
#include "injector/core/self_report.h"

namespace gpuprobe::injector {

namespace {

// A reader of the little that comes back; protozero's would throw.
struct Cursor {
  const uint8_t* at;
  const uint8_t* end;

  bool Varint(uint64_t* value) noexcept {
    *value = 0;
    for (int shift = 0; shift < 64 && at < end; shift += 7) {
      const uint8_t byte = *at++;
      *value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if ((byte & 0x80) == 0) return true;
    }
    return false;
  }
  // The next field; of a length-delimited one also its bytes. False at the end and for what is malformed.
  bool Field(uint32_t* number, uint64_t* value, Cursor* bytes) noexcept {
    uint64_t key = 0;
    if (!Varint(&key)) return false;
    *number = static_cast<uint32_t>(key >> 3);
    *value = 0;
    *bytes = {at, at};
    switch (key & 7) {
      case 0:
        return Varint(value);
      case 1:
        if (!Skip(8)) return false;
        std::memcpy(value, at - 8, 8);
        return true;
      case 2:
        if (!Varint(value) || *value > static_cast<uint64_t>(end - at)) return false;
        *bytes = {at, at + *value};
        at += *value;
        return true;
      case 5:
        return Skip(4);
      default:
        return false;
    }
  }
  bool Skip(size_t count) noexcept {
    if (static_cast<size_t>(end - at) < count) return false;
    at += count;
    return true;
  }
};

}  // namespace

bool Sender::Greet(const Identity& identity, const HelloFacts& facts) noexcept {
  HelloFacts now = facts;
  now.first_sequence = queue_->released_sequence() + 1;
  now.records_before = queue_->released_records();
  WireBuffer out{words_, sizeof(words_)};
  if (!EncodeHello(identity, now, &out)) return false;
  words_size_ = out.size;
  words_sent_ = 0;
  broken_ = welcomed_ = keeps_nothing_ = complete_ = false;
  greeted_ms_ = heard_ms_ = MonotonicMs();
  queue_->SetConnected(true);
  return true;
}

void Sender::SendGreeting() noexcept {
  size_t sent = 0;
  if (connection_->Send(words_ + words_sent_, words_size_ - words_sent_, &sent) != Connection::Result::kOk)
    return;
  words_sent_ += sent;
  AddBytesSent(sent);
}

void Sender::End() noexcept {
  if (ended_) return;
  ended_ = true;
  connection_->Close();
  CountLoss(wire::LossReason::kLossNotConnected, queue_->Clear());
  queue_->SetConnected(false);
}

// Unacknowledged data is sent again to the next collector.
void Sender::Break() noexcept {
  if (ended_ || broken_) return;
  if (said_ended_ || !refusal_.empty()) return End();
  broken_ = true;
  first_ = false;
  connection_->Close();
  queue_->Rewind();
  queue_->SetConnected(false);
  words_size_ = words_sent_ = frame_sent_ = heard_size_ = 0;
  restated_ = nullptr;
  restated_size_ = restated_sent_ = 0;
}

bool Sender::IsSilentFor(int64_t milliseconds) const noexcept {
  return !welcomed_ && MonotonicMs() - greeted_ms_ >= milliseconds;
}

// On the first connection no collector can have any of our data. Later only the collector knows where to
// resume.
bool Sender::MaySendBatches() noexcept {
  if (first_ || welcomed_ || keeps_nothing_) return true;
  if (!IsSilentFor(kWelcomeBackWaitMs)) return false;
  keeps_nothing_ = true;
  if (history_ != nullptr) restated_ = history_->Frame(&restated_size_);
  return true;
}

Sender::Step Sender::SendSome(const char* data, size_t size, size_t* offset) noexcept {
  size_t sent = 0;
  switch (connection_->Send(data + *offset, size - *offset, &sent)) {
    case Connection::Result::kOk:
      *offset += sent;
      AddBytesSent(sent);
      return Step::kSent;
    case Connection::Result::kAgain:
      return Step::kAgain;
    case Connection::Result::kClosed:
      break;
  }
  ListenForFlush();  // the reason may have arrived before the connection was closed
  Break();
  return Step::kBroken;
}

Sender::Step Sender::SendNext() noexcept {
  if (words_sent_ < words_size_ && frame_sent_ == 0 && restated_sent_ == 0) {
    return SendSome(words_, words_size_, &words_sent_);
  }
  SendQueue::Frame frame;
  const bool has_frame = queue_->Front(&frame);
  if (!MaySendBatches()) return Step::kMustWait;
  if (restated_sent_ < restated_size_) {
    const Step step = SendSome(restated_, restated_size_, &restated_sent_);
    if (restated_sent_ == restated_size_) restated_size_ = restated_sent_ = 0;
    return step;
  }
  if (!has_frame) return Step::kIdle;
  const Step step = SendSome(frame.data, frame.size, &frame_sent_);
  if (step == Step::kSent && frame_sent_ == frame.size) {
    if (!welcomed_ && IsSilentFor(kWelcomeWaitMs)) keeps_nothing_ = true;
    if (keeps_nothing_) {
      queue_->Pop();
    } else {
      queue_->Advance();
    }
    frame_sent_ = 0;
  }
  return step;
}

bool Sender::Pump(int milliseconds) noexcept {
  const int64_t deadline = MonotonicMs() + milliseconds;
  for (;;) {
    if (ended_ || broken_) return false;
    const Step step = SendNext();
    if (step == Step::kBroken) return false;
    if (step == Step::kIdle) return true;
    if (step == Step::kSent) continue;
    const int64_t left = deadline - MonotonicMs();
    if (left <= 0) return false;
    const int slice = left < 50 ? static_cast<int>(left) : 50;
    if (step == Step::kMustWait) {
      connection_->WaitReadable(slice);
      ListenForFlush();
    } else {
      connection_->WaitWritable(slice);
    }
  }
}

bool Sender::SayBye(const ByeFacts& facts, int milliseconds) noexcept {
  const int64_t deadline = MonotonicMs() + milliseconds;
  if (!Pump(milliseconds)) return false;
  WireBuffer out{words_, sizeof(words_)};
  if (!EncodeBye(facts, &out)) return false;
  words_size_ = out.size;
  words_sent_ = 0;
  const int64_t left = deadline - MonotonicMs();
  return Pump(left > 0 ? static_cast<int>(left) : 0);
}

bool Sender::AwaitComplete(int milliseconds, int silence_ms) noexcept {
  const int64_t deadline = MonotonicMs() + milliseconds;
  heard_ms_ = MonotonicMs();
  for (;;) {
    ListenForFlush();
    if (complete_) return true;
    if (ended_ || broken_ || keeps_nothing_) return false;
    const int64_t now = MonotonicMs();
    if (now >= deadline || now - heard_ms_ >= silence_ms) return false;
    connection_->WaitReadable(10);
  }
}

void Sender::TakeWelcome(const uint8_t* data, size_t size) noexcept {
  Cursor welcome{data, data + size};
  Cursor bytes{};
  uint32_t number = 0;
  uint64_t value = 0;
  uint64_t on_record = 0;
  while (welcome.Field(&number, &value, &bytes)) {
    if (number == Number(wire::WelcomeTag::kLastSequence)) on_record = value;
    if (number == Number(wire::WelcomeTag::kRunDirectory)) {
      run_directory_.Clear();
      run_directory_.Add(
          {reinterpret_cast<const char*>(bytes.at), static_cast<size_t>(bytes.end - bytes.at)});
    }
  }
  if (welcomed_) return;
  welcomed_ = true;
  // An answer that comes too late changes nothing about what goes: the collector drops what it has already.
  if (first_ || std::exchange(keeps_nothing_, false)) return;
  queue_->Release(on_record, true);
  if (queue_->released_sequence() == 0 || history_ == nullptr) return;
  restated_ = history_->Frame(&restated_size_);
  restated_sent_ = 0;
  lacks_definitions_ = on_record == 0 && !history_->complete();
}

void Sender::TakeCapture(const uint8_t* data, size_t size) noexcept {
  using Tag = wire::CaptureTag;
  Cursor fields{data, data + size};
  Cursor bytes{};
  uint32_t number = 0;
  uint64_t value = 0;
  order_ = {};
  while (fields.Field(&number, &value, &bytes)) {
    if (number == Number(Tag::kId)) order_.id = value;
    if (number == Number(Tag::kClock)) order_.clock = static_cast<wire::CaptureClock>(value);
    if (number == Number(Tag::kBegin)) order_.begin = value;
    if (number == Number(Tag::kEnd)) order_.end = value;
    if (number == Number(Tag::kCommunicator)) order_.communicator = value;
    if (number == Number(Tag::kCallsPerStep)) order_.calls_per_step = static_cast<uint32_t>(value);
    if (number == Number(Tag::kLimitMs)) order_.limit_ms = static_cast<uint32_t>(value);
  }
}

// Returns whether a flush was asked for.
bool Sender::TakeControl(const uint8_t* data, size_t size) noexcept {
  bool flush = false;
  uint32_t number = 0;
  uint64_t value = 0;
  Cursor frame{data, data + size};
  Cursor control{};
  while (frame.Field(&number, &value, &control)) {
    if (number != Number(wire::FrameTag::kControl)) continue;
    Cursor bytes{};
    while (control.Field(&number, &value, &bytes)) {
      if (number == Number(wire::ControlTag::kFlush)) flush = value != 0;
      if (number == Number(wire::ControlTag::kFlushUnfinished) && value != 0) flush = unfinished_ = true;
      if (number == Number(wire::ControlTag::kAcknowledged)) queue_->Release(value);
      if (number == Number(wire::ControlTag::kComplete)) complete_ = complete_ || value != 0;
      if (number == Number(wire::ControlTag::kDetach)) asked_to_detach_ = asked_to_detach_ || value != 0;
      if (number == Number(wire::ControlTag::kEnded)) said_ended_ = said_ended_ || value != 0;
      if (number == Number(wire::ControlTag::kWelcome))
        TakeWelcome(bytes.at, static_cast<size_t>(bytes.end - bytes.at));
      if (number == Number(wire::ControlTag::kCapture))
        TakeCapture(bytes.at, static_cast<size_t>(bytes.end - bytes.at));
      if (number == Number(wire::ControlTag::kRecordingTo)) {
        recording_to_.Clear();
        recording_to_.Add(
            {reinterpret_cast<const char*>(bytes.at), static_cast<size_t>(bytes.end - bytes.at)});
      }
      if (number == Number(wire::ControlTag::kRefused)) {
        refusal_.Clear();
        refusal_.Add({reinterpret_cast<const char*>(bytes.at), static_cast<size_t>(bytes.end - bytes.at)});
      }
    }
  }
  return flush;
}

bool Sender::ListenForFlush() noexcept {
  bool flush = false;
  bool closed = false;
  while (!ended_ && !broken_ && !closed) {
    size_t got = 0;
    const Connection::Result result = connection_->Receive(reinterpret_cast<char*>(heard_) + heard_size_,
                                                           sizeof(heard_) - heard_size_, &got);
    closed = result == Connection::Result::kClosed;
    if (result != Connection::Result::kOk) break;
    heard_ms_ = MonotonicMs();
    heard_size_ += got;
    size_t used = 0;
    for (;;) {
      Cursor cursor{heard_ + used, heard_ + heard_size_};
      uint64_t length = 0;
      if (!cursor.Varint(&length)) break;
      if (length > sizeof(heard_) - 16) {  // no message of the collector's is that long
        End();
        return flush;
      }
      if (length > static_cast<uint64_t>(cursor.end - cursor.at)) break;
      flush = TakeControl(cursor.at, length) || flush;
      used = static_cast<size_t>(cursor.at - heard_) + length;
    }
    std::memmove(heard_, heard_ + used, heard_size_ - used);
    heard_size_ -= used;
  }
  if (!refusal_.empty() || said_ended_ || lacks_definitions_) End();
  if (closed) Break();
  return flush;
}

}  // namespace gpuprobe::injector
