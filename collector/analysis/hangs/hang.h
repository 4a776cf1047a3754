// The words of hangs: what screens and findings say about one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collector/report/hangs.h"

namespace gpuprobe::analysis {

// From when on a collective that waits is called a hang.
inline constexpr uint64_t kDefaultHangAfterNs = 60'000'000'000;

// Of the ranks in it.
bool AllHostsAreIdle(const Hang& hang);
// Since when the job stands still; absent: it does not. On the processes' line.
std::optional<uint64_t> StandstillNs(const std::vector<Hang>& hangs);

// "AllReduce (6,553,600 x float32)"
std::string ShapeText(const CallShape& shape);
// As screens show it: what hangs; who issued it and who did not, and what those did last; what to look at.
std::string HangStatement(const Hang& hang);
// "From 18:02:11 UTC to 18:03:40 UTC ranks waited for rank 3: ..."
std::string PastHangStatement(const PastHang& past);
std::string HangEvidence(const Hang& hang);
std::string HangAdvice(const Hang& hang);
// "HANG over: ...", when it is over before the end.
std::string HangOverStatement(const Hang& hang);
// "AllReduce seq 25 on communicator eba3de87", without its ranks.
std::string HangCallText(const Hang& hang);

}  // namespace gpuprobe::analysis
