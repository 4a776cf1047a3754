#include "collector/recording/live_page.h"

#include <poll.h>

#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "collector/http/background.h"
#include "collector/page/page_data.h"
#include "collector/recording/version.h"

namespace gpuprobe::recording {
namespace {

constexpr uint64_t kMomentEveryNs = 1'000'000'000;
constexpr std::chrono::milliseconds kLastLook{5000};
// The ranks of a job often send at the same time. Documents that are made from the first of them would lack
// the newest steps, which need all ranks, until the next documents.
constexpr std::chrono::milliseconds kQuiet{15};
constexpr uint64_t kQuietNs = std::chrono::nanoseconds(kQuiet).count();
constexpr uint64_t kLongestNs = 100'000'000;
constexpr std::chrono::milliseconds kPatience{200};

}  // namespace

void LivePage::Start() {
  if (server_ == nullptr) return;
  live_.emplace();
  server_->Start(live_->board, &live_->builder);
}

void LivePage::PutMoment(const PageSource& source, const ingest::Server& ingest) {
  auto moment = std::make_shared<http::Moment>();
  moment->number = ++moments_;
  moment->status = source.StatusNow();
  moment->job = source.NumbersNow();
  moment->collector = {.version = Version(),
                       .clients = ingest.clients(),
                       .clients_dropped = ingest.dropped(),
                       .received_bytes = ingest.received_bytes(),
                       .unwritten_frames = source.unrecorded_frames()};
  moment->changes = source.changes();
  live_->board.Put(std::shared_ptr<const http::Moment>(std::move(moment)));
}

bool LivePage::HasSettled(const PageSource& source) {
  const uint64_t now_ns = MonotonicNs();
  if (seen_ != source.changes()) {
    seen_ = source.changes();
    changed_ns_ = now_ns;
  }
  if (!news_ns_.has_value()) news_ns_ = now_ns;
  return now_ns - changed_ns_ >= kQuietNs || now_ns - *news_ns_ >= kLongestNs;
}

std::chrono::milliseconds LivePage::Patience(const PageSource& source) const {
  return HasNews(source) && live_->board.WantsDocuments() ? kQuiet : kPatience;
}

void LivePage::Tick(PageSource& source, const ingest::Server& ingest) {
  if (!live_.has_value()) return;
  if (MonotonicNs() >= next_moment_ns_) {
    next_moment_ns_ = MonotonicNs() + kMomentEveryNs;
    PutMoment(source, ingest);
  }
  const bool asked = live_->board.LacksWantedStep();
  if (!(HasNews(source) || asked) || !live_->board.WantsDocuments()) return;
  if (!(HasSettled(source) || asked) || !live_->builder.IsDue()) return;
  const std::chrono::nanoseconds used = http::ThreadTime();
  std::optional<http::DocumentBuilder::Order> order = source.OrderDocuments(command_);
  if (!order.has_value()) return;
  order->saving = http::ThreadTime() - used;
  order->wanted_steps = live_->board.wanted_steps();
  ordered_ = source.changes();
  news_ns_.reset();
  live_->builder.Take(*std::move(order));
}

void LivePage::Conclude(const model::JobModel& job, const analysis::Report& report,
                        const store::RunFiles& files) {
  if (!live_.has_value()) return;
  http::Board& board = live_->board;
  if (board.viewers() > 0) {
    auto documents =
        std::make_shared<http::Documents>(http::DocumentsOf(job, report, files, board.wanted_steps()));
    documents->version = UINT64_MAX;  // nothing comes after it
    documents->changes = UINT64_MAX;
    board.Put(std::shared_ptr<const http::Documents>(std::move(documents)));
  }
  board.End();
  // Pages that follow the run fetch these documents and disconnect.
  const auto until = std::chrono::steady_clock::now() + kLastLook;
  while (board.viewers() > 0 && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  server_.reset();
  live_.reset();
}

std::string LiveWords(const LivePage& page) {
  return page.Url().empty() ? "" : absl::StrCat("   live: ", page.Url());
}

void ServeFinished(http::Server& server, const model::JobModel& job, const analysis::Report& report,
                   const store::RunFiles& files, int stop) {
  http::Board board;
  auto documents = std::make_shared<http::Documents>(http::DocumentsOf(job, report, files));
  documents->version = 1;
  board.Put(std::shared_ptr<const http::Documents>(std::move(documents)));
  auto moment = std::make_shared<http::Moment>();
  moment->number = 1;
  moment->status = analysis::LiveWatch().Look(job, 0);
  moment->job = analysis::NumbersOf(job, 0);
  moment->collector.version = Version();
  board.Put(std::shared_ptr<const http::Moment>(std::move(moment)));
  board.End();
  server.Start(board, nullptr);
  pollfd wait{.fd = stop, .events = POLLIN, .revents = 0};
  constexpr int kLookForWishesMs = 100;
  for (uint64_t version = 2;;) {
    const int seen = poll(&wait, 1, kLookForWishesMs);
    if (seen > 0 || (seen < 0 && errno != EINTR)) break;
    if (!board.LacksWantedStep()) continue;
    auto with_step = std::make_shared<http::Documents>(*board.documents());
    with_step->wanted_steps = board.wanted_steps();
    with_step->page_data = page::PageData(job, report, files, with_step->wanted_steps);
    with_step->version = version++;
    board.Put(std::shared_ptr<const http::Documents>(std::move(with_step)));
  }
  server.Stop();
}

}  // namespace gpuprobe::recording
