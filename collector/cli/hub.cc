#include <poll.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
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
#include "collector/log/log.h"
#include "collector/recording/hub_jobs.h"
#include "collector/recording/several_hosts.h"
#include "collector/recording/signals.h"
#include "collector/store/directory.h"

namespace gpuprobe::cli {
namespace {

constexpr char kHub[] = "hub";
constexpr int kEveryMs = 500;

struct HubOptions {
  std::string listen = absl::StrCat("0.0.0.0:", hub::kPort);
  std::string out = "gpuprobe-runs";
  uint64_t host_disk = 2 * KeepOption::kDefaultBytes;
  uint64_t host_total = uint64_t{64} << 30;
  uint64_t host_rate = hub::Quotas::kBytesPerS;
  uint64_t least_free = uint64_t{1} << 30;
  size_t host_jobs = 16;
  HttpOption http;
  ClickhouseOption clickhouse;
  RankOptions rank_options;
  ColorOption color;
};

// Of rows at the end; the others are sent when the hub runs again.
constexpr std::chrono::seconds kRowsPatience{5};

int Serve(const HubOptions& options) {
  absl::StatusOr<recording::SignalFd> signals = recording::SignalFd::Open({SIGTERM, SIGINT, SIGHUP});
  if (!signals.ok()) return Fail(kHub, signals.status(), kFailed);
  absl::StatusOr<hub::Secret> secret = hub::Secret::Find();
  if (!secret.ok()) return Fail(kHub, secret.status(), kFailed);
  const absl::StatusOr<http::Address> address = http::ParseAddress(options.listen);
  if (!address.ok()) return Fail(kHub, absl::StrCat("--listen: ", address.status().message()), kUsage);
  if (const absl::StatusOr<store::Directory> out = store::Directory::Make(options.out); !out.ok())
    return Fail(kHub, out.status(), kFailed);
  absl::StatusOr<http::Listener> listener = http::Listener::Open(*address);
  if (!listener.ok()) return Fail(kHub, listener.status(), kFailed);
  const absl::StatusOr<std::optional<http::Server::Options>> list = options.http.Resolve();
  if (!list.ok()) return Fail(kHub, list.status(), kFailed);
  std::unique_ptr<http::JobServer> list_server;
  if (list->has_value()) {
    absl::StatusOr<std::unique_ptr<http::JobServer>> listening = http::JobServer::Listen(**list);
    if (!listening.ok()) return Fail(kHub, listening.status(), kFailed);
    list_server = *std::move(listening);
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
                           .hangs = options.rank_options,
                           .layout = render::Layout(ScreenOf(STDERR_FILENO, options.color.no_color)),
                           .rows = rows.get()},
                          say);
  if (absl::Status s = jobs.Resume(); !s.ok()) return Fail(kHub, s, kFailed);
  {
    hub::Endpoint endpoint(jobs, *secret, *std::move(listener), *std::move(encryption), options.host_rate);
    endpoint.Start();
    SayError(absl::StrCat("hub on ", endpoint.address().Text(), " (secret: ", secret->origin(),
                          "); on every host of a job: GPUPROBE_HUB=", host, ":", endpoint.address().port));
    if (list_server != nullptr) {
      list_server->Start();
      SayError(absl::StrCat("jobs: ", list_server->Url()));
    }
    bool stop = false;
    while (!stop) {  // NOLINT(bugprone-infinite-loop): a signal sets it
      pollfd waits = {.fd = signals->fd(), .events = POLLIN, .revents = 0};
      if (poll(&waits, 1, kEveryMs) > 0) signals->ReadAll([&](const signalfd_siginfo&) { stop = true; });
      jobs.Tick();
      if (list_server != nullptr) list_server->Publish(jobs.List());
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
  options.http.AddTo(app, "--http", "serve the list of jobs, and the page of each that is over,");
  options.clickhouse.AddTo(app);
  options.rank_options.AddTo(app);
  options.color.AddTo(app);
  if (const auto code = Parse(app, arguments)) return *code;
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is a full disk
  return options.clickhouse.only_migrates() ? options.clickhouse.MigrateOnly() : Serve(options);
}

}  // namespace gpuprobe::cli
