// Writes rows to a ClickHouse server, from a thread of its own.
//
// Rows are gathered for a second, or until there are many, and then wait as a round in the spool until the
// server has them: one that is slow, full, killed or away loses nothing but what the spool's bound drops, and
// that is a row in `losses`. Add never waits for the disk or the server.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collector/clickhouse/batch.h"
#include "collector/clickhouse/client.h"
#include "collector/clickhouse/rows.h"
#include "collector/clickhouse/schema.h"
#include "collector/clickhouse/spool.h"

namespace gpuprobe::clickhouse {

// Applies the migrations that the database lacks.
absl::Status Migrate(Client& client, const Layout& layout, const std::string& release);

class Writer {
 public:
  static constexpr size_t kMostBytes = size_t{16} << 20;  // of a round
  static constexpr std::chrono::milliseconds kEvery{1000};
  static constexpr std::chrono::milliseconds kFirstPause{1000};
  static constexpr std::chrono::milliseconds kLongestPause{30'000};
  // Rows that wait in memory, while the thread writes others; beyond, they are lost.
  static constexpr size_t kMostWaiting = 4 * kMostBytes;

  struct Options {
    Server server;
    Layout layout;
    std::string spool;  // directory
    uint64_t most_spool_bytes = uint64_t{1} << 30;
    std::string release;  // ours
    std::string cluster;
  };
  // For people, a line with its end.
  using Say = std::function<void(const std::string& text)>;

  static absl::StatusOr<std::unique_ptr<Writer>> Open(Options options, Say say);
  ~Writer();
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  // Asks the server for its release and makes its tables. A server that does not answer is no error: its rows
  // wait. Before Start.
  absl::Status Prepare();
  void Start();
  // Sends what there is, for so long at most; the rest stays in the spool.
  void End(std::chrono::milliseconds patience);

  // Rows of one job, and from where they go on after these. Never waits.
  void Add(const Batch& batch, const States& states);
  const std::string& cluster() const { return options_.cluster; }
  // From where rows of earlier jobs go on, as they were when this was opened.
  const States& found() const { return found_; }

  struct State {
    uint64_t rows_written = 0;
    uint64_t rows_lost = 0;
    uint64_t rows_waiting = 0;
    uint64_t spool_bytes = 0;
    uint64_t most_spool_bytes = 0;
    bool answers = true;
  };
  State state() const;

 private:
  static constexpr char kNoMemory[] = "too_many_at_once";
  using Loss = std::pair<std::string, std::string>;  // table, why

  Writer(Options options, Say say, Spool spool);
  // Sends one round's sections.
  absl::Status SendRound(const Spool::Entry& entry);
  void Run();
  void NoteSpool();
  // Moves what was gathered into the spool.
  void Seal();
  // Sends the spool's rounds. An error: the server has to be tried again later.
  absl::Status Send();
  void Lose(const std::string& table, const std::string& why, uint64_t rows);

  const Options options_;
  const Say say_;
  const States found_;
  Spool spool_;                 // of the thread, as the five that follow
  std::string round_;           // that was sent in part
  std::set<std::string> sent_;  // its tables
  Client client_;
  bool prepared_ = false;
  std::string trouble_;  // that was said; empty: all is well
  std::chrono::milliseconds pause_ = kFirstPause;

  std::thread thread_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Batch gathered_;  // under the mutex, as all that follows
  States states_;
  std::map<Loss, uint64_t> lost_;  // rows that are in no row of `losses` yet
  State state_;
  bool stop_ = false;
  bool gives_up_ = false;
  bool ended_ = false;
};

}  // namespace gpuprobe::clickhouse
