#include "collector/report/host_time.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace gpuprobe::analysis {

std::string HostPlaceText(const HostPlaceReport& place) {
  if (place.no_cpu) return "waiting for a CPU";
  if (place.lock_held)
    return absl::StrCat("waiting for Python's lock (GIL), which another thread holds",
                        place.python.empty() ? "" : absl::StrCat(" in ", PythonPlace(place.python)));
  std::string in = place.call;
  if (in.empty() && place.memory_call) in = "a call that allocates or releases memory";
  if (in.empty() && !place.system_call.empty() && (place.python.empty() || !place.file.empty()))
    in = place.file.empty() ? place.system_call : absl::StrCat(place.system_call, " of ", place.file);
  std::string python = PythonPlace(place.python);
  if (!python.empty() && place.other_lines > 0)
    absl::StrAppend(&python, " and ", place.other_lines, " other ", place.other_lines == 1 ? "line" : "lines",
                    " of it");
  if (in.empty()) return python.empty() ? "code whose stack is not known" : python;
  return python.empty() ? in : absl::StrCat(in, ", called from ", python);
}

std::string HowSure(const HostPlaceReport& place) {
  constexpr uint64_t kFew = 20;
  if (place.no_cpu) return absl::StrFormat("%.0f %% of it, as the kernel counts", place.share * 100);
  if (place.samples == 0) return absl::StrFormat("%.0f %% of it, measured", place.share * 100);
  if (place.of_samples < kFew)
    return absl::StrCat("in ", place.samples, " of ", place.of_samples,
                        place.of_samples == 1 ? " sample" : " samples");
  return absl::StrFormat("%.0f %% of %d samples", 100 * place.share, place.of_samples);
}

}  // namespace gpuprobe::analysis
