// All jobs of a hub that runs by itself: each is a run directory, as if its hosts shared one, watched for
// hangs and reported when it is over.
//
//   gpuprobe-runs/20261127T101500Z-n1_29500/      a job whose ranks meet at n1:29500
//     job.txt                                     its name, as its launcher tells all hosts, and its attempt
//     n1/rank-0.gpr ...   n2/rank-8.gpr ...       posted by its hosts
//     report.html                                 when it is over
//   gpuprobe-runs/alice/20261127T101500Z-n1_29500/  the same of one of several users (hub/users.h)
//
// Jobs are apart by user and name: users who call their jobs the same do not meet. A job is over when each of
// its hosts has ended, or has sent nothing for a quarter of an hour. What is posted under its name later is
// another attempt, with a directory of its own. A hub that ends leaves jobs as they are, and one that begins
// in the same directory goes on with them.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collector/analysis/suspects.h"
#include "collector/http/hub_metrics.h"
#include "collector/http/job_server.h"
#include "collector/hub/endpoint.h"
#include "collector/hub/hub.h"
#include "collector/hub/quotas.h"
#include "collector/ingest/session.h"
#include "collector/recording/hub_attempts.h"
#include "collector/recording/hub_rows.h"
#include "collector/recording/job_captures.h"
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
    // Of one address, for each of its users, in all jobs whose directories are in `out`; what is removed
    // there is free again.
    uint64_t most_bytes_of_address = uint64_t{64} << 30;
    uint64_t least_free_bytes = uint64_t{1} << 30;  // of the file system
    size_t most_jobs_of_host = 16;                  // at a time
    bool has_users = false;                         // whose folders are in `out`
    uint64_t most_bytes_of_user = uint64_t{256} << 30;
    size_t most_jobs_of_user = 64;  // at a time
    HangOptions hangs;
    render::Layout layout;
    clickhouse::Writer* rows = nullptr;  // gets rows of each job; outlives this. Null: nobody does
  };
  // Which ranks have series in the metrics.
  enum class RankSeries : uint8_t { kNone, kSuspects, kAll };
  // Of one user.
  struct OfUser {
    std::shared_ptr<const http::JobList> list;
    std::shared_ptr<http::HubMoment> moment;
  };
  // For people, a line or more with their ends.
  using Say = std::function<void(const std::string& text)>;

  HubJobs(Options options, Say say);
  ~HubJobs() override;

  // Goes on with the jobs that another hub left in `out`. Before any post.
  absl::Status Resume();

  bool Has(const std::string& job) override;
  hub::Taken Take(const v1::HubPost& post, const hub::Sender& from) override;

  // Reports jobs that are over; call about once a second, from one thread.
  void Tick();
  // A capture of the job that is meant, by its directory or a host's folder there. From Tick's thread, as
  // TickCaptures, which is called a few times a second.
  absl::StatusOr<std::unique_ptr<ingest::Answerer>> OpenCapture(const v1::CaptureRequest& request);
  void TickCaptures();
  // Ends all watches; jobs that are not over stay without a report. After the last post.
  void End();
  size_t jobs() const;
  // All jobs in `out`, of which the latest kMostListed are listed, as of the last Tick.
  std::shared_ptr<const http::JobList> List() const;
  // Jobs and disk, as of now; what the caller knows besides is left out. From Tick's thread.
  std::shared_ptr<http::HubMoment> MomentNow(RankSeries series);
  // What of List and of this moment is one user's, for each who has a job.
  std::map<std::string, OfUser> OfUsers(const http::HubMoment& moment) const;

 private:
  // By which jobs are apart.
  struct JobId {
    std::string user;  // empty: the hub has one
    std::string name;

    bool operator==(const JobId&) const = default;
    bool operator<(const JobId& other) const {
      return std::tie(user, name) < std::tie(other.user, other.name);
    }
  };
  struct Job {
    Job(store::Directory made, const hub::Hub::Options& options) : directory(std::move(made)), hub(options) {}

    store::Directory directory;
    hub::Sender from;  // who posted first; its host is empty: not known
    hub::Hub hub;
    std::chrono::steady_clock::time_point posted_at = std::chrono::steady_clock::now();  // under the mutex
    uint16_t attempt = 1;
    std::optional<HubRows> rows;         // of Tick's thread, and of the watch's while that runs
    std::optional<WholeJobWatch> watch;  // of Tick's thread, as all that follows
    std::set<std::string> said;          // hosts that have joined
    analysis::Suspects suspects;
    JobCaptures captures{[](uint32_t, const v1::Capture&) {}};  // no process is on this host
    uint64_t begun_ns = 0;                                      // since the epoch
    std::chrono::steady_clock::time_point last_recording = std::chrono::steady_clock::now();
  };

  // A job that another hub left, and that is not among `jobs_`.
  struct LeftJob {
    JobId id;
    uint16_t attempt = 1;
    std::string path;
  };

  // Under the mutex.
  absl::StatusOr<std::shared_ptr<Job>> JobOf(const std::string& name, const hub::Sender& from);
  absl::StatusOr<store::Directory> MakeDirectory(const JobId& id) const;
  std::map<JobId, std::shared_ptr<Job>> JobsNow() const;  // not under the mutex
  absl::Status HasPlace() const;                          // for one more
  absl::Status MayBegin(const hub::Sender& from);
  absl::Status HasRoom(uint64_t bytes, const hub::Sender& from);
  std::shared_ptr<Job> MakeJob(const JobId& id, uint16_t attempt, store::Directory directory) const;
  std::shared_ptr<Job> Add(const JobId& id, uint16_t attempt, store::Directory directory);
  absl::Status TakeUp(const LeftJob& left);
  bool IsEarlier(const LeftJob& left) const { return left.attempt < attempts_.at(left.id); }
  // Not under the mutex: the next of `left_`, if there is room for it.
  void TakeUpNext();
  void ReportEarlier(const LeftJob& left);
  bool HasEarlier(const JobId& id) const;
  http::ListedJob RowOf(const JobId& id, const Job& job) const;
  void MakeList();
  http::HubJobMoment MomentOf(const JobId& id, Job& job, RankSeries series);
  // What each address has on the disk, and what the disk has left.
  void MeasureDisk();
  void LookForDetail(Job& job);
  // False if the job is over.
  bool Look(const JobId& id, Job& job);
  clickhouse::JobRows::Facts RowFacts(const JobId& id, const Job& job) const;
  // The attempt before, of those that are over.
  std::optional<LastAttempt> LastOver(const JobId& id, uint64_t attempt) const;
  void Conclude(const JobId& id, Job& job);
  analysis::ReportInput Input() const;

  const Options options_;
  const Say say_;
  mutable std::mutex mutex_;
  std::map<std::string, http::ListedJob> over_;  // by directory; of Tick's thread, as what follows
  bool over_changed_ = true;                     // since fleets_ were made
  std::map<std::string, std::shared_ptr<const http::Fleet>> fleets_;  // by user; empty: of all
  // By user; empty: of all. Under the mutex, as all that follows.
  std::map<std::string, std::shared_ptr<const http::JobList>> lists_;
  std::map<JobId, std::shared_ptr<Job>> jobs_;
  std::map<JobId, uint16_t> attempts_;                // so far
  std::deque<LeftJob> left_;                          // earlier attempts first
  std::map<hub::Sender, hub::Allowance> beginnings_;  // of jobs
  std::map<hub::Sender, uint64_t> stored_;            // bytes
  std::map<std::string, uint64_t> stored_of_user_;    // their sums
  uint64_t free_bytes_ = UINT64_MAX;
  std::chrono::steady_clock::time_point measured_at_;  // of Tick's thread
};

}  // namespace gpuprobe::recording
