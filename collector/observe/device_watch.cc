#include "collector/observe/device_watch.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <ctime>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>

#include "collector/observe/nvml.h"

namespace gpuprobe::observe {
namespace {

uint64_t Now(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

// One of the driver's counters, which begins again when it is loaded again.
class Counter {
 public:
  // By how much it grew since the call before; absent: one of both values is not known.
  std::optional<uint64_t> Grown(std::optional<uint64_t> value) {
    std::optional<uint64_t> grown;
    if (value.has_value() && last_.has_value()) grown = *value >= *last_ ? *value - *last_ : 0;
    last_ = value;
    return grown;
  }

 private:
  std::optional<uint64_t> last_;
};

class WatchedDevice {
 public:
  WatchedDevice(Nvml& nvml, Nvml::Device device)
      : nvml_(nvml),
        device_(device),
        max_clock_mhz_(nvml.MaxSmClockMhz(device).value_or(0)),
        max_link_(nvml.MaxPcieLink(device)) {
    nvml.WatchXids(device);
  }

  Nvml::Device device() const { return device_; }
  void AddXid(uint32_t number) { xids_.push_back(number); }

  v1::DeviceObservation Look() {
    const uint64_t now_ns = Now(CLOCK_MONOTONIC);
    v1::DeviceObservation out;
    out.mutable_clock()->set_realtime_ns(Now(CLOCK_REALTIME));
    out.mutable_clock()->set_monotonic_ns(now_ns);
    out.set_interval_ns(last_ns_ == 0 ? 0 : now_ns - last_ns_);
    last_ns_ = now_ns;
    const uint64_t reasons = nvml_.ClockReasons(device_).value_or(0);
    out.set_busy((reasons & Nvml::kIdle) == 0 && nvml_.Utilisation(device_).value_or(1) > 0);
    out.set_sm_clock_mhz(nvml_.SmClockMhz(device_).value_or(0));
    out.set_max_sm_clock_mhz(max_clock_mhz_);
    out.set_power_milliwatts(nvml_.PowerMilliwatts(device_).value_or(0));
    out.set_temperature_celsius(nvml_.TemperatureCelsius(device_).value_or(0));
    AddLimits(reasons, out);
    const Nvml::Link link = nvml_.PcieLink(device_);
    out.set_pcie_generation(link.generation);
    out.set_pcie_lanes(link.lanes);
    out.set_max_pcie_generation(max_link_.generation);
    out.set_max_pcie_lanes(max_link_.lanes);
    if (looks_++ % DeviceWatch::kErrorsEvery == 0) LookAtErrors();
    out.set_power_limit_milliwatts(power_limit_);
    out.set_remap_pending(remapping_.pending);
    out.set_remap_failed(remapping_.failed);
    out.set_ecc_corrected(std::exchange(ecc_corrected_, 0));
    out.set_ecc_uncorrected(std::exchange(ecc_uncorrected_, 0));
    out.set_pcie_replays(std::exchange(replays_, 0));
    out.mutable_xids()->Add(xids_.begin(), xids_.end());
    xids_.clear();
    return out;
  }

 private:
  // As counters say, where there are any; else for all of the interval if it is so at its end.
  void AddLimits(uint64_t reasons, v1::DeviceObservation& out) {
    const Nvml::LimitCounters counters = nvml_.Counters(device_);
    const auto add = [&](v1::ClockLimit limit, std::optional<uint64_t> ns, bool now) {
      const uint64_t time_ns = std::min(ns.value_or(now ? out.interval_ns() : 0), out.interval_ns());
      if (time_ns == 0) return;
      v1::ClockLimitTime& entry = *out.add_limits();
      entry.set_limit(limit);
      entry.set_time_ns(time_ns);
    };
    const auto has = [&](uint64_t bit) { return (reasons & bit) != 0; };
    add(v1::CLOCK_LIMIT_POWER_CAP, power_cap_.Grown(counters.power_cap_ns), has(Nvml::kPowerCap));
    add(v1::CLOCK_LIMIT_THERMAL, thermal_.Grown(counters.thermal_ns), has(Nvml::kThermal));
    add(v1::CLOCK_LIMIT_HARDWARE_THERMAL, {}, has(Nvml::kHardwareThermal));
    add(v1::CLOCK_LIMIT_POWER_BRAKE, {}, has(Nvml::kPowerBrake));
    add(v1::CLOCK_LIMIT_HARDWARE_SLOWDOWN, {},
        has(Nvml::kHardwareSlowdown) && !has(Nvml::kHardwareThermal) && !has(Nvml::kPowerBrake));
    add(v1::CLOCK_LIMIT_SYNC_BOOST, {}, has(Nvml::kSyncBoost));
    add(v1::CLOCK_LIMIT_CLOCKS_SET, {}, has(Nvml::kApplicationClocks));
  }

  void LookAtErrors() {
    power_limit_ = nvml_.PowerLimitMilliwatts(device_).value_or(0);
    remapping_ = nvml_.RemappedRows(device_).value_or(Nvml::Remapping{});
    ecc_corrected_ += corrected_.Grown(nvml_.EccErrors(device_, /*corrected=*/true)).value_or(0);
    ecc_uncorrected_ += uncorrected_.Grown(nvml_.EccErrors(device_, /*corrected=*/false)).value_or(0);
    replays_ += resent_.Grown(nvml_.PcieReplays(device_)).value_or(0);
  }

  Nvml& nvml_;
  Nvml::Device device_;
  uint32_t max_clock_mhz_;
  Nvml::Link max_link_;
  uint64_t looks_ = 0;
  uint64_t last_ns_ = 0;  // CLOCK_MONOTONIC
  Counter power_cap_;
  Counter thermal_;
  Counter corrected_;
  Counter uncorrected_;
  Counter resent_;
  uint32_t power_limit_ = 0;
  Nvml::Remapping remapping_;
  uint64_t ecc_corrected_ = 0;  // since the observation before
  uint64_t ecc_uncorrected_ = 0;
  uint64_t replays_ = 0;
  std::vector<uint32_t> xids_;
};

// How long to wait after a look.
class Pace {
 public:
  uint64_t RestNs(uint64_t look_ns) {
    constexpr size_t kCompared = 4;
    constexpr uint64_t kShareOfTime = 1000;
    constexpr uint64_t kMostAtFirst = 2 * DeviceWatch::kEveryNs;
    looks_.push_back(look_ns);
    if (looks_.size() > kCompared) looks_.pop_front();
    const uint64_t fastest = *std::min_element(looks_.begin(), looks_.end());
    const uint64_t rest_ns = std::max(DeviceWatch::kEveryNs, fastest * kShareOfTime);
    return looks_.size() < kCompared ? std::min(rest_ns, kMostAtFirst) : rest_ns;
  }

 private:
  std::deque<uint64_t> looks_;  // the latest
};

void DeliverXids(const Nvml& nvml, std::map<std::string, std::optional<WatchedDevice>>& devices) {
  constexpr int kMostAtOnce = 64;
  for (int i = 0; i < kMostAtOnce; ++i) {
    const std::optional<Nvml::Xid> xid = nvml.NextXid();
    if (!xid.has_value()) return;
    for (auto& [uuid, device] : devices) {
      if (device.has_value() && device->device() == xid->device) device->AddXid(xid->number);
    }
  }
}

}  // namespace

struct DeviceWatch::Shared {
  std::string library;
  std::mutex mutex;
  std::condition_variable changed;
  bool stop = false;
  bool ended = false;
  std::vector<std::string> wanted;
  std::deque<std::pair<std::string, v1::DeviceObservation>> seen;
};

DeviceWatch::DeviceWatch(std::string library) : shared_(std::make_shared<Shared>()) {
  shared_->library = std::move(library);
}

DeviceWatch::~DeviceWatch() {
  constexpr std::chrono::milliseconds kPatience{200};
  std::unique_lock lock(shared_->mutex);
  shared_->stop = true;
  shared_->changed.notify_all();
  if (running_) shared_->changed.wait_for(lock, kPatience, [&] { return shared_->ended; });
}

void DeviceWatch::Add(const std::string& uuid) {
  {
    const std::lock_guard lock(shared_->mutex);
    std::vector<std::string>& wanted = shared_->wanted;
    if (wanted.size() >= kMostDevices || std::find(wanted.begin(), wanted.end(), uuid) != wanted.end())
      return;
    wanted.push_back(uuid);
  }
  shared_->changed.notify_all();
  if (std::exchange(running_, true)) return;
  // Signals are for the threads that wait for them.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    std::thread(Run, shared_).detach();
  } catch (const std::system_error&) {
    running_ = false;  // the next Add of another GPU tries again
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

std::vector<std::pair<std::string, v1::DeviceObservation>> DeviceWatch::Take() {
  const std::lock_guard lock(shared_->mutex);
  std::vector<std::pair<std::string, v1::DeviceObservation>> out(
      std::make_move_iterator(shared_->seen.begin()), std::make_move_iterator(shared_->seen.end()));
  shared_->seen.clear();
  return out;
}

void DeviceWatch::Run(const std::shared_ptr<Shared>& shared) {
  std::unique_lock lock(shared->mutex);
  const std::string library = shared->library;
  lock.unlock();
  std::unique_ptr<Nvml> nvml = Nvml::Load(library.c_str());
  Pace pace;
  std::map<std::string, std::optional<WatchedDevice>> devices;  // without a value: NVML does not know it
  lock.lock();
  while (nvml != nullptr && !shared->stop) {
    const std::vector<std::string> wanted = shared->wanted;
    lock.unlock();
    for (const std::string& uuid : wanted) {
      const auto [device, added] = devices.try_emplace(uuid);
      if (!added) continue;
      if (const std::optional<Nvml::Device> found = nvml->Find(uuid); found.has_value())
        device->second.emplace(*nvml, *found);
    }
    const uint64_t began_ns = Now(CLOCK_MONOTONIC);
    std::vector<std::pair<std::string, v1::DeviceObservation>> seen;
    DeliverXids(*nvml, devices);
    for (auto& [uuid, device] : devices) {
      if (device.has_value()) seen.emplace_back(uuid, device->Look());
    }
    const uint64_t rest_ns = pace.RestNs(Now(CLOCK_MONOTONIC) - began_ns);
    lock.lock();
    for (auto& each : seen) shared->seen.push_back(std::move(each));
    while (shared->seen.size() > kMostKept) shared->seen.pop_front();
    shared->changed.wait_for(lock, std::chrono::nanoseconds(rest_ns),
                             [&] { return shared->stop || shared->wanted.size() > devices.size(); });
  }
  lock.unlock();
  devices.clear();
  nvml.reset();
  lock.lock();
  shared->ended = true;
  shared->changed.notify_all();
}

}  // namespace gpuprobe::observe
