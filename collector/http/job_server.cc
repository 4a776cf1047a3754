#include "collector/http/job_server.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "collector/analysis/units.h"
#include "collector/http/access.h"
#include "collector/http/connections.h"
#include "collector/http/served_files.h"
#include "collector/http/service.h"
#include "collector/page/page.h"
#include "collector/text/characters.h"
#include "nlohmann/json.hpp"

namespace gpuprobe::http {
namespace {

constexpr char kHtml[] = "text/html; charset=utf-8";
constexpr char kListPolicy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'";
// Of report.html, which has its program inside.
constexpr char kReportPolicy[] =
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; base-uri "
    "'none'; form-action 'none'; frame-ancestors 'none'";
constexpr std::string_view kJobs = "/jobs/";

// Renews the list, unless somebody is at one of its links by keyboard.
constexpr char kScript[] = R"(setInterval(async () => {
  const main = document.querySelector('main');
  if (main.contains(document.activeElement) || !getSelection().isCollapsed) return;
  try {
    const answer = await fetch('/' + location.search);
    if (!answer.ok) throw new Error(answer.status);
    const now = new DOMParser().parseFromString(await answer.text(), 'text/html');
    main.replaceChildren(...now.querySelector('main').childNodes);
    document.querySelector('#count').textContent = now.querySelector('#count').textContent;
  } catch {
    document.querySelector('#count').textContent = 'the hub does not answer';
  }
}, 3000);
)";

std::string InHtml(const std::string& text) {
  return absl::StrReplaceAll(text::Printable(text),
                             {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}});
}

std::vector<std::string> ValidTexts(const std::vector<std::string>& texts) {
  std::vector<std::string> valid;
  valid.reserve(texts.size());
  for (const std::string& each : texts) valid.push_back(text::ValidUtf8(each));
  return valid;
}

std::string TimeText(uint64_t ns) {
  if (ns == 0) return "-";
  return absl::FormatTime("%Y-%m-%d %H:%M:%S UTC", absl::FromUnixNanos(static_cast<int64_t>(ns)),
                          absl::UTCTimeZone());
}

constexpr double kNsPerS = 1e9;

std::string GpuTime(double seconds) { return seconds > 0 ? analysis::Span(seconds * kNsPerS) : "-"; }

double LostBy(const ListedJob& job) {
  double most = 0;
  for (const ListedFinding& finding : job.findings) most = std::max(most, finding.lost_gpu_seconds);
  return most;
}

bool HasWords(const ListedJob& job, const std::string& words) {
  const std::string text = absl::AsciiStrToLower(
      absl::StrCat(job.name, " ", job.state, " ", absl::StrJoin(job.hosts, " "), " ", job.finding));
  const std::vector<std::string> all = absl::StrSplit(absl::AsciiStrToLower(words), ' ', absl::SkipEmpty());
  return std::all_of(all.begin(), all.end(),
                     [&](const std::string& word) { return absl::StrContains(text, word); });
}

void Sort(const std::string& order, std::vector<ListedJob>& jobs) {
  const auto by = [&](auto value) {
    std::stable_sort(jobs.begin(), jobs.end(),
                     [&](const ListedJob& a, const ListedJob& b) { return value(a) > value(b); });
  };
  if (order == "step") by([](const ListedJob& job) { return job.step_ns.value_or(0); });
  if (order == "ranks") by([](const ListedJob& job) { return static_cast<double>(job.ranks); });
  if (order == "lost") by(LostBy);
}

std::string TableRow(const ListedJob& job, const std::string& user) {
  const std::string name = InHtml(job.name);
  const std::string linked =
      job.page.empty() ? name : absl::StrCat("<a href=\"/jobs/", InHtml(job.id), "/\">", name, "</a>");
  std::string cells = absl::StrCat("<tr><th scope=\"row\" class=\"text\">", linked, "</th>");
  const auto add = [&](const char* classes, const std::string& text) {
    absl::StrAppend(&cells, "<td class=\"", classes, "\">", InHtml(text), "</td>");
  };
  add("", absl::StrCat(job.attempt));
  add("text", job.state);
  add("text", user);
  add("text", absl::StrJoin(job.hosts, ", "));
  add("", absl::StrCat(job.ranks));
  add("", job.step_ns.has_value() ? analysis::Duration(*job.step_ns) : "-");
  add("", GpuTime(job.gpu_seconds));
  add("", GpuTime(LostBy(job)));
  add("text wrap", job.finding.empty() ? "-" : job.finding);
  add("", TimeText(job.begun_ns));
  add("", TimeText(job.ended_ns));
  return absl::StrCat(cells, "</tr>\n");
}

// A link that sorts, with the words that are looked for.
std::string SortLink(const char* name, const char* order, const std::string& words, const std::string& now) {
  const bool is_so = now == order || (now.empty() && std::string_view(order) == "began");
  std::string query;
  for (const char c : words) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(c))) {
      query.push_back(c);
    } else {
      absl::StrAppendFormat(&query, "%%%02X", static_cast<unsigned char>(c));
    }
  }
  return absl::StrCat("<th scope=\"col\"", is_so ? " aria-sort=\"descending\"" : "",
                      "><a href=\"/?sort=", order, query.empty() ? "" : "&amp;words=", query, "\">", name,
                      is_so ? " \u2193" : "", "</a></th>");
}

std::string Columns(const std::string& words, const std::string& order) {
  std::string cells = "<th scope=\"col\" class=\"text\">job</th><th scope=\"col\">attempt</th>";
  for (const char* name : {"state", "user", "hosts"})
    absl::StrAppend(&cells, "<th scope=\"col\" class=\"text\">", name, "</th>");
  absl::StrAppend(&cells, SortLink("ranks", "ranks", words, order), SortLink("step", "step", words, order),
                  "<th scope=\"col\">GPU time</th>", SortLink("lost", "lost", words, order),
                  "<th scope=\"col\" class=\"text\">worst finding</th>",
                  SortLink("began", "began", words, order), "<th scope=\"col\">ended</th>");
  return cells;
}

// A table of its own, in a section.
std::string Section(const char* id, const char* title, const std::string& columns, const std::string& rows,
                    const std::string& note) {
  return absl::StrCat("<section><h2 id=\"", id, "\">", title,
                      "</h2>\n<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-labelledby=\"", id,
                      "\"><table>\n<thead><tr>", columns, "</tr></thead>\n<tbody>\n", rows,
                      "</tbody></table></div>\n", note, "</section>\n");
}

std::string Head(const std::vector<const char*>& names, size_t texts) {
  std::string cells;
  for (size_t i = 0; i < names.size(); ++i)
    absl::StrAppend(&cells, "<th scope=\"col\"", i < texts ? " class=\"text\"" : "", ">", names[i], "</th>");
  return cells;
}

std::string OffendersSection(const JobList& list) {
  std::string rows;
  for (const RepeatOffender& gpu : RepeatOffendersOf(list)) {
    absl::StrAppend(&rows, "<tr><th scope=\"row\" class=\"text\">", InHtml(gpu.gpu_uuid),
                    "</th><td class=\"text\">", InHtml(gpu.host), "</td><td class=\"text wrap\">",
                    InHtml(absl::StrJoin(gpu.findings, ", ")), "</td><td>", gpu.jobs, "</td><td>",
                    GpuTime(gpu.lost_gpu_seconds), "</td></tr>\n");
  }
  if (rows.empty()) return "";
  return Section("offenders", "GPUs at fault in several jobs",
                 Head({"GPU", "host", "findings", "jobs", "GPU time lost"}, 3), rows, "");
}

std::string LostSection(const JobList& list) {
  std::string rows;
  const double all = GpuSecondsOf(list);
  for (const LostTime& lost : LostTimeOf(list)) {
    absl::StrAppend(&rows, "<tr><th scope=\"row\" class=\"text\">", InHtml(lost.finding), "</th><td>",
                    lost.jobs, "</td><td>", GpuTime(lost.lost_gpu_seconds), "</td><td>",
                    all > 0 ? absl::StrFormat("%.1f %%", 100 * lost.lost_gpu_seconds / all) : "-",
                    "</td></tr>\n");
  }
  if (rows.empty()) return "";
  return Section("lost", "GPU time lost, by cause", Head({"finding", "jobs", "GPU time", "of all"}, 1), rows,
                 absl::StrCat("<p>Of the ", GpuTime(all),
                              " of GPU time of the jobs that are over. Estimated: the cost per step, times "
                              "the steps and GPUs. Causes overlap, so they do not add up.</p>\n"));
}

std::string CountText(const JobList& list) {
  const auto over = std::count_if(list.jobs.begin(), list.jobs.end(),
                                  [](const ListedJob& job) { return job.ended_ns != 0; });
  const size_t all = list.jobs.size();
  return absl::StrCat(all, all == 1 ? " job, " : " jobs, ", all - static_cast<size_t>(over), " running");
}

}  // namespace

std::string JobsJson(const JobList& list) {
  nlohmann::ordered_json jobs = nlohmann::ordered_json::array();
  for (const ListedJob& job : list.jobs) {
    jobs.push_back({{"id", text::ValidUtf8(job.id)},
                    {"name", text::ValidUtf8(job.name)},
                    {"attempt", job.attempt},
                    {"state", job.state},
                    {"user", text::ValidUtf8(list.user)},
                    {"hosts", ValidTexts(job.hosts)},
                    {"ranks", job.ranks},
                    {"step_ns", nullptr},
                    {"finding", text::ValidUtf8(job.finding)},
                    {"begun_ns", job.begun_ns},
                    {"ended_ns", nullptr},
                    {"page", nullptr},
                    {"gpu_seconds", job.gpu_seconds},
                    {"findings", nlohmann::ordered_json::array()}});
    nlohmann::ordered_json& row = jobs.back();
    for (const ListedFinding& finding : job.findings) {
      row["findings"].push_back({{"id", finding.id},
                                 {"hosts", ValidTexts(finding.hosts)},
                                 {"gpu_uuids", ValidTexts(finding.gpu_uuids)},
                                 {"lost_gpu_seconds", finding.lost_gpu_seconds}});
    }
    if (job.step_ns.has_value()) row["step_ns"] = *job.step_ns;
    if (job.ended_ns != 0) row["ended_ns"] = job.ended_ns;
    if (!job.page.empty()) row["page"] = absl::StrCat("/jobs/", job.id, "/");
  }
  nlohmann::ordered_json offenders = nlohmann::ordered_json::array();
  for (const RepeatOffender& gpu : RepeatOffendersOf(list)) {
    offenders.push_back({{"gpu_uuid", text::ValidUtf8(gpu.gpu_uuid)},
                         {"host", text::ValidUtf8(gpu.host)},
                         {"jobs", gpu.jobs},
                         {"findings", gpu.findings},
                         {"lost_gpu_seconds", gpu.lost_gpu_seconds}});
  }
  nlohmann::ordered_json lost = nlohmann::ordered_json::array();
  for (const LostTime& cause : LostTimeOf(list))
    lost.push_back(
        {{"finding", cause.finding}, {"jobs", cause.jobs}, {"lost_gpu_seconds", cause.lost_gpu_seconds}});
  const nlohmann::ordered_json all = {{"hub", text::ValidUtf8(list.hub)},
                                      {"user", text::ValidUtf8(list.user)},
                                      {"jobs", std::move(jobs)},
                                      {"gpu_seconds", GpuSecondsOf(list)},
                                      {"repeat_offenders", std::move(offenders)},
                                      {"lost", std::move(lost)}};
  return text::SafeJson(all.dump()) + "\n";
}

std::vector<RepeatOffender> RepeatOffendersOf(const JobList& list) {
  std::map<std::string, RepeatOffender> by_gpu;
  for (const ListedJob& job : list.jobs) {
    std::set<std::string> counted;
    for (const ListedFinding& finding : job.findings) {
      if (finding.gpu_uuids.size() != 1 || finding.gpu_uuids.front().empty()) continue;
      RepeatOffender& gpu = by_gpu[finding.gpu_uuids.front()];
      gpu.gpu_uuid = finding.gpu_uuids.front();
      if (!finding.hosts.empty()) gpu.host = finding.hosts.front();
      if (counted.insert(gpu.gpu_uuid).second) ++gpu.jobs;
      if (std::find(gpu.findings.begin(), gpu.findings.end(), finding.id) == gpu.findings.end())
        gpu.findings.push_back(finding.id);
      gpu.lost_gpu_seconds += finding.lost_gpu_seconds;
    }
  }
  std::vector<RepeatOffender> offenders;
  for (auto& [uuid, gpu] : by_gpu) {
    if (gpu.jobs > 1) offenders.push_back(std::move(gpu));
  }
  std::stable_sort(offenders.begin(), offenders.end(), [](const auto& a, const auto& b) {
    return std::pair(a.jobs, a.lost_gpu_seconds) > std::pair(b.jobs, b.lost_gpu_seconds);
  });
  return offenders;
}

std::vector<LostTime> LostTimeOf(const JobList& list) {
  std::map<std::string, LostTime> by_cause;
  for (const ListedJob& job : list.jobs) {
    std::set<std::string> counted;
    for (const ListedFinding& finding : job.findings) {
      if (finding.lost_gpu_seconds <= 0) continue;
      LostTime& lost = by_cause[finding.id];
      lost.finding = finding.id;
      lost.lost_gpu_seconds += finding.lost_gpu_seconds;
      if (counted.insert(finding.id).second) ++lost.jobs;
    }
  }
  std::vector<LostTime> causes;
  causes.reserve(by_cause.size());
  for (auto& [id, lost] : by_cause) causes.push_back(std::move(lost));
  std::stable_sort(causes.begin(), causes.end(),
                   [](const auto& a, const auto& b) { return a.lost_gpu_seconds > b.lost_gpu_seconds; });
  return causes;
}

double GpuSecondsOf(const JobList& list) {
  double seconds = 0;
  for (const ListedJob& job : list.jobs) seconds += job.gpu_seconds;
  return seconds;
}

std::string JobsPage(const JobList& list, const std::string& words, const std::string& order) {
  std::vector<ListedJob> jobs;
  for (const ListedJob& job : list.jobs) {
    if (HasWords(job, words)) jobs.push_back(job);
  }
  Sort(order, jobs);
  std::string rows;
  for (const ListedJob& job : jobs) rows += TableRow(job, list.user);
  const std::string find = absl::StrCat(
      "<form role=\"search\"><label>Jobs with <input name=\"words\" type=\"search\" value=\"", InHtml(words),
      "\"></label> <button>Find</button>",
      order.empty() ? ""
                    : absl::StrCat("<input type=\"hidden\" name=\"sort\" value=\"", InHtml(order), "\">"),
      "</form>\n");
  const std::string table =
      list.jobs.empty() ? absl::StrCat("<p>No job yet. On every host of a job: <code>export GPUPROBE_HUB=",
                                       InHtml(list.hub), "</code></p>\n")
      : jobs.empty()
          ? absl::StrCat(find,
                         "<p>No job has these words in its name, state, hosts or finding. <a href=\"/\">All "
                         "jobs</a></p>\n")
          : absl::StrCat(find, "<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-labelledby=\"jobs\">",
                         "<table>\n<thead><tr>", Columns(words, order), "</tr></thead>\n<tbody>\n", rows,
                         "</tbody></table></div>\n");
  const std::string hub = InHtml(list.hub);
  return absl::StrCat(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width,initial-scale=1\"><meta name=\"color-scheme\" content=\"light "
      "dark\"><title>gpuprobe hub ",
      hub,
      "</title><link rel=\"stylesheet\" href=\"/page.css\"><script src=\"/jobs.js\" defer></script></head>",
      "<body>\n<header><h1>gpuprobe hub ", hub, "</h1><span id=\"count\">", CountText(list),
      "</span></header>\n<main><section><h2 id=\"jobs\">Jobs</h2>\n", table, "</section>\n",
      OffendersSection(list), LostSection(list), "</main>\n</body></html>\n");
}

class JobServer::Impl : public Service {
 public:
  Impl(Listener listener, Access access) : access_(std::move(access)), connections_(std::move(listener)) {}

  void Answer(const httplib::Request& request, httplib::Response& response, Connection& connection) override {
    response.status = 200;
    response.set_header("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'");
    if (request.method != "GET" && request.method != "HEAD") {
      response.set_header("Allow", "GET, HEAD");
      return Refuse(response, 405, "there is only GET and HEAD");
    }
    if (request.path == "/healthz") return response.set_content("ok\n", "text/plain; charset=utf-8");
    if (connection.is_brief()) {
      NoteRefused();
      response.set_header("Retry-After", "5");
      return Refuse(response, 503, "there are too many connections; only signs of life are answered");
    }
    if (!LetIn(access_, request, response)) return;
    const std::shared_ptr<const JobList> list = Now();
    const auto send = [&](const std::string& text, const char* type, const char* policy = nullptr) {
      if (policy != nullptr) SetPolicy(response, policy);
      response.set_content(text, type);
    };
    if (request.path == "/") {
      const auto asked = [&](const char* name) {
        return request.has_param(name) ? request.get_param_value(name) : "";
      };
      return send(JobsPage(*list, asked("words"), asked("sort")), kHtml, kListPolicy);
    }
    if (request.path == "/api/jobs") return send(JobsJson(*list), kJson);
    if (request.path == "/page.css") return send(std::string(page::LiveStyle()), "text/css; charset=utf-8");
    if (request.path == "/jobs.js") return send(kScript, "text/javascript; charset=utf-8");
    if (request.path == "/favicon.ico") {
      response.status = 204;
      return;
    }
    if (request.path.starts_with(kJobs)) return OfJob(*list, request.path.substr(kJobs.size()), response);
    Refuse(response, 404, "there is nothing here");
  }
  void NoteRefused() override {}

  void Start() { connections_.Start(*this); }
  void Stop() { connections_.Stop(); }
  void Publish(std::shared_ptr<const JobList> list) {
    const std::lock_guard lock(mutex_);
    list_ = std::move(list);
  }
  const Address& address() const { return connections_.address(); }

 private:
  static void SetPolicy(httplib::Response& response, const char* policy) {
    response.headers.erase("Content-Security-Policy");
    response.set_header("Content-Security-Policy", policy);
  }
  // "ID/" or "ID/report.json": of jobs in the list only, so that no path comes from a request.
  static void OfJob(const JobList& list, const std::string& rest, httplib::Response& response) {
    const size_t slash = rest.find('/');
    const std::string id = rest.substr(0, slash);
    const std::string what = slash == std::string::npos ? "" : rest.substr(slash + 1);
    const auto job = std::find_if(list.jobs.begin(), list.jobs.end(),
                                  [&](const ListedJob& each) { return each.id == id; });
    const bool wants_page = what.empty();
    if (job == list.jobs.end() || job->page.empty() || !(wants_page || what == "report.json"))
      return Refuse(response, 404, "there is no such job, or it is not over");
    AnswerWithFile({.name = what, .path = wants_page ? job->page : job->report}, 0, response,
                   wants_page ? kHtml : kJson);
    if (wants_page) SetPolicy(response, kReportPolicy);
  }
  std::shared_ptr<const JobList> Now() {
    const std::lock_guard lock(mutex_);
    return list_;
  }

  const Access access_;
  std::mutex mutex_;
  std::shared_ptr<const JobList> list_ = std::make_shared<JobList>();  // under the mutex
  Connections connections_;  // the last member: its threads use the others
};

JobServer::JobServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
JobServer::~JobServer() { impl_->Stop(); }

absl::StatusOr<std::unique_ptr<JobServer>> JobServer::Listen(const Server::Options& options) {
  const bool loopback = options.address.IsLoopback();
  if (absl::Status s = Server::CheckReaders(options); !s.ok()) return s;
  absl::StatusOr<Listener> listener = Listener::Open(options.address);
  if (!listener.ok()) return listener.status();
  const uint16_t port = listener->address().port;
  return std::unique_ptr<JobServer>(
      new JobServer(std::make_unique<Impl>(*std::move(listener), Access(options.token, loopback, port))));
}

void JobServer::Start() { impl_->Start(); }

void JobServer::Publish(std::shared_ptr<const JobList> list) { impl_->Publish(std::move(list)); }

std::string JobServer::Url() const { return absl::StrCat("http://", impl_->address().Text()); }

}  // namespace gpuprobe::http
