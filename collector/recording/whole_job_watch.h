// Follows the job of several hosts in a thread of its own, on the host that shows it: a slow file system must
// not keep the recorder from its clients.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "collector/analysis/job_numbers.h"
#include "collector/analysis/live_status.h"
#include "collector/log/log.h"
#include "collector/recording/page_source.h"
#include "collector/recording/whole_job.h"

namespace gpuprobe::recording {

// Reads what the watch has read, on the watch's thread.
class JobFollower {
 public:
  virtual ~JobFollower() = default;
  virtual void OnBatch(const WholeJob& job, const model::ProcessModel& process) = 0;
  virtual void OnLook(const WholeJob& job) = 0;
};

class WholeJobWatch : public PageSource {
 public:
  // What is said goes to standard error, once another host than this one records. `input`: of the reports on
  // its page. `heading`: a line before each thing that is said, then also of one host. `follower`: outlives
  // the thread; nullptr: none.
  WholeJobWatch(const std::string& directory, const ChosenMarker& marker, const HangOptions& options,
                const analysis::ReportInput& input, const render::Layout& layout,
                const std::string& heading = "", JobFollower* follower = nullptr);
  ~WholeJobWatch() override { End(); }

  // Starts the thread, so that nothing may be forked afterwards. A second call does nothing.
  void Begin();
  bool begun() const { return thread_.joinable() || ended_; }
  // Looks ten times a second from now on.
  void Hurry();
  // Several hosts record, or have recorded.
  bool has_several() const { return several_.load(); }
  std::vector<std::string> HostsThatRecord() const;

  // What was said about hangs since the last call.
  std::vector<v1::HangVerdict> TakeVerdicts();

  // At level calls, ranks that are late are to record in full. Call about once a second: whether all are
  // there and none is captured, and then, what is to be captured.
  std::optional<DetailWatch::Decision> LookForDetail(const std::function<bool()>& may_raise);
  // What came of it, where no log says it.
  void NoteRaise(const v1::DetailRaise& raise);

  analysis::LiveStatus StatusNow() const override;
  analysis::JobNumbers NumbersNow() const override;
  // As of the last look; at first nothing.
  struct Seen {
    std::shared_ptr<const analysis::JobNumbers> numbers = std::make_shared<analysis::JobNumbers>();
    std::shared_ptr<const analysis::LiveStatus> status = std::make_shared<analysis::LiveStatus>();
    std::vector<std::string> recording;  // hosts
    std::set<std::string> silent;        // hosts
    // What was written until then has been read.
    std::chrono::steady_clock::time_point read_until = std::chrono::steady_clock::now();
  };
  static constexpr size_t kMostRanks = 16384;  // in SeenNow().numbers
  Seen SeenNow() const;
  uint64_t changes() const override { return changes_.load(); }
  std::optional<http::DocumentBuilder::Order> OrderDocuments(
      const std::vector<std::string>& command_line) override;

  // Ends the thread, and takes a last look. The job is the caller's then.
  WholeJob& End();

 private:
  void Run();
  void Look();
  std::vector<v1::DetailRaise> TakeRaises();

  WholeJob job_;
  const analysis::ReportInput input_;
  JobFollower* const follower_;
  std::atomic<bool> several_{false};
  std::atomic<uint64_t> changes_{0};
  std::atomic<bool> wants_order_{false};
  std::atomic<bool> is_traced_{false};  // a rank is at level calls
  std::atomic<bool> may_raise_{false};
  std::thread thread_;
  bool ended_ = false;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;  // under the mutex, as all that follows
  bool hurries_ = false;
  Seen seen_;
  std::vector<v1::HangVerdict> verdicts_;
  std::optional<DetailWatch::Decision> decision_;
  std::vector<v1::DetailRaise> raises_;  // to note
  std::optional<http::DocumentBuilder::Order> order_;
};

}  // namespace gpuprobe::recording
