#include "collector/hub/capture_board.h"

#include <algorithm>
#include <chrono>

#include "collector/hub/protocol.h"

namespace gpuprobe::hub {
namespace {

bool HasEnded(const v1::CaptureState& state) {
  return state.phase() == v1::CAPTURE_PHASE_DONE || state.phase() == v1::CAPTURE_PHASE_CUT;
}

}  // namespace

void CaptureBoard::Take(const v1::HubPost& post, const std::string& name, Clock::time_point now,
                        uint64_t now_ns, v1::HubAnswer& answer) {
  const std::lock_guard lock(mutex_);
  if (now >= forgot_at_ + kForgetsEvery) {
    forgot_at_ = now;
    std::erase_if(hosts_, [&](const auto& each) { return now - each.second.posted_at > kForgotten; });
    std::erase_if(orders_, [&](const auto& each) { return !hosts_.contains(each.first.first); });
  }
  if (!hosts_.contains(post.instance()) && hosts_.size() >= kMostHosts) return;
  Host& host = hosts_[post.instance()];
  const std::vector<v1::CapturedProcess> before = std::move(host.processes);
  host = {.instance = post.instance(),
          .name = name,
          .processes = {post.processes().begin(),
                        post.processes().begin() + std::min(post.processes_size(), kMostProcesses)},
          .clock_ahead_ns = static_cast<int64_t>(post.now_ns() - now_ns),
          .posted_at = now};
  for (v1::CapturedProcess& process : host.processes) {
    if (post.ended()) process.set_connected(false);
    const auto known = std::find_if(before.begin(), before.end(), [&](const v1::CapturedProcess& each) {
      return each.number() == process.number();
    });
    // Who hears that a capture is over reads its records here.
    if (post.behind() && HasEnded(process.state()) && known != before.end())
      *process.mutable_state() = known->state();
    const auto order = orders_.find({post.instance(), process.number()});
    if (order == orders_.end()) continue;
    if (process.state().id() == order->second.id()) {
      orders_.erase(order);
      continue;
    }
    v1::CaptureOrder& sent = *answer.add_orders();
    sent.set_number(process.number());
    *sent.mutable_capture() = order->second;
  }
  std::erase_if(noted_, [&](const auto& each) { return now - each.first > kNotedFor; });
  for (const auto& [at, raise] : noted_) *answer.add_raises() = raise;
  const std::chrono::milliseconds wished = capturing_ ? kEveryOfCapture : kEvery;
  const std::chrono::milliseconds apart =
      std::clamp(std::chrono::milliseconds(1000 * hosts_.size() / kMostPostsASecond), wished, kSeldomest);
  if (apart != kEvery) answer.set_again_ms(static_cast<uint32_t>(apart.count()));
}

std::vector<CaptureBoard::Host> CaptureBoard::Hosts() const {
  const std::lock_guard lock(mutex_);
  std::vector<Host> hosts;
  for (const auto& [instance, host] : hosts_) hosts.push_back(host);
  return hosts;
}

void CaptureBoard::Order(uint64_t instance, uint32_t number, const v1::Capture& order) {
  const std::lock_guard lock(mutex_);
  if (hosts_.contains(instance)) orders_[{instance, number}] = order;
}

void CaptureBoard::Note(const v1::DetailRaise& raise, Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  noted_.emplace_back(now, raise);
}

void CaptureBoard::SetCapturing(bool capturing) {
  const std::lock_guard lock(mutex_);
  capturing_ = capturing;
}

}  // namespace gpuprobe::hub
