#include "collector/report/last_moments.h"

#include "absl/strings/str_cat.h"

namespace gpuprobe::analysis {

std::string LastMoments::Name() const {
  const std::string on = host.empty() ? "" : absl::StrCat(" on ", host);
  if (pid == 0) return ring;
  if (!rank.has_value()) return absl::StrCat("pid ", pid, on);
  return absl::StrCat("rank ", *rank, " (pid ", pid, ")", on);
}

}  // namespace gpuprobe::analysis
