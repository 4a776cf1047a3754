#include "collector/observe/gpus_now.h"

#include <memory>

#include "collector/observe/nvml.h"
#include "collector/observe/patience.h"

namespace gpuprobe::observe {
namespace {

DriverNow Look(const std::string& library) {
  DriverNow driver;
  const std::unique_ptr<Nvml> nvml = Nvml::Load(library.c_str(), &driver.error);
  if (nvml == nullptr) {
    driver.state =
        driver.error == Nvml::kNoLibrary ? DriverNow::State::kNoLibrary : DriverNow::State::kRefuses;
    return driver;
  }
  driver.state = DriverNow::State::kAnswers;
  driver.version = nvml->DriverVersion();
  driver.cuda = nvml->CudaVersion().value_or(0);
  for (const Nvml::Device device : nvml->Devices()) {
    driver.gpus.push_back({.index = static_cast<uint32_t>(driver.gpus.size()),
                           .utilisation = nvml->Utilisation(device).value_or(0),
                           .clock_mhz = nvml->SmClockMhz(device).value_or(0),
                           .power_milliwatts = nvml->PowerMilliwatts(device).value_or(0),
                           .pids = nvml->ProcessesOn(device),
                           .name = nvml->Name(device)});
  }
  return driver;
}

}  // namespace

DriverNow LookAtDriver(std::chrono::milliseconds patience, const std::string& library) {
  std::optional<DriverNow> driver = Within(patience, [library] { return Look(library); });
  if (driver.has_value()) return *std::move(driver);
  DriverNow silent;
  silent.state = DriverNow::State::kSilent;
  return silent;
}

std::vector<GpuNow> LookAtGpus(std::chrono::milliseconds patience, const std::string& library) {
  return LookAtDriver(patience, library).gpus;
}

}  // namespace gpuprobe::observe
