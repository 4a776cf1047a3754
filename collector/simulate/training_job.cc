#include "collector/simulate/training_job.h"

#include <algorithm>

namespace gpuprobe::simulate {

std::vector<uint64_t> Buckets(const TrainingJob& job) {
  std::vector<uint64_t> buckets;
  if (job.sharded) return buckets;
  const uint64_t total = job.gradients.layer_bytes * static_cast<uint64_t>(job.layers / job.pipeline);
  uint64_t done = 0;
  while (done < total) {
    const uint64_t wanted = done == 0 ? job.gradients.first_bucket_bytes : job.gradients.bucket_bytes;
    buckets.push_back(std::min(wanted, total - done));
    done += buckets.back();
  }
  return buckets;
}

bool IsSlow(const TrainingJob& job, int rank, int step) {
  return job.slow.by != SlowBy::kNothing && rank >= job.slow.rank && rank < job.slow.rank + job.slow.ranks &&
         step >= 0 && step >= job.slow.from * job.steps &&
         (step + job.slow.every / 2) % job.slow.every < job.slow.steps;
}

bool IsOther(const TrainingJob& job, int rank) {
  return job.other.ranks > 0 && rank >= job.ranks - job.other.ranks;
}

Link LinkOf(const TrainingJob& job, const std::vector<int>& members, int step) {
  bool several = false;
  bool concerned = job.network.host < 0;
  for (const int rank : members) {
    several = several || rank / job.ranks_per_host != members.front() / job.ranks_per_host;
    concerned = concerned || rank / job.ranks_per_host == job.network.host;
  }
  if (!several) return job.link;
  Link link = job.network.link.value_or(job.link);
  if (!concerned || step < job.network.from * job.steps - (job.network.from > 0 ? 0 : 1)) return link;
  link.alpha_ns = static_cast<int64_t>(static_cast<double>(link.alpha_ns) * job.network.slowdown);
  link.beta_bytes_per_ns /= job.network.slowdown;
  return link;
}

// Ranks are numbered with the tensor group fastest, then data, then pipeline.
std::vector<NodeCommunicator> Communicators(const TrainingJob& job) {
  std::vector<NodeCommunicator> all;
  const auto add = [&](const char* name, std::vector<int> members) {
    const uint64_t hash = 0x9c1e'0000'0000'0001u + (static_cast<uint64_t>(all.size()) << 20) * 0x1357u;
    const Link link = LinkOf(job, members, -1);
    all.push_back({.hash = hash, .name = name, .members = std::move(members), .link = link});
  };
  const int data = job.data();
  const auto rank_of = [&](int stage, int d, int t) { return (stage * data + d) * job.tensor + t; };
  // The members that differ in one coordinate: `count` of them.
  const auto group = [](int count, const auto& member) {
    std::vector<int> members(static_cast<size_t>(count));
    for (int i = 0; i < count; ++i) members[static_cast<size_t>(i)] = member(i);
    return members;
  };
  for (int stage = 0; stage < job.pipeline; ++stage) {
    for (int t = 0; t < job.tensor; ++t)
      add("data", group(data, [&](int d) { return rank_of(stage, d, t); }));
  }
  for (int stage = 0; stage < job.pipeline && job.tensor > 1; ++stage) {
    for (int d = 0; d < data; ++d)
      add("tensor", group(job.tensor, [&](int t) { return rank_of(stage, d, t); }));
  }
  for (int d = 0; d < data && job.pipeline > 1; ++d) {
    for (int t = 0; t < job.tensor; ++t) {
      add("pipeline", group(job.pipeline, [&](int stage) { return rank_of(stage, d, t); }));
    }
  }
  return all;
}

RankSettings SettingsOf(const TrainingJob& job) {
  RankSettings settings;
  settings.launch_cost_ns = job.host.launch_cost_ns;
  settings.queue_depth = job.host.queue_depth;
  settings.kernel_noise = job.noise.kernels;
  settings.host_noise = job.noise.host;
  return settings;
}

}  // namespace gpuprobe::simulate
