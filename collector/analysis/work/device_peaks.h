// Peak rates of devices, as published by the vendor: the denominators of MFU and of copy efficiency.
#pragma once

#include <optional>
#include <string_view>

#include "collector/report/utilisation.h"

namespace gpuprobe::analysis {

// Dense (not sparse) TFLOP/s by type, and 1e9 bytes per second per direction to the host. 0: the device does
// not have it, or it is not published.
struct DevicePeaks {
  std::string_view name;  // as found in the device's name
  double fp32 = 0;        // without tensor cores
  double tf32 = 0;
  double bf16 = 0;  // and fp16
  double fp8 = 0;
  double host_gbytes_per_s = 0;  // nominal rate of its host interface, one direction
};

// nullopt when the table does not know the device.
std::optional<DevicePeaks> PeaksOf(std::string_view device_name);

// nullopt for an unknown device or type.
std::optional<double> PeakFlops(std::string_view device_name, NumberFormat type);

}  // namespace gpuprobe::analysis
