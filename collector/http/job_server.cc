#include "collector/http/job_server.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
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
    "form-action 'none'; frame-ancestors 'none'";
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
    const answer = await fetch('/');
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

std::string TimeText(uint64_t ns) {
  if (ns == 0) return "-";
  return absl::FormatTime("%Y-%m-%d %H:%M:%S UTC", absl::FromUnixNanos(static_cast<int64_t>(ns)),
                          absl::UTCTimeZone());
}

std::string TableRow(const ListedJob& job, const std::string& user) {
  const std::string name = InHtml(job.name);
  const std::string linked =
      job.page.empty() ? name : absl::StrCat("<a href=\"/jobs/", InHtml(job.id), "/\">", name, "</a>");
  std::string cells = absl::StrCat("<tr><th scope=\"row\" class=\"text\">", linked, "</th>");
  const auto add = [&](const char* classes, const std::string& text) {
    absl::StrAppend(&cells, "<td class=\"", classes, "\">", InHtml(text), "</td>");
  };
  add("text", job.state);
  add("text", user);
  add("text", absl::StrJoin(job.hosts, ", "));
  add("", absl::StrCat(job.ranks));
  add("", job.step_ns.has_value() ? analysis::Duration(*job.step_ns) : "-");
  add("text wrap", job.finding.empty() ? "-" : job.finding);
  add("", TimeText(job.begun_ns));
  add("", TimeText(job.ended_ns));
  return absl::StrCat(cells, "</tr>\n");
}

std::string Columns() {
  std::string cells;
  for (const char* name : {"job", "state", "user", "hosts"})
    absl::StrAppend(&cells, "<th scope=\"col\" class=\"text\">", name, "</th>");
  for (const char* name : {"ranks", "step"}) absl::StrAppend(&cells, "<th scope=\"col\">", name, "</th>");
  absl::StrAppend(&cells, "<th scope=\"col\" class=\"text\">worst finding</th>");
  for (const char* name : {"began", "ended"}) absl::StrAppend(&cells, "<th scope=\"col\">", name, "</th>");
  return cells;
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
                    {"state", job.state},
                    {"user", text::ValidUtf8(list.user)},
                    {"hosts", job.hosts},
                    {"ranks", job.ranks},
                    {"step_ns", nullptr},
                    {"finding", text::ValidUtf8(job.finding)},
                    {"begun_ns", job.begun_ns},
                    {"ended_ns", nullptr},
                    {"page", nullptr}});
    nlohmann::ordered_json& row = jobs.back();
    for (auto& host : row["hosts"]) host = text::ValidUtf8(host.get<std::string>());
    if (job.step_ns.has_value()) row["step_ns"] = *job.step_ns;
    if (job.ended_ns != 0) row["ended_ns"] = job.ended_ns;
    if (!job.page.empty()) row["page"] = absl::StrCat("/jobs/", job.id, "/");
  }
  const nlohmann::ordered_json all = {
      {"hub", text::ValidUtf8(list.hub)}, {"user", text::ValidUtf8(list.user)}, {"jobs", std::move(jobs)}};
  return text::SafeJson(all.dump()) + "\n";
}

std::string JobsPage(const JobList& list) {
  std::string rows;
  for (const ListedJob& job : list.jobs) rows += TableRow(job, list.user);
  const std::string table =
      list.jobs.empty()
          ? absl::StrCat("<p>No job yet. On every host of a job: <code>export GPUPROBE_HUB=",
                         InHtml(list.hub), "</code></p>\n")
          : absl::StrCat("<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-labelledby=\"jobs\">",
                         "<table>\n<thead><tr>", Columns(), "</tr></thead>\n<tbody>\n", rows,
                         "</tbody></table></div>\n");
  const std::string hub = InHtml(list.hub);
  return absl::StrCat(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width,initial-scale=1\"><meta name=\"color-scheme\" content=\"light "
      "dark\"><title>gpuprobe hub ",
      hub,
      "</title><link rel=\"stylesheet\" href=\"/page.css\"><script src=\"/jobs.js\" defer></script></head>",
      "<body>\n<header><h1>gpuprobe hub ", hub, "</h1><span id=\"count\">", CountText(list),
      "</span></header>\n<main><section><h2 id=\"jobs\">Jobs</h2>\n", table,
      "</section></main>\n</body></html>\n");
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
    if (request.path == "/") return send(JobsPage(*list), kHtml, kListPolicy);
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
