// A directory that files are written into, held open by its descriptor: every file lands in the directory
// that was opened, whatever its name refers to later.
//
// Example: alice records into /shared/runs/a. If mallory renames `a` and puts a symbolic link to alice's home
// in its place, report.json is still written into the renamed directory, not into alice's home.
//
// Files are made with O_EXCL and O_NOFOLLOW and replaced by renaming, so that we never write through a file
// or link that another user planted. Names are single components, never paths.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace gpuprobe::store {

class Directory {
 public:
  // Opens `path`, and makes it if it is missing, with the parents it needs. The mode of what it makes follows
  // the umask, but a directory made here is never writable by a group or by others. PermissionDenied, with a
  // remedy, where another user could exchange the directory (see CheckPlace), or has planted a link
  // (safe_path.h).
  static absl::StatusOr<Directory> Make(const std::string& path);
  // Makes `path`, or the first of `path`-2, `path`-3 ... that does not exist.
  static absl::StatusOr<Directory> MakeNew(const std::string& path);
  // Takes over an open descriptor. `path` is for messages and for people.
  static Directory Adopt(int fd, std::string path);

  ~Directory();
  Directory(Directory&& other) noexcept;
  Directory& operator=(Directory&& other) noexcept;

  // Makes the directory `name` inside this one, or the first of `name`-2 ... that does not exist; only its
  // owner can enter it.
  absl::StatusOr<Directory> MakeNewInside(const std::string& name) const;

  // A new file, open for writing; AlreadyExists if the name is taken, even by a dangling link.
  absl::StatusOr<int> CreateFile(const std::string& name) const;
  // A file that is there, open for writing behind its end.
  absl::StatusOr<int> ContinueFile(const std::string& name) const;
  absl::Status Truncate(const std::string& name, uint64_t bytes) const;
  // Keeps other collectors away as long as this object lives; the system releases the lock when the process
  // ends. FailedPrecondition while another collector has it.
  absl::Status Lock() const;
  // Replaces the file `name` in one step. What was under that name before is never written to.
  absl::Status WriteFile(const std::string& name, std::string_view content) const;
  absl::Status Rename(const std::string& from, const std::string& to) const;
  // Removes the file, if it exists.
  void Remove(const std::string& name) const;
  bool Exists(const std::string& name) const;
  // 0 for anything but a regular file.
  uint64_t FileBytes(const std::string& name) const;
  absl::StatusOr<std::vector<std::string>> List() const;

  // Removes the directory itself, if it is empty and still has its name.
  void RemoveIfEmpty() const;

  // Whether Make or MakeNew made it.
  bool made() const { return made_; }
  const std::string& path() const { return path_; }
  int fd() const { return fd_; }

 private:
  Directory(int fd, std::string path, bool made) : fd_(fd), path_(std::move(path)), made_(made) {}

  int fd_;
  std::string path_;
  bool made_;
};

// Whether a run may be recorded in the directory `fd` (`path` for people), or in one made inside it.
//
// We write through descriptors, so the most that a user with the right to rename entries can do is to put
// another directory under the run's name. That is accepted of users who share a group on purpose (a user's
// private group, a project's folder), and of the owner of the directory that root records in (a container's
// root in a mounted folder). It is refused in a directory that every user can write without the sticky bit,
// and in one of another user that we can write only by chance.
absl::Status CheckPlace(int fd, const std::string& path);

}  // namespace gpuprobe::store
