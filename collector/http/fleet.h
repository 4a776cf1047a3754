// The record of each GPU and host over a hub's jobs: how often it took part, and what findings say about it.
//
// Example: of twenty jobs, four say that GPU-6770 held up the others (straggler-slow-gpu), and each job's
// other GPUs are named at most once. GPU-6770 is first, with "4 of 20" and the GPU time that the four jobs
// lost.
//
// A job has something against a GPU if one of its findings is about ranks on that GPU and on no other, and
// against a host likewise. Findings that only a program can cause (memory, communication, steps) do not
// count: whatever rank 0 leaks, it leaks on the first GPU of each host that it runs on.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace gpuprobe::http {

struct JobList;

struct FleetMember {
  std::string gpu_uuid;                      // empty: it is a host
  std::string host;                          // of a GPU: where it was last
  uint64_t gpus = 0;                         // of a host, that have been used
  uint64_t jobs = 0;                         // that are over and took part in
  double gpu_seconds = 0;                    // in these
  uint64_t jobs_against = 0;                 // in which a finding is about it
  std::map<std::string, uint64_t> findings;  // jobs, by the finding's id
  double lost_gpu_seconds = 0;               // of each of these jobs: the costliest such finding
  uint64_t last_seen_ns = 0;                 // since the epoch: end of its last job that is over
};

// Those of most jobs that have something against them first, then those that cost most.
struct Fleet {
  std::vector<FleetMember> gpus;
  std::vector<FleetMember> hosts;
};
// Takes time in proportion to the jobs and their GPUs; JobList::fleet has it.
Fleet FleetOf(const JobList& list);

// Hosts of jobs that are not over.
std::set<std::string> HostsInUse(const JobList& list);

// {"hub": "n3", "user": "anna", "gpus": [...], "hosts": [...]}
std::string FleetJson(const JobList& list);
std::string FleetPage(const JobList& list);

}  // namespace gpuprobe::http
