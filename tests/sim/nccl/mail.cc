#include "tests/sim/nccl/mail.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "tests/sim/core/memory.h"

namespace gpusim::nccl {
namespace {

constexpr uint64_t kPage = 4096;

// At the start of a letter, one for each piece.
struct Entry {
  uint64_t place = 0;  // in the file; 0: not given
  uint64_t bytes = 0;
};

uint64_t UpToPage(uint64_t value) { return (value + kPage - 1) / kPage * kPage; }

void* AddressOf(uint64_t address) {
  return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
}

bool WriteAt(int file, uint64_t place, const void* bytes, uint64_t size) {
  return pwrite(file, bytes, size, static_cast<off_t>(place)) == static_cast<ssize_t>(size);
}

bool ReadAt(int file, uint64_t place, void* bytes, uint64_t size) {
  return pread(file, bytes, size, static_cast<off_t>(place)) == static_cast<ssize_t>(size);
}

}  // namespace

bool IsMemory(uint64_t address, uint64_t bytes) {
  while (bytes > 0) {
    Range range;
    if (!FindRange(address, &range)) return false;
    const uint64_t here = std::min(bytes, range.base + range.bytes - address);
    address += here;
    bytes -= here;
  }
  return true;
}

void ForEachTouched(uint64_t address, uint64_t bytes,
                    const std::function<void(uint64_t address, uint64_t bytes)>& touched) {
  const uint64_t first = address / kPage * kPage;
  const uint64_t end = address + bytes;
  std::vector<unsigned char> pages((UpToPage(end) - first) / kPage);
  if (mincore(AddressOf(first), end - first, pages.data()) != 0) return;
  for (size_t page = 0; page < pages.size();) {
    const auto is_there = [&pages](size_t at) { return (pages[at] & 1) != 0; };
    size_t after = page + 1;
    while (after < pages.size() && is_there(after) == is_there(page)) ++after;
    const uint64_t from = std::max(address, first + page * kPage);
    if (is_there(page)) touched(from, std::min(end, first + after * kPage) - from);
    page = after;
  }
}

Mailbox& Mailbox::OfProcess() {
  static auto* mailbox = new Mailbox;
  return *mailbox;
}

int Mailbox::File() {
  static const int kFile = memfd_create("gpusim-nccl-mail", MFD_CLOEXEC);
  return kFile;
}

void Mailbox::DropRead() {
  std::erase_if(sent_, [this](const Sent& sent) {
    return sent.is_read() && fallocate(File(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                       static_cast<off_t>(sent.place), static_cast<off_t>(sent.bytes)) == 0;
  });
}

uint64_t Mailbox::Send(const std::vector<Piece>& pieces, std::function<bool()> is_read) {
  std::vector<Entry> entries(pieces.size());
  next_ = std::max(next_, kPage);
  const uint64_t letter = next_;
  uint64_t place = letter + pieces.size() * sizeof(Entry);
  bool has_bytes = false;
  bool is_whole = true;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const Piece& piece = pieces[i];
    if (piece.bytes == 0 || !IsMemory(piece.address, piece.bytes)) {
      is_whole = is_whole && piece.bytes == 0;
      continue;
    }
    entries[i] = {place, piece.bytes};
    ForEachTouched(piece.address, piece.bytes, [&](uint64_t address, uint64_t bytes) {
      has_bytes = WriteAt(File(), place + (address - piece.address), AddressOf(address), bytes) || has_bytes;
    });
    place += piece.bytes;
  }
  const uint64_t given = place - letter - pieces.size() * sizeof(Entry);
  if (given == 0) return kNoLetter;
  if (!has_bytes && is_whole) return kZerosLetter;
  // The file ends behind the last piece, whether or not that was written.
  if (!WriteAt(File(), letter, entries.data(), entries.size() * sizeof(Entry)) ||
      ftruncate(File(), static_cast<off_t>(UpToPage(place))) != 0)
    return kNoLetter;
  DropRead();
  sent_.push_back({letter, UpToPage(place) - letter, std::move(is_read)});
  next_ = UpToPage(place);
  return letter;
}

int OpenMailbox(int32_t pid, int32_t file) {
  static auto* opened = new std::map<std::pair<int32_t, int32_t>, int>;
  const auto [found, is_new] = opened->try_emplace({pid, file}, -1);
  if (is_new) {
    const std::string path = "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(file);
    found->second = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  }
  return found->second;
}

Content Letter::Read(size_t piece, uint64_t from, uint64_t bytes, std::vector<char>* into) const {
  if (word_ == kNoLetter) return Content::kNone;
  if (word_ == kZerosLetter) return Content::kZeros;
  Entry entry;
  if (!ReadAt(file_, word_ + piece * sizeof entry, &entry, sizeof entry) || entry.place == 0 ||
      from + bytes > entry.bytes)
    return Content::kNone;
  into->resize(bytes);
  return ReadAt(file_, entry.place + from, into->data(), bytes) ? Content::kBytes : Content::kNone;
}

}  // namespace gpusim::nccl
