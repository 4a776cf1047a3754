// The runs of one user's jobs, each in a directory of its own.
//
// Processes of one job (Identity.run) share a run, from the first process until kGoneWait after the last.
// Then the run is reported. Two trainings that were started in two terminals are two runs, the ranks of one
// torchrun are one. A launcher that initialises CUDA and leaves the work to its children shares their run:
// torchrun asks the driver how many GPUs there are, so it connects before its ranks, and without a rank. Used
// from the server's thread only. Must outlive the server whose sinks it makes.
#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "collector/ingest/session.h"
#include "collector/recording/all_hosts.h"
#include "collector/recording/options.h"
#include "collector/recording/recorder.h"

namespace gpuprobe::recording {

class JobRecorder {
 public:
  // Ranks of a job may come a little later, or leave and come back.
  static constexpr std::chrono::milliseconds kGoneWait{2000};

  // Where a new run is recorded and how large it may get; an error refuses the process, with its message.
  struct Place {
    store::Directory directory;  // locked
    uint64_t keep_bytes;
    bool unfinished = false;  // it holds a run whose collector died, to go on with
    // The directory that it is in, if other hosts of the job have folders there, too.
    std::string of_all_hosts = {};
  };
  using FindPlace = std::function<absl::StatusOr<Place>(const v1::Hello& hello)>;

  struct Options {
    HangOptions ranks;
    ChosenMarker marker;
    bool processes_tell = false;  // the first process of each job says where its run is
    bool joins_hosts = false;     // the hosts of a job find each other (all_hosts.h)
    std::string hub = {};         // where jobs are sent that name no other; with joins_hosts
  };
  // `say` gets a line about each run that ends, and the lines of hangs.
  using SayLine = std::function<void(const std::string& text)>;

  JobRecorder(Options options, FindPlace find_place, SayLine say)
      : options_(std::move(options)), find_place_(std::move(find_place)), say_(std::move(say)) {}

  absl::StatusOr<std::unique_ptr<ingest::FrameSink>> Open(const v1::Hello& hello, std::string_view raw);
  // A capture of the run that is meant.
  absl::StatusOr<std::unique_ptr<ingest::Answerer>> OpenCapture(const v1::CaptureRequest& request);
  // Writes what has waited long enough and reports the runs that are over; call a few times a second.
  void Tick();
  // Reports every run, without waiting for other hosts. No sink may be used after it.
  void Finish();

  size_t runs() const { return runs_.size() + concluding_.size(); }
  // Processes of all runs at this time.
  size_t processes() const;
  // Disk space that all runs at this time may take.
  uint64_t keep_bytes() const;
  bool Records(const std::string& directory) const;

 private:
  struct Run {
    std::unique_ptr<Recorder> recorder;
    std::string of_all_hosts;
    bool knows_hosts = false;  // a process has come that says where they meet
    std::future<std::unique_ptr<AllHosts>> joining;
    std::unique_ptr<AllHosts> hosts;  // after that; uses the recorder
  };
  absl::StatusOr<Run*> Join(const v1::Hello& hello);
  // The run of the launcher that started this rank, or of the ranks that this launcher started; null: none.
  Run* OfFamily(const v1::Identity& identity);
  void JoinHosts(Run& run, const v1::Hello& hello);
  // Processes of it are here, or ranks on other hosts are waited for.
  static bool GoesOn(Run& run);
  static std::string Conclude(Run& run, std::chrono::milliseconds patience);
  void Say(const std::string& line) const;

  Options options_;
  FindPlace find_place_;
  SayLine say_;
  std::map<std::string, Run> runs_;                   // by the job of its first process
  std::map<std::string, Run*> joined_;                // runs of other jobs' processes, by job
  std::vector<std::future<std::string>> concluding_;  // of runs that are over here; see Conclude
};

}  // namespace gpuprobe::recording
