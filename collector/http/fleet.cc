#include "collector/http/fleet.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "collector/analysis/finding_rules.h"
#include "collector/http/hub_html.h"
#include "collector/http/job_server.h"
#include "collector/text/characters.h"
#include "nlohmann/json.hpp"

namespace gpuprobe::http {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostRows = 1000;  // of a table on the page

// Whether a GPU or a host may be the cause. That of a finding from another release may be.
bool MayBeHardware(const std::string& id) {
  for (const analysis::FindingRule& rule : analysis::FindingRules()) {
    if (id != rule.id) continue;
    return rule.topic == analysis::FindingTopic::kRanks || rule.topic == analysis::FindingTopic::kHangs ||
           rule.topic == analysis::FindingTopic::kHardware;
  }
  return true;
}

// What the findings of one job say about one GPU or host.
struct Case {
  std::set<std::string> findings;
  double lost_gpu_seconds = 0;

  void Add(const ListedFinding& finding) {
    findings.insert(finding.id);
    lost_gpu_seconds = std::max(lost_gpu_seconds, finding.lost_gpu_seconds);
  }
};

void Close(const Case& its, FleetMember& member) {
  ++member.jobs_against;
  for (const std::string& id : its.findings) ++member.findings[id];
  member.lost_gpu_seconds += its.lost_gpu_seconds;
}

class Record {
 public:
  void Add(const ListedJob& job) {
    std::map<std::string, std::string> gpus;  // host by UUID
    std::map<std::string, double> hosts;
    for (const std::string& host : job.hosts) hosts[host];
    for (const auto& [host, its] : *job.gpus) {
      for (const auto& [uuid, seconds] : its) {
        hosts[host] += seconds;
        if (uuid.empty()) continue;
        gpus[uuid] = host;
        gpus_of_[host].insert(uuid);
        gpus_[uuid].gpu_seconds += seconds;
      }
    }
    std::map<std::string, Case> against_gpus;
    std::map<std::string, Case> against_hosts;
    for (const ListedFinding& finding : job.findings) {
      if (!MayBeHardware(finding.id)) continue;
      const bool one_host = finding.hosts.size() == 1;
      if (one_host) against_hosts[finding.hosts.front()].Add(finding);
      if (finding.gpu_uuids.size() != 1 || finding.gpu_uuids.front().empty()) continue;
      against_gpus[finding.gpu_uuids.front()].Add(finding);
      gpus.try_emplace(finding.gpu_uuids.front(), one_host ? finding.hosts.front() : "");
    }
    for (const auto& [uuid, its] : against_gpus) Close(its, gpus_[uuid]);
    for (const auto& [host, its] : against_hosts) {
      hosts[host];
      Close(its, hosts_[host]);
    }
    for (const auto& [uuid, host] : gpus) See(job, gpus_[uuid], host);
    for (const auto& [host, seconds] : hosts) {
      hosts_[host].gpu_seconds += seconds;
      See(job, hosts_[host], host);
    }
  }
  Fleet Sorted() {
    for (auto& [uuid, gpu] : gpus_) gpu.gpu_uuid = uuid;
    for (auto& [host, member] : hosts_) member.gpus = gpus_of_[host].size();
    return {.gpus = Sorted(gpus_), .hosts = Sorted(hosts_)};
  }

 private:
  static void See(const ListedJob& job, FleetMember& member, const std::string& host) {
    ++member.jobs;
    if (job.ended_ns < member.last_seen_ns) return;
    member.last_seen_ns = job.ended_ns;
    member.host = host;
  }
  static std::vector<FleetMember> Sorted(const std::map<std::string, FleetMember>& members) {
    std::vector<FleetMember> sorted;
    sorted.reserve(members.size());
    for (const auto& [key, member] : members) sorted.push_back(member);
    std::stable_sort(sorted.begin(), sorted.end(), [](const FleetMember& a, const FleetMember& b) {
      return std::tuple(a.jobs_against, a.lost_gpu_seconds) > std::tuple(b.jobs_against, b.lost_gpu_seconds);
    });
    return sorted;
  }

  std::map<std::string, FleetMember> gpus_;   // by UUID
  std::map<std::string, FleetMember> hosts_;  // by name
  std::map<std::string, std::set<std::string>> gpus_of_;
};

Json MemberJson(const FleetMember& member) {
  Json findings = Json::array();
  for (const auto& [id, jobs] : member.findings) findings.push_back({{"id", id}, {"jobs", jobs}});
  return {{"jobs", member.jobs},
          {"gpu_seconds", member.gpu_seconds},
          {"jobs_against", member.jobs_against},
          {"findings", std::move(findings)},
          {"lost_gpu_seconds", member.lost_gpu_seconds},
          {"last_seen_ns", member.last_seen_ns}};
}

std::string FindingsText(const FleetMember& member) {
  std::vector<std::string> texts;
  for (const auto& [id, jobs] : member.findings) texts.push_back(absl::StrCat(id, " (", jobs, ")"));
  return texts.empty() ? "-" : absl::StrJoin(texts, ", ");
}

std::string Cells(const FleetMember& member, bool in_use) {
  return absl::StrCat("<td>", member.jobs_against, " of ", member.jobs, "</td><td class=\"text wrap\">",
                      InHtml(FindingsText(member)), "</td><td>", GpuTime(member.lost_gpu_seconds),
                      "</td><td>", GpuTime(member.gpu_seconds), "</td><td>",
                      in_use ? "in use" : TimeText(member.last_seen_ns), "</td></tr>\n");
}

std::string MoreNote(size_t all, const std::string& note) {
  return absl::StrCat(
      "<p>", note, all > kMostRows ? absl::StrCat(" ", all - kMostRows, " more: /api/hosts.") : "", "</p>\n");
}

}  // namespace

Fleet FleetOf(const JobList& list) {
  Record record;
  for (const ListedJob& job : list.jobs) {
    if (job.ended_ns != 0) record.Add(job);
  }
  return record.Sorted();
}

std::set<std::string> HostsInUse(const JobList& list) {
  std::set<std::string> hosts;
  for (const ListedJob& job : list.jobs) {
    if (job.ended_ns == 0) hosts.insert(job.hosts.begin(), job.hosts.end());
  }
  return hosts;
}

std::string FleetJson(const JobList& list) {
  const Fleet& fleet = *list.fleet;
  Json gpus = Json::array();
  for (const FleetMember& gpu : fleet.gpus) {
    Json row = {{"gpu_uuid", text::ValidUtf8(gpu.gpu_uuid)}, {"host", text::ValidUtf8(gpu.host)}};
    row.update(MemberJson(gpu));
    gpus.push_back(std::move(row));
  }
  const std::set<std::string> in_use = HostsInUse(list);
  Json hosts = Json::array();
  for (const FleetMember& host : fleet.hosts) {
    Json row = {
        {"host", text::ValidUtf8(host.host)}, {"gpus", host.gpus}, {"in_use", in_use.contains(host.host)}};
    row.update(MemberJson(host));
    hosts.push_back(std::move(row));
  }
  const Json all = {{"hub", text::ValidUtf8(list.hub)},
                    {"user", text::ValidUtf8(list.user)},
                    {"gpus", std::move(gpus)},
                    {"hosts", std::move(hosts)}};
  return text::SafeJson(all.dump()) + "\n";
}

std::string FleetPage(const JobList& list) {
  const Fleet& fleet = *list.fleet;
  const std::set<std::string> in_use = HostsInUse(list);
  std::string gpus;
  for (size_t i = 0; i < std::min(fleet.gpus.size(), kMostRows); ++i) {
    const FleetMember& gpu = fleet.gpus[i];
    absl::StrAppend(&gpus, "<tr><th scope=\"row\" class=\"text\">", InHtml(gpu.gpu_uuid),
                    "</th><td class=\"text\">", InHtml(gpu.host), "</td>", Cells(gpu, false));
  }
  std::string hosts;
  for (size_t i = 0; i < std::min(fleet.hosts.size(), kMostRows); ++i) {
    const FleetMember& host = fleet.hosts[i];
    absl::StrAppend(&hosts, "<tr><th scope=\"row\" class=\"text\">", InHtml(host.host), "</th><td>",
                    host.gpus, "</td>", Cells(host, in_use.contains(host.host)));
  }
  const std::string main =
      fleet.hosts.empty()
          ? std::string("<section><h2>Hosts and GPUs</h2>\n<p>No job is over yet.</p></section>\n")
          : absl::StrCat(
                gpus.empty()
                    ? ""
                    : Section("gpus", "GPUs",
                              Head({{"GPU", true},
                                    {"host", true},
                                    {"jobs against it"},
                                    {"findings (jobs)", true},
                                    {"GPU time lost"},
                                    {"GPU time"},
                                    {"last seen"}}),
                              gpus,
                              MoreNote(fleet.gpus.size(),
                                       "A job is against a GPU if a finding that hardware can cause is about "
                                       "it alone. Lost: time of all GPUs of these jobs, estimated.")),
                Section("hosts", "Hosts",
                        Head({{"host", true},
                              {"GPUs"},
                              {"jobs against it"},
                              {"findings (jobs)", true},
                              {"GPU time lost"},
                              {"GPU time"},
                              {"last seen"}}),
                        hosts, MoreNote(fleet.hosts.size(), "Against a host: about ranks there alone.")));
  return HubPage(list.hub,
                 absl::StrCat(fleet.gpus.size(), fleet.gpus.size() == 1 ? " GPU, " : " GPUs, ",
                              fleet.hosts.size(), fleet.hosts.size() == 1 ? " host" : " hosts"),
                 main);
}

}  // namespace gpuprobe::http
