// Which libcupti the probe will bind in a program that has not started, and which release that is, from files
// alone: nothing is loaded.
//
// Example: a Python with PyTorch has the wheel's .../nvidia/cuda_cupti/lib/libcupti.so.12 loaded before CUDA
// starts, and the probe binds that copy (injector/capture/cupti/function_table.h). Any other program gets
// what the loader finds, of the program's CUDA first, then of the driver's, then older ones.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace gpuprobe::cli::doctor {

struct CuptiLibrary {
  std::string path;
  std::string origin;     // "PyTorch loads it", "on the loader's path" ...
  int major = 0;          // of its CUDA, by its name; 0: not known
  uint32_t version = 0;   // as cuptiGetVersion answers; 0: not known
  bool at_least = false;  // it is that or newer
  std::string package;    // "12.4.127", of the wheel or the toolkit that has it
};

struct CuptiFacts {
  std::optional<CuptiLibrary> library;      // that will be bound
  std::optional<CuptiLibrary> unsupported;  // none is bound: this one is too old, or too new for the driver
};

// Where a program looks for libraries.
struct ProgramLibraries {
  std::map<std::string, std::string> variables;  // of its environment
  std::string program;                           // its file; empty: not known
  std::vector<std::string> needed;
  std::string search_path;  // DT_RUNPATH
  bool is_python = false;
};

// `driver_cuda`: the newest major version that the driver supports; 0: not known.
CuptiFacts FindCupti(const ProgramLibraries& program, int driver_cuda);

// Of a copy that is known.
CuptiLibrary DescribeCupti(const std::string& path, const std::string& origin);

// "13.0 Update 1", "11.8 to 12.1", of what cuptiGetVersion answers; empty: not known.
std::string CuptiRelease(uint32_t version);

}  // namespace gpuprobe::cli::doctor
