// Opens and closes a range of each name that it is given, in hexadecimal, and copies something in it:
// whoever reads the run sees these names.

#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "nvtx3/nvToolsExt.h"
#include "samples/common/check.h"

namespace {

std::string FromHex(const std::string& hex) {
  std::string text;
  for (size_t i = 0; i + 1 < hex.size(); i += 2)
    text.push_back(static_cast<char>(std::strtol(hex.substr(i, 2).c_str(), nullptr, 16)));
  return text;
}

}  // namespace

int main(int argc, char** argv) {
  int* memory = nullptr;
  CHECK_CUDA(cudaMalloc(&memory, 1024));
  const int host[256] = {};
  for (int i = 1; i < argc; ++i) {
    nvtxRangePushA(FromHex(argv[i]).c_str());
    CHECK_CUDA(cudaMemcpy(memory, host, sizeof(host), cudaMemcpyHostToDevice));
    nvtxRangePop();
  }
  std::puts("end");
}
