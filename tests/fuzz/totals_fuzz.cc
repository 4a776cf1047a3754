// Saved totals with some of their bytes changed, behind a checksum that is right. What loads must behave as a
// model: it takes further batches and gives a report. What does not load leaves an empty model.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "collector/analysis/build_report.h"
#include "collector/model/job/job_model.h"
#include "collector/render/json_report.h"
#include "tests/fuzz/messages.h"
#include "tests/fuzz/target.h"

namespace gpuprobe {
namespace {

constexpr size_t kStates = 4;

// The totals of a job of two processes that sent some batches.
std::string StateOf(uint32_t seed) {
  std::string bytes;
  for (int i = 0; i < 1500; ++i) {
    seed = seed * 1664525 + 1013904223;
    bytes.push_back(static_cast<char>(seed >> 24));
  }
  fuzz::Choices choices(bytes);
  model::JobModel job;
  for (int i = 0; i < 2; ++i) job.Join(fuzz::PlainHello(i)).Apply(fuzz::Definitions()).IgnoreError();
  for (uint64_t sequence = 2; !choices.empty(); ++sequence) {
    const v1::Batch batch = fuzz::NextBatch(choices, sequence);
    if (batch.sequence() == sequence) job.processes()[sequence % 2]->Apply(batch).IgnoreError();
  }
  return job.SaveState();
}

const std::string& State(uint32_t which) {
  static const std::array<std::string, kStates> kEach = {StateOf(1), StateOf(2), StateOf(3), StateOf(4)};
  return kEach[which];
}

void Change(fuzz::Choices& choices, std::string& bytes) {
  const size_t at = (size_t{choices.Byte()} << 16 | choices.Below(65536)) % bytes.size();
  switch (choices.Below(4)) {
    case 0:
      bytes[at] = static_cast<char>(choices.Byte());
      return;
    case 1: {  // another number, in as many bytes as it takes
      std::string number;
      uint64_t value = choices.Number();
      for (; value >= 0x80; value >>= 7) number.push_back(static_cast<char>(value | 0x80));
      number.push_back(static_cast<char>(value));
      size_t end = at;
      while (end + 1 < bytes.size() && (bytes[end] & 0x80) != 0) ++end;
      bytes.replace(at, end + 1 - at, number);
      return;
    }
    case 2:
      bytes.erase(at, 1 + choices.Below(8));
      if (bytes.empty()) bytes.push_back(0);
      return;
    default:
      bytes.insert(at, 1 + choices.Below(8), static_cast<char>(choices.Byte()));
  }
}

}  // namespace
}  // namespace gpuprobe

GPUPROBE_FUZZ_TARGET(totals)(const uint8_t* data, size_t size) {
  using namespace gpuprobe;
  constexpr int kMaxChanges = 16;
  fuzz::Choices choices(data, size);
  const bool show = choices.Rarely(16);  // most of the time would go into writing JSON
  std::string bytes = State(choices.Below(kStates));
  for (uint32_t left = choices.Below(kMaxChanges); left > 0; --left) Change(choices, bytes);
  model::JobModel job;
  if (!job.LoadState(bytes).ok() && !job.processes().empty()) std::abort();
  uint64_t sequence = 1000;
  model::ProcessModel& process = job.Join(fuzz::PlainHello(0));
  process.Apply(fuzz::Definitions()).IgnoreError();
  process.Apply(fuzz::NextBatch(choices, ++sequence)).IgnoreError();
  job.Finish();
  const analysis::Report report = analysis::BuildReport(job, {});
  if (show && render::JsonReport(report).empty()) std::abort();
  return 0;
}
