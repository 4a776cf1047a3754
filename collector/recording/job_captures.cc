#include "collector/recording/job_captures.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

#include "collector/framing/frame_decoder.h"
#include "collector/recording/version.h"

namespace gpuprobe::recording {
namespace {

using Process = CaptureDirector::Process;

// A collector that was started again speaks for the ranks of the one before, which is silent since.
constexpr uint64_t kReplacedNs = 3'000'000'000;

void EraseReplaced(CaptureDirector::Processes& processes) {
  std::map<int, std::pair<uint64_t, uint64_t>>
      latest;  // by rank: for how long it is silent, and its collector
  for (const Process& process : processes) {
    if (!process.facts.connected() || process.facts.rank() < 0) continue;
    const std::pair its(process.silent_ns, process.instance);
    const auto [known, added] = latest.emplace(process.facts.rank(), its);
    if (!added) known->second = std::min(known->second, its);
  }
  std::erase_if(processes, [&](const Process& old) {
    if (old.instance == 0 || old.silent_ns <= kReplacedNs) return false;
    const auto other = latest.find(old.facts.rank());
    return other != latest.end() && other->second.first < old.silent_ns &&
           other->second.second != old.instance;
  });
}

std::string Absolute(const std::string& path) {
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  return error || path.empty() ? "" : absolute.lexically_normal().string();
}

}  // namespace

// Hands the words of a capture to the one who asked for it; the capture goes on without.
class JobCaptures::Answerer : public ingest::Answerer {
 public:
  Answerer(std::shared_ptr<CaptureDirector> director, std::string directory)
      : director_(std::move(director)), directory_(std::move(directory)) {}
  void AppendAnswers(std::string& reply) override {
    if (!directory_.empty()) {
      v1::Frame frame;
      frame.mutable_control()->mutable_welcome()->set_run_directory(std::exchange(directory_, ""));
      framing::AppendDelimited(frame.SerializeAsString(), reply);
    }
    for (; !director_->progress().empty(); director_->progress().pop_front()) {
      v1::Frame frame;
      *frame.mutable_capture_progress() = director_->progress().front();
      framing::AppendDelimited(frame.SerializeAsString(), reply);
    }
  }

 private:
  std::shared_ptr<CaptureDirector> director_;
  std::string directory_;  // until it was said
};

void JobCaptures::SetBoard(hub::CaptureBoard* board, const std::string& directory) {
  board_ = board;
  directory_ = directory;
}

CaptureDirector::Processes JobCaptures::All(const Own& own) const {
  CaptureDirector::Processes all;
  for (const v1::CapturedProcess& process : own) all.push_back({.host = "", .facts = process});
  if (board_ == nullptr) return all;
  const auto now = hub::CaptureBoard::Clock::now();
  for (const hub::CaptureBoard::Host& host : board_->Hosts()) {
    const auto silent = std::chrono::duration_cast<std::chrono::nanoseconds>(now - host.posted_at).count();
    for (const v1::CapturedProcess& process : host.processes) {
      all.push_back({.instance = host.instance,
                     .host = host.name,
                     .facts = process,
                     .clock_ahead_ns = host.clock_ahead_ns,
                     .silent_ns = static_cast<uint64_t>(std::max<int64_t>(silent, 0))});
    }
  }
  EraseReplaced(all);
  return all;
}

void JobCaptures::Send(const Process& process, const v1::Capture& order) const {
  if (process.instance == 0) return send_here_(process.facts.number(), order);
  if (board_ != nullptr) board_->Order(process.instance, process.facts.number(), order);
}

absl::StatusOr<std::shared_ptr<CaptureDirector>> JobCaptures::Begin(const v1::CaptureRequest& request,
                                                                    const CaptureDirector::Processes& all) {
  if (under_way())
    return absl::FailedPreconditionError(
        "another capture of this run is under way; try again when it is over");
  if (!elsewhere_.empty()) return absl::FailedPreconditionError(elsewhere_);
  if (absl::Status s = CaptureDirector::Check(request, all); !s.ok()) return s;
  // Processes may still have an order of a collector before this one.
  director_ = std::make_shared<CaptureDirector>(
      request, all, NowNs(),
      [this](const Process& process, const v1::Capture& order) { Send(process, order); });
  if (board_ != nullptr) board_->SetCapturing(true);
  return director_;
}

void JobCaptures::Raise(DetailWatch::Decision decision, const Own& own) {
  raise_ = std::move(decision.raise);
  absl::StatusOr<std::shared_ptr<CaptureDirector>> begun = Begin(decision.request, All(own));
  raise_->set_failed(!begun.ok());
  if (begun.ok()) {
    raised_ = *std::move(begun);
  } else {
    raise_->set_outcome(std::string(begun.status().message()));
  }
}

std::optional<v1::DetailRaise> JobCaptures::TakeRaise(bool job_is_over) {
  if (raised_ != nullptr && !raised_->over()) {
    if (!job_is_over) return std::nullopt;
    raise_->set_outcome("the job ended before that was recorded");
    raise_->set_failed(true);
  } else if (raised_ != nullptr && !raised_->progress().empty()) {
    raise_->set_outcome(raised_->progress().back().words());
    raise_->set_failed(raised_->progress().back().failed());
  }
  raised_.reset();
  if (raise_.has_value() && board_ != nullptr) board_->Note(*raise_, hub::CaptureBoard::Clock::now());
  return std::exchange(raise_, std::nullopt);
}

bool JobCaptures::AllHere(const Own& own) const {
  const CaptureDirector::Processes all = All(own);
  return std::all_of(all.begin(), all.end(),
                     [](const Process& process) { return process.facts.connected() && !process.is_away(); });
}

absl::StatusOr<std::unique_ptr<ingest::Answerer>> JobCaptures::Open(const v1::CaptureRequest& request,
                                                                    const Own& own) {
  const CaptureDirector::Processes all = All(own);
  if (absl::StatusOr<std::shared_ptr<CaptureDirector>> begun = Begin(request, all); !begun.ok())
    return begun.status();
  const bool has_others =
      std::any_of(all.begin(), all.end(), [](const Process& process) { return process.instance != 0; });
  return std::make_unique<Answerer>(director_, has_others ? Absolute(directory_) : "");
}

void JobCaptures::Tick(const Own& own) {
  if (!under_way()) return;
  director_->Update(All(own));
  director_->Tick(MonotonicNs(), NowNs());
  if (director_->over() && board_ != nullptr) board_->SetCapturing(false);
}

}  // namespace gpuprobe::recording
