#include "collector/http/job_server.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "collector/analysis/units.h"
#include "collector/http/access.h"
#include "collector/http/connections.h"
#include "collector/http/fleet.h"
#include "collector/http/hub_html.h"
#include "collector/http/open_metrics.h"
#include "collector/http/served_files.h"
#include "collector/http/service.h"
#include "collector/page/page.h"
#include "collector/render/json_report.h"
#include "collector/render/live_json.h"
#include "collector/store/run_files.h"
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
    const answer = await fetch(location.pathname + location.search);
    if (!answer.ok) throw new Error(answer.status);
    const now = new DOMParser().parseFromString(await answer.text(), 'text/html');
    main.replaceChildren(...now.querySelector('main').childNodes);
    document.querySelector('#count').textContent = now.querySelector('#count').textContent;
  } catch {
    document.querySelector('#count').textContent = 'the hub does not answer';
  }
}, 3000);
)";

std::vector<std::string> ValidTexts(const std::vector<std::string>& texts) {
  std::vector<std::string> valid;
  valid.reserve(texts.size());
  for (const std::string& each : texts) valid.push_back(text::ValidUtf8(each));
  return valid;
}

double LostBy(const ListedJob& job) {
  double most = 0;
  for (const ListedFinding& finding : job.findings) most = std::max(most, finding.lost_gpu_seconds);
  return most;
}

bool HasWords(const ListedJob& job, const std::string& words) {
  const std::string text = absl::AsciiStrToLower(absl::StrCat(
      job.name, " ", job.user, " ", job.state, " ", absl::StrJoin(job.hosts, " "), " ", job.finding));
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

// With what became of its steps since the attempt before.
std::string AttemptCell(const ListedJob& job) {
  if (job.attempt == 1) return "1";
  const std::optional<double> change = StepChange(job);
  return absl::StrCat("<a href=\"/attempts?job=", InQuery(job.name),
                      job.user.empty() ? "" : absl::StrCat("&amp;user=", job.user), "\">", job.attempt,
                      change.has_value() ? absl::StrCat(" (", ChangeText(*change), ")") : "", "</a>");
}

std::string TableRow(const ListedJob& job, const std::string& user) {
  const std::string name = InHtml(job.name);
  const std::string linked =
      job.page.empty() ? name : absl::StrCat("<a href=\"/jobs/", InHtml(job.id), "/\">", name, "</a>");
  std::string cells = absl::StrCat("<tr><th scope=\"row\" class=\"text\">", linked, "</th>");
  const auto add = [&](const char* classes, const std::string& text) {
    absl::StrAppend(&cells, "<td class=\"", classes, "\">", InHtml(text), "</td>");
  };
  absl::StrAppend(&cells, "<td>", AttemptCell(job), "</td>");
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
  const std::string query = InQuery(words);
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
                 Head({{"GPU", true}, {"host", true}, {"findings", true}, {"jobs"}, {"GPU time lost"}}), rows,
                 "");
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
  return Section("lost", "GPU time lost, by cause",
                 Head({{"finding", true}, {"jobs"}, {"GPU time"}, {"of all"}}), rows,
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

const std::string& UserOf(const ListedJob& job, const JobList& list) {
  return job.user.empty() ? list.user : job.user;
}

std::string JobsJson(const JobList& list) {
  nlohmann::ordered_json jobs = nlohmann::ordered_json::array();
  for (const ListedJob& job : list.jobs) {
    jobs.push_back({{"id", text::ValidUtf8(job.id)},
                    {"name", text::ValidUtf8(job.name)},
                    {"attempt", job.attempt},
                    {"state", job.state},
                    {"user", text::ValidUtf8(UserOf(job, list))},
                    {"hosts", ValidTexts(job.hosts)},
                    {"ranks", job.ranks},
                    {"step_ns", nullptr},
                    {"step_change", nullptr},
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
    if (const std::optional<double> change = StepChange(job)) row["step_change"] = *change;
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
  std::vector<RepeatOffender> offenders;
  for (const FleetMember& gpu : list.fleet->gpus) {
    if (gpu.jobs_against < 2) break;
    RepeatOffender& offender = offenders.emplace_back();
    offender = {.gpu_uuid = gpu.gpu_uuid,
                .host = gpu.host,
                .jobs = gpu.jobs_against,
                .findings = {},
                .lost_gpu_seconds = gpu.lost_gpu_seconds};
    for (const auto& [id, jobs] : gpu.findings) offender.findings.push_back(id);
  }
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
  for (const ListedJob& job : jobs) rows += TableRow(job, UserOf(job, list));
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
  return HubPage(list.hub, CountText(list),
                 absl::StrCat("<section><h2 id=\"jobs\">Jobs</h2>\n", table, "</section>\n",
                              OffendersSection(list), LostSection(list)));
}

class JobServer::Impl : public Service {
 public:
  Impl(Listener listener, Access access, bool loopback)
      : access_(std::move(access)), loopback_(loopback), connections_(std::move(listener)) {}

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
    const std::optional<ShownJobs> shown = ShownTo(request, response);
    if (!shown.has_value()) return;
    const std::shared_ptr<const JobList>& list = shown->list;
    const auto asked = [&](const char* name) {
      return request.has_param(name) ? request.get_param_value(name) : "";
    };
    const auto send = [&](const std::string& text, const char* type, const char* policy = nullptr) {
      if (policy != nullptr) SetPolicy(response, policy);
      response.set_content(text, type);
    };
    if (request.path == "/") return send(JobsPage(*list, asked("words"), asked("sort")), kHtml, kListPolicy);
    if (request.path == "/api/jobs") return send(JobsJson(*list), kJson);
    if (request.path == "/attempts" || request.path == "/api/attempts") {
      const bool page = request.path == "/attempts";
      const std::string text = page ? AttemptsPage(*list, asked("job"), asked("user"))
                                    : AttemptsJson(*list, asked("job"), asked("user"));
      if (text.empty()) return Refuse(response, 404, "no job has this name: ?job=NAME");
      return page ? send(text, kHtml, kListPolicy) : send(text, kJson);
    }
    if (request.path == "/hosts") return send(FleetPage(*list), kHtml, kListPolicy);
    if (request.path == "/api/hosts") return send(FleetJson(*list), kJson);
    if (request.path == "/metrics") return Metrics(*shown->moment, request, response);
    if (request.path == "/page.css") return send(std::string(page::LiveStyle()), "text/css; charset=utf-8");
    if (request.path == "/jobs.js") return send(kScript, "text/javascript; charset=utf-8");
    if (request.path == "/favicon.ico") {
      response.status = 204;
      return;
    }
    if (request.path.starts_with(kJobs))
      return OfJob(*list, request.path.substr(kJobs.size()), request, response);
    Refuse(response, 404, "there is nothing here");
  }
  void NoteRefused() override {}

  void Start() { connections_.Start(*this); }
  void Stop() { connections_.Stop(); }
  void SetReaders(const std::vector<JobReader>& readers) {
    auto known = std::make_shared<Readers>();
    known->emplace_back(access_, "");
    for (const JobReader& reader : readers)
      known->emplace_back(Access(reader.token, loopback_, address().port), reader.user);
    const std::lock_guard lock(mutex_);
    readers_ = std::move(known);
  }
  void Publish(ShownJobs all, std::map<std::string, ShownJobs> of_users) {
    const std::lock_guard lock(mutex_);
    all_ = std::move(all);
    of_users_ = std::move(of_users);
  }
  const Address& address() const { return connections_.address(); }

 private:
  static void SetPolicy(httplib::Response& response, const char* policy) {
    response.headers.erase("Content-Security-Policy");
    response.set_header("Content-Security-Policy", policy);
  }
  // What a served run answers below /api/. Names of files are those of a run's only (IsServedName).
  static void OfRun(const ListedJob& job, const std::string& what, const httplib::Request& request,
                    httplib::Response& response) {
    const bool goes_on = job.ended_ns == 0;
    if (what == "api/status" && job.status != nullptr)
      return response.set_content(render::LiveJson(*job.status), kJson);
    const std::string path = absl::StrCat("/", what);
    if (path == kFilesPath) {
      const absl::StatusOr<store::RunFiles> files = store::ListRun(job.directory, store::Dropped::kAllow);
      if (!files.ok()) return Refuse(response, 404, "nothing of this job came yet");
      return response.set_content(FileList(FilesToServe(*files), goes_on), kJson);
    }
    const std::string name(absl::StripPrefix(path, absl::StrCat(kFilesPath, "/")));
    if (name.size() == path.size() || !IsServedName(name))
      return Refuse(response, 404, "there is nothing here");
    uint64_t from = 0;
    if (request.has_param("from") && !absl::SimpleAtoi(request.get_param_value("from"), &from))
      return Refuse(response, 400, "from is the number of a byte");
    AnswerWithFile({.name = name, .path = absl::StrCat(job.directory, "/", name)}, from, response);
  }
  // "ID/" or "ID/report.json": of jobs in the list only, so that no path comes from a request.
  static void OfJob(const JobList& list, const std::string& rest, const httplib::Request& request,
                    httplib::Response& response) {
    const auto job = std::find_if(list.jobs.begin(), list.jobs.end(), [&](const ListedJob& each) {
      return rest.starts_with(each.id) && (rest.size() == each.id.size() || rest[each.id.size()] == '/');
    });
    if (job == list.jobs.end()) return Refuse(response, 404, "there is no such job");
    const std::string what = rest.size() == job->id.size() ? "" : rest.substr(job->id.size() + 1);
    const bool wants_page = what.empty();
    const bool wants_text = what == "api/text";
    const bool wants_report = what == "report.json" || what == "api/report";
    if (!wants_page && !wants_text && !wants_report && what != "api/ranks")
      return OfRun(*job, what, request, response);
    if (job->page.empty()) return Refuse(response, 404, "this job is not over");
    const std::string path = wants_page     ? job->page
                             : wants_text   ? job->text
                             : wants_report ? job->report
                                            : absl::StrCat(job->directory, "/", render::kRanksFile);
    AnswerWithFile({.name = what, .path = path}, 0, response,
                   wants_page   ? kHtml
                   : wants_text ? "text/plain; charset=utf-8"
                                : kJson);
    if (wants_page) SetPolicy(response, kReportPolicy);
  }
  static void Metrics(const HubMoment& moment, const httplib::Request& request, httplib::Response& response) {
    const bool open = PrefersOpenMetrics(request.get_header_value("Accept"));
    const auto format = open ? MetricsFormat::kOpenMetrics : MetricsFormat::kPrometheus;
    const std::string& text = (open ? moment.open_metrics : moment.metrics).Get([&] {
      return absl::StrCat(HubMetricsText(moment, format), open ? kOpenMetricsEnd : "");
    });
    response.set_content(text, open ? kOpenMetricsType : kMetricsType);
  }
  using Readers = std::vector<std::pair<Access, std::string>>;  // with their user; empty: sees everything

  // What whoever sent the request may see; nullopt: nothing, and it is answered. A token that was given goes
  // before a cookie.
  std::optional<ShownJobs> ShownTo(const httplib::Request& request, httplib::Response& response) {
    std::shared_ptr<const Readers> readers;
    {
      const std::lock_guard lock(mutex_);
      readers = readers_;
    }
    for (const bool by_cookie : {false, true}) {
      for (const auto& [access, user] : *readers) {
        const Verdict verdict = JudgeRequest(access, request, by_cookie);
        if (verdict != Verdict::kWelcome && verdict != Verdict::kWelcomeWithCookie) continue;
        if (!LetIn(access, request, response)) return std::nullopt;
        return Of(user);
      }
    }
    if (!LetIn(access_, request, response)) return std::nullopt;
    return Of("");
  }
  ShownJobs Of(const std::string& user) {
    const std::lock_guard lock(mutex_);
    if (user.empty()) return all_;
    if (const auto his = of_users_.find(user); his != of_users_.end()) return his->second;
    auto list = std::make_shared<JobList>();
    list->hub = all_.list->hub;
    list->user = user;
    auto moment = std::make_shared<HubMoment>();
    moment->version = all_.moment->version;
    moment->of_user = true;
    return {.list = std::move(list), .moment = std::move(moment)};
  }

  const Access access_;
  const bool loopback_;
  std::mutex mutex_;
  std::shared_ptr<const Readers> readers_ = std::make_shared<Readers>();  // under the mutex, as what follows
  ShownJobs all_{.list = std::make_shared<JobList>(), .moment = std::make_shared<HubMoment>()};
  std::map<std::string, ShownJobs> of_users_;
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
  return std::unique_ptr<JobServer>(new JobServer(
      std::make_unique<Impl>(*std::move(listener), Access(options.token, loopback, port), loopback)));
}

void JobServer::Start() { impl_->Start(); }

void JobServer::SetReaders(const std::vector<JobReader>& readers) { impl_->SetReaders(readers); }

void JobServer::Publish(ShownJobs all, std::map<std::string, ShownJobs> of_users) {
  impl_->Publish(std::move(all), std::move(of_users));
}

std::string JobServer::Url() const { return absl::StrCat("http://", impl_->address().Text()); }

}  // namespace gpuprobe::http
