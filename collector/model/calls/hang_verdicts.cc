#include "collector/model/calls/hang_verdicts.h"

#include <algorithm>

namespace gpuprobe::model {

void HangVerdicts::Apply(const v1::HangVerdict& verdict) {
  if (verdict.ByteSizeLong() > kMaxBytes) return;
  const auto same = std::find_if(all_.begin(), all_.end(),
                                 [&](const v1::HangVerdict& v) { return v.key() == verdict.key(); });
  if (same != all_.end()) {
    if (verdict.not_heard() <= same->not_heard()) *same = verdict;
    return;
  }
  all_.push_back(verdict);
  if (all_.size() <= kMost) return;
  const auto over = std::find_if(all_.begin(), all_.end(),
                                 [](const v1::HangVerdict& v) { return v.withdrawn() || v.until_ns() != 0; });
  all_.erase(over != all_.end() ? over : all_.begin());
}

}  // namespace gpuprobe::model
