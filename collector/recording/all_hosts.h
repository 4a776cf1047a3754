// This host's part in a job that spans hosts: it shows the whole job, or sends what it records to the host
// that does, or, with a directory that all hosts share, neither: then who records rank 0 reads it.
//
// Who shows it is the hub of the job, on the host where the job's launcher lets all ranks meet. Other hosts
// post their records to it. Without a secret that proves whose they are, nothing listens and nothing is sent.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collector/analysis/live_status.h"
#include "collector/hub/endpoint.h"
#include "collector/hub/hub.h"
#include "collector/hub/mirror.h"
#include "collector/recording/options.h"
#include "collector/recording/recorder.h"
#include "collector/recording/rendezvous.h"
#include "collector/recording/whole_job_watch.h"
#include "collector/render/text_layout.h"

namespace gpuprobe::recording {

class AllHosts {
 public:
  // Longest wait for the other hosts of a job that has ended here, before the report on all of them.
  static constexpr std::chrono::milliseconds kWait{10000};

  struct Options {
    std::string out;                      // --out, which all hosts may share; empty: it was not given
    std::optional<hub::Meeting> meeting;  // nullopt: hosts do not talk to each other
    std::optional<std::string> token;     // of a job that was started without us; nullopt: in our environment
    ChosenMarker marker;
    HangOptions hangs;
    analysis::ReportInput input;  // of reports on all hosts
    render::Layout layout;
    uint64_t keep_bytes = 0;  // of each host
    bool quiet = false;
    bool listens = true;  // if this host is where the job meets
  };

  // Listens if this host is where the job meets, and it may; nothing may be forked after it.
  explicit AllHosts(Options options);

  // This host's folder in the directory of all hosts, for a recorder that names that directory; empty: it has
  // none, or records in one that is named already.
  std::string FolderInDefault() const;
  // A few times a second.
  void Tick(Recorder& recorder);
  // Rank 0, or the hub, is here, and other hosts record.
  bool has_several() const { return watch_.has_value() && watch_->has_several(); }
  // As of the last look at all hosts.
  analysis::LiveStatus status() const { return watch_->StatusNow(); }
  // Of this host, or of all hosts where they are shown.
  PageSource& PageOf(Recorder& recorder) {
    return has_several() ? static_cast<PageSource&>(*watch_) : recorder;
  }
  // Puts what was said of all hosts into a log of this one, for who reports on the run later.
  void NoteVerdicts(Recorder& recorder);
  // The command has ended here: whether other hosts still record, or have not joined and may yet. Looks more
  // often from now on.
  bool AwaitsOthers(const Recorder& recorder, std::chrono::milliseconds since_end);

  // What this host recorded is complete. Sends what the hub lacks, for so long at most, and ends the watch.
  void End(std::chrono::milliseconds patience);
  // The job of all hosts, after End; null: it is not shown here, or no other host recorded.
  WholeJob* job() { return job_; }
  // The directory of all hosts.
  const std::string& directory() const { return directory_; }
  const analysis::ReportInput& input() const { return options_.input; }
  // Where all hosts are reported, in a line for people, after End; empty: nowhere, or there is one.
  std::string WhereReported() const;
  // What there is to say below this host's report, which stands for itself, in a line for people.
  std::string WhyAlone() const;
  // The same for a log: whether the hub has all, to append to a line; empty: there is none elsewhere.
  std::string WhatArrived() const;

 private:
  void Listen(const hub::Meeting& meeting, const hub::Secret& secret);
  void SayTrouble();
  // Brings what a capture needs from the recorder to the hub, and back.
  void JoinCaptures(Recorder& recorder);
  void JoinDetail(Recorder& recorder);
  std::string WhereCaptured() const;

  Options options_;
  std::string host_;       // its name
  std::string folder_;     // its directory's name in directory_
  std::string own_;        // what it records in; empty: not known yet
  std::string directory_;  // empty: there is none, or it is not known yet
  std::optional<hub::Hub> hub_;
  std::optional<hub::Endpoint> endpoint_;  // its threads use the hub
  std::optional<hub::Mirror> mirror_;
  std::optional<WholeJobWatch> watch_;
  WholeJob* job_ = nullptr;
  absl::Status secret_;      // why there is none
  hub::Mirror::State sent_;  // at the end
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  bool said_trouble_ = false;
  bool said_hub_ = false;
};

}  // namespace gpuprobe::recording
