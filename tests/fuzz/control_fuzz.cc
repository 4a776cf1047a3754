// What a hostile collector may say to the library inside somebody else's process: anything, in any pieces.
// The sender reads it without a crash, keeps its bounds, and ends for good when it is refused or hears
// nonsense.
#include <sys/socket.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "injector/probe/sender.h"
#include "injector/send/connection.h"
#include "injector/send/send_queue.h"
#include "tests/fuzz/messages.h"
#include "tests/fuzz/target.h"

namespace {

using gpuprobe::fuzz::Choices;

void AppendVarint(uint64_t value, std::string& out) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}

// Some frames, most of them Control, a few with a length or content that is not one.
std::string WhatItSays(Choices& choices) {
  constexpr int kMaxFrames = 16;
  std::string out;
  for (int i = 0; i < kMaxFrames && !choices.empty(); ++i) {
    gpuprobe::v1::Frame frame;
    if (choices.Rarely(8)) {
      gpuprobe::fuzz::Fill(choices, frame);
    } else {
      gpuprobe::fuzz::Fill(choices, *frame.mutable_control());
    }
    std::string bytes = frame.SerializeAsString();
    if (choices.Rarely(8)) bytes.resize(choices.Below(64));
    AppendVarint(choices.Rarely(8) ? choices.Number() : bytes.size(), out);
    out += bytes;
  }
  out += choices.Rest();
  return out;
}

}  // namespace

GPUPROBE_FUZZ_TARGET(control)(const uint8_t* data, size_t size) {
  using namespace gpuprobe::injector;
  Choices choices(data, size);
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) return 0;
  {
    static SendQueue queue;
    static const bool kReady = queue.Init(size_t{1} << 16);
    if (!kReady) std::abort();
    Connection connection;
    connection.Adopt(ends[0]);
    DefinitionHistory history;
    history.Init();
    Sender sender(&queue, &connection, &history);
    uint64_t sequence = 0;
    for (uint32_t frames = choices.Below(4); frames > 0; --frames) {
      if (queue.Reserve(128) != nullptr) queue.Commit(0, 128, 3, ++sequence);
    }
    const std::string said = WhatItSays(choices);
    std::string_view rest(said);
    while (!rest.empty() && !sender.ended()) {
      const size_t piece = std::min<size_t>(rest.size(), 1 + choices.Below(4096));
      const ssize_t sent = send(ends[1], rest.data(), piece, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent <= 0) break;
      rest.remove_prefix(static_cast<size_t>(sent));
      sender.ListenForFlush();
      sender.Pump(0);
    }
    if (sender.refusal()[0] != '\0' && !sender.ended()) std::abort();
    queue.Clear();
  }
  close(ends[1]);
  return 0;
}
