#include "injector/stream/sender.h"

#include <ctime>

#include "injector/stream/losses.h"
#include "injector/stream/self_report.h"

namespace gpuprobe::injector {

namespace {

int64_t MonotonicMs() noexcept {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000 + now.tv_nsec / 1'000'000;
}

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
        return Skip(8);
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
  WireBuffer out{words_, sizeof(words_)};
  if (!EncodeHello(identity, facts, &out)) return false;
  words_size_ = out.size;
  words_sent_ = 0;
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
  ListenForFlush();  // the reason may have been said before the door was closed
  End();
  return Step::kEnded;
}

bool Sender::Pump(int milliseconds) noexcept {
  const int64_t deadline = MonotonicMs() + milliseconds;
  for (;;) {
    if (ended_) return false;
    Step step = Step::kSent;
    SendQueue::Frame frame;
    if (words_sent_ < words_size_ && frame_sent_ == 0) {
      step = SendSome(words_, words_size_, &words_sent_);
    } else if (queue_->Front(&frame)) {
      step = SendSome(frame.data, frame.size, &frame_sent_);
      if (step == Step::kSent && frame_sent_ == frame.size) {
        queue_->Pop();
        frame_sent_ = 0;
      }
    } else {
      return true;
    }
    if (step == Step::kEnded) return false;
    if (step == Step::kSent) continue;
    const int64_t left = deadline - MonotonicMs();
    if (left <= 0) return false;
    connection_->WaitWritable(left < 50 ? static_cast<int>(left) : 50);
  }
}

bool Sender::SayBye(wire::ByeReason reason, uint64_t batches, int milliseconds) noexcept {
  const int64_t deadline = MonotonicMs() + milliseconds;
  if (!Pump(milliseconds)) return false;
  WireBuffer out{words_, sizeof(words_)};
  if (!EncodeBye(reason, batches, &out)) return false;
  words_size_ = out.size;
  words_sent_ = 0;
  const int64_t left = deadline - MonotonicMs();
  return Pump(left > 0 ? static_cast<int>(left) : 0);
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
  while (!ended_) {
    size_t got = 0;
    const Connection::Result result = connection_->Receive(reinterpret_cast<char*>(heard_) + heard_size_,
                                                           sizeof(heard_) - heard_size_, &got);
    if (result == Connection::Result::kClosed) End();
    if (result != Connection::Result::kOk) break;
    heard_size_ += got;
    size_t used = 0;
    for (;;) {
      Cursor cursor{heard_ + used, heard_ + heard_size_};
      uint64_t length = 0;
      if (!cursor.Varint(&length)) break;
      if (length > sizeof(heard_) - 16) {  // no word of the collector is that long
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
  if (!refusal_.empty()) End();
  return flush;
}

}  // namespace gpuprobe::injector
