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
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "collector/ingest/session.h"
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
  };
  using FindPlace = std::function<absl::StatusOr<Place>(const v1::Hello& hello)>;

  struct Options {
    HangOptions ranks;
    ChosenMarker marker;
    bool processes_tell = false;  // the first process of each job says where its run is
  };
  // `say` gets a line about each run that ends, and the lines of hangs.
  using Say = std::function<void(const std::string& text)>;

  JobRecorder(Options options, FindPlace find_place, Say say)
      : options_(std::move(options)), find_place_(std::move(find_place)), say_(std::move(say)) {}

  absl::StatusOr<std::unique_ptr<ingest::FrameSink>> Open(const v1::Hello& hello, std::string_view raw);
  // Writes what has waited long enough and reports the runs that are over; call a few times a second.
  void Tick();
  // Reports every run. No sink may be used after it.
  void Finish();

  size_t runs() const { return runs_.size(); }
  // Processes of all runs at this time.
  size_t processes() const;
  // Disk space that all runs at this time may take.
  uint64_t keep_bytes() const;
  bool Records(const std::string& directory) const;

 private:
  absl::StatusOr<Recorder*> Join(const v1::Hello& hello);
  // The run of the launcher that started this rank, or of the ranks that this launcher started; null: none.
  Recorder* OfFamily(const v1::Identity& identity);
  void Conclude(Recorder& recorder);

  Options options_;
  FindPlace find_place_;
  Say say_;
  std::map<std::string, std::unique_ptr<Recorder>> runs_;  // by the job of its first process
  std::map<std::string, Recorder*> joined_;                // runs of other jobs' processes, by job
};

}  // namespace gpuprobe::recording
