// What a hub's jobs are at one moment, for its metrics.
#include <algorithm>
#include <numeric>

#include "collector/recording/hub_jobs.h"
#include "collector/recording/version.h"

namespace gpuprobe::recording {

namespace {

double SecondsSince(std::chrono::steady_clock::time_point then) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - then).count();
}

void AddLost(const http::JobList& list, http::HubMoment& moment) {
  for (const http::LostTime& lost : http::LostTimeOf(list))
    moment.lost_gpu_seconds.emplace_back(lost.finding, lost.lost_gpu_seconds);
}

}  // namespace

http::HubJobMoment HubJobs::MomentOf(const JobId& id, Job& job, RankSeries series) {
  http::HubJobMoment moment;
  moment.name = id.name;
  moment.user = id.user;
  moment.attempt = job.attempt;
  const WholeJobWatch::Seen seen = job.watch->SeenNow();
  moment.numbers = seen.numbers;
  moment.status = seen.status;
  moment.recording_hosts = seen.recording.size();
  moment.silent_hosts = seen.silent;
  moment.read_age_s = SecondsSince(seen.read_until);
  if (series == RankSeries::kSuspects) moment.ranks = job.suspects.Choose(*seen.numbers, MonotonicNs());
  if (series == RankSeries::kAll) {
    moment.ranks.resize(seen.numbers->ranks.size());
    std::iota(moment.ranks.begin(), moment.ranks.end(), size_t{0});
  }
  return moment;
}

std::shared_ptr<http::HubMoment> HubJobs::MomentNow(RankSeries series) {
  auto moment = std::make_shared<http::HubMoment>();
  moment->version = Version();
  moment->jobs_over = over_.size();
  moment->least_free_bytes = options_.least_free_bytes;
  std::map<JobId, std::shared_ptr<Job>> all;
  {
    const std::lock_guard lock(mutex_);
    all = jobs_;
    moment->free_bytes = free_bytes_;
    uint64_t most = 0;
    for (const auto& [from, bytes] : stored_) {
      moment->stored_bytes += bytes;
      most = std::max(most, bytes);
    }
    moment->fullest_host_share =
        static_cast<double>(most) / static_cast<double>(options_.most_bytes_of_address);
  }
  for (const auto& [id, job] : all) {
    if (!job->watch.has_value()) continue;  // it came since the last Tick
    http::HubJobMoment& each = moment->jobs.emplace_back(MomentOf(id, *job, series));
    const std::lock_guard lock(mutex_);
    each.data_age_s = SecondsSince(job->posted_at);
  }
  AddLost(*List(), *moment);
  return moment;
}

std::map<std::string, HubJobs::OfUser> HubJobs::OfUsers(const http::HubMoment& moment) const {
  std::map<std::string, OfUser> of_users;
  const std::lock_guard lock(mutex_);
  for (const auto& [user, list] : lists_) {
    if (user.empty()) continue;
    auto his = std::make_shared<http::HubMoment>();
    his->version = moment.version;
    his->of_user = true;
    const auto stored = stored_of_user_.find(user);
    if (stored != stored_of_user_.end()) his->stored_bytes = stored->second;
    AddLost(*list, *his);
    of_users[user] = {.list = list, .moment = std::move(his)};
  }
  for (const http::HubJobMoment& job : moment.jobs) {
    if (const auto his = of_users.find(job.user); his != of_users.end())
      his->second.moment->jobs.push_back(job);
  }
  for (const auto& [path, row] : over_) {
    if (const auto his = of_users.find(row.user); his != of_users.end()) ++his->second.moment->jobs_over;
  }
  return of_users;
}

}  // namespace gpuprobe::recording
