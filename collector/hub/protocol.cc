#include "collector/hub/protocol.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "collector/store/run_files.h"
#include "collector/store/run_settings.h"

namespace gpuprobe::hub {

std::string ProofText(const std::string& nonce, const std::string& job, uint16_t port,
                      const std::string& fingerprint) {
  return absl::StrCat(nonce, "\n", port, "\n", fingerprint, "\n", job);
}

bool IsGrowing(const std::string& name) {
  return absl::EndsWith(name, store::kLogSuffix) || absl::EndsWith(name, store::kTotalsSuffix);
}

bool IsReplaced(const std::string& name) { return name == store::kLiveFile || name == store::kSettingsFile; }

}  // namespace gpuprobe::hub
