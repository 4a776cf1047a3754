#include "collector/recording/whole_job_watch.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "collector/http/background.h"
#include "collector/recording/version.h"

namespace gpuprobe::recording {

WholeJobWatch::WholeJobWatch(const std::string& directory, const ChosenMarker& marker,
                             const HangOptions& options, const analysis::ReportInput& input,
                             const render::Layout& layout, const std::string& heading, JobFollower* follower)
    : job_(
          directory, marker, options,
          [this, heading](const std::string& text) {
            if (job_.hosts().size() > 1 || !heading.empty()) log::SayForPeople(heading + text);
          },
          layout),
      input_(input),
      follower_(follower) {}

void WholeJobWatch::Begin() {
  if (!begun()) thread_ = std::thread([this] { Run(); });
}

void WholeJobWatch::Hurry() {
  {
    const std::lock_guard lock(mutex_);
    hurries_ = true;
  }
  changed_.notify_all();
}

analysis::LiveStatus WholeJobWatch::StatusNow() const {
  const std::lock_guard lock(mutex_);
  return *seen_.status;
}

std::vector<std::string> WholeJobWatch::HostsThatRecord() const {
  const std::lock_guard lock(mutex_);
  return seen_.recording;
}

std::vector<v1::HangVerdict> WholeJobWatch::TakeVerdicts() {
  const std::lock_guard lock(mutex_);
  return std::exchange(verdicts_, {});
}

std::optional<DetailWatch::Decision> WholeJobWatch::LookForDetail(const std::function<bool()>& may_raise) {
  if (!is_traced_) return std::nullopt;
  may_raise_ = may_raise();
  const std::lock_guard lock(mutex_);
  return std::exchange(decision_, std::nullopt);
}

void WholeJobWatch::NoteRaise(const v1::DetailRaise& raise) {
  const std::lock_guard lock(mutex_);
  raises_.push_back(raise);
}

analysis::JobNumbers WholeJobWatch::NumbersNow() const {
  std::shared_ptr<const analysis::JobNumbers> seen = SeenNow().numbers;
  analysis::JobNumbers numbers = *seen;
  if (numbers.ranks.size() > analysis::JobNumbers::kMostRanks)
    numbers.ranks.resize(analysis::JobNumbers::kMostRanks);
  return numbers;
}

WholeJobWatch::Seen WholeJobWatch::SeenNow() const {
  const std::lock_guard lock(mutex_);
  return seen_;
}

std::optional<http::DocumentBuilder::Order> WholeJobWatch::OrderDocuments(
    const std::vector<std::string>& command_line) {
  std::optional<http::DocumentBuilder::Order> order;
  {
    const std::lock_guard lock(mutex_);
    order = std::exchange(order_, std::nullopt);
    wants_order_ = !order.has_value();
  }
  if (!order.has_value()) {
    changed_.notify_all();
    return std::nullopt;
  }
  order->input.command_line = command_line;
  return order;
}

std::vector<v1::DetailRaise> WholeJobWatch::TakeRaises() {
  const std::lock_guard lock(mutex_);
  return std::exchange(raises_, {});
}

// What cannot be read now may be readable at the next look, and is in the report at the end.
void WholeJobWatch::Look() {
  Seen seen;
  const auto follow = [this](const model::ProcessModel& process) {
    if (follower_ != nullptr) follower_->OnBatch(job_, process);
  };
  job_.Look(follow, /*is_last=*/ended_).IgnoreError();
  if (job_.is_held_back()) seen.read_until = seen_.read_until;
  std::optional<DetailWatch::Decision> decision = job_.LookForDetail(may_raise_);
  is_traced_ = !job_.model().trace().processes().empty();
  for (const v1::DetailRaise& raise : TakeRaises()) job_.NoteRaise(raise);
  seen.recording = job_.HostsThatRecord();
  seen.silent = job_.silent_hosts();
  several_.store(job_.hosts().size() > 1);
  changes_.store(job_.changes());
  seen.numbers =
      std::make_shared<analysis::JobNumbers>(analysis::NumbersOf(job_.model(), NowNs(), kMostRanks));
  seen.status = std::make_shared<analysis::LiveStatus>(job_.status());
  if (follower_ != nullptr) follower_->OnLook(job_);
  std::optional<http::DocumentBuilder::Order> order;
  if (wants_order_.exchange(false)) order = job_.OrderDocuments(input_);
  const std::lock_guard lock(mutex_);
  if (order.has_value()) order_ = std::move(order);
  seen_ = std::move(seen);
  if (decision.has_value()) decision_ = std::move(decision);
  for (v1::HangVerdict& verdict : job_.TakeVerdicts()) verdicts_.push_back(std::move(verdict));
}

void WholeJobWatch::Run() {
  http::RunInBackground();
  std::unique_lock lock(mutex_);
  while (!stop_) {
    lock.unlock();
    Look();
    lock.lock();
    const auto next = std::chrono::milliseconds(hurries_ ? 100 : 1000);
    const bool hurried = hurries_;
    changed_.wait_for(lock, next, [&] { return stop_ || hurries_ != hurried || wants_order_; });
  }
}

WholeJob& WholeJobWatch::End() {
  if (!thread_.joinable()) return job_;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
  ended_ = true;
  Look();
  return job_;
}

}  // namespace gpuprobe::recording
