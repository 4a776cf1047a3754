// Opens paths without following symbolic links that another user planted.
//
// Example: alice records in /shared, a folder of her group, and mallory has made /shared/gpuprobe-runs a link
// to alice's home. A path is walked one component at a time, by descriptor. A link is followed if it belongs
// to us or to root; mallory's is refused, and named. What is checked is what is opened, whatever is renamed
// meanwhile.
#pragma once

#include <sys/types.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace gpuprobe::store {

// Where the last component of a path is, or would be. Owns the descriptor.
struct PathPlace {
  PathPlace(int parent_fd, std::string last_name, std::string shown)
      : parent(parent_fd), name(std::move(last_name)), parent_path(std::move(shown)) {}
  PathPlace(PathPlace&& other) noexcept;
  PathPlace& operator=(PathPlace&&) = delete;
  ~PathPlace();

  int parent;               // O_PATH
  std::string name;         // one component, "." if the path ends with a folder itself
  std::string parent_path;  // for people
};

enum class LastLink {
  kFollow,  // `name` is no link that can be resolved
  kKeep,    // `name` may be a link
};

// NotFound if a folder on the way is missing; `make_folder`, if given, makes it: it gets the parent's
// descriptor, the name, and the path for people. PermissionDenied for a link of another user.
absl::StatusOr<PathPlace> FindPlace(const std::string& path, LastLink last_link,
                                    absl::Status (*make_folder)(int parent, const std::string& name,
                                                                const std::string& path) = nullptr);

// A folder that exists, O_RDONLY, or O_PATH if it may be entered but not listed.
absl::StatusOr<int> OpenFolder(const std::string& path);

// For a file that the user asked us to write: makes it or empties it.
absl::StatusOr<int> OpenOutputFile(const std::string& path);
// The same place by a path without links, for libraries that open files themselves.
absl::StatusOr<std::string> PathWithoutLinks(const std::string& path);
// Makes a folder with the parents it needs.
absl::Status MakeOutputFolder(const std::string& path);

}  // namespace gpuprobe::store
