#include "collector/recording/hub_jobs.h"

#include <pwd.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <tuple>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "collector/analysis/finding_place.h"
#include "collector/analysis/units.h"
#include "collector/model/job/late_steps.h"
#include "collector/recording/hub_runs.h"
#include "collector/recording/version.h"
#include "collector/render/json_report.h"
#include "collector/render/text_report.h"
#include "collector/store/run_directory.h"
#include "collector/store/run_files.h"

namespace gpuprobe::recording {
namespace {

namespace fs = std::filesystem;

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

// Of a launcher's words, which are one line in all that we know.
bool IsName(const std::string& job) {
  return !job.empty() && job.size() <= kMostNameBytes &&
         std::none_of(job.begin(), job.end(), [](char c) { return c == '\n' || c == '\0'; });
}

// From 1; as JobOf wrote it.
uint16_t AttemptOf(const fs::path& run) {
  int attempt = 1;
  if (!absl::SimpleAtoi(SecondLine(run / store::kJobFile), &attempt)) return 1;
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

std::shared_ptr<HubJobs::Job> HubJobs::MakeJob(const JobId& id, uint16_t attempt,
                                               store::Directory directory) const {
  auto job = std::make_shared<Job>(
      std::move(directory),
      hub::Hub::Options{
          .job = id.name, .host = options_.host, .most_bytes_of_host = options_.most_bytes_of_host});
  job->hub.SetDirectory(job->directory.path(), "");
  job->captures.SetBoard(&job->hub.captures(), job->directory.path());
  job->attempt = attempt;
  job->begun_ns = WrittenNs(fs::path(job->directory.path()) / store::kJobFile);
  return job;
}

std::shared_ptr<HubJobs::Job> HubJobs::Add(const JobId& id, uint16_t attempt, store::Directory directory) {
  return jobs_[id] = MakeJob(id, attempt, std::move(directory));
}

absl::Status HubJobs::HasPlace() const {
  if (jobs_.size() < kMostJobs) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("there are ", kMostJobs, " jobs at a time already"));
}

absl::Status HubJobs::MayBegin(const hub::Sender& from) {
  const auto now = std::chrono::steady_clock::now();
  size_t of_host = 0;
  size_t of_user = 0;
  for (const auto& [id, job] : jobs_) {
    if (job->from == from) ++of_host;
    if (id.user == from.user) ++of_user;
  }
  if (of_host >= options_.most_jobs_of_host)
    return absl::ResourceExhaustedError(
        absl::StrCat(from.host, " has ", of_host, " jobs at a time already (--host-jobs)"));
  if (!from.user.empty() && of_user >= options_.most_jobs_of_user)
    return absl::ResourceExhaustedError(
        absl::StrCat(from.user, " has ", of_user, " jobs at a time already (--user-jobs)"));
  if (absl::Status s = HasPlace(); !s.ok()) return s;
  std::erase_if(beginnings_, [&](const auto& each) { return each.second.IsFull(now); });
  const double rate = 1 / std::chrono::duration<double>(kJobEvery).count();
  hub::Allowance& its =
      beginnings_.try_emplace(from, rate, static_cast<double>(options_.most_jobs_of_host)).first->second;
  if (!its.Has(now))
    return absl::ResourceExhaustedError(
        absl::StrCat(from.host, " has begun too many jobs: one every ", kJobEvery.count(), " s from now on"));
  its.Take(1);
  return absl::OkStatus();
}

absl::Status HubJobs::HasRoom(uint64_t bytes, const hub::Sender& from) {
  if (free_bytes_ < options_.least_free_bytes + bytes)
    return absl::UnavailableError(absl::StrCat("the disk of the hub has less than ",
                                               analysis::Bytes(options_.least_free_bytes),
                                               " left (--least-free)"));
  if (stored_[from] + bytes > options_.most_bytes_of_address)
    return absl::UnavailableError(absl::StrCat(from.host, " has ",
                                               analysis::Bytes(options_.most_bytes_of_address),
                                               " at the hub (--host-total); remove runs there"));
  if (!from.user.empty() && stored_of_user_[from.user] + bytes > options_.most_bytes_of_user)
    return absl::UnavailableError(absl::StrCat(from.user, " has ",
                                               analysis::Bytes(options_.most_bytes_of_user),
                                               " at the hub (--user-total); remove runs there"));
  stored_[from] += bytes;
  stored_of_user_[from.user] += bytes;
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
  std::map<hub::Sender, uint64_t> stored;
  std::map<std::string, uint64_t> stored_of_user;
  bool measured = false;
  if (is_time) {
    measured_at_ = now;
    std::vector<FoundRun> runs;
    measured = FindRuns(options_.out, options_.has_users, runs);
    for (const FoundRun& run : runs) {
      std::error_code ignored;
      for (fs::directory_iterator host(run.path, ignored), end; !ignored && host != end;
           host.increment(ignored)) {
        const std::string from = SecondLine(host->path() / hub::kMirroredFile);
        if (from.empty()) continue;
        const uint64_t bytes = BytesIn(host->path());
        stored[{.host = from, .user = run.user}] += bytes;
        stored_of_user[run.user] += bytes;
      }
    }
  }
  const std::lock_guard lock(mutex_);
  free_bytes_ = known ? uint64_t{disk.f_bavail} * disk.f_frsize : UINT64_MAX;
  if (!measured) return;
  stored_ = std::move(stored);
  stored_of_user_ = std::move(stored_of_user);
  const auto gone = std::erase_if(over_, [](const auto& each) { return !fs::exists(each.second.page); });
  over_changed_ = over_changed_ || gone > 0;
}

absl::StatusOr<std::shared_ptr<HubJobs::Job>> HubJobs::JobOf(const std::string& name,
                                                             const hub::Sender& from) {
  const JobId id{.user = from.user, .name = name};
  if (const auto known = jobs_.find(id); known != jobs_.end()) return known->second;
  if (!IsName(name)) return absl::InvalidArgumentError("that is no name of a job");
  const auto left = std::find_if(left_.begin(), left_.end(),
                                 [&](const LeftJob& each) { return each.id == id && !IsEarlier(each); });
  if (left != left_.end()) {
    if (absl::Status s = HasPlace(); !s.ok()) return s;
    if (absl::Status s = TakeUp(*left); !s.ok()) return s;
    left_.erase(left);
    return jobs_.at(id);
  }
  if (absl::Status s = MayBegin(from); !s.ok()) return s;
  absl::StatusOr<store::Directory> made = MakeDirectory(id);
  if (!made.ok()) return made.status();
  if (absl::Status s = made->Lock(); !s.ok()) return s;
  const uint16_t attempt = ++attempts_[id];
  if (absl::Status s = made->WriteFile(store::kJobFile, absl::StrCat(name, "\n", attempt, "\n")); !s.ok())
    return s;
  std::shared_ptr<Job> job = Add(id, attempt, *std::move(made));
  job->from = from;
  return job;
}

absl::StatusOr<store::Directory> HubJobs::MakeDirectory(const JobId& id) const {
  std::string parent = options_.out;
  if (!id.user.empty()) {
    absl::StrAppend(&parent, "/", id.user);
    // Users of this machine have no other way to it than the hub.
    const absl::StatusOr<store::Directory> of_user = store::Directory::Make(parent);
    if (!of_user.ok()) return of_user.status();
    if (of_user->made() && fchmod(of_user->fd(), S_IRWXU) != 0)
      return absl::UnavailableError(absl::StrCat(parent, ": cannot make it private: ", std::strerror(errno)));
  }
  const std::string shown(absl::StripAsciiWhitespace(id.name).substr(0, kMostShownBytes));
  const std::string folder = fs::path(store::DefaultRunDirectory(shown, NowNs())).filename();
  return store::Directory::MakeNew(absl::StrCat(parent, "/", folder));
}

absl::Status HubJobs::Resume() {
  MeasureDisk();
  std::vector<FoundRun> runs;
  FindRuns(options_.out, options_.has_users, runs);
  std::deque<LeftJob> found;
  std::map<JobId, uint16_t> attempts;
  for (const FoundRun& run : runs) {
    std::error_code ignored;
    if (!fs::exists(run.path / store::kJobFile, ignored)) continue;
    const JobId id{.user = run.user, .name = FirstLine(run.path / store::kJobFile)};
    const uint16_t attempt = AttemptOf(run.path);
    uint16_t& latest = attempts[id];
    latest = std::max(latest, attempt);
    if (IsName(id.name) && !fs::exists(run.path / render::kReportFile, ignored))
      found.push_back({.id = id, .attempt = attempt, .path = run.path});
  }
  over_ = RowsIn(runs);
  std::sort(found.begin(), found.end(), [](const LeftJob& a, const LeftJob& b) {
    return std::tie(a.attempt, a.path) < std::tie(b.attempt, b.path);
  });
  const std::lock_guard lock(mutex_);
  attempts_ = std::move(attempts);
  for (const LeftJob& left : found) {
    if (IsEarlier(left) || jobs_.contains(left.id) || !HasPlace().ok()) {
      left_.push_back(left);
    } else if (absl::Status s = TakeUp(left); !s.ok()) {
      return s;
    }
  }
  return absl::OkStatus();
}

absl::Status HubJobs::TakeUp(const LeftJob& left) {
  absl::StatusOr<store::Directory> directory = store::Directory::Make(left.path);
  if (!directory.ok()) return directory.status();
  if (absl::Status s = directory->Lock(); !s.ok()) return s;
  say_(absl::StrCat("gpuprobe: goes on with ", left.path, "\n"));
  // Its hosts look for the hub every ten seconds.
  Add(left.id, left.attempt, *std::move(directory))->last_recording += 2 * kLinger;
  return absl::OkStatus();
}

// One at a time, because a report takes a while. The latest attempt of a name waits for those before it, with
// which it is compared.
void HubJobs::TakeUpNext() {
  LeftJob next;
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(left_.begin(), left_.end(), [&](const LeftJob& left) {
      return IsEarlier(left) || (!jobs_.contains(left.id) && HasPlace().ok());
    });
    if (found == left_.end()) return;
    next = *found;
    left_.erase(found);
    if (!IsEarlier(next)) {
      if (absl::Status s = TakeUp(next); !s.ok())
        say_(absl::StrCat("gpuprobe: ", next.path, ": ", s.message(), "\n"));
      return;
    }
  }
  ReportEarlier(next);
}

// Another attempt has begun since: it is over, whatever its hosts did not say.
void HubJobs::ReportEarlier(const LeftJob& left) {
  absl::StatusOr<store::Directory> directory = store::Directory::Make(left.path);
  absl::Status status = directory.ok() ? directory->Lock() : directory.status();
  if (!status.ok()) {
    say_(absl::StrCat("gpuprobe: ", left.path, ": ", status.message(), "\n"));
    return;
  }
  const std::shared_ptr<Job> job = MakeJob(left.id, left.attempt, *std::move(directory));
  Look(left.id, *job);
  Conclude(left.id, *job);
}

bool HubJobs::HasEarlier(const JobId& id) const {
  const std::lock_guard lock(mutex_);
  return std::any_of(left_.begin(), left_.end(),
                     [&](const LeftJob& left) { return left.id == id && IsEarlier(left); });
}

bool HubJobs::Has(const std::string& job) { return IsName(job); }

hub::Taken HubJobs::Take(const v1::HubPost& post, const hub::Sender& from) {
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
    job->posted_at = std::chrono::steady_clock::now();
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

clickhouse::JobRows::Facts HubJobs::RowFacts(const JobId& id, const Job& job) const {
  clickhouse::JobRows::Facts facts;
  facts.key.cluster.text = options_.rows->cluster();
  facts.key.job.text = id.name;
  facts.key.attempt = job.attempt;
  facts.key.user.text = id.user.empty() ? UserName() : id.user;
  facts.hub = options_.host;
  facts.run = IdOfRun(job.directory.path(), id.user);
  facts.begun_ns = job.begun_ns;
  return facts;
}

void HubJobs::LookForDetail(Job& job) {
  if (const std::optional<v1::DetailRaise> raise = job.captures.TakeRaise()) job.watch->NoteRaise(*raise);
  std::optional<DetailWatch::Decision> decision =
      job.watch->LookForDetail([&job] { return !job.captures.under_way() && job.captures.AllHere({}); });
  if (decision.has_value()) job.captures.Raise(*std::move(decision), {});
}

bool HubJobs::Look(const JobId& id, Job& job) {
  if (!job.watch.has_value()) {
    if (options_.rows != nullptr) job.rows.emplace(RowFacts(id, job), Input(), *options_.rows);
    job.watch.emplace(job.directory.path(), ChosenMarker(), options_.hangs, Input(), options_.layout,
                      absl::StrCat("gpuprobe: in ", job.directory.path(), ":\n"),
                      job.rows.has_value() ? &*job.rows : nullptr);
    job.watch->Begin();
  }
  LookForDetail(job);
  std::error_code error;
  for (const fs::directory_entry& folder : fs::directory_iterator(job.directory.path(), error)) {
    const std::string host = folder.path().filename();
    if (job.said.contains(host) || !folder.is_directory(error)) continue;
    if (!store::ListRun(folder.path(), store::Dropped::kAllow).ok()) continue;
    job.said.insert(host);
    say_(absl::StrCat("gpuprobe: ", host, " records into ", job.directory.path(), "\n"));
  }
  const auto now = std::chrono::steady_clock::now();
  const bool records = std::any_of(job.said.begin(), job.said.end(), [&](const std::string& host) {
    return MayRecord(fs::path(job.directory.path()) / host);
  });
  if (records) job.last_recording = now;
  return now < job.last_recording + kLinger;
}

http::ListedJob HubJobs::RowOf(const JobId& id, const Job& job) const {
  const fs::path path(job.directory.path());
  http::ListedJob row;
  row.id = IdOfRun(path, id.user);
  row.directory = path;
  row.name = id.name;
  row.user = id.user;
  row.attempt = job.attempt;
  row.state = "running";
  row.hosts.assign(job.said.begin(), job.said.end());
  row.begun_ns = job.begun_ns;
  if (!job.watch.has_value()) return row;
  const std::shared_ptr<const analysis::LiveStatus> seen = job.watch->SeenNow().status;
  const analysis::LiveStatus& status = *seen;
  row.status = seen;
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
  std::map<std::string, std::shared_ptr<http::JobList>> lists;
  lists[""] = std::make_shared<http::JobList>();
  const auto add = [&](const http::ListedJob& row) {
    lists[""]->jobs.push_back(row);
    if (row.user.empty()) return;
    std::shared_ptr<http::JobList>& list = lists[row.user];
    if (list == nullptr) list = std::make_shared<http::JobList>();
    list->jobs.push_back(row);
  };
  for (const auto& [id, job] : JobsNow()) add(RowOf(id, *job));
  for (const auto& [path, row] : over_) add(row);
  const bool over_changed = std::exchange(over_changed_, false);
  for (const auto& [user, list] : lists) {
    list->hub = options_.host;
    list->user = user.empty() ? UserName() : user;
    std::sort(list->jobs.begin(), list->jobs.end(),
              [](const auto& a, const auto& b) { return a.begun_ns > b.begun_ns; });
    if (list->jobs.size() > kMostListed) list->jobs.resize(kMostListed);
    std::shared_ptr<const http::Fleet>& fleet = fleets_[user];
    if (over_changed || fleet == nullptr) fleet = std::make_shared<http::Fleet>(http::FleetOf(*list));
    list->fleet = fleet;
  }
  const std::lock_guard lock(mutex_);
  lists_ = {lists.begin(), lists.end()};
}

std::shared_ptr<const http::JobList> HubJobs::List() const {
  const std::lock_guard lock(mutex_);
  const auto all = lists_.find("");
  return all == lists_.end() ? std::make_shared<http::JobList>() : all->second;
}

std::optional<LastAttempt> HubJobs::LastOver(const JobId& id, uint64_t attempt) const {
  std::optional<LastAttempt> last;
  for (const auto& [path, row] : over_) {
    if (row.user == id.user && row.name == id.name && row.attempt < attempt &&
        (!last.has_value() || row.attempt > last->number))
      last = LastAttempt{.number = row.attempt, .directory = path};
  }
  return last;
}

void HubJobs::Conclude(const JobId& id, Job& job) {
  WholeJob& whole = job.watch->End();
  if (whole.hosts().empty()) return;  // nothing of it came but its name
  if (const std::optional<v1::DetailRaise> raise = job.captures.TakeRaise(/*job_is_over=*/true))
    whole.NoteRaise(*raise);
  const std::string& path = job.directory.path();
  const absl::StatusOr<analysis::Report> report = whole.Finish(Input());
  if (!report.ok()) {
    say_(absl::StrCat("gpuprobe: ", path, ": no report: ", report.status().message(), "\n"));
    return;
  }
  if (job.rows.has_value()) job.rows->End(whole, *report);
  const auto ranks = report->conditions.ranks_heard;
  http::ListedJob row = RowOf(id, job);
  row.state = "over";
  row.status = nullptr;
  row.hosts = whole.hosts();
  row.ranks = static_cast<uint64_t>(ranks);
  row.ended_ns = NowNs();
  if (report->steps.has_value()) row.step_ns = report->steps->time_ns.mean;
  row.finding = report->findings.empty() ? "" : report->findings.front().statement;
  row.gpu_seconds = analysis::GpuSecondsOf(*report);
  row.gpus = std::make_shared<http::ListedJob::Gpus>(analysis::GpuSecondsByPlace(*report));
  row.steps = StepsOfAttempt(whole.model(), *report, job.directory, LastOver(id, job.attempt));
  for (const analysis::Finding& finding : report->findings) {
    if (finding.severity == analysis::Severity::kInfo) continue;
    const analysis::FindingPlace place = analysis::PlaceOf(*report, finding);
    row.findings.push_back({.id = finding.id,
                            .hosts = place.hosts,
                            .gpu_uuids = place.gpu_uuids,
                            .lost_gpu_seconds = place.lost_gpu_seconds});
  }
  for (const auto& [file, text] :
       {std::pair(kTextFile, render::TextReport(*report, "")), std::pair(kRowFile, RowText(row))}) {
    if (absl::Status s = job.directory.WriteFile(file, text); !s.ok())
      say_(absl::StrCat("gpuprobe: ", path, ": ", s.message(), "\n"));
  }
  over_[path] = WithPages(row, path, id.user);
  over_changed_ = true;
  say_(absl::StrCat("gpuprobe: over: ", ranks, ranks == 1 ? " rank on " : " ranks on ", whole.hosts().size(),
                    whole.hosts().size() == 1 ? " host" : " hosts", "; gpuprobe report ", path, "\n"));
  if (!report->findings.empty()) say_(options_.layout.Wrap("  ", "  ", report->findings.front().statement));
}

std::map<HubJobs::JobId, std::shared_ptr<HubJobs::Job>> HubJobs::JobsNow() const {
  const std::lock_guard lock(mutex_);
  return jobs_;
}

absl::StatusOr<std::unique_ptr<ingest::Answerer>> HubJobs::OpenCapture(const v1::CaptureRequest& request) {
  const fs::path meant(request.run_directory());
  for (const auto& [id, job] : JobsNow()) {
    std::error_code error;
    if (fs::equivalent(job->directory.path(), meant, error) ||
        fs::equivalent(job->directory.path(), meant.parent_path(), error))
      return job->captures.Open(request, {});
  }
  return absl::NotFoundError("this job is over at its hub");
}

void HubJobs::TickCaptures() {
  for (const auto& [id, job] : JobsNow()) job->captures.Tick({});
}

void HubJobs::Tick() {
  MeasureDisk();
  const std::map<JobId, std::shared_ptr<Job>> all = JobsNow();
  TakeUpNext();
  for (const auto& [id, job] : all) {
    if (Look(id, *job) || HasEarlier(id)) continue;
    {
      const std::lock_guard lock(mutex_);
      jobs_.erase(id);
    }
    Conclude(id, *job);
  }
  MakeList();
}

void HubJobs::End() {
  const std::lock_guard lock(mutex_);
  for (const auto& [id, job] : jobs_) {
    if (job->watch.has_value()) job->watch->End();
  }
}

size_t HubJobs::jobs() const {
  const std::lock_guard lock(mutex_);
  return jobs_.size();
}

}  // namespace gpuprobe::recording
