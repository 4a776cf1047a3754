#include <malloc.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "collector/analysis/suspects.h"
#include "collector/cli/checks.h"
#include "collector/cli/clickhouse_option.h"
#include "collector/cli/command.h"
#include "collector/cli/http_option.h"
#include "collector/cli/screen.h"
#include "collector/cli/shared_options.h"
#include "collector/http/encryption.h"
#include "collector/http/job_server.h"
#include "collector/hub/endpoint.h"
#include "collector/hub/protocol.h"
#include "collector/hub/secret.h"
#include "collector/hub/users.h"
#include "collector/ingest/server.h"
#include "collector/log/log.h"
#include "collector/recording/hub_jobs.h"
#include "collector/recording/several_hosts.h"
#include "collector/recording/signals.h"
#include "collector/store/directory.h"

namespace gpuprobe::cli {
namespace {

constexpr char kHub[] = "hub";
constexpr char kSocket[] = ".hub.sock";  // below --out
constexpr std::chrono::milliseconds kLookEvery{500};
constexpr std::chrono::milliseconds kCaptureEvery{200};
constexpr size_t kUnknownTokenBytes = 32;

struct HubOptions {
  std::string listen = absl::StrCat("0.0.0.0:", hub::kPort);
  std::string out = "gpuprobe-runs";
  uint64_t host_disk = 2 * KeepOption::kDefaultBytes;
  uint64_t host_total = uint64_t{64} << 30;
  uint64_t host_rate = hub::Quotas::kBytesPerS;
  uint64_t least_free = uint64_t{1} << 30;
  size_t host_jobs = 16;
  std::string users;  // file; empty: one user
  uint64_t user_total = uint64_t{256} << 30;
  size_t user_jobs = 64;
  recording::HubJobs::RankSeries rank_series = recording::HubJobs::RankSeries::kSuspects;
  HttpOption http;
  ClickhouseOption clickhouse;
  RankOptions rank_options;
  ColorOption color;
};

// Of rows at the end; the others are sent when the hub runs again.
constexpr std::chrono::seconds kRowsPatience{5};

std::shared_ptr<const http::HubMoment> MomentOf(recording::HubJobs& jobs, const hub::Endpoint& endpoint,
                                                const clickhouse::Writer* rows, const HubOptions& options) {
  std::shared_ptr<http::HubMoment> moment = jobs.MomentNow(options.rank_series);
  const hub::EndpointNumbers numbers = endpoint.numbers();
  moment->posts = numbers.posts;
  moment->received_bytes = numbers.bytes;
  for (size_t i = 0; i < numbers.refused.size(); ++i)
    moment->refused.emplace_back(hub::kRefusedWords[i], numbers.refused[i]);
  if (rows != nullptr) {
    const clickhouse::Writer::State state = rows->state();
    moment->rows = {.written = state.rows_written,
                    .waiting = state.rows_waiting,
                    .lost = state.rows_lost,
                    .spool_bytes = state.spool_bytes,
                    .most_spool_bytes = state.most_spool_bytes,
                    .answers = state.answers};
  }
  return moment;
}

// For `gpuprobe capture`, which looks for a socket that this process listens on. Without it, all else works.
absl::StatusOr<std::unique_ptr<ingest::Server>> ServeRequests(const std::string& out) {
  const ingest::SinkFactory refuse =
      [](const v1::Hello&, std::string_view) -> absl::StatusOr<std::unique_ptr<ingest::FrameSink>> {
    return absl::UnimplementedError("this is a hub, which records no process");
  };
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::absolute(out, error);
  absl::StatusOr<std::unique_ptr<ingest::Server>> server = ingest::Server::Start(folder / kSocket, refuse);
  if (server.ok()) return server;
  SayError(absl::StrCat("gpuprobe capture will not work here: ", server.status().message()));
  return ingest::Server::StartWithoutSocket(refuse, {});
}

// Who may post: hosts of one user, or of several.
struct Posters {
  std::optional<hub::Secret> secret;  // of one
  std::unique_ptr<hub::Users> users;  // null: one

  absl::Status Find(const HubOptions& options, const std::string& operators_token) {
    if (options.users.empty()) {
      absl::StatusOr<hub::Secret> found = hub::Secret::Find();
      if (!found.ok()) return found.status();
      secret = *std::move(found);
      return absl::OkStatus();
    }
    unsetenv(hub::Secret::kVariable);  // it would be nobody's
    absl::StatusOr<std::unique_ptr<hub::Users>> read = hub::Users::Read(options.users, operators_token);
    if (!read.ok()) return read.status();
    users = *std::move(read);
    return absl::OkStatus();
  }
  std::unique_ptr<hub::Endpoint> Listen(recording::HubJobs& jobs, http::Listener listener,
                                        std::shared_ptr<const http::Encryption> encryption,
                                        uint64_t bytes_per_s) const {
    return users != nullptr ? std::make_unique<hub::Endpoint>(jobs, *users, std::move(listener),
                                                              std::move(encryption), bytes_per_s)
                            : std::make_unique<hub::Endpoint>(jobs, *secret, std::move(listener),
                                                              std::move(encryption), bytes_per_s);
  }
  std::string Text() const {
    if (users == nullptr) return absl::StrCat("secret: ", secret->origin());
    const size_t count = users->all().size();
    return absl::StrCat(count, count == 1 ? " user in " : " users in ", users->path(),
                        "; no secret of its own, nor munge");
  }
  void SetReaders(http::JobServer& server) const {
    if (users == nullptr) return;
    std::vector<http::JobReader> readers;
    for (const hub::User& user : users->all()) {
      if (!user.read_token.empty()) readers.push_back({.token = user.read_token, .user = user.name});
    }
    server.SetReaders(readers);
  }
  // Looks whether the file has changed.
  void Renew(http::JobServer* server) const {
    if (users == nullptr) return;
    const absl::StatusOr<bool> changed = users->ReadAgain();
    if (!changed.ok()) {
      SayError(absl::StrCat(changed.status().message(), "; the users before stay"));
    } else if (*changed) {
      SayError(absl::StrCat("read again: ", Text()));
      if (server != nullptr) SetReaders(*server);
    }
  }
};

// To be served from now on.
void Publish(recording::HubJobs& jobs, std::shared_ptr<const http::HubMoment> moment,
             http::JobServer& server) {
  std::map<std::string, http::ShownJobs> of_users;
  for (auto& [user, his] : jobs.OfUsers(*moment))
    of_users[user] = {.list = his.list, .moment = std::move(his.moment)};
  server.Publish({.list = jobs.List(), .moment = std::move(moment)}, std::move(of_users));
}

// A thread for each connection, and most are brief: with an arena for each of many threads, what one frees is
// not another's. A hub of 10,000 ranks took 2.1 GB before its report, and 2.3 and 2.7 GB with the default.
constexpr int kAllocatorArenas = 2;

int Serve(const HubOptions& options) {
  mallopt(M_ARENA_MAX, kAllocatorArenas);
  absl::StatusOr<recording::SignalFd> signals = recording::SignalFd::Open({SIGTERM, SIGINT, SIGHUP});
  if (!signals.ok()) return Fail(kHub, signals.status(), kFailed);
  absl::StatusOr<std::optional<http::Server::Options>> list = options.http.Resolve();
  if (!list.ok()) return Fail(kHub, list.status(), kFailed);
  Posters posters;
  if (absl::Status s = posters.Find(options, list->has_value() ? (*list)->token : ""); !s.ok())
    return Fail(kHub, s, kFailed);
  // Nobody reads without a token, also on loopback; without --http-token nobody reads everything.
  if (posters.users != nullptr && list->has_value() && (*list)->token.empty())
    (*list)->token = hub::RandomHex(kUnknownTokenBytes);
  const absl::StatusOr<http::Address> address = http::ParseAddress(options.listen);
  if (!address.ok()) return Fail(kHub, absl::StrCat("--listen: ", address.status().message()), kUsage);
  if (const absl::StatusOr<store::Directory> out = store::Directory::Make(options.out); !out.ok())
    return Fail(kHub, out.status(), kFailed);
  absl::StatusOr<http::Listener> listener = http::Listener::Open(*address);
  if (!listener.ok()) return Fail(kHub, listener.status(), kFailed);
  std::unique_ptr<http::JobServer> list_server;
  if (list->has_value()) {
    absl::StatusOr<std::unique_ptr<http::JobServer>> listening = http::JobServer::Listen(**list);
    if (!listening.ok()) return Fail(kHub, listening.status(), kFailed);
    list_server = *std::move(listening);
    posters.SetReaders(*list_server);
  }
  absl::StatusOr<std::shared_ptr<const http::Encryption>> encryption = http::Encryption::Make();
  if (!encryption.ok()) return Fail(kHub, encryption.status(), kFailed);
  const std::string host = recording::NameOfThisHost();
  const auto say = [](const std::string& text) { log::SayForPeople(text); };
  std::unique_ptr<clickhouse::Writer> rows;
  if (options.clickhouse.is_given()) {
    absl::StatusOr<std::unique_ptr<clickhouse::Writer>> opened =
        options.clickhouse.Open(options.out, host, say);
    if (!opened.ok())
      return Fail(kHub, opened.status(), absl::IsInvalidArgument(opened.status()) ? kUsage : kFailed);
    rows = *std::move(opened);
    rows->Start();
  }
  recording::HubJobs jobs({.out = options.out,
                           .host = host,
                           .most_bytes_of_host = options.host_disk,
                           .most_bytes_of_address = options.host_total,
                           .least_free_bytes = options.least_free,
                           .most_jobs_of_host = options.host_jobs,
                           .has_users = posters.users != nullptr,
                           .most_bytes_of_user = options.user_total,
                           .most_jobs_of_user = options.user_jobs,
                           .hangs = options.rank_options,
                           .layout = render::Layout(ScreenOf(STDERR_FILENO, options.color.no_color)),
                           .rows = rows.get()},
                          say);
  if (absl::Status s = jobs.Resume(); !s.ok()) return Fail(kHub, s, kFailed);
  absl::StatusOr<std::unique_ptr<ingest::Server>> server = ServeRequests(options.out);
  if (!server.ok()) return Fail(kHub, server.status(), kFailed);
  (*server)->AnswerRequests([&](const v1::CaptureRequest& request) { return jobs.OpenCapture(request); });
  {
    const std::unique_ptr<hub::Endpoint> endpoint =
        posters.Listen(jobs, *std::move(listener), *std::move(encryption), options.host_rate);
    endpoint->Start();
    SayError(absl::StrCat("hub on ", endpoint->address().Text(), " (", posters.Text(),
                          "); on every host of a job: GPUPROBE_HUB=", host, ":", endpoint->address().port));
    if (list_server != nullptr) {
      list_server->Start();
      SayError(absl::StrCat("jobs: ", list_server->Url()));
    }
    bool stop = false;
    absl::Status watched = (*server)->Watch(
        signals->fd(), [&] { signals->ReadAll([&](const signalfd_siginfo&) { stop = true; }); });
    if (!watched.ok()) return Fail(kHub, watched, kFailed);
    auto look = std::chrono::steady_clock::now();
    while (!stop) {  // NOLINT(bugprone-infinite-loop): a signal sets it
      (*server)->Poll(kCaptureEvery);
      jobs.TickCaptures();
      if (!stop && std::chrono::steady_clock::now() < look) continue;
      look = std::chrono::steady_clock::now() + kLookEvery;
      posters.Renew(list_server.get());
      jobs.Tick();
      if (list_server != nullptr) Publish(jobs, MomentOf(jobs, *endpoint, rows.get(), options), *list_server);
    }
  }
  jobs.End();
  if (rows != nullptr) rows->End(kRowsPatience);
  if (const size_t left = jobs.jobs(); left > 0)
    SayError(absl::StrCat(left, left == 1 ? " job is" : " jobs are",
                          " not over: their hosts go on recording, and gpuprobe hub --out ", options.out,
                          " goes on with them"));
  return kDone;
}

}  // namespace

int HubMain(const Arguments& arguments) {
  CLI::App app(
      "Receives the records of every job that names it (GPUPROBE_HUB), watches it, and reports it when it is "
      "over",
      "gpuprobe hub");
  HubOptions options;
  app.add_option("--listen", options.listen, absl::StrCat("address to listen on [", options.listen, "]"))
      ->check(NotEmpty())
      ->option_text("ADDRESS");
  app.add_option("--out", options.out,
                 absl::StrCat("parent of the jobs' run directories [", options.out, "]"))
      ->check(NotEmpty());
  app.add_option("--host-disk", options.host_disk,
                 "disk space for one host of a job; beyond it, what the host sends is refused [4GiB]")
      ->transform(Size(KeepOption::kSmallestBytes, uint64_t{1} << 50))
      ->option_text("SIZE");
  app.add_option("--host-total", options.host_total,
                 "disk space for all jobs of one host, those that are over, too; beyond it, what the host "
                 "sends is refused [64GiB]")
      ->transform(Size(KeepOption::kSmallestBytes, uint64_t{1} << 50))
      ->option_text("SIZE");
  app.add_option(
         "--host-rate", options.host_rate,
         "what one host may send in a second, and eight times as much at once; beyond it, the host is "
         "told when to come again [16MiB]")
      ->transform(Size(uint64_t{64} << 10, uint64_t{1} << 40))
      ->option_text("SIZE");
  app.add_option("--host-jobs", options.host_jobs,
                 absl::StrCat("jobs that one host may have here at a time [", options.host_jobs, "]"))
      ->check(CLI::Range(size_t{1}, recording::HubJobs::kMostJobs))
      ->option_text("N");
  app.add_option("--least-free", options.least_free,
                 "disk space that is left free; beyond it, everything is refused [1GiB]")
      ->transform(Size(0, uint64_t{1} << 50))
      ->option_text("SIZE");
  CLI::Option* const users =
      app.add_option(
             "--users", options.users,
             "file with a line NAME HUB-TOKEN [READ-TOKEN] for each user: hosts with a HUB-TOKEN send jobs "
             "of that user, a READ-TOKEN shows these and no others, and --http-token shows all; read again "
             "when it changes")
          ->check(NotEmpty())
          ->option_text("FILE");
  app.add_option("--user-jobs", options.user_jobs,
                 absl::StrCat("jobs that one user may have here at a time [", options.user_jobs, "]"))
      ->check(CLI::Range(size_t{1}, recording::HubJobs::kMostJobs))
      ->needs(users)
      ->option_text("N");
  app.add_option(
         "--user-total", options.user_total,
         "disk space for all jobs of one user, those that are over, too; beyond it, what his hosts send is "
         "refused [256GiB]")
      ->transform(Size(KeepOption::kSmallestBytes, uint64_t{1} << 50))
      ->needs(users)
      ->option_text("SIZE");
  options.http.AddTo(app, "--http", "serve the list of jobs, the page of each that is over, and metrics");
  using RankSeries = recording::HubJobs::RankSeries;
  const std::map<std::string, RankSeries> levels = {
      {"job", RankSeries::kNone}, {"suspects", RankSeries::kSuspects}, {"ranks", RankSeries::kAll}};
  app.add_option("--metrics", options.rank_series,
                 absl::StrCat("what /metrics has of each job: job (no rank), suspects (the ",
                              analysis::Suspects::kMost, " ranks that cost most), ranks (all) [suspects]"))
      ->transform(CLI::CheckedTransformer(levels))
      ->needs(app.get_option("--http"))
      ->option_text("LEVEL");
  options.clickhouse.AddTo(app);
  options.rank_options.AddTo(app);
  options.color.AddTo(app);
  if (const auto code = Parse(app, arguments)) return *code;
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is a full disk
  return options.clickhouse.only_migrates() ? options.clickhouse.MigrateOnly() : Serve(options);
}

}  // namespace gpuprobe::cli
