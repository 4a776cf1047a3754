#include "collector/http/served_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "collector/http/service.h"
#include "collector/store/run_settings.h"
#include "nlohmann/json.hpp"

namespace gpuprobe::http {
namespace {

constexpr size_t kReadBytes = size_t{256} << 10;

class OpenFile {
 public:
  explicit OpenFile(const std::string& path)
      : fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)) {
    struct stat st {};
    if (fd_ >= 0 && fstat(fd_, &st) == 0 && S_ISREG(st.st_mode)) size_ = static_cast<uint64_t>(st.st_size);
  }
  ~OpenFile() {
    if (fd_ >= 0) close(fd_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  // None: it is gone, or is no file.
  std::optional<uint64_t> size() const { return size_; }
  int fd() const { return fd_; }

 private:
  int fd_;
  std::optional<uint64_t> size_;
};

}  // namespace

std::vector<ServedFile> FilesToServe(const store::RunFiles& files) {
  std::vector<std::string> paths;
  for (const store::Segment& segment : files.segments) paths.push_back(segment.path);
  for (const auto& [generation, path] : files.totals) paths.push_back(path);

  std::map<std::string, std::string> folders;  // names by path
  std::vector<ServedFile> served;
  const auto serve = [&](const std::string& folder, const std::string& file, const std::string& path) {
    served.push_back({.name = folder.empty() ? file : absl::StrCat(folder, "/", file), .path = path});
  };
  for (const std::string& path : paths) {
    const std::filesystem::path file(path);
    const std::string parent = file.parent_path().string();
    auto folder = folders.find(parent);
    if (folder == folders.end()) {
      std::string name = files.hosts.empty() ? "" : file.parent_path().filename().string();
      const bool taken = std::any_of(folders.begin(), folders.end(),
                                     [&](const auto& known) { return known.second == name; });
      if (!files.hosts.empty() && (taken || !store::IsPlainName(name)))
        name = absl::StrCat("host-", folders.size() + 1);
      folder = folders.emplace(parent, name).first;
      serve(name, store::kSettingsFile, absl::StrCat(parent, "/", store::kSettingsFile));
    }
    serve(folder->second, file.filename().string(), path);
  }
  return served;
}

bool IsServedName(std::string_view name) {
  const size_t slash = name.find('/');
  const std::string_view file = slash == std::string_view::npos ? name : name.substr(slash + 1);
  const bool known = file.ends_with(store::kLogSuffix) || file.ends_with(store::kTotalsSuffix) ||
                     file == store::kSettingsFile;
  return known && store::IsPlainName(file) &&
         (slash == std::string_view::npos || store::IsPlainName(name.substr(0, slash)));
}

std::string FileList(const std::vector<ServedFile>& files, bool goes_on) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const ServedFile& file : files) {
    struct stat st {};
    if (lstat(file.path.c_str(), &st) == 0 && S_ISREG(st.st_mode))
      list.push_back({{"name", file.name}, {"bytes", st.st_size}});
  }
  nlohmann::ordered_json answer{{"files", std::move(list)}};
  if (goes_on) answer["goes_on"] = true;
  return answer.dump() + "\n";
}

void AnswerWithFile(const ServedFile& file, uint64_t from, httplib::Response& response, const char* type) {
  const auto opened = std::make_shared<OpenFile>(file.path);
  if (!opened->size().has_value()) return Refuse(response, 404, "this file is gone");
  if (from >= *opened->size()) return response.set_content("", type);
  response.set_content_provider(
      *opened->size() - from, type, [opened, from](size_t offset, size_t length, httplib::DataSink& sink) {
        std::string piece(std::min(length, kReadBytes), '\0');
        const ssize_t n = pread(opened->fd(), piece.data(), piece.size(), static_cast<off_t>(from + offset));
        return n > 0 && sink.write(piece.data(), static_cast<size_t>(n));
      });
}

}  // namespace gpuprobe::http
