#include "collector/hub/hub.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "collector/hub/protocol.h"
#include "collector/store/run_files.h"

namespace gpuprobe::hub {
namespace {

constexpr int kMostFolders = 100;  // of one name

bool IsSent(const std::string& name) {
  return store::IsPlainName(name) && (IsGrowing(name) || IsReplaced(name));
}

std::string FolderNameOf(std::string host) {
  if (host.size() > store::kMostNameCharacters) host.resize(store::kMostNameCharacters);
  for (char& c : host) {
    if (!store::IsPlainName(absl::StrCat("a", std::string(1, c)))) c = '_';
  }
  return host.empty() || host.front() == '.' ? absl::StrCat("host-", host) : host;
}

std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Of a refusal, which the answer explains; all others are answered as if nothing were wrong.
int HttpStatusOf(const absl::Status& status) {
  if (absl::IsResourceExhausted(status)) return kTooLarge;
  return absl::IsUnavailable(status) ? kInsufficientRoom : kOk;
}

absl::Status SystemError(const std::string& name, int error) {
  return absl::UnavailableError(absl::StrCat(name, ": ", std::strerror(error)));
}

}  // namespace

void Hub::SetDirectory(const std::string& directory, const std::string& folder) {
  const std::lock_guard lock(mutex_);
  directory_ = directory;
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(directory, error);
  shown_directory_ = error ? directory : absolute.lexically_normal().string();
  own_folder_ = folder;
}

std::vector<std::string> Hub::folders() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> folders;
  for (const auto& [instance, host] : hosts_) folders.push_back(host.folder);
  return folders;
}

absl::StatusOr<Hub::Host*> Hub::HostOf(const v1::HubPost& post, const std::string& from) {
  if (const auto known = hosts_.find(post.instance()); known != hosts_.end()) return &known->second;
  if (hosts_.size() >= kMostHosts)
    return absl::ResourceExhaustedError(absl::StrCat("there are ", kMostHosts, " hosts already"));
  const auto of_address =
      std::count_if(hosts_.begin(), hosts_.end(), [&](const auto& each) { return each.second.from == from; });
  if (static_cast<size_t>(of_address) >= kMostOfAddress)
    return absl::ResourceExhaustedError(
        absl::StrCat(from, " has ", kMostOfAddress, " collectors in this job already"));
  const std::string name = FolderNameOf(post.host());
  const std::string instance = absl::StrFormat("%016x", post.instance());
  for (int i = 1; i < kMostFolders; ++i) {
    const std::string folder = i == 1 ? name : absl::StrCat(name, "-", i);
    if (folder == own_folder_) continue;
    const std::string path = absl::StrCat(directory_, "/", folder);
    if (FirstLine(absl::StrCat(path, "/", kInstanceFile)) == instance) return nullptr;
    absl::StatusOr<store::Directory> directory = store::Directory::Make(path);
    if (!directory.ok()) return directory.status();
    const bool goes_on = FirstLine(absl::StrCat(path, "/", kMirroredFile)) == instance;
    if (!directory->made() && !goes_on) continue;
    if (absl::Status s = directory->Lock(); !s.ok()) return s;
    if (absl::Status s = directory->WriteFile(kMirroredFile, absl::StrCat(instance, "\n", from, "\n"));
        !s.ok())
      return s;
    const absl::StatusOr<std::vector<std::string>> names = directory->List();
    if (!names.ok()) return names.status();
    Host host{.directory = *std::move(directory), .folder = folder, .from = from, .files = {}};
    for (const std::string& file : *names) {
      if (!IsSent(file)) continue;
      const uint64_t bytes = host.directory.FileBytes(file);
      host.files[file] = bytes;
      host.bytes += bytes;
    }
    Host& added = hosts_.emplace(post.instance(), std::move(host)).first->second;
    others_.store(hosts_.size());
    return &added;
  }
  return absl::ResourceExhaustedError(absl::StrCat("there are ", kMostFolders, " hosts named ", name));
}

absl::Status Hub::Write(Host& host, const v1::FilePart& part) {
  if (!IsSent(part.name())) return absl::InvalidArgumentError("a file's name is none of a run directory");
  const auto known = host.files.find(part.name());
  if (known == host.files.end() && host.files.size() >= kMostFiles)
    return absl::ResourceExhaustedError(absl::StrCat("it has ", kMostFiles, " files already"));
  const uint64_t have = known == host.files.end() ? 0 : known->second;
  std::string_view data = part.data();
  if (!part.whole()) {
    // A gap is sent again from the size that the answer has.
    if (part.offset() > have || part.offset() + data.size() <= have) return absl::OkStatus();
    data.remove_prefix(have - part.offset());
  }
  if (host.bytes + data.size() > options_.most_bytes_of_host)
    return absl::ResourceExhaustedError(
        absl::StrCat("a host may have ", options_.most_bytes_of_host >> 20U, " MiB here"));
  if (part.whole()) {
    if (absl::Status s = host.directory.WriteFile(part.name(), data); !s.ok()) return s;
    host.bytes += data.size() - have;
    host.files[part.name()] = data.size();
    return absl::OkStatus();
  }
  const absl::StatusOr<int> fd = known == host.files.end() ? host.directory.CreateFile(part.name())
                                                           : host.directory.ContinueFile(part.name());
  if (!fd.ok()) return fd.status();
  int error = 0;
  uint64_t& bytes = host.files[part.name()];
  while (!data.empty() && error == 0) {
    const ssize_t n = write(*fd, data.data(), data.size());
    if (n >= 0) {
      data.remove_prefix(static_cast<size_t>(n));
      bytes += static_cast<size_t>(n);
      host.bytes += static_cast<size_t>(n);
    } else if (errno != EINTR) {
      error = errno;
    }
  }
  if (close(*fd) != 0 && error == 0) error = errno;
  return error == 0 ? absl::OkStatus() : SystemError(part.name(), error);
}

Taken Hub::Take(const v1::HubPost& post, const Sender& from) {
  const std::lock_guard lock(mutex_);
  Taken taken;
  v1::HubAnswer& answer = taken.answer;
  answer.set_host(options_.host);
  const auto refuse = [&](absl::string_view why) {
    answer.set_refused(why.data(), why.size());
    return taken;
  };
  if (post.job() != options_.job) return refuse("this is the hub of another job");
  if (directory_.empty()) return refuse("nothing is recorded on the hub's host yet");
  const absl::StatusOr<Host*> found = HostOf(post, from.host);
  if (!found.ok()) {
    taken.status = HttpStatusOf(found.status());
    return refuse(found.status().message());
  }
  answer.set_directory(shown_directory_);
  const auto note_processes = [&](const std::string& name) {
    const auto now_ns = std::chrono::system_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
    captures_.Take(post, name, CaptureBoard::Clock::now(), static_cast<uint64_t>(now_ns), answer);
  };
  if (*found == nullptr) {
    answer.set_shared(true);
    note_processes(FolderNameOf(post.host()));
    return taken;
  }
  Host& host = **found;
  absl::Status status;
  if (post.sequence() > host.sequence) {
    host.sequence = post.sequence();
    for (const v1::FilePart& part : post.parts()) status.Update(Write(host, part));
    std::set<std::string> gone;
    // It says that the host records, until there is nothing more to come.
    if (post.ended()) gone.insert(store::kLiveFile);
    const std::set<std::string_view> kept(post.names().begin(), post.names().end());
    for (const auto& [name, bytes] : host.files) {
      if (name != store::kLiveFile && !kept.empty() && !kept.contains(name)) gone.insert(name);
    }
    for (const std::string& name : gone) {
      const auto file = host.files.find(name);
      if (file == host.files.end()) continue;
      host.directory.Remove(name);
      host.bytes -= file->second;
      host.files.erase(file);
    }
  }
  note_processes(host.folder);
  taken.status = HttpStatusOf(status);
  if (!status.ok()) answer.set_refused(status.message().data(), status.message().size());
  for (const auto& [name, bytes] : host.files) {
    v1::FileSize& size = *answer.add_have();
    size.set_name(name);
    size.set_bytes(bytes);
  }
  return taken;
}

}  // namespace gpuprobe::hub
