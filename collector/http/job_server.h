// Serves a hub's jobs over HTTP: the page at /, JSON at /api/jobs, and the page of each job that is over at
// /jobs/ID/. Metrics of the hub and of the jobs that are not over are at /metrics. Below /jobs/ID/api/ each
// job has what a served run has below /api/, so that commands read its URL as that of a run.
//
// The record of each GPU and host is at /hosts, and as JSON at /api/hosts.
//
// Besides the list, the page has what only several jobs show: GPUs that were at fault in more than one, and
// what each cause has cost in GPU time.
//
// As server.h: bounded connections, GET and HEAD only, and snapshots that whoever reads slowly does not hold
// up. The list is made on the server, so that it can be read without scripts; a script renews it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "collector/http/attempts.h"
#include "collector/http/fleet.h"
#include "collector/http/hub_metrics.h"
#include "collector/http/server.h"

namespace gpuprobe::analysis {
struct LiveStatus;
}

namespace gpuprobe::http {

// What the report of a job that is over found, but for remarks.
struct ListedFinding {
  std::string id;
  std::vector<std::string> hosts;      // of the ranks that it is about; empty: all
  std::vector<std::string> gpu_uuids;  // likewise
  double lost_gpu_seconds = 0;         // 0: not known
};

struct ListedJob {
  std::string id;        // the last part of its page's address: name of its directory, or "alice/" and that
  std::string name;      // as its launcher says; any text
  std::string user;      // whose it is; empty: the hub's user's
  uint64_t attempt = 1;  // of that name
  std::string state;     // running, hangs, over
  std::vector<std::string> hosts;
  uint64_t ranks = 0;
  std::optional<double> step_ns;                       // running: of the last steps; over: the mean
  std::string finding;                                 // the worst one; any text; empty: none
  uint64_t begun_ns = 0;                               // since the epoch
  uint64_t ended_ns = 0;                               // 0: it runs
  std::string directory;                               // its run's
  std::string page;                                    // path of report.html; empty: there is none
  std::string report;                                  // path of report.json
  std::string text;                                    // path of the report as text
  std::shared_ptr<const analysis::LiveStatus> status;  // null: it does not run
  // Of a job that is over; 0 and none: it is not.
  double gpu_seconds = 0;
  std::vector<ListedFinding> findings;
  std::shared_ptr<const ListedSteps> steps;  // null: it has none
  // For how long ranks were recorded, by host and by the UUID of the GPU; that may be empty: not known. Not
  // in JobsJson.
  using Gpus = std::map<std::string, std::map<std::string, double>>;
  std::shared_ptr<const Gpus> gpus = std::make_shared<Gpus>();
};

// A GPU that several jobs have something against (fleet.h).
struct RepeatOffender {
  std::string gpu_uuid;
  std::string host;
  uint64_t jobs = 0;
  std::vector<std::string> findings;  // their ids
  double lost_gpu_seconds = 0;
};

// What findings with one id cost in all jobs that are over.
struct LostTime {
  std::string finding;
  uint64_t jobs = 0;
  double lost_gpu_seconds = 0;
};

struct JobList {
  std::string hub;                                                 // name of its host
  std::string user;                                                // whose jobs they are, if they do not say
  std::vector<ListedJob> jobs;                                     // the latest first
  std::shared_ptr<const Fleet> fleet = std::make_shared<Fleet>();  // of those that are over
};

// Those of most jobs first.
std::vector<RepeatOffender> RepeatOffendersOf(const JobList& list);
// What costs most first; what costs nothing that is known is left out.
std::vector<LostTime> LostTimeOf(const JobList& list);
double GpuSecondsOf(const JobList& list);

// {"hub": "n3", "user": "anna", "jobs": [{"id": ..., "state": "running", ...}]}
std::string JobsJson(const JobList& list);
// `words`: only jobs whose name, host or finding has them all; `order`: "began", "step", "ranks" or "lost",
// the greatest first. Other values are as none.
std::string JobsPage(const JobList& list, const std::string& words = "", const std::string& order = "");
const std::string& UserOf(const ListedJob& job, const JobList& list);

// What somebody sees.
struct ShownJobs {
  std::shared_ptr<const JobList> list;
  std::shared_ptr<const HubMoment> moment;
};

// Who reads with a token of his own: jobs of that user alone.
struct JobReader {
  std::string token;
  std::string user;
};

class JobServer {
 public:
  // As Server::Listen.
  static absl::StatusOr<std::unique_ptr<JobServer>> Listen(const Server::Options& options);
  ~JobServer();
  JobServer(const JobServer&) = delete;
  JobServer& operator=(const JobServer&) = delete;

  void Start();
  // Besides whoever has the token of the options, or needs none, and sees everything. REQUIRES: different
  // tokens, none of which is empty, and one in the options.
  void SetReaders(const std::vector<JobReader>& readers);
  // What is served from now on: everything, and of each user what is his.
  void Publish(ShownJobs all, std::map<std::string, ShownJobs> of_users = {});
  // "http://127.0.0.1:9460"
  std::string Url() const;

 private:
  class Impl;
  explicit JobServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace gpuprobe::http
