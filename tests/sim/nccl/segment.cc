#include "tests/sim/nccl/segment.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <utility>

namespace gpusim::nccl {
namespace {

constexpr char kPrefix[] = "gpusim-nccl-";
constexpr time_t kStaleAfterSeconds = 60;

static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

size_t LettersOffset(int ranks) {
  return sizeof(SegmentHeader) + kMeetingSlots * sizeof(MeetingSlot) +
         static_cast<size_t>(ranks) * sizeof(RankState);
}

size_t PeersOffset(int ranks) {
  return LettersOffset(ranks) + kMeetingSlots * static_cast<size_t>(ranks) * sizeof(std::atomic<uint64_t>);
}

// Zeroed memory is a valid segment. Mostly never touched, so its pages do not exist.
size_t SegmentSize(int ranks) {
  return PeersOffset(ranks) +
         static_cast<size_t>(ranks) * static_cast<size_t>(ranks) * kPeerSlots * sizeof(PeerSlot);
}

}  // namespace

std::unique_ptr<Segment> Segment::Open(const std::string& name, int ranks) {
  const size_t size = SegmentSize(ranks);
  void* memory = MAP_FAILED;
  if (ranks == 1) {
    memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  } else {
    const int file = shm_open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0) {
      return nullptr;
    }
    struct stat status {};
    if (fstat(file, &status) == 0 &&
        (status.st_size == static_cast<off_t>(size) ||
         (status.st_size == 0 && ftruncate(file, static_cast<off_t>(size)) == 0))) {
      memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    }
    close(file);
  }
  if (memory == MAP_FAILED) {
    return nullptr;
  }
  std::unique_ptr<Segment> segment(new Segment(name, ranks, memory, size));
  uint32_t expected = 0;
  const auto wanted = static_cast<uint32_t>(ranks);
  if (!segment->Header().ranks.compare_exchange_strong(expected, wanted) && expected != wanted) {
    return nullptr;
  }
  return segment;
}

Segment::Segment(std::string name, int ranks, void* memory, size_t size)
    : name_(std::move(name)), ranks_(ranks), memory_(memory), size_(size) {}

Segment::~Segment() { munmap(memory_, size_); }

bool Segment::Join(int rank_number, int mailbox) {
  int32_t nobody = 0;
  if (!Rank(rank_number).pid.compare_exchange_strong(nobody, getpid())) {
    return false;
  }
  Rank(rank_number).mailbox = mailbox + 1;
  if (Header().joined.fetch_add(1, std::memory_order_acq_rel) + 1 == static_cast<uint32_t>(ranks_) &&
      ranks_ > 1) {
    shm_unlink(name_.c_str());
  }
  return true;
}

void Segment::Abandon() {
  if (ranks_ > 1 && !Complete()) {
    shm_unlink(name_.c_str());
  }
}

SegmentHeader& Segment::Header() const { return *static_cast<SegmentHeader*>(memory_); }

MeetingSlot& Segment::Meeting(uint64_t ordinal) const {
  auto* slots = reinterpret_cast<MeetingSlot*>(static_cast<char*>(memory_) + sizeof(SegmentHeader));
  return slots[ordinal % kMeetingSlots];
}

RankState& Segment::Rank(int rank) const {
  auto* states = reinterpret_cast<RankState*>(static_cast<char*>(memory_) + sizeof(SegmentHeader) +
                                              kMeetingSlots * sizeof(MeetingSlot));
  return states[rank];
}

std::atomic<uint64_t>& Segment::LetterTo(uint64_t ordinal, int rank) const {
  auto* letters =
      reinterpret_cast<std::atomic<uint64_t>*>(static_cast<char*>(memory_) + LettersOffset(ranks_));
  return letters[ordinal % kMeetingSlots * static_cast<size_t>(ranks_) + static_cast<size_t>(rank)];
}

PeerSlot& Segment::Peer(int sender, int receiver, uint64_t message) const {
  auto* slots = reinterpret_cast<PeerSlot*>(static_cast<char*>(memory_) + PeersOffset(ranks_));
  const size_t pair =
      static_cast<size_t>(sender) * static_cast<size_t>(ranks_) + static_cast<size_t>(receiver);
  return slots[pair * kPeerSlots + message % kPeerSlots];
}

std::string SegmentName(uint32_t maker_pid, uint64_t first, uint64_t second) {
  char name[80];
  std::snprintf(name, sizeof(name), "/%s%" PRIu32 "-%016" PRIx64 "%016" PRIx64, kPrefix, maker_pid, first,
                second);
  return name;
}

void RemoveStaleSegments() {
  DIR* folder = opendir("/dev/shm");
  if (folder == nullptr) {
    return;
  }
  while (const dirent* entry = readdir(folder)) {
    int maker = 0;
    if (std::strncmp(entry->d_name, kPrefix, sizeof(kPrefix) - 1) != 0 ||
        std::sscanf(entry->d_name + sizeof(kPrefix) - 1, "%d-", &maker) != 1 || maker <= 0) {
      continue;
    }
    struct stat status {};
    const bool is_old = fstatat(dirfd(folder), entry->d_name, &status, 0) == 0 &&
                        std::time(nullptr) - status.st_mtime > kStaleAfterSeconds;
    if (is_old && kill(maker, 0) != 0 && errno == ESRCH) {
      unlinkat(dirfd(folder), entry->d_name, 0);
    }
  }
  closedir(folder);
}

}  // namespace gpusim::nccl
