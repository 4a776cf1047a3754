#include "injector/core/identity.h"

#include <unistd.h>

#include <cstring>
#include <ctime>
#include <string_view>

#include "injector/base/environment.h"
#include "injector/base/own_descriptor.h"
#include "injector/base/text.h"
#include "proto/launchers.h"

namespace gpuprobe::injector {

namespace {

struct RankVariables {
  wire::RankSource source;
  launchers::Launcher launcher;
};

constexpr RankVariables kLaunchers[] = {
    {wire::RankSource::kRankSourceTorchrun, launchers::kTorchrun},
    {wire::RankSource::kRankSourceOpenMpi, launchers::kOpenMpi},
    {wire::RankSource::kRankSourcePmi, launchers::kPmix},
    {wire::RankSource::kRankSourcePmi, launchers::kPmi},
    {wire::RankSource::kRankSourceSlurm, launchers::kSlurm},
};

constexpr size_t kLongestPart = 200;  // of a run's name

// A number from 0 on, or -1.
int32_t Number(EnvironmentLookup lookup, const char* name) noexcept {
  const char* text = name == nullptr ? nullptr : lookup(name);
  if (text == nullptr || *text < '0' || *text > '9') return -1;
  int64_t value = 0;
  for (; *text >= '0' && *text <= '9'; ++text) {
    value = value * 10 + (*text - '0');
    if (value > (1 << 24)) return -1;
  }
  return *text == '\0' ? static_cast<int32_t>(value) : -1;
}

void CopyText(char* out, size_t capacity, const char* text) noexcept {
  const size_t length = strnlen(text, capacity - 1);
  std::memcpy(out, text, length);
  out[length] = '\0';
}

}  // namespace

void FindRank(EnvironmentLookup lookup, Identity* identity) noexcept {
  identity->rank = Number(lookup, "GPUPROBE_RANK");
  if (identity->rank >= 0) identity->rank_source = wire::RankSource::kRankSourceGpuprobe;
  for (const auto& [source, launcher] : kLaunchers) {
    const int32_t rank = Number(lookup, launcher.rank);
    if (rank < 0) continue;
    if (identity->rank < 0) {
      identity->rank = rank;
      identity->rank_source = source;
    }
    if (identity->local_rank < 0) identity->local_rank = Number(lookup, launcher.local_rank);
    if (identity->world_size <= 0) {
      const int32_t size = Number(lookup, launcher.world_size);
      identity->world_size = size > 0 ? size : 0;
    }
    const char* job = lookup(launcher.job);
    if (identity->job[0] == '\0' && job != nullptr) CopyText(identity->job, sizeof(identity->job), job);
  }
}

// Field 22 of /proc/self/stat is the start in clock ticks since boot.
uint64_t ProcessStartNs() noexcept {
  char stat[1024];
  const size_t size = ReadOwnFile("/proc/self/stat", stat, sizeof(stat) - 1);
  stat[size] = '\0';
  const char* at = std::strrchr(stat, ')');  // the command's name may hold anything
  if (at == nullptr) return 0;
  ++at;
  for (int field = 2; field < 21 && at != nullptr; ++field) at = std::strchr(at + 1, ' ');
  if (at == nullptr) return 0;
  uint64_t ticks = 0;
  for (++at; *at >= '0' && *at <= '9'; ++at) ticks = ticks * 10 + static_cast<uint64_t>(*at - '0');
  const int64_t per_second = sysconf(_SC_CLK_TCK);
  if (ticks == 0 || per_second <= 0) return 0;
  timespec real{};
  timespec boot{};
  clock_gettime(CLOCK_REALTIME, &real);
  clock_gettime(CLOCK_BOOTTIME, &boot);
  const int64_t boot_at_ns = (real.tv_sec - boot.tv_sec) * 1'000'000'000 + (real.tv_nsec - boot.tv_nsec);
  return static_cast<uint64_t>(boot_at_ns) + ticks * (1'000'000'000u / static_cast<uint64_t>(per_second));
}

// torchrun --standalone makes an id; without rendezvous it is "none" for all jobs.
void FindRun(EnvironmentLookup lookup, const ProcessIds& ids, Identity* identity) noexcept {
  const auto text = [&](const char* name) noexcept {
    const char* value = lookup(name);
    return std::string_view(value == nullptr ? "" : value).substr(0, kLongestPart);
  };
  TextBuffer<sizeof(Identity::run)> run;
  const std::string_view job(identity->job);
  const bool ranked = identity->rank_source != wire::RankSource::kRankSourceNone;
  if (!job.empty() && job != "none") {
    run.Add("job ").Add(job.substr(0, kLongestPart));
    if (identity->rank_source == wire::RankSource::kRankSourceSlurm) run.Add(".").Add(text("SLURM_STEP_ID"));
  } else if (ranked && !text("MASTER_PORT").empty()) {
    run.Add("master ").Add(text("MASTER_ADDR")).Add(":").Add(text("MASTER_PORT"));
    run.Add(" parent ").AddNumber(static_cast<uint64_t>(ids.parent));
  } else if (ranked) {
    run.Add("session ").AddNumber(static_cast<uint64_t>(ids.session));
    run.Add(" parent ").AddNumber(static_cast<uint64_t>(ids.parent));
  } else {
    // A background job of a shell has a process group of its own; a child of a program has the program's.
    run.Add("session ").AddNumber(static_cast<uint64_t>(ids.session));
    run.Add(" group ").AddNumber(static_cast<uint64_t>(ids.group));
  }
  CopyText(identity->run, sizeof(identity->run), run.c_str());
}

void FindIdentity(Identity* identity) noexcept {
  *identity = Identity{};
  FindRank(ReadVariable, identity);
  FindRun(ReadVariable, {.parent = getppid(), .session = getsid(0), .group = getpgrp()}, identity);
  if (gethostname(identity->host, sizeof(identity->host) - 1) != 0) identity->host[0] = '\0';
  identity->pid = static_cast<uint32_t>(getpid());
  identity->uid = static_cast<uint32_t>(geteuid());
  identity->process_start_ns = ProcessStartNs();
  const ssize_t length = readlink("/proc/self/exe", identity->executable, sizeof(identity->executable) - 1);
  identity->executable[length > 0 ? length : 0] = '\0';
  identity->command_line_bytes =
      ReadOwnFile("/proc/self/cmdline", identity->command_line, sizeof(identity->command_line));
}

}  // namespace gpuprobe::injector
