#include "injector/core/recording.h"

#include "injector/base/text.h"

namespace gpuprobe::injector {

constinit Recording recording;
constinit std::atomic<uint64_t> recorded_until_ns{UINT64_MAX};

namespace {

constexpr std::string_view kKindNames[] = {"kernels", "copies", "memsets", "syncs", "memory",
                                           "nccl",    "nvtx",   "driver",  "graphs"};
constexpr uint64_t kSecond = 1'000'000'000;
constexpr int64_t kMaxRank = 1 << 24;

// Takes the text up to the next `separator` off the front of `rest`.
std::string_view Next(std::string_view* rest, char separator) noexcept {
  const size_t at = rest->find(separator);
  const size_t end = at == std::string_view::npos ? rest->size() : at;
  const std::string_view item(rest->data(), end);
  rest->remove_prefix(at == std::string_view::npos ? end : end + 1);
  return item;
}

// -1: not a number.
int64_t RankNumber(std::string_view text) noexcept {
  if (text.empty()) return -1;
  int64_t number = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return -1;
    number = number * 10 + (c - '0');
    if (number > kMaxRank) return -1;
  }
  return number;
}

}  // namespace

bool ParseKinds(std::string_view text, uint32_t* kinds) noexcept {
  if (text.empty() || text.back() == ',') return false;
  uint32_t chosen = 0;
  while (!text.empty()) {
    const std::string_view item = Next(&text, ',');
    uint32_t kind = 0;
    for (uint32_t i = 0; i < sizeof(kKindNames) / sizeof(kKindNames[0]); ++i) {
      if (kKindNames[i] == item) kind = 1u << i;
    }
    if (kind == 0) return false;
    chosen |= kind;
  }
  // This bit selects how graphs are recorded, not a kind of record.
  *kinds = chosen == kRecordGraphsWhole ? kRecordAll | chosen : chosen;
  return true;
}

bool ParseRanks(std::string_view text, int32_t rank, int32_t world_size, bool* listed,
                uint32_t* count) noexcept {
  if (text.empty() || text.back() == ',') return false;
  bool found = false;
  int64_t ranks = 0;
  int64_t before = -1;
  while (!text.empty()) {
    std::string_view item = Next(&text, ',');
    const bool is_range = item.find('-') != std::string_view::npos;
    const int64_t first = RankNumber(Next(&item, '-'));
    const int64_t last = is_range ? RankNumber(item) : first;
    if (first <= before || last < first) return false;
    before = last;
    found = found || (rank >= first && rank <= last);
    const int64_t end = world_size > 0 && last >= world_size ? world_size - 1 : last;
    if (end >= first) ranks += end - first + 1;
  }
  *listed = found;
  *count = static_cast<uint32_t>(ranks);
  return true;
}

Recording ChooseRecording(Settings* settings, const Identity& identity, uint64_t now_ns) noexcept {
  Recording chosen;
  constexpr size_t kKinds = SettingIndex("GPUPROBE_KINDS");
  if (settings->IsSet(kKinds) && !ParseKinds(settings->Text(kKinds), &chosen.kinds)) settings->Reject(kKinds);
  constexpr size_t kRanks = SettingIndex("GPUPROBE_RANKS");
  if (settings->IsSet(kRanks)) {
    bool listed = false;
    if (!ParseRanks(settings->Text(kRanks), identity.rank, identity.world_size, &listed, &chosen.ranks)) {
      settings->Reject(kRanks);
    } else if (identity.rank >= 0) {
      chosen.this_rank = listed;
    }
  }
  chosen.times_calls = settings->Flag(SettingIndex("GPUPROBE_NCCL_TIMES"));
  chosen.min_copy_bytes = static_cast<uint64_t>(settings->Number(SettingIndex("GPUPROBE_MIN_COPY_BYTES")));
  chosen.min_allocation_bytes =
      static_cast<uint64_t>(settings->Number(SettingIndex("GPUPROBE_MIN_ALLOCATION_BYTES")));
  constexpr size_t kStart = SettingIndex("GPUPROBE_START_AFTER_S");
  constexpr size_t kStop = SettingIndex("GPUPROBE_STOP_AFTER_S");
  const int64_t start = settings->Number(kStart);
  if (start > 0) {
    chosen.from_ns = now_ns + static_cast<uint64_t>(start) * kSecond;
    chosen.span_ns = UINT64_MAX - chosen.from_ns;
  }
  if (settings->IsSet(kStop)) {
    const int64_t stop = settings->Number(kStop);
    if (stop <= start) {
      settings->Reject(kStop, "must be greater than GPUPROBE_START_AFTER_S");
    } else {
      // Without a start, what began before the first use of CUDA counts as well.
      chosen.span_ns = now_ns + static_cast<uint64_t>(stop) * kSecond - chosen.from_ns;
    }
  }
  return chosen;
}

}  // namespace gpuprobe::injector
