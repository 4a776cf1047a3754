#include "collector/cli/damage_line.h"

#include "absl/strings/str_format.h"
#include "collector/analysis/units.h"

namespace gpuprobe::cli {

std::string DamageLine(const store::Damage& damage) {
  if (damage.totals_whole) {
    return absl::StrFormat(
        "%s is damaged after %.1f s (%s at byte %s); totals are complete, later detail is missing",
        damage.file, damage.after_s, damage.what, analysis::Count(damage.byte));
  }
  return absl::StrFormat("%s is damaged after %.1f s (%s at byte %s); everything before it is reported",
                         damage.file, damage.after_s, damage.what, analysis::Count(damage.byte));
}

}  // namespace gpuprobe::cli
