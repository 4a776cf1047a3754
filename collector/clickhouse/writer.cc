#include "collector/clickhouse/writer.h"

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "collector/analysis/units.h"
#include "collector/http/background.h"

namespace gpuprobe::clickhouse {
absl::Status Migrate(Client& client, const Layout& layout, const std::string& release) {
  int applied = 0;
  const absl::StatusOr<std::string> known = client.Ask(AppliedSql(layout));
  if (!known.ok() && !absl::IsNotFound(known.status())) return known.status();
  if (known.ok()) (void)absl::SimpleAtoi(absl::StripAsciiWhitespace(*known), &applied);
  for (const Migration& migration : Migrations(layout)) {
    if (migration.number <= applied) continue;
    for (const std::string& statement : migration.statements) {
      if (absl::StatusOr<std::string> done = client.Ask(statement); !done.ok()) return done.status();
    }
    const std::string note = NoteAppliedSql(layout, migration.number, release);
    if (absl::StatusOr<std::string> done = client.Ask(note); !done.ok()) return done.status();
  }
  return absl::OkStatus();
}

Writer::Writer(Options options, Say say, Spool spool)
    : options_(std::move(options)),
      say_(std::move(say)),
      found_(spool.found()),
      spool_(std::move(spool)),
      client_(options_.server) {}

Writer::~Writer() { End(std::chrono::milliseconds(0)); }

absl::StatusOr<std::unique_ptr<Writer>> Writer::Open(Options options, Say say) {
  absl::StatusOr<Spool> spool = Spool::Open(options.spool, options.most_spool_bytes);
  if (!spool.ok()) return spool.status();
  return std::unique_ptr<Writer>(new Writer(std::move(options), std::move(say), *std::move(spool)));
}

absl::Status Writer::Prepare() {
  absl::StatusOr<std::string> version = client_.Version();
  absl::Status done = version.ok() ? Migrate(client_, options_.layout, options_.release) : version.status();
  prepared_ = done.ok();
  if (!absl::IsUnavailable(done)) return done;
  trouble_ = std::string(done.message());
  say_(absl::StrCat("gpuprobe: ClickHouse: ", trouble_, "; rows wait in ", spool_.path(), "\n"));
  return absl::OkStatus();
}

void Writer::Start() {
  thread_ = std::thread([this] { Run(); });
}

void Writer::End(std::chrono::milliseconds patience) {
  if (!thread_.joinable()) return;
  {
    std::unique_lock lock(mutex_);
    stop_ = true;
    changed_.notify_all();
    changed_.wait_for(lock, patience, [&] { return ended_; });
    gives_up_ = true;
  }
  client_.Stop();
  thread_.join();
}

Writer::State Writer::state() const {
  const std::lock_guard lock(mutex_);
  State state = state_;
  state.rows_waiting += gathered_.rows();
  state.most_spool_bytes = options_.most_spool_bytes;
  return state;
}

void Writer::Add(const Batch& batch, const States& states) {
  const std::lock_guard lock(mutex_);
  if (gathered_.bytes() + batch.bytes() > kMostWaiting) {
    for (const auto& [table, section] : batch.sections()) lost_[{table, kNoMemory}] += section.rows;
  } else {
    gathered_.Append(batch);
  }
  for (const auto& [of, state] : states) states_[of] = state;
  if (gathered_.bytes() >= kMostBytes) changed_.notify_all();
}

void Writer::Lose(const std::string& table, const std::string& why, uint64_t rows) {
  const std::lock_guard lock(mutex_);
  lost_[{table, why}] += rows;
}

void Writer::Seal() {
  Batch batch;
  States states;
  std::map<Loss, uint64_t> lost;
  {
    const std::lock_guard lock(mutex_);
    std::swap(batch, gathered_);
    states.swap(states_);
    lost.swap(lost_);
    for (const auto& [loss, rows] : lost) state_.rows_lost += rows;
  }
  for (const auto& [loss, rows] : lost) {
    LossRow row;
    row.of.cluster.text = options_.cluster;
    row.time.ns = static_cast<uint64_t>(absl::GetCurrentTimeNanos());
    row.what.text = loss.first;
    row.why.text = loss.second;
    row.count = rows;
    batch.Add(row);
  }
  if (batch.empty() && states.empty()) return;
  const absl::Status kept = spool_.Add(
      batch, states, [&](const std::string& table, uint64_t rows) { Lose(table, "spool_full", rows); });
  if (kept.ok()) return;
  for (const auto& [table, section] : batch.sections()) Lose(table, "disk", section.rows);
  // Rows that come later go on from newer ones, where there are.
  const std::lock_guard lock(mutex_);
  states_.merge(states);
}

absl::Status Writer::SendRound(const Spool::Entry& entry) {
  const absl::StatusOr<v1::RowRound> round = spool_.Read(entry);
  if (!round.ok()) {
    Lose("rounds", "damaged", 1);
    return absl::OkStatus();
  }
  if (round_ != entry.name) sent_.clear();
  round_ = entry.name;
  for (const v1::RowSection& section : round->sections()) {
    if (sent_.contains(section.table())) continue;
    const std::string insert = absl::StrCat("INSERT INTO ", options_.layout.database, ".", section.table(),
                                            " (", section.columns(), ") FORMAT RowBinary");
    absl::Status done =
        client_.Insert(insert, absl::StrCat(entry.name, "-", section.table()), section.row_binary());
    if (absl::IsInvalidArgument(done)) {
      // It never will be taken, and must not keep the others.
      Lose(section.table(), "refused", section.rows());
      say_(absl::StrCat("gpuprobe: ClickHouse refused ", section.rows(), " rows of ", section.table(),
                        ", which are kept as ", spool_.path(), "/", spool_.SetAside(entry, section), ": ",
                        done.message(), "\n"));
    } else if (!done.ok()) {
      if (absl::IsNotFound(done)) prepared_ = false;  // somebody dropped a table
      return done;
    }
    sent_.insert(section.table());
    const std::lock_guard lock(mutex_);
    if (done.ok()) state_.rows_written += section.rows();
    if (gives_up_) return absl::UnavailableError("the hub ends");
  }
  return absl::OkStatus();
}

absl::Status Writer::Send() {
  if (spool_.entries().empty()) return absl::OkStatus();
  if (!prepared_) {
    const absl::StatusOr<std::string> version = client_.Version();
    absl::Status done = version.ok() ? Migrate(client_, options_.layout, options_.release) : version.status();
    if (!done.ok()) return done;
    prepared_ = true;
  }
  while (!spool_.entries().empty()) {
    if (absl::Status s = SendRound(spool_.entries().front()); !s.ok()) return s;
    spool_.RemoveOldest();
  }
  return absl::OkStatus();
}

void Writer::NoteSpool() {
  const std::lock_guard lock(mutex_);
  state_.spool_bytes = spool_.bytes();
  state_.rows_waiting = spool_.rows();
}

void Writer::Run() {
  http::RunInBackground();
  auto again_at = std::chrono::steady_clock::now();
  for (bool stop = false; !stop;) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, kEvery, [&] { return stop_ || gathered_.bytes() >= kMostBytes; });
      stop = stop_;
    }
    Seal();
    NoteSpool();
    if (!stop && std::chrono::steady_clock::now() < again_at) continue;
    const absl::Status sent = Send();
    {
      const std::lock_guard lock(mutex_);
      state_.answers = sent.ok();
    }
    NoteSpool();
    if (sent.ok()) {
      if (!trouble_.empty()) say_("gpuprobe: ClickHouse has all rows again\n");
      trouble_.clear();
      pause_ = kFirstPause;
      continue;
    }
    if (trouble_ != sent.message()) {
      trouble_ = std::string(sent.message());
      say_(absl::StrCat("gpuprobe: ClickHouse: ", trouble_, "; rows wait in ", spool_.path(), " (",
                        analysis::Bytes(spool_.bytes()), " of ", analysis::Bytes(options_.most_spool_bytes),
                        ")\n"));
    }
    again_at = std::chrono::steady_clock::now() + pause_;
    pause_ = std::min(2 * pause_, kLongestPause);
  }
  const std::lock_guard lock(mutex_);
  ended_ = true;
  changed_.notify_all();
}

}  // namespace gpuprobe::clickhouse
