// A run as it is named on a command line: a run directory, or the URL of a served run, which is copied first.
//
// Everything that reads a directory works on a copy, to the byte what the other host has: its logs so far,
// totals and settings. Copies lie in a directory below $TMPDIR and go with the last of these objects, also if
// a signal ends the program.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace gpuprobe::cli {

// What is said of the argument.
inline constexpr char kGivenRun[] =
    "run directory, or URL of a served run [the newest run under gpuprobe-runs]";

class GivenRun {
 public:
  // `given` as it was typed; empty: the newest run below gpuprobe-runs/, which is then said. A directory is
  // not looked at. NotFound if there is no newest run. Unavailable if the server does not answer or stops
  // answering; otherwise as http::Fetch, or what keeps the copy from being written.
  static absl::StatusOr<GivenRun> Open(const std::string& given);

  // As it was typed, for people.
  const std::string& name() const { return name_; }
  // Where to read it.
  const std::string& directory() const { return directory_; }
  // It is a copy of a hub's job that is not over: what has not ended is no loss.
  bool goes_on() const { return goes_on_; }

 private:
  class Copies;
  GivenRun(std::string name, std::string directory, std::shared_ptr<const Copies> copies = nullptr,
           bool goes_on = false)
      : name_(std::move(name)),
        directory_(std::move(directory)),
        copies_(std::move(copies)),
        goes_on_(goes_on) {}

  std::string name_;
  std::string directory_;
  std::shared_ptr<const Copies> copies_;  // null: it is no copy
  bool goes_on_;
};

}  // namespace gpuprobe::cli
