#include "collector/hub/protocol.h"

#include "absl/strings/match.h"
#include "collector/store/run_files.h"
#include "collector/store/run_settings.h"

namespace gpuprobe::hub {

bool IsGrowing(const std::string& name) {
  return absl::EndsWith(name, store::kLogSuffix) || absl::EndsWith(name, store::kTotalsSuffix);
}

bool IsReplaced(const std::string& name) { return name == store::kLiveFile || name == store::kSettingsFile; }

}  // namespace gpuprobe::hub
