#include "collector/clickhouse/spool.h"

#include <fcntl.h>
#include <sys/random.h>
#include <unistd.h>
#include <zstd.h>

#include <algorithm>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "collector/clickhouse/rows.h"

namespace gpuprobe::clickhouse {
namespace {

constexpr char kRoundSuffix[] = ".round";
constexpr char kStateMark = '.';  // between a run and a part, which has none
constexpr int kLevel = 1;
constexpr uint64_t kMostFileBytes = uint64_t{256} << 20;

std::string RandomName() {
  unsigned char bytes[6] = {};
  if (getrandom(bytes, sizeof(bytes), 0) < 0) return "0";
  return absl::BytesToHexString(absl::string_view(reinterpret_cast<const char*>(bytes), sizeof(bytes)));
}

absl::StatusOr<std::string> ReadFile(int directory, const std::string& name) {
  const int fd = openat(directory, name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return absl::ErrnoToStatus(errno, name);
  const absl::Cleanup close_it = [fd] { close(fd); };
  std::string content;
  std::vector<char> piece(size_t{1} << 16);
  while (content.size() < kMostFileBytes) {
    const ssize_t got = read(fd, piece.data(), piece.size());
    if (got < 0) return absl::ErrnoToStatus(errno, name);
    if (got == 0) break;
    content.append(piece.data(), static_cast<size_t>(got));
  }
  return content;
}

uint64_t RowsOf(const v1::RowRound& round) {
  uint64_t rows = 0;
  for (const v1::RowSection& section : round.sections()) rows += section.rows();
  return rows;
}

absl::StatusOr<std::string> Compressed(const std::string& bytes) {
  std::string packed(ZSTD_compressBound(bytes.size()), '\0');
  const size_t size = ZSTD_compress(packed.data(), packed.size(), bytes.data(), bytes.size(), kLevel);
  if (ZSTD_isError(size) != 0) return absl::InternalError(ZSTD_getErrorName(size));
  packed.resize(size);
  return packed;
}

}  // namespace

Spool::Spool(store::Directory directory, uint64_t most_bytes)
    : directory_(std::move(directory)), most_bytes_(most_bytes), instance_(RandomName()) {}

absl::StatusOr<Spool> Spool::Open(const std::string& directory, uint64_t most_bytes) {
  absl::StatusOr<store::Directory> made = store::Directory::Make(directory);
  if (!made.ok()) return made.status();
  if (!made->Lock().ok())
    return absl::FailedPreconditionError(
        absl::StrCat("another hub sends its rows from ", directory, ": choose another directory with --out"));
  Spool spool(*std::move(made), most_bytes);
  absl::StatusOr<std::vector<std::string>> names = spool.directory_.List();
  if (!names.ok()) return names.status();
  std::sort(names->begin(), names->end());
  std::vector<v1::RowRound> rounds;
  for (const std::string& name : *names) {
    if (absl::EndsWith(name, kRoundSuffix)) {
      uint64_t number = 0;
      if (!absl::SimpleAtoi(name.substr(0, name.find('-')), &number)) continue;
      Entry entry{.name = name, .bytes = spool.directory_.FileBytes(name)};
      spool.next_ = std::max(spool.next_, number + 1);
      if (absl::StatusOr<v1::RowRound> round = spool.Read(entry); round.ok()) {
        entry.rows = RowsOf(*round);
        rounds.push_back(*std::move(round));
      }
      spool.bytes_ += entry.bytes;
      spool.rows_ += entry.rows;
      spool.entries_.push_back(entry);
      continue;
    }
    const size_t mark = name.rfind(kStateMark);
    if (mark == std::string::npos || mark == 0) continue;
    if (const absl::StatusOr<std::string> state = ReadFile(spool.directory_.fd(), name); state.ok())
      spool.found_[{name.substr(0, mark), name.substr(mark + 1)}] = *state;
  }
  for (const v1::RowRound& round : rounds) {
    for (const v1::RowState& state : round.states())
      spool.found_[{state.run(), state.part()}] = state.state();
  }
  std::erase_if(spool.found_, [](const auto& each) { return each.second.empty(); });
  return spool;
}

absl::Status Spool::Add(const Batch& batch, const States& states, Lost lost) {
  v1::RowRound round;
  const auto put = [&round](const std::string& table, const Section& section) -> absl::Status {
    absl::StatusOr<std::string> packed = Compressed(section.row_binary);
    if (!packed.ok()) return packed.status();
    v1::RowSection& out = *round.add_sections();
    out.set_table(table);
    out.set_columns(section.columns);
    out.set_rows(section.rows);
    out.set_row_binary(*std::move(packed));
    return absl::OkStatus();
  };
  // Who reads that a job is over finds all of its rows.
  for (const bool jobs : {false, true}) {
    for (const auto& [table, section] : batch.sections()) {
      if ((table == JobRow::kTable) != jobs) continue;
      if (absl::Status s = put(table, section); !s.ok()) return s;
    }
  }
  for (const auto& [of, state] : states) {
    v1::RowState& out = *round.add_states();
    out.set_run(of.first);
    out.set_part(of.second);
    out.set_state(state);
  }
  const std::string content = round.SerializeAsString();
  while (!entries_.empty() && bytes_ + content.size() > most_bytes_) {
    if (const absl::StatusOr<v1::RowRound> oldest = Read(entries_.front()); oldest.ok()) {
      for (const v1::RowSection& section : oldest->sections()) lost(section.table(), section.rows());
    }
    RemoveOldest();
  }
  const Entry entry{.name = absl::StrFormat("%012d-%s%s", next_++, instance_, kRoundSuffix),
                    .bytes = content.size(),
                    .rows = RowsOf(round)};
  if (absl::Status s = directory_.WriteFile(entry.name, content); !s.ok()) return s;
  bytes_ += entry.bytes;
  rows_ += entry.rows;
  entries_.push_back(entry);
  return absl::OkStatus();
}

absl::StatusOr<v1::RowRound> Spool::Read(const Entry& entry) const {
  const absl::StatusOr<std::string> content = ReadFile(directory_.fd(), entry.name);
  if (!content.ok()) return content.status();
  v1::RowRound round;
  if (!round.ParseFromString(*content)) return absl::DataLossError(absl::StrCat(entry.name, " is damaged"));
  return round;
}

// Before the round goes: whoever begins in between finds both, and sends what the server knows already.
void Spool::KeepStates(const v1::RowRound& round) {
  for (const v1::RowState& state : round.states()) {
    const std::string name = absl::StrCat(state.run(), std::string(1, kStateMark), state.part());
    if (state.state().empty()) {
      directory_.Remove(name);
    } else {
      directory_.WriteFile(name, state.state()).IgnoreError();
    }
  }
}

void Spool::RemoveOldest() {
  const Entry entry = entries_.front();
  if (const absl::StatusOr<v1::RowRound> round = Read(entry); round.ok()) KeepStates(*round);
  bytes_ -= entry.bytes;
  rows_ -= entry.rows;
  entries_.pop_front();
  directory_.Remove(entry.name);
}

std::string Spool::SetAside(const Entry& entry, const v1::RowSection& section) const {
  std::string name = absl::StrCat(entry.name, "-", section.table(), "-refused");
  directory_.WriteFile(name, section.SerializeAsString()).IgnoreError();
  return name;
}

}  // namespace gpuprobe::clickhouse
