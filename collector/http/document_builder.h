// Makes documents of a run that is being recorded, on a thread of its own with low priority.
//
// The collector's thread gives it the model's saved state, as for a rotation of logs: writing that takes a
// fraction of what a report takes, and a report needs a model that it can settle. That happens at most four
// times a second, and less often the more it costs, so that a thousand ranks do not take a core.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "collector/analysis/build_report.h"
#include "collector/http/board.h"
#include "collector/model/job/job_model.h"
#include "collector/store/run_files.h"

namespace gpuprobe::http {

// The run's documents. `job` is settled, for good or as of now. `wanted_steps`: that have a timeline besides.
Documents DocumentsOf(const model::JobModel& job, const analysis::Report& report,
                      const store::RunFiles& files, const std::vector<uint64_t>& wanted_steps = {});

class DocumentBuilder {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kLeastInterval{250};
  // The interval is at least this many times the processor time of the last documents: at most a third of a
  // core while there are viewers.
  static constexpr int kMakingInterval = 3;
  // And at least this many times the time that saving the state took on the collector's thread: at most a
  // twentieth of that thread.
  static constexpr int kSavingInterval = 20;

  struct Order {
    std::string state;                  // of JobModel::SaveState
    std::chrono::nanoseconds saving{};  // processor time
    model::StepMarker marker;
    analysis::ReportInput input;
    store::RunFiles files;
    uint64_t changes = 0;
    std::vector<uint64_t> wanted_steps = {};  // Board::wanted_steps
  };

  // `board` outlives it.
  explicit DocumentBuilder(Board& board);
  ~DocumentBuilder();
  DocumentBuilder(const DocumentBuilder&) = delete;
  DocumentBuilder& operator=(const DocumentBuilder&) = delete;

  // Whether an order would be taken now.
  bool IsDue() const;
  // REQUIRES: IsDue().
  void Take(Order order);
  // Numbers for metrics.
  uint64_t made() const { return made_; }
  uint64_t made_ns() const { return made_ns_; }

 private:
  void Run();
  void Make(const Order& order);

  Board& board_;
  mutable std::mutex mutex_;
  std::condition_variable ordered_;
  std::optional<Order> order_;
  bool busy_ = false;
  bool stop_ = false;
  Clock::time_point next_;
  uint64_t version_ = 0;
  std::atomic<uint64_t> made_ = 0;
  std::atomic<uint64_t> made_ns_ = 0;
  std::thread thread_;
};

}  // namespace gpuprobe::http
