#include "collector/hub/quotas.h"

#include <algorithm>

namespace gpuprobe::hub {
namespace {

constexpr size_t kMostRemembered = 1024;  // hosts; those that have their whole burst again are forgotten
// A host that is refused may overdraw by so many bytes, which are four large posts.
constexpr double kMostOverdrawn = 32 << 20;

}  // namespace

double Allowance::LevelAt(Time now) const {
  if (!filled_at_.has_value() || now <= *filled_at_) return level_;
  return std::min(burst_, level_ + rate_ * std::chrono::duration<double>(now - *filled_at_).count());
}

bool Allowance::Has(Time now) {
  level_ = LevelAt(now);
  filled_at_ = filled_at_.has_value() ? std::max(*filled_at_, now) : now;
  return level_ > 0;
}

std::chrono::seconds Allowance::Wait() const {
  return std::chrono::seconds(1 + static_cast<int64_t>(overdrawn() / rate_));
}

bool Allowance::IsFull(Time now) const { return LevelAt(now) >= burst_; }

Quotas::Host& Quotas::HostOf(const std::string& name, Allowance::Time now) {
  if (hosts_.size() >= kMostRemembered)
    std::erase_if(hosts_, [&](const auto& each) {
      return each.second.open_bytes == 0 && each.second.bytes.IsFull(now);
    });
  const auto bytes_per_s = static_cast<double>(bytes_per_s_);
  return hosts_.try_emplace(name, Host{.bytes = {bytes_per_s, static_cast<double>(burst_bytes_)}})
      .first->second;
}

Quotas::Verdict Quotas::Admit(const std::string& host, size_t bytes, Allowance::Time now) {
  const std::lock_guard lock(mutex_);
  Host& its = HostOf(host, now);
  const auto counted = static_cast<double>(std::max(bytes, kLeastBytes));
  if (!its.bytes.Has(now)) {
    const bool may_pass = its.bytes.overdrawn() < kMostOverdrawn;
    if (may_pass) its.bytes.Take(counted);
    return {.lease = nullptr, .again = its.bytes.Wait(), .may_pass = may_pass};
  }
  its.bytes.Take(counted);
  if (its.open_bytes + bytes > kOpenBytesOfHost || open_bytes_ + bytes > kOpenBytes)
    return {.lease = nullptr, .again = std::chrono::seconds(1), .may_pass = true};
  its.open_bytes += bytes;
  open_bytes_ += bytes;
  // Only what ends it matters.
  return {.lease = std::shared_ptr<void>(this, [this, host, bytes](void*) { Done(host, bytes); })};
}

void Quotas::Done(const std::string& host, size_t bytes) {
  const std::lock_guard lock(mutex_);
  open_bytes_ -= bytes;
  if (const auto its = hosts_.find(host); its != hosts_.end()) its->second.open_bytes -= bytes;
}

}  // namespace gpuprobe::hub
