#include "collector/cli/hang_watch.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "collector/analysis/hangs.h"
#include "collector/analysis/names.h"
#include "collector/analysis/units.h"
#include "collector/render/text_report.h"

namespace gpuprobe::cli {

constexpr uint64_t kIntervalNs = 1'000'000'000;

void RankOptions::AddTo(CLI::App& app) {
  app.add_option("--hang-after", seconds,
                 "a collective that has waited for so long without a reason is reported as a hang [60]")
      ->check(CLI::Range(uint64_t{1}, uint64_t{31536000}))
      ->option_text("SECONDS");
  app.add_option("--link-peak", link_peak,
                 "what the links between devices carry at most, GB/s [of known devices on one host: NVLink]")
      ->check(CLI::PositiveNumber)
      ->option_text("GB/S");
}

void HangWatch::Tick(const model::JobModel& job, uint64_t now_ns, uint64_t monotonic_ns) {
  if (monotonic_ns < next_ns_) return;
  next_ns_ = monotonic_ns + kIntervalNs;
  std::set<Key> seen;
  for (const analysis::Hang& hang : analysis::HangsOf(job, now_ns, after_ns_)) {
    const Key key{hang.kind, hang.comm, hang.seq,
                  hang.transfer.has_value() ? hang.transfer->label : std::string()};
    seen.insert(key);
    const auto [it, added] = told_.insert_or_assign(key, hang);
    if (added) say_(render::HangBlock(hang));
  }
  for (auto it = told_.begin(); it != told_.end();) {
    if (seen.contains(it->first)) {
      ++it;
      continue;
    }
    const analysis::Hang& hang = it->second;
    say_(absl::StrCat("HANG over: ", hang.shape.op, " seq ", hang.seq, " on communicator ",
                      analysis::ShortComm(hang.comm), " went on after ",
                      analysis::Duration(static_cast<double>(hang.waiting_ns)), " or a little more.\n"));
    it = told_.erase(it);
  }
}

}  // namespace gpuprobe::cli
