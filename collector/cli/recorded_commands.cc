#include "collector/cli/recorded_commands.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace gpuprobe::cli {
namespace {

// Ranks that the launcher started on this host come at the same time, if they come: some may run without us.
constexpr std::chrono::milliseconds kMissingRanksWait{5000};

}  // namespace

RecordedCommands::RecordedCommands(RunChannel own_channel, RankListener* ranks, std::string socket,
                                   NoteEnd note_end)
    : ranks_(ranks), socket_(std::move(socket)), note_end_(std::move(note_end)) {
  commands_.emplace_back(std::move(own_channel)).joined = true;
}

RecordedCommands::~RecordedCommands() {
  for (const Recorded& command : commands_) {
    if (command.pidfd >= 0) close(command.pidfd);
  }
}

absl::Status RecordedCommands::WatchOn(ingest::Server& server) {
  if (absl::Status s = server.Watch(own().channel.fd(), [this] { OnMessages(own()); }); !s.ok()) return s;
  return ranks_ == nullptr ? absl::OkStatus()
                           : server.Watch(ranks_->fd(), [this, &server] { Accept(server); });
}

bool RecordedCommands::AwaitStart() {
  own().channel.Send(RunMessageKind::kReady);
  RunMessage message;
  if (!own().channel.Receive(message, /*wait=*/true) || message.kind != RunMessageKind::kStarted)
    return false;
  OnMessage(own(), message);
  return true;
}

void RecordedCommands::Accept(ingest::Server& server) {
  while (std::optional<RunChannel> channel = ranks_->Accept()) {
    Recorded& command = commands_.emplace_back(*std::move(channel));
    // One that cannot be watched is refused in Tick.
    command.ended = !server.Watch(command.channel.fd(), [this, &command] { OnMessages(command); }).ok();
  }
}

void RecordedCommands::OnMessages(Recorded& command) {
  RunMessage message;
  while (!command.channel.gone() && command.channel.Receive(message, /*wait=*/false)) {
    if (command.joined) {
      OnMessage(command, message);
    } else if (ranks_->Admit(message)) {
      command.joined = true;
      command.channel.Send(RunMessageKind::kReady, getpid(), socket_);
    } else {
      command.ended = true;
    }
  }
}

void RecordedCommands::OnMessage(Recorded& command, const RunMessage& message) {
  if (message.kind == RunMessageKind::kStarted) {
    command.pid = message.value;
    command.pidfd = static_cast<int>(syscall(SYS_pidfd_open, command.pid, 0));
  } else if (message.kind == RunMessageKind::kNotStarted) {
    command.ended = true;
  } else if (message.kind == RunMessageKind::kEnded) {
    command.ended = true;
    if (message.value != 0 && !failure_.has_value()) failure_ = message.value;
    note_end_(command.pid, message.value);
  } else if (message.kind == RunMessageKind::kHurry) {
    hurried_ = true;
  }
}

void RecordedCommands::LookIfAlone(Recorded& command) {
  if (command.ended) return;
  pollfd fd{.fd = command.pidfd, .events = POLLIN, .revents = 0};
  command.ended = command.pidfd < 0 || poll(&fd, 1, 0) != 0;
}

bool RecordedCommands::AnyRuns() const {
  return std::any_of(commands_.begin(), commands_.end(),
                     [](const Recorded& command) { return command.joined && !command.ended; });
}

void RecordedCommands::Tick(ingest::Server& server) {
  for (auto it = commands_.begin(); it != commands_.end();) {
    const bool has_gone = it->channel.gone();
    const bool is_refused = !it->joined && (it->ended || has_gone);
    // Otherwise its descriptor would stay readable for ever.
    if (has_gone || is_refused) server.Unwatch(it->channel.fd());
    if (has_gone) LookIfAlone(*it);
    it = is_refused ? commands_.erase(it) : std::next(it);
  }
  if (!AnyRuns()) return;
  for (Recorded& command : commands_) {
    if (command.joined && command.ended && !std::exchange(command.released, true))
      command.channel.Send(RunMessageKind::kRelease);
  }
}

bool RecordedCommands::ended() const {
  const bool expects_ranks =
      ranks_ != nullptr && ranks_->misses_ranks() && !hurried_ && Clock::now() < began_ + kMissingRanksWait;
  return !AnyRuns() && !expects_ranks;
}

void RecordedCommands::EndJoining(ingest::Server& server) {
  if (ranks_ == nullptr) return;
  server.Unwatch(ranks_->fd());
  ranks_->End();
  for (Recorded& command : commands_) command.ended = true;
  Tick(server);  // refuses ranks that have just joined
}

void RecordedCommands::SayDirectory(const std::string& directory) {
  if (said_directory_ || directory.empty()) return;
  said_directory_ = true;
  own().channel.Send(RunMessageKind::kDirectory, 0, directory);
}

}  // namespace gpuprobe::cli
