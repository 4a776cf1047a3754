#include "collector/cli/clickhouse_option.h"

#include <algorithm>
#include <cstdio>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "collector/cli/checks.h"
#include "collector/cli/command.h"
#include "collector/recording/version.h"

namespace gpuprobe::cli {
namespace {

constexpr char kOfHub[] = "hub";
constexpr char kOption[] = "--clickhouse";
constexpr uint64_t kLeastSpool = uint64_t{16} << 20;
constexpr uint64_t kMostSpool = uint64_t{1} << 50;

// An identifier of ClickHouse that needs no quotes.
bool IsIdentifier(absl::string_view text) {
  return !text.empty() && absl::ascii_isdigit(static_cast<unsigned char>(text[0])) == 0 &&
         std::all_of(text.begin(), text.end(),
                     [](unsigned char c) { return absl::ascii_isalnum(c) || c == '_'; });
}

CLI::Validator Identifiers() {
  return {[](std::string& text) {
            const std::vector<std::string> names = absl::StrSplit(text, ',');
            return std::all_of(names.begin(), names.end(), IsIdentifier)
                       ? std::string()
                       : absl::StrCat("must be names of letters, digits and _, separated by commas, not '",
                                      text, "'");
          },
          "NAME,..."};
}

CLI::Validator Identifier() {
  return {[](std::string& text) {
            return IsIdentifier(text)
                       ? std::string()
                       : absl::StrCat("must be letters, digits and _, and begin with no digit, not '", text,
                                      "'");
          },
          "NAME"};
}

}  // namespace

void ClickhouseOption::AddTo(CLI::App& app) {
  CLI::Option* const url =
      app.add_option(
             kOption, url_,
             "write what is kept of each job to this ClickHouse server, http://HOST:8123; its user and "
             "password are in CLICKHOUSE_USER and CLICKHOUSE_PASSWORD")
          ->check(NotEmpty())
          ->option_text("URL");
  app.add_option("--clickhouse-database", database_, absl::StrCat("database there [", database_, "]"))
      ->check(Identifier())
      ->needs(url)
      ->option_text("NAME");
  app.add_option("--clickhouse-replicas", replicas_,
                 "make the tables on all servers of this cluster, as ClickHouse names it, and replicate them")
      ->check(Identifier())
      ->needs(url)
      ->option_text("NAME");
  app.add_option("--clickhouse-spool", spool_bytes_,
                 "disk space for rows that wait for the server; beyond it, the oldest are dropped [1GiB]")
      ->transform(Size(kLeastSpool, kMostSpool))
      ->needs(url)
      ->option_text("SIZE");
  app.add_option("--cluster", cluster_, "name that these rows have for where the jobs ran [this host's]")
      ->check(NotEmpty())
      ->needs(url)
      ->option_text("NAME");
  app.add_flag("--migrate", migrate_, "make the tables, or add to them what this release has more, and end")
      ->needs(url);
  app.add_flag("--dry-run", dry_run_, "print the statements that make the tables, and end")->needs(url);
  app.add_option(
         "--row-policies", all_rows_,
         "print the statements by which each user of the server reads only the rows of the user of the "
         "same name here (--users), and these users or roles all, and end")
      ->check(Identifiers())
      ->needs(url)
      ->excludes("--migrate", "--dry-run")
      ->option_text("NAME,...");
}

int ClickhouseOption::MigrateOnly() const {
  if (!all_rows_.empty()) {
    for (const std::string& statement : clickhouse::PolicySql(Layout(), all_rows_))
      std::printf("%s;\n", statement.c_str());
    return kDone;
  }
  const absl::StatusOr<clickhouse::Server> server = clickhouse::Server::Parse(url_);
  if (!server.ok()) return Fail(kOfHub, absl::StrCat(kOption, ": ", server.status().message()), kUsage);
  if (dry_run_) {
    for (const clickhouse::Migration& migration : clickhouse::Migrations(Layout())) {
      std::printf("-- migration %d\n", migration.number);
      for (const std::string& statement : migration.statements) std::printf("%s;\n\n", statement.c_str());
    }
    return kDone;
  }
  clickhouse::Client client(*server);
  const absl::StatusOr<std::string> version = client.Version();
  const absl::Status done =
      version.ok() ? clickhouse::Migrate(client, Layout(), recording::Version()) : version.status();
  if (!done.ok()) return Fail(kOfHub, absl::StrCat(kOption, " ", url_, ": ", done.message()), kFailed);
  SayError(absl::StrCat("ClickHouse ", *version, " at ", url_, " has all tables in ", database_));
  return kDone;
}

absl::StatusOr<std::unique_ptr<clickhouse::Writer>> ClickhouseOption::Open(
    const std::string& out, const std::string& host, clickhouse::Writer::Say say) const {
  absl::StatusOr<clickhouse::Server> server = clickhouse::Server::Parse(url_);
  if (!server.ok()) return absl::InvalidArgumentError(absl::StrCat(kOption, ": ", server.status().message()));
  absl::StatusOr<std::unique_ptr<clickhouse::Writer>> writer =
      clickhouse::Writer::Open({.server = *std::move(server),
                                .layout = Layout(),
                                .spool = absl::StrCat(out, "/clickhouse-spool"),
                                .most_spool_bytes = spool_bytes_,
                                .release = recording::Version(),
                                .cluster = cluster_.empty() ? host : cluster_},
                               std::move(say));
  if (!writer.ok()) return writer.status();
  if (absl::Status s = (*writer)->Prepare(); !s.ok())
    return absl::FailedPreconditionError(absl::StrCat(kOption, " ", url_, ": ", s.message()));
  return writer;
}

}  // namespace gpuprobe::cli
