#include "collector/analysis/work/device_peaks.h"

namespace gpuprobe::analysis {
namespace {

constexpr double kPcie3 = 15.75;  // 16 lanes
constexpr double kPcie4 = 31.5;
constexpr double kPcie5 = 63.0;

// NVIDIA's data sheets of the products, dense rates (sparse ones are twice as much), boost clock. The first
// name that is contained in the device's name counts, so the narrower ones come first.
//   V100: Tesla V100 data sheet (2018); T4: Turing whitepaper (2018); A100, A30, A40, A10: data sheets
//   (2021-2022); L4, L40, L40S: data sheets (2023); H100 SXM, PCIe, NVL: H100 data sheet (2023); H200: data
//   sheet (2024); GH200: Grace Hopper data sheet (2023); B200: HGX B200 data sheet (2024), one of eight.
constexpr DevicePeaks kPeaks[] = {
    {"GH200", 67, 494.7, 989.4, 1978.9, 450},   {"B200", 75, 1125, 2250, 4500, kPcie5},
    {"H200", 67, 494.7, 989.4, 1978.9, kPcie5}, {"H100 PCIe", 51, 378, 756, 1513, kPcie5},
    {"H100 NVL", 60, 417.5, 835, 1671, kPcie5}, {"H100", 67, 494.7, 989.4, 1978.9, kPcie5},
    {"A100", 19.5, 156, 312, 0, kPcie4},        {"A30", 10.3, 82, 165, 0, kPcie4},
    {"A40", 37.4, 74.8, 149.7, 0, kPcie4},      {"A10", 31.2, 62.5, 125, 0, kPcie4},
    {"L40S", 91.6, 183, 362.05, 733, kPcie4},   {"L40", 90.5, 90.5, 181.05, 362, kPcie4},
    {"L4", 30.3, 60, 121, 242.5, kPcie4},       {"V100-SXM", 15.7, 0, 125, 0, kPcie3},
    {"V100-PCIE", 14, 0, 112, 0, kPcie3},       {"T4", 8.1, 0, 65, 0, kPcie3},
};

}  // namespace

std::optional<DevicePeaks> PeaksOf(std::string_view device_name) {
  for (const DevicePeaks& peaks : kPeaks) {
    if (device_name.find(peaks.name) != std::string_view::npos) return peaks;
  }
  return std::nullopt;
}

std::optional<double> PeakFlops(std::string_view device_name, NumberFormat type) {
  const std::optional<DevicePeaks> peaks = PeaksOf(device_name);
  if (!peaks.has_value()) return std::nullopt;
  const double tera = type == NumberFormat::kFp32   ? peaks->fp32
                      : type == NumberFormat::kTf32 ? peaks->tf32
                      : type == NumberFormat::kFp8  ? peaks->fp8
                                                    : peaks->bf16;
  if (tera <= 0) return std::nullopt;
  return tera * 1e12;
}

}  // namespace gpuprobe::analysis
