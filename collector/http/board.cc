#include "collector/http/board.h"

#include <algorithm>
#include <utility>

namespace gpuprobe::http {

void Board::Put(std::shared_ptr<const Moment> moment) {
  {
    const std::lock_guard lock(mutex_);
    moment_.swap(moment);
    moment_at_ = Clock::now();
  }
  changed_.notify_all();
}

void Board::Put(std::shared_ptr<const Documents> documents) {
  {
    const std::lock_guard lock(mutex_);
    if (documents_ != nullptr && documents->version < documents_->version) return;
    documents_.swap(documents);
  }
  changed_.notify_all();
}

void Board::End() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
}

bool Board::WantsDocuments() const {
  const std::lock_guard lock(mutex_);
  return viewers_ > 0 || (asked_ && Clock::now() - asked_at_ < kInterest);
}

std::shared_ptr<const Moment> Board::moment() const {
  const std::lock_guard lock(mutex_);
  return moment_;
}

std::shared_ptr<const Documents> Board::documents() const {
  const std::lock_guard lock(mutex_);
  return documents_;
}

bool Board::IsFresh() const {
  if (documents_ == nullptr) return false;
  return ended_ || moment_ == nullptr || documents_->changes >= moment_->changes;
}

std::shared_ptr<const Documents> Board::FreshDocuments(std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  const Clock::time_point now = Clock::now();
  const bool looked_at = viewers_ > 0 || (asked_ && now - asked_at_ < kInterest);
  asked_ = true;
  asked_at_ = now;
  if (documents_ != nullptr && looked_at) return documents_;
  const uint64_t before = documents_ == nullptr ? 0 : documents_->version;
  changed_.wait_until(lock, now + patience, [&] {
    return closed_ || ended_ || IsFresh() || (documents_ != nullptr && documents_->version > before);
  });
  return documents_;
}

bool Board::Has(uint64_t step) const {
  return documents_ != nullptr && std::find(documents_->wanted_steps.begin(), documents_->wanted_steps.end(),
                                            step) != documents_->wanted_steps.end();
}

std::vector<uint64_t> Board::wanted_steps() const {
  const std::lock_guard lock(mutex_);
  return wanted_steps_;
}

bool Board::LacksWantedStep() const {
  const std::lock_guard lock(mutex_);
  return std::any_of(wanted_steps_.begin(), wanted_steps_.end(),
                     [this](uint64_t step) { return !Has(step); });
}

std::shared_ptr<const Documents> Board::DocumentsWith(uint64_t step, std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  std::erase(wanted_steps_, step);
  wanted_steps_.push_back(step);
  if (wanted_steps_.size() > kMostWanted) wanted_steps_.erase(wanted_steps_.begin());
  asked_ = true;
  asked_at_ = Clock::now();
  changed_.notify_all();
  changed_.wait_until(lock, asked_at_ + patience, [&] { return closed_ || Has(step); });
  return documents_;
}

Board::News Board::Await(Seen& seen, std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, patience, [&] {
    return closed_ || (moment_ != nullptr && moment_->number > seen.moment) ||
           (documents_ != nullptr && documents_->version > seen.documents) || ended_ != seen.ended;
  });
  News news;
  if (moment_ != nullptr && moment_->number > seen.moment) news.moment = moment_;
  if (documents_ != nullptr && documents_->version > seen.documents) news.documents = documents_;
  news.ended = ended_;
  news.closed = closed_;
  if (news.moment != nullptr) seen.moment = news.moment->number;
  if (news.documents != nullptr) seen.documents = news.documents->version;
  seen.ended = ended_;
  return news;
}

bool Board::ended() const {
  const std::lock_guard lock(mutex_);
  return ended_;
}

bool Board::IsAlive() const {
  const std::lock_guard lock(mutex_);
  return ended_ || Clock::now() - moment_at_ < kStuck;
}

void Board::Enter() {
  const std::lock_guard lock(mutex_);
  ++viewers_;
}

void Board::Leave() {
  const std::lock_guard lock(mutex_);
  --viewers_;
  asked_at_ = Clock::now();
}

size_t Board::viewers() const {
  const std::lock_guard lock(mutex_);
  return viewers_;
}

void Board::Close() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  changed_.notify_all();
}

}  // namespace gpuprobe::http
