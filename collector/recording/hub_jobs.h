// All jobs of a hub that runs by itself: each is a run directory, as if its hosts shared one, watched for
// hangs and reported when it is over.
//
//   gpuprobe-runs/20261127T101500Z-n1_29500/      a job whose ranks meet at n1:29500
//     job.txt                                     its name, as its launcher tells all hosts, and its attempt
//     n1/rank-0.gpr ...   n2/rank-8.gpr ...       posted by its hosts
//     report.html                                 when it is over
//
// A job is over when each of its hosts has ended, or has sent nothing for a quarter of an hour. What is
// posted under its name later is another attempt, with a directory of its own. A hub that ends leaves jobs as
// they are, and one that begins in the same directory goes on with them.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collector/http/job_server.h"
#include "collector/hub/endpoint.h"
#include "collector/hub/hub.h"
#include "collector/hub/quotas.h"
#include "collector/recording/hub_rows.h"
#include "collector/recording/options.h"
#include "collector/recording/whole_job_watch.h"
#include "collector/render/text_layout.h"
#include "collector/store/directory.h"

namespace gpuprobe::recording {

class HubJobs : public hub::Jobs {
 public:
  static constexpr size_t kMostListed = 1000;
  static constexpr size_t kMostJobs = 256;  // at a time
  // How fast one host may begin jobs when it has begun as many as it may have at a time.
  static constexpr std::chrono::seconds kJobEvery{2};
  // Of hosts that have ended, while others may not have joined.
  static constexpr std::chrono::seconds kLinger{10};
  static constexpr std::chrono::minutes kGivenUp{15};

  struct Options {
    std::string out;                  // parent of the jobs' directories
    std::string host;                 // name of this one
    uint64_t most_bytes_of_host = 0;  // in one job
    // Of one address, in all jobs whose directories are in `out`; what is removed there is free again.
    uint64_t most_bytes_of_address = uint64_t{64} << 30;
    uint64_t least_free_bytes = uint64_t{1} << 30;  // of the file system
    size_t most_jobs_of_host = 16;                  // at a time
    HangOptions hangs;
    render::Layout layout;
    clickhouse::Writer* rows = nullptr;  // gets rows of each job; outlives this. Null: nobody does
  };
  // For people, a line or more with their ends.
  using Say = std::function<void(const std::string& text)>;

  HubJobs(Options options, Say say);
  ~HubJobs() override;

  // Goes on with the jobs that another hub left in `out`. Before any post.
  absl::Status Resume();

  bool Has(const std::string& job) override;
  hub::Taken Take(const v1::HubPost& post, const std::string& from) override;

  // Reports jobs that are over; call about once a second, from one thread.
  void Tick();
  // Ends all watches; jobs that are not over stay without a report. After the last post.
  void End();
  size_t jobs() const;
  // All jobs in `out`, of which the latest kMostListed are listed, as of the last Tick.
  std::shared_ptr<const http::JobList> List() const;

 private:
  struct Job {
    Job(store::Directory made, const hub::Hub::Options& options) : directory(std::move(made)), hub(options) {}

    store::Directory directory;
    std::string from;  // the address that posted first; empty: not known
    hub::Hub hub;
    uint16_t attempt = 1;
    std::optional<HubRows> rows;         // of Tick's thread, and of the watch's while that runs
    std::optional<WholeJobWatch> watch;  // of Tick's thread, as all that follows
    std::set<std::string> said;          // hosts that have joined
    uint64_t begun_ns = 0;               // since the epoch
    std::chrono::steady_clock::time_point last_recording = std::chrono::steady_clock::now();
  };

  // Under the mutex.
  absl::StatusOr<std::shared_ptr<Job>> JobOf(const std::string& name, const std::string& from);
  absl::Status MayBegin(const std::string& from);
  absl::Status HasRoom(uint64_t bytes, const std::string& from);
  std::shared_ptr<Job> Add(const std::string& name, uint16_t attempt, store::Directory directory);
  http::ListedJob RowOf(const std::string& name, const Job& job) const;
  void MakeList();
  // What each address has on the disk, and what the disk has left.
  void MeasureDisk();
  // False if the job is over.
  bool Look(const std::string& name, Job& job);
  clickhouse::JobRows::Facts RowFacts(const std::string& name, const Job& job) const;
  void Conclude(const std::string& name, Job& job);
  analysis::ReportInput Input() const;

  const Options options_;
  const Say say_;
  mutable std::mutex mutex_;
  std::map<std::string, http::ListedJob> over_;  // by directory; of Tick's thread
  std::shared_ptr<const http::JobList> list_ = std::make_shared<http::JobList>();  // under the mutex
  std::map<std::string, std::shared_ptr<Job>> jobs_;  // by name; under the mutex, as all that follows
  std::map<std::string, uint16_t> attempts_;          // so far, by name
  std::map<std::string, hub::Allowance> beginnings_;  // of jobs, by address
  std::map<std::string, uint64_t> stored_;            // bytes, by address
  uint64_t free_bytes_ = UINT64_MAX;
  std::chrono::steady_clock::time_point measured_at_;  // of Tick's thread
};

}  // namespace gpuprobe::recording
