// Run directories in a hub's `--out`: which there are, how people name them, and the line that the list of
// jobs has of one that is over.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "collector/http/job_server.h"

namespace gpuprobe::recording {

inline constexpr char kTextFile[] = "report.txt";  // the report as text
inline constexpr char kRowFile[] = "listed.json";  // of a job that is over: RowText

struct FoundRun {
  std::string user;  // empty: the hub has one
  std::filesystem::path path;
};

// The directories in `out`, and with `has_users` those in its users' folders. False: not all could be read.
bool FindRuns(const std::string& out, bool has_users, std::vector<FoundRun>& found);

// How people and URLs name a run, "alice/20261127T101500Z-train".
std::string IdOfRun(const std::filesystem::path& directory, const std::string& user);

// With the files of its report.
http::ListedJob WithPages(http::ListedJob row, const std::filesystem::path& directory,
                          const std::string& user);

// A job that is over, as a line of the list.
std::string RowText(const http::ListedJob& row);
// Of jobs that another hub has reported, by directory. Files are what anybody wrote there.
std::map<std::string, http::ListedJob> RowsIn(const std::vector<FoundRun>& runs);

}  // namespace gpuprobe::recording
