// The log function that NCCL hands to its plugins: writes what NCCL_DEBUG and NCCL_DEBUG_SUBSYS let through,
// in the real library's format, to NCCL_DEBUG_FILE or standard output.
#pragma once

namespace gpusim::nccl {

// `level` and `flags`: ncclDebugLogLevel and a set of ncclDebugLogSubSys.
[[gnu::format(printf, 5, 6)]] void Log(int level, unsigned long flags, const char* file, int line,
                                       const char* format, ...);

}  // namespace gpusim::nccl
