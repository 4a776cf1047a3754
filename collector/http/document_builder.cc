#include "collector/http/document_builder.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "collector/http/background.h"
#include "collector/log/log.h"
#include "collector/page/page_data.h"
#include "collector/render/json_report.h"
#include "collector/render/summary_json.h"
#include "collector/render/text_report.h"
#include "collector/store/detail.h"

namespace gpuprobe::http {

Documents DocumentsOf(const model::JobModel& job, const analysis::Report& report,
                      const store::RunFiles& files, const std::vector<uint64_t>& wanted_steps) {
  Documents documents;
  render::JsonFiles json = render::JsonReportFiles(report);
  documents.report = std::move(json.report);
  documents.ranks = std::move(json.ranks);
  documents.summary = render::SummaryJson(report);
  documents.text = render::TextReport(report, "", render::Layout());
  documents.page_data = page::PageData(job, report, files, wanted_steps);
  documents.wanted_steps = wanted_steps;
  documents.files = FilesToServe(files);
  return documents;
}

DocumentBuilder::DocumentBuilder(Board& board) : board_(board), thread_([this] { Run(); }) {}

DocumentBuilder::~DocumentBuilder() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  ordered_.notify_all();
  thread_.join();
}

bool DocumentBuilder::IsDue() const {
  const std::lock_guard lock(mutex_);
  return !busy_ && !order_.has_value() && Clock::now() >= next_;
}

void DocumentBuilder::Take(Order order) {
  {
    const std::lock_guard lock(mutex_);
    order_ = std::move(order);
  }
  ordered_.notify_one();
}

void DocumentBuilder::Run() {
  RunInBackground();
  std::unique_lock lock(mutex_);
  while (!stop_) {
    ordered_.wait(lock, [this] { return stop_ || order_.has_value(); });
    if (stop_) return;
    const Order order = *std::exchange(order_, std::nullopt);
    busy_ = true;
    lock.unlock();
    const Clock::time_point began = Clock::now();
    const std::chrono::nanoseconds used = ThreadTime();
    Make(order);
    const std::chrono::nanoseconds making = ThreadTime() - used;
    ++made_;
    made_ns_ += static_cast<uint64_t>(making.count());
    lock.lock();
    busy_ = false;
    next_ = began + std::max<Clock::duration>(
                        {kLeastInterval, kMakingInterval * making, kSavingInterval * order.saving});
  }
}

void DocumentBuilder::Make(const Order& order) {
  model::JobModel job;
  job.SetStepMarker(order.marker);
  if (absl::Status s = job.LoadState(order.state); !s.ok())
    return log::Warn(absl::StrCat("the page is not updated: ", s.message()));
  store::LoadDetail(order.files, job);
  job.Finish(/*goes_on=*/true);
  auto documents = std::make_shared<Documents>(
      DocumentsOf(job, analysis::BuildReport(job, order.input), order.files, order.wanted_steps));
  documents->version = ++version_;
  documents->changes = order.changes;
  board_.Put(std::shared_ptr<const Documents>(std::move(documents)));
}

}  // namespace gpuprobe::http
