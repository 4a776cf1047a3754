#include "collector/observe/nvml.h"

#include <dlfcn.h>

#include <algorithm>
#include <type_traits>

namespace gpuprobe::observe {
namespace {

constexpr int kSuccess = 0;
constexpr int kClockSm = 1;
constexpr int kSensorOfGpu = 0;
constexpr int kVolatile = 0;  // errors since the driver was loaded
constexpr unsigned kPowerCapNs = 74;
constexpr unsigned kThermalNs = 75;
constexpr unsigned long long kEventXid = 8;

// What a call writes to its last parameter. Absent: the driver has no such call, or nothing to say.
template <typename T, typename Call, typename... Given>
std::optional<T> Ask(Call call, Given... given) {
  T value{};
  if (call == nullptr || call(given..., &value) != kSuccess) return std::nullopt;
  return value;
}

// The same of a text. Empty: absent.
template <typename Call, typename... Given>
std::string AskText(Call call, Given... given) {
  char text[128] = {};
  if (call == nullptr || call(given..., text, sizeof(text) - 1) != kSuccess) return "";
  return text;
}

}  // namespace

struct Nvml::Calls {
  struct UtilizationRates {
    unsigned gpu = 0;
    unsigned memory = 0;
  };

  struct FieldValue {
    unsigned field = 0;
    unsigned scope = 0;
    long long timestamp_us = 0;
    long long latency_us = 0;
    int type = 0;
    int result = 0;
    union {
      double real;
      unsigned number;
      unsigned long long large;
    } value = {.large = 0};
  };
  enum ValueType {
    kDouble = 0,
    kUnsigned = 1,
    kUnsignedLong = 2,
    kUnsignedLongLong = 3,
    kSignedLongLong = 4
  };

  struct EventData {
    Device device = nullptr;
    unsigned long long type = 0;
    unsigned long long data = 0;
    unsigned gpu_instance = 0;
    unsigned compute_instance = 0;
  };

  struct ProcessInfo {  // nvmlProcessInfo_v2_t
    unsigned pid = 0;
    unsigned long long used_bytes = 0;
    unsigned gpu_instance = 0;
    unsigned compute_instance = 0;
  };

  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*driver_version)(char* text, unsigned size) = nullptr;
  int (*cuda_version)(int* version) = nullptr;
  int (*device_name)(Device device, char* text, unsigned size) = nullptr;
  int (*find)(const char* uuid, Device* device) = nullptr;
  int (*count)(unsigned* count) = nullptr;
  int (*at)(unsigned index, Device* device) = nullptr;
  int (*processes)(Device device, unsigned* count, ProcessInfo* processes) = nullptr;
  int (*clock)(Device device, int clock, unsigned* mhz) = nullptr;
  int (*max_clock)(Device device, int clock, unsigned* mhz) = nullptr;
  int (*power)(Device device, unsigned* milliwatts) = nullptr;
  int (*power_limit)(Device device, unsigned* milliwatts) = nullptr;
  int (*temperature)(Device device, int sensor, unsigned* celsius) = nullptr;
  int (*utilisation)(Device device, UtilizationRates* rates) = nullptr;
  int (*reasons)(Device device, unsigned long long* bits) = nullptr;
  int (*fields)(Device device, int count, FieldValue* values) = nullptr;
  int (*generation)(Device device, unsigned* generation) = nullptr;
  int (*lanes)(Device device, unsigned* lanes) = nullptr;
  int (*max_generation)(Device device, unsigned* generation) = nullptr;
  int (*max_lanes)(Device device, unsigned* lanes) = nullptr;
  int (*ecc_errors)(Device device, int kind, int counter, unsigned long long* errors) = nullptr;
  int (*replays)(Device device, unsigned* replays) = nullptr;
  int (*remapped)(Device device, unsigned* corrected, unsigned* uncorrected, unsigned* pending,
                  unsigned* failed) = nullptr;
  int (*new_set)(NvmlEventSet** set) = nullptr;
  int (*free_set)(NvmlEventSet* set) = nullptr;
  int (*watch)(Device device, unsigned long long types, NvmlEventSet* set) = nullptr;
  int (*next_event)(NvmlEventSet* set, EventData* event, unsigned milliseconds) = nullptr;

  static std::optional<uint64_t> NumberOf(const FieldValue& value) {
    if (value.result != kSuccess) return std::nullopt;
    switch (value.type) {
      case kUnsigned:
        return value.value.number;
      case kUnsignedLong:
      case kUnsignedLongLong:
      case kSignedLongLong:
        return value.value.large;
      default:
        return std::nullopt;
    }
  }

  void Bind(void* library) {
    const auto bind = [&](auto& call, const char* name) {
      call = reinterpret_cast<std::remove_reference_t<decltype(call)>>(dlsym(library, name));
    };
    bind(init, "nvmlInit_v2");
    bind(shutdown, "nvmlShutdown");
    bind(driver_version, "nvmlSystemGetDriverVersion");
    bind(cuda_version, "nvmlSystemGetCudaDriverVersion_v2");
    bind(device_name, "nvmlDeviceGetName");
    bind(find, "nvmlDeviceGetHandleByUUID");
    bind(count, "nvmlDeviceGetCount_v2");
    bind(at, "nvmlDeviceGetHandleByIndex_v2");
    bind(processes, "nvmlDeviceGetComputeRunningProcesses_v3");
    bind(clock, "nvmlDeviceGetClockInfo");
    bind(max_clock, "nvmlDeviceGetMaxClockInfo");
    bind(power, "nvmlDeviceGetPowerUsage");
    bind(power_limit, "nvmlDeviceGetEnforcedPowerLimit");
    bind(temperature, "nvmlDeviceGetTemperature");
    bind(utilisation, "nvmlDeviceGetUtilizationRates");
    bind(reasons, "nvmlDeviceGetCurrentClocksEventReasons");
    if (reasons == nullptr) bind(reasons, "nvmlDeviceGetCurrentClocksThrottleReasons");  // before driver 535
    bind(fields, "nvmlDeviceGetFieldValues");
    bind(generation, "nvmlDeviceGetCurrPcieLinkGeneration");
    bind(lanes, "nvmlDeviceGetCurrPcieLinkWidth");
    bind(max_generation, "nvmlDeviceGetMaxPcieLinkGeneration");
    bind(max_lanes, "nvmlDeviceGetMaxPcieLinkWidth");
    bind(ecc_errors, "nvmlDeviceGetTotalEccErrors");
    bind(replays, "nvmlDeviceGetPcieReplayCounter");
    bind(remapped, "nvmlDeviceGetRemappedRows");
    bind(new_set, "nvmlEventSetCreate");
    bind(free_set, "nvmlEventSetFree");
    bind(watch, "nvmlDeviceRegisterEvents");
    bind(next_event, "nvmlEventSetWait_v2");
  }
};

Nvml::Nvml() : calls_(std::make_unique<Calls>()) {}

std::unique_ptr<Nvml> Nvml::Load(const char* library, int* error) {
  int ignored = 0;
  int& failed = error == nullptr ? ignored : *error;
  failed = kNoLibrary;
  void* const loaded = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (loaded == nullptr) return nullptr;
  std::unique_ptr<Nvml> nvml(new Nvml);
  nvml->calls_->Bind(loaded);
  if (nvml->calls_->init == nullptr || (failed = nvml->calls_->init()) != kSuccess) {
    nvml->calls_->shutdown = nullptr;
    return nullptr;
  }
  return nvml;
}

Nvml::~Nvml() {
  if (events_ != nullptr && calls_->free_set != nullptr) calls_->free_set(events_);
  if (calls_->shutdown != nullptr) calls_->shutdown();
}

std::optional<Nvml::Device> Nvml::Find(const std::string& uuid) const {
  return Ask<Device>(calls_->find, uuid.c_str());
}
std::string Nvml::DriverVersion() const { return AskText(calls_->driver_version); }
std::optional<uint32_t> Nvml::CudaVersion() const { return Ask<int>(calls_->cuda_version); }
std::string Nvml::Name(Device device) const { return AskText(calls_->device_name, device); }
std::vector<Nvml::Device> Nvml::Devices() const {
  std::vector<Device> devices;
  const unsigned count = Ask<unsigned>(calls_->count).value_or(0);
  for (unsigned i = 0; i < count; ++i) {
    if (const auto device = Ask<Device>(calls_->at, i); device.has_value()) devices.push_back(*device);
  }
  return devices;
}
std::vector<pid_t> Nvml::ProcessesOn(Device device) const {
  constexpr unsigned kMost = 256;
  std::vector<Calls::ProcessInfo> found(kMost);
  unsigned count = kMost;
  if (calls_->processes == nullptr || calls_->processes(device, &count, found.data()) != kSuccess) return {};
  std::vector<pid_t> pids;
  for (unsigned i = 0; i < std::min(count, kMost); ++i) pids.push_back(static_cast<pid_t>(found[i].pid));
  return pids;
}
std::optional<uint32_t> Nvml::SmClockMhz(Device device) const {
  return Ask<unsigned>(calls_->clock, device, kClockSm);
}
std::optional<uint32_t> Nvml::MaxSmClockMhz(Device device) const {
  return Ask<unsigned>(calls_->max_clock, device, kClockSm);
}
std::optional<uint32_t> Nvml::PowerMilliwatts(Device device) const {
  return Ask<unsigned>(calls_->power, device);
}
std::optional<uint32_t> Nvml::PowerLimitMilliwatts(Device device) const {
  return Ask<unsigned>(calls_->power_limit, device);
}
std::optional<uint32_t> Nvml::TemperatureCelsius(Device device) const {
  return Ask<unsigned>(calls_->temperature, device, kSensorOfGpu);
}
std::optional<uint32_t> Nvml::Utilisation(Device device) const {
  const auto rates = Ask<Calls::UtilizationRates>(calls_->utilisation, device);
  return rates.has_value() ? std::optional(rates->gpu) : std::nullopt;
}
std::optional<uint64_t> Nvml::ClockReasons(Device device) const {
  return Ask<unsigned long long>(calls_->reasons, device);
}

Nvml::LimitCounters Nvml::Counters(Device device) const {
  Calls::FieldValue values[2];
  values[0].field = kPowerCapNs;
  values[1].field = kThermalNs;
  if (calls_->fields == nullptr || calls_->fields(device, 2, values) != kSuccess) return {};
  return {.power_cap_ns = Calls::NumberOf(values[0]), .thermal_ns = Calls::NumberOf(values[1])};
}

Nvml::Link Nvml::PcieLink(Device device) const {
  return {.generation = Ask<unsigned>(calls_->generation, device).value_or(0),
          .lanes = Ask<unsigned>(calls_->lanes, device).value_or(0)};
}
Nvml::Link Nvml::MaxPcieLink(Device device) const {
  return {.generation = Ask<unsigned>(calls_->max_generation, device).value_or(0),
          .lanes = Ask<unsigned>(calls_->max_lanes, device).value_or(0)};
}

std::optional<uint64_t> Nvml::EccErrors(Device device, bool corrected) const {
  return Ask<unsigned long long>(calls_->ecc_errors, device, corrected ? 0 : 1, kVolatile);
}
std::optional<uint32_t> Nvml::PcieReplays(Device device) const {
  return Ask<unsigned>(calls_->replays, device);
}

std::optional<Nvml::Remapping> Nvml::RemappedRows(Device device) const {
  unsigned corrected = 0;
  unsigned uncorrected = 0;
  unsigned pending = 0;
  unsigned failed = 0;
  if (calls_->remapped == nullptr ||
      calls_->remapped(device, &corrected, &uncorrected, &pending, &failed) != kSuccess) {
    return std::nullopt;
  }
  return Remapping{.pending = pending != 0, .failed = failed != 0};
}

void Nvml::WatchXids(Device device) {
  if (events_ == nullptr) events_ = Ask<NvmlEventSet*>(calls_->new_set).value_or(nullptr);
  if (events_ != nullptr && calls_->watch != nullptr) calls_->watch(device, kEventXid, events_);
}

std::optional<Nvml::Xid> Nvml::NextXid() const {
  Calls::EventData event;
  if (events_ == nullptr || calls_->next_event == nullptr ||
      calls_->next_event(events_, &event, 0) != kSuccess || event.type != kEventXid) {
    return std::nullopt;
  }
  return Xid{.device = event.device, .number = static_cast<uint32_t>(event.data)};
}

}  // namespace gpuprobe::observe
