#include "collector/recording/hub_jobs.h"

#include <pwd.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "collector/analysis/finding_place.h"
#include "collector/analysis/units.h"
#include "collector/model/job/late_steps.h"
#include "collector/recording/version.h"
#include "collector/render/json_report.h"
#include "collector/store/run_directory.h"
#include "collector/store/run_files.h"
#include "nlohmann/json.hpp"

namespace gpuprobe::recording {
namespace {

namespace fs = std::filesystem;

constexpr char kJobFile[] = "job.txt";
constexpr char kPageFile[] = "report.html";
constexpr char kRowFile[] = "listed.json";  // of a job that is over
constexpr size_t kMostNameBytes = 512;
constexpr size_t kMostShownBytes = 80;  // of a directory's name
constexpr std::chrono::seconds kMeasureEvery{30};

std::string FirstLine(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string SecondLine(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  line.clear();
  std::getline(file, line);
  return line;
}

uint64_t BytesIn(const fs::path& folder) {
  uint64_t bytes = 0;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    const uint64_t size = it->is_regular_file(ignored) ? it->file_size(ignored) : 0;
    if (!ignored) bytes += size;
  }
  return bytes;
}

// Since the epoch; now if it is not there.
uint64_t WrittenNs(const fs::path& path) {
  struct stat st {};
  if (stat(path.c_str(), &st) != 0) return NowNs();
  return static_cast<uint64_t>(st.st_mtim.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(st.st_mtim.tv_nsec);
}

std::string UserName() {
  passwd entry{};
  passwd* found = nullptr;
  std::vector<char> text(16384);
  const bool known = getpwuid_r(geteuid(), &entry, text.data(), text.size(), &found) == 0 && found != nullptr;
  return known ? found->pw_name : absl::StrCat("uid ", geteuid());
}

// A job that is over, as a line of the list.
std::string RowText(const http::ListedJob& row) {
  http::JobList list;
  list.jobs.push_back(row);
  return http::JobsJson(list);
}

http::ListedJob WithPages(http::ListedJob row, const fs::path& directory) {
  row.id = directory.filename();
  row.page = directory / kPageFile;
  row.report = directory / render::kReportFile;
  return row;
}

// Of jobs that another hub has reported. Files are what anybody wrote there.
std::map<std::string, http::ListedJob> RowsIn(const std::string& out) {
  std::map<std::string, http::ListedJob> rows;
  std::error_code error;
  for (fs::directory_iterator it(out, error), end; !error && it != end; it.increment(error)) {
    std::ifstream file(it->path() / kRowFile);
    const nlohmann::json list = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
    if (list.is_discarded()) continue;
    try {
      const nlohmann::json& from = list.at("jobs").at(0);
      http::ListedJob row;
      row.name = from.at("name");
      row.state = "over";
      row.hosts = from.at("hosts");
      row.ranks = from.at("ranks");
      if (!from.at("step_ns").is_null()) row.step_ns = from.at("step_ns").get<double>();
      row.finding = from.at("finding");
      row.attempt = from.value("attempt", uint64_t{1});
      row.gpu_seconds = from.value("gpu_seconds", 0.0);
      for (const nlohmann::json& finding : from.value("findings", nlohmann::json::array())) {
        row.findings.push_back({.id = finding.at("id"),
                                .hosts = finding.at("hosts"),
                                .gpu_uuids = finding.at("gpu_uuids"),
                                .lost_gpu_seconds = finding.at("lost_gpu_seconds")});
      }
      row.begun_ns = from.at("begun_ns");
      row.ended_ns = from.at("ended_ns");
      rows[it->path()] = WithPages(std::move(row), it->path());
    } catch (const nlohmann::json::exception&) {
      continue;  // it is listed no more
    }
  }
  return rows;
}

// Of a launcher's words, which are one line in all that we know.
bool IsName(const std::string& job) {
  return !job.empty() && job.size() <= kMostNameBytes &&
         std::none_of(job.begin(), job.end(), [](char c) { return c == '\n' || c == '\0'; });
}

// From 1; as JobOf wrote it.
uint16_t AttemptOf(const fs::path& run) {
  int attempt = 1;
  if (!absl::SimpleAtoi(SecondLine(run / kJobFile), &attempt)) return 1;
  return static_cast<uint16_t>(std::clamp(attempt, 1, UINT16_MAX));
}

// Whether the host of this folder has not ended, as far as it was heard lately.
bool MayRecord(const fs::path& folder) {
  std::error_code error;
  const auto written = fs::last_write_time(folder / store::kLiveFile, error);
  return !error && fs::file_time_type::clock::now() - written < HubJobs::kGivenUp;
}

}  // namespace

HubJobs::HubJobs(Options options, Say say) : options_(std::move(options)), say_(std::move(say)) {}
HubJobs::~HubJobs() = default;

std::shared_ptr<HubJobs::Job> HubJobs::Add(const std::string& name, uint16_t attempt,
                                           store::Directory directory) {
  auto job = std::make_shared<Job>(
      std::move(directory),
      hub::Hub::Options{
          .job = name, .host = options_.host, .most_bytes_of_host = options_.most_bytes_of_host});
  job->hub.SetDirectory(job->directory.path(), "");
  job->attempt = attempt;
  job->begun_ns = WrittenNs(fs::path(job->directory.path()) / kJobFile);
  jobs_[name] = job;
  return job;
}

absl::Status HubJobs::MayBegin(const std::string& from) {
  const auto now = std::chrono::steady_clock::now();
  const auto has =
      std::count_if(jobs_.begin(), jobs_.end(), [&](const auto& each) { return each.second->from == from; });
  if (static_cast<size_t>(has) >= options_.most_jobs_of_host)
    return absl::ResourceExhaustedError(
        absl::StrCat(from, " has ", has, " jobs at a time already (--host-jobs)"));
  if (jobs_.size() >= kMostJobs)
    return absl::ResourceExhaustedError(absl::StrCat("there are ", kMostJobs, " jobs at a time already"));
  std::erase_if(beginnings_, [&](const auto& each) { return each.second.IsFull(now); });
  const double rate = 1 / std::chrono::duration<double>(kJobEvery).count();
  hub::Allowance& its =
      beginnings_.try_emplace(from, rate, static_cast<double>(options_.most_jobs_of_host)).first->second;
  if (!its.Has(now))
    return absl::ResourceExhaustedError(
        absl::StrCat(from, " has begun too many jobs: one every ", kJobEvery.count(), " s from now on"));
  its.Take(1);
  return absl::OkStatus();
}

absl::Status HubJobs::HasRoom(uint64_t bytes, const std::string& from) {
  if (free_bytes_ < options_.least_free_bytes + bytes)
    return absl::UnavailableError(absl::StrCat("the disk of the hub has less than ",
                                               analysis::Bytes(options_.least_free_bytes),
                                               " left (--least-free)"));
  if (stored_[from] + bytes > options_.most_bytes_of_address)
    return absl::UnavailableError(absl::StrCat(from, " has ", analysis::Bytes(options_.most_bytes_of_address),
                                               " at the hub (--host-total); remove runs there"));
  stored_[from] += bytes;
  return absl::OkStatus();
}

// The directories are the truth: what was removed there is free again, and a hub that begins knows what is
// there.
void HubJobs::MeasureDisk() {
  struct statvfs disk {};
  const bool known = statvfs(options_.out.c_str(), &disk) == 0;
  const auto now = std::chrono::steady_clock::now();
  const bool is_time =
      measured_at_ == std::chrono::steady_clock::time_point() || now > measured_at_ + kMeasureEvery;
  std::map<std::string, uint64_t> stored;
  std::error_code error;
  if (is_time) {
    measured_at_ = now;
    for (fs::directory_iterator run(options_.out, error), end; !error && run != end; run.increment(error)) {
      std::error_code ignored;
      for (fs::directory_iterator host(run->path(), ignored); !ignored && host != end;
           host.increment(ignored)) {
        const std::string from = SecondLine(host->path() / hub::kMirroredFile);
        if (!from.empty()) stored[from] += BytesIn(host->path());
      }
    }
  }
  const std::lock_guard lock(mutex_);
  free_bytes_ = known ? uint64_t{disk.f_bavail} * disk.f_frsize : UINT64_MAX;
  if (!is_time || error) return;
  stored_ = std::move(stored);
  std::erase_if(over_, [](const auto& each) { return !fs::exists(each.second.page); });
}

absl::StatusOr<std::shared_ptr<HubJobs::Job>> HubJobs::JobOf(const std::string& name,
                                                             const std::string& from) {
  if (const auto known = jobs_.find(name); known != jobs_.end()) return known->second;
  if (!IsName(name)) return absl::InvalidArgumentError("that is no name of a job");
  if (absl::Status s = MayBegin(from); !s.ok()) return s;
  const std::string shown(absl::StripAsciiWhitespace(name).substr(0, kMostShownBytes));
  const std::string folder = fs::path(store::DefaultRunDirectory(shown, NowNs())).filename();
  absl::StatusOr<store::Directory> made = store::Directory::MakeNew(absl::StrCat(options_.out, "/", folder));
  if (!made.ok()) return made.status();
  if (absl::Status s = made->Lock(); !s.ok()) return s;
  const uint16_t attempt = ++attempts_[name];
  if (absl::Status s = made->WriteFile(kJobFile, absl::StrCat(name, "\n", attempt, "\n")); !s.ok()) return s;
  std::shared_ptr<Job> job = Add(name, attempt, *std::move(made));
  job->from = from;
  return job;
}

absl::Status HubJobs::Resume() {
  MeasureDisk();
  std::vector<fs::path> found;
  std::error_code error;
  std::map<std::string, uint16_t> attempts;
  for (fs::directory_iterator it(options_.out, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    if (!fs::exists(it->path() / kJobFile, ignored)) continue;
    uint16_t& latest = attempts[FirstLine(it->path() / kJobFile)];
    latest = std::max(latest, AttemptOf(it->path()));
    if (!fs::exists(it->path() / render::kReportFile, ignored)) found.push_back(it->path());
  }
  over_ = RowsIn(options_.out);
  // The latest attempt first: others of that name get a report, and nothing more.
  std::sort(found.rbegin(), found.rend());
  const std::lock_guard lock(mutex_);
  attempts_ = std::move(attempts);
  for (const fs::path& path : found) {
    const std::string name = FirstLine(path / kJobFile);
    if (!IsName(name) || jobs_.contains(name) || jobs_.size() >= kMostJobs) continue;
    absl::StatusOr<store::Directory> directory = store::Directory::Make(path);
    if (!directory.ok()) return directory.status();
    if (absl::Status s = directory->Lock(); !s.ok()) return s;
    say_(absl::StrCat("gpuprobe: goes on with ", path.string(), "\n"));
    // Its hosts look for the hub every ten seconds.
    Add(name, AttemptOf(path), *std::move(directory))->last_recording += 2 * kLinger;
  }
  return absl::OkStatus();
}

bool HubJobs::Has(const std::string& job) { return IsName(job); }

hub::Taken HubJobs::Take(const v1::HubPost& post, const std::string& from) {
  std::shared_ptr<Job> job;
  uint64_t bytes = 0;
  for (const v1::FilePart& part : post.parts()) bytes += part.data().size();
  {
    const std::lock_guard lock(mutex_);
    absl::Status room = HasRoom(bytes, from);
    absl::StatusOr<std::shared_ptr<Job>> found =
        room.ok() ? JobOf(post.job(), from) : absl::StatusOr<std::shared_ptr<Job>>(room);
    if (!found.ok()) {
      hub::Taken refusal;
      // Jobs end and begin; a disk is made room on by people.
      if (absl::IsResourceExhausted(found.status()))
        refusal = {.answer = {}, .status = hub::kTooMany, .again = kLinger};
      if (absl::IsUnavailable(found.status())) refusal.status = hub::kInsufficientRoom;
      refusal.answer.set_host(options_.host);
      refusal.answer.set_refused(std::string(found.status().message()));
      return refusal;
    }
    job = *std::move(found);
  }
  return job->hub.Take(post, from);
}

analysis::ReportInput HubJobs::Input() const {
  analysis::ReportInput input;
  input.collector_version = Version();
  input.hang_after_ns = options_.hangs.after_ns();
  input.link_peak = options_.hangs.link_peak;
  return input;
}

clickhouse::JobRows::Facts HubJobs::RowFacts(const std::string& name, const Job& job) const {
  clickhouse::JobRows::Facts facts;
  facts.key.cluster.text = options_.rows->cluster();
  facts.key.job.text = name;
  facts.key.attempt = job.attempt;
  facts.key.user.text = UserName();
  facts.hub = options_.host;
  facts.run = fs::path(job.directory.path()).filename();
  facts.begun_ns = job.begun_ns;
  return facts;
}

bool HubJobs::Look(const std::string& name, Job& job) {
  if (!job.watch.has_value()) {
    if (options_.rows != nullptr) job.rows.emplace(RowFacts(name, job), Input(), *options_.rows);
    job.watch.emplace(job.directory.path(), ChosenMarker(), options_.hangs, Input(), options_.layout,
                      absl::StrCat("gpuprobe: in ", job.directory.path(), ":\n"),
                      job.rows.has_value() ? &*job.rows : nullptr);
    job.watch->Begin();
  }
  const absl::StatusOr<store::RunFiles> files = store::ListRun(job.directory.path(), store::Dropped::kAllow);
  const std::vector<std::string> hosts = files.ok() ? files->hosts : std::vector<std::string>();
  for (const std::string& host : hosts) {
    if (job.said.insert(host).second)
      say_(absl::StrCat("gpuprobe: ", host, " records into ", job.directory.path(), "\n"));
  }
  const auto now = std::chrono::steady_clock::now();
  const bool records = std::any_of(hosts.begin(), hosts.end(), [&](const std::string& host) {
    return MayRecord(fs::path(job.directory.path()) / host);
  });
  if (records) job.last_recording = now;
  return now < job.last_recording + kLinger;
}

http::ListedJob HubJobs::RowOf(const std::string& name, const Job& job) const {
  const fs::path path(job.directory.path());
  http::ListedJob row;
  row.id = path.filename();
  row.name = name;
  row.attempt = job.attempt;
  row.state = "running";
  row.hosts.assign(job.said.begin(), job.said.end());
  row.begun_ns = job.begun_ns;
  if (!job.watch.has_value()) return row;
  const analysis::LiveStatus status = job.watch->StatusNow();
  row.ranks = status.ranks.size();
  if (status.step.has_value()) row.step_ns = status.step->total_ns;
  if (!status.hangs.empty()) {
    row.state = "hangs";
    row.finding = status.hangs.front();
  } else if (status.slowest.has_value()) {
    // Less is noise as often as not, and the report judges it.
    const analysis::LiveRank& late = status.ranks[*status.slowest];
    if (late.late_ns >= model::LateSteps::kLateShares.front() * status.step->total_ns)
      row.finding = absl::StrCat("rank ", late.label, " is late: the others wait ",
                                 analysis::Duration(late.late_ns), " per step for it");
  }
  return row;
}

void HubJobs::MakeList() {
  auto list = std::make_shared<http::JobList>();
  list->hub = options_.host;
  list->user = UserName();
  std::map<std::string, std::shared_ptr<Job>> all;
  {
    const std::lock_guard lock(mutex_);
    all = jobs_;
  }
  for (const auto& [name, job] : all) list->jobs.push_back(RowOf(name, *job));
  for (const auto& [path, row] : over_) list->jobs.push_back(row);
  std::sort(list->jobs.begin(), list->jobs.end(),
            [](const auto& a, const auto& b) { return a.begun_ns > b.begun_ns; });
  if (list->jobs.size() > kMostListed) list->jobs.resize(kMostListed);
  const std::lock_guard lock(mutex_);
  list_ = std::move(list);
}

std::shared_ptr<const http::JobList> HubJobs::List() const {
  const std::lock_guard lock(mutex_);
  return list_;
}

void HubJobs::Conclude(const std::string& name, Job& job) {
  WholeJob& whole = job.watch->End();
  if (whole.hosts().empty()) return;  // nothing of it came but its name
  const std::string& path = job.directory.path();
  const absl::StatusOr<analysis::Report> report = whole.Finish(Input());
  if (!report.ok()) {
    say_(absl::StrCat("gpuprobe: ", path, ": no report: ", report.status().message(), "\n"));
    return;
  }
  if (job.rows.has_value()) job.rows->End(whole, *report);
  const auto ranks = report->conditions.ranks_heard;
  http::ListedJob row = RowOf(name, job);
  row.state = "over";
  row.hosts = whole.hosts();
  row.ranks = static_cast<uint64_t>(ranks);
  row.ended_ns = NowNs();
  if (report->steps.has_value()) row.step_ns = report->steps->time_ns.mean;
  row.finding = report->findings.empty() ? "" : report->findings.front().statement;
  row.gpu_seconds = analysis::GpuSecondsOf(*report);
  for (const analysis::Finding& finding : report->findings) {
    if (finding.severity == analysis::Severity::kInfo) continue;
    const analysis::FindingPlace place = analysis::PlaceOf(*report, finding);
    row.findings.push_back({.id = finding.id,
                            .hosts = place.hosts,
                            .gpu_uuids = place.gpu_uuids,
                            .lost_gpu_seconds = place.lost_gpu_seconds});
  }
  if (absl::Status s = job.directory.WriteFile(kRowFile, RowText(row)); !s.ok())
    say_(absl::StrCat("gpuprobe: ", path, ": ", s.message(), "\n"));
  over_[path] = WithPages(row, path);
  say_(absl::StrCat("gpuprobe: over: ", ranks, ranks == 1 ? " rank on " : " ranks on ", whole.hosts().size(),
                    whole.hosts().size() == 1 ? " host" : " hosts", "; gpuprobe report ", path, "\n"));
  if (!report->findings.empty()) say_(options_.layout.Wrap("  ", "  ", report->findings.front().statement));
}

void HubJobs::Tick() {
  MeasureDisk();
  std::map<std::string, std::shared_ptr<Job>> all;
  {
    const std::lock_guard lock(mutex_);
    all = jobs_;
  }
  for (const auto& [name, job] : all) {
    if (Look(name, *job)) continue;
    {
      const std::lock_guard lock(mutex_);
      jobs_.erase(name);
    }
    Conclude(name, *job);
  }
  MakeList();
}

void HubJobs::End() {
  const std::lock_guard lock(mutex_);
  for (const auto& [name, job] : jobs_) {
    if (job->watch.has_value()) job->watch->End();
  }
}

size_t HubJobs::jobs() const {
  const std::lock_guard lock(mutex_);
  return jobs_.size();
}

}  // namespace gpuprobe::recording
