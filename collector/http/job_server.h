// Serves the list of a hub's jobs over HTTP: the page at /, JSON at /api/jobs, and the page of each job that
// is over at /jobs/ID/.
//
// As server.h: bounded connections, GET and HEAD only, and snapshots that whoever reads slowly does not hold
// up. The list is made on the server, so that it can be read without scripts; a script renews it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "collector/http/server.h"

namespace gpuprobe::http {

struct ListedJob {
  std::string id;     // name of its directory: the last part of its page's address
  std::string name;   // as its launcher says; any text
  std::string state;  // running, hangs, over
  std::vector<std::string> hosts;
  uint64_t ranks = 0;
  std::optional<double> step_ns;  // running: of the last steps; over: the mean
  std::string finding;            // the worst one; any text; empty: none
  uint64_t begun_ns = 0;          // since the epoch
  uint64_t ended_ns = 0;          // 0: it runs
  std::string page;               // path of report.html; empty: there is none
  std::string report;             // path of report.json
};

struct JobList {
  std::string hub;              // name of its host
  std::string user;             // whose jobs they are
  std::vector<ListedJob> jobs;  // the latest first
};

// {"hub": "n3", "user": "anna", "jobs": [{"id": ..., "state": "running", ...}]}
std::string JobsJson(const JobList& list);
std::string JobsPage(const JobList& list);

class JobServer {
 public:
  // As Server::Listen.
  static absl::StatusOr<std::unique_ptr<JobServer>> Listen(const Server::Options& options);
  ~JobServer();
  JobServer(const JobServer&) = delete;
  JobServer& operator=(const JobServer&) = delete;

  void Start();
  // What is served from now on.
  void Publish(std::shared_ptr<const JobList> list);
  // "http://127.0.0.1:9460"
  std::string Url() const;

 private:
  class Impl;
  explicit JobServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace gpuprobe::http
