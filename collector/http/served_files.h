// The files of a run as a server gives them away: its logs, its totals and its settings, byte for byte.
//
//   GET /api/files               {"files": [{"name": "n1/rank-0.gpr", "bytes": 1520344}, ...]}
//                                of a hub's job that is not over, "goes_on": true
//   GET /api/files/NAME?from=N   the file from byte N on, as long as it is now
//
// Names are those in the run directory, with the host's folder where there are several.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "collector/http/connection.h"
#include "collector/store/run_files.h"

namespace gpuprobe::http {

inline constexpr char kFilesPath[] = "/api/files";

struct ServedFile {
  std::string name;
  std::string path;
};

// Those of a run, whose directories may have any names.
std::vector<ServedFile> FilesToServe(const store::RunFiles& files);

// Whether a name is of such a file, so that no other can be asked for, or written where a run is copied to.
bool IsServedName(std::string_view name);

// The list, with the sizes of this moment. Files that are gone are not in it. `goes_on`: the list says so.
std::string FileList(const std::vector<ServedFile>& files, bool goes_on = false);
// One of them from byte `from` on. 404 if it is gone.
void AnswerWithFile(const ServedFile& file, uint64_t from, httplib::Response& response,
                    const char* type = "application/octet-stream");

}  // namespace gpuprobe::http
