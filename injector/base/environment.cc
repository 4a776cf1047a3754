#include "injector/base/environment.h"

#include <sys/single_threaded.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <new>
#include <utility>

#include "injector/base/mapping.h"
#include "injector/base/own_memory.h"

namespace gpuprobe::injector {

namespace {

constexpr int kMaxPublications = 32;
constexpr size_t kMaxVariables = size_t{1} << 20;
constexpr int kAttempts = 16;
constexpr uint64_t kWatchedNs = 1'000'000'000;
constexpr size_t kMaxNameBytes = 256;

uint64_t MonotonicNs() noexcept {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
}

char** Environment() noexcept { return __atomic_load_n(&environ, __ATOMIC_ACQUIRE); }

bool Exchange(char** from, char** to) noexcept {
  return __atomic_compare_exchange_n(&environ, &from, to, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

// The pointers of an array of variables, as they were at one moment.
class Snapshot {
 public:
  // False when it cannot be read, does not hold still, or is too long.
  bool Take(char* const* array, bool trusted) noexcept {
    if (!Read(array, trusted)) return false;
    for (int i = 0; i < kAttempts; ++i) {
      Snapshot again;
      if (!again.Read(array, trusted)) return false;
      const bool same = again == *this;
      memory_.Swap(again.memory_);
      count_ = again.count_;
      if (same) return true;
    }
    return false;
  }
  bool operator==(const Snapshot& other) const noexcept {
    return count_ == other.count_ &&
           (count_ == 0 || std::memcmp(Data(), other.Data(), count_ * sizeof(char*)) == 0);
  }
  // `near` is where it stands unless something was taken out.
  bool Has(const char* entry, size_t near = 0) const noexcept {
    if (near < count_ && At(near) == entry) return true;
    for (size_t i = 0; i < count_; ++i) {
      if (At(i) == entry) return true;
    }
    return false;
  }
  size_t count() const noexcept { return count_; }
  char* At(size_t index) const noexcept { return Data()[index]; }
  void Swap(Snapshot& other) noexcept {
    memory_.Swap(other.memory_);
    std::swap(count_, other.count_);
  }
  void Reset() noexcept {
    memory_.Reset();
    count_ = 0;
  }

 private:
  char** Data() const noexcept { return reinterpret_cast<char**>(memory_.data()); }

  // A page at a time: what lies behind the array's end may not be there.
  bool Read(char* const* array, bool trusted) noexcept {
    count_ = 0;
    if (memory_.data() == nullptr && !memory_.Map(4096)) return false;
    while (array != nullptr && count_ < kMaxVariables) {
      const size_t to_page_end = (4096 - reinterpret_cast<uintptr_t>(array + count_) % 4096) / sizeof(char*);
      const size_t room = memory_.size() / sizeof(char*) - count_;
      const size_t step = to_page_end < room ? to_page_end : room;
      if (step == 0) {
        if (!Grow()) return false;
        continue;
      }
      const ReadResult result = ReadMemory(array + count_, Data() + count_, step * sizeof(char*));
      if (result == ReadResult::kGone || (result == ReadResult::kUnsupported && !trusted)) return false;
      if (result == ReadResult::kUnsupported) CopyDirectly(array + count_, step);
      for (size_t i = 0; i < step; ++i, ++count_) {
        if (Data()[count_] == nullptr) return true;
      }
    }
    return array == nullptr;
  }

  // As getenv() reads it.
  void CopyDirectly(char* const* from, size_t count) noexcept {
    char** to = Data() + count_;
    for (size_t i = 0; i < count; ++i) {
      to[i] = __atomic_load_n(from + i, __ATOMIC_RELAXED);
      if (to[i] == nullptr) return;
    }
  }

  bool Grow() noexcept {
    Mapping larger;
    if (!larger.Map(memory_.size() * 4)) return false;
    std::memcpy(larger.data(), memory_.data(), memory_.size());
    memory_.Swap(larger);
    return true;
  }

  Mapping memory_;
  size_t count_ = 0;
};

// One exchange of `environ`, until it is certain that nobody stored into the old array any more.
struct Publication {
  char** old_array = nullptr;
  char** new_array = nullptr;
  char* ours = nullptr;  // null: a repair
  Snapshot before;       // the old array, as it was copied
  uint64_t time_ns = 0;
};

// Written by one thread at a time: the starting one, then the probe's. Never destroyed: the program's threads
// may outlive static objects.
alignas(Publication) constinit char publication_storage[kMaxPublications][sizeof(Publication)] = {};
constinit std::atomic<int> publication_count{0};

Publication& PublicationAt(int index) noexcept {
  return *std::launder(reinterpret_cast<Publication*>(publication_storage[index]));
}

// The new array: what `base` has without `without`, then `first` and `second` unless they are null.
char** MakeArray(const Snapshot& base, const char* without, char* first, char* second) noexcept {
  auto* array = static_cast<char**>(MapMemory((base.count() + 3) * sizeof(char*)));
  if (array == nullptr) return nullptr;
  size_t count = 0;
  for (size_t i = 0; i < base.count(); ++i) {
    if (base.At(i) != without) array[count++] = base.At(i);
  }
  if (first != nullptr) array[count++] = first;
  if (second != nullptr) array[count++] = second;
  return array;
}

bool IsOurs(char* const* array) noexcept {
  const int count = publication_count.load(std::memory_order_relaxed);
  for (int i = 0; i < count; ++i) {
    if (PublicationAt(i).new_array == array) return true;
  }
  return false;
}

// Not looked at any more.
void Settle(Publication& publication) noexcept {
  publication.before.Reset();
  publication.time_ns = 0;
}

// The program has made an array of its own since the earlier ones were replaced: those may be freed by now.
void SettleAll(int count) noexcept {
  for (int i = 0; i < count; ++i) Settle(PublicationAt(i));
}

// Publishes a new array that is made from the current one. False when the program keeps changing it.
bool Replace(char* without, char* added, char* ours, bool trusted) noexcept {
  const int index = publication_count.load(std::memory_order_relaxed);
  if (index == kMaxPublications) return false;
  auto* publication = new (publication_storage[index]) Publication;
  for (int i = 0; i < kAttempts; ++i) {
    char** old_array = Environment();
    if (!publication->before.Take(old_array, trusted)) continue;
    char** new_array = MakeArray(publication->before, without, added, ours);
    if (new_array == nullptr) break;
    if (!Exchange(old_array, new_array)) {
      UnmapMemory(new_array, (publication->before.count() + 3) * sizeof(char*));
      continue;
    }
    if (!IsOurs(old_array)) SettleAll(index);
    publication->old_array = old_array;
    publication->new_array = new_array;
    publication->ours = ours;
    publication->time_ns = MonotonicNs();
    publication_count.store(index + 1, std::memory_order_release);
    return true;
  }
  publication->before.Reset();
  return false;
}

// The name up to its '=', from memory that may be gone. 0: it cannot be read, or is no variable.
size_t ReadName(const char* entry, char (&name)[kMaxNameBytes]) noexcept {
  size_t size = 0;
  while (size < kMaxNameBytes) {
    const size_t to_page_end = 4096 - (reinterpret_cast<uintptr_t>(entry) + size) % 4096;
    const size_t step = to_page_end < kMaxNameBytes - size ? to_page_end : kMaxNameBytes - size;
    if (ReadMemory(entry + size, name + size, step) != ReadResult::kRead) return 0;
    for (const size_t end = size + step; size < end; ++size) {
      if (name[size] == '=') return size;
      if (name[size] == '\0') return 0;
    }
  }
  return 0;
}

bool SameName(const char* a, const char* b) noexcept {
  char name_a[kMaxNameBytes];
  char name_b[kMaxNameBytes];
  const size_t size = ReadName(a, name_a);
  return size != 0 && size == ReadName(b, name_b) && std::memcmp(name_a, name_b, size) == 0;
}

bool IsVariable(const char* entry, const char* name, size_t length) noexcept {
  return std::strncmp(entry, name, length) == 0 && entry[length] == '=';
}

// Without other threads, as getenv() does. With them, the array and its entries may be gone by the time that
// they are looked at: the C library frees the one, and the program the other.
bool IsSet(const char* name) noexcept {
  const size_t length = std::strlen(name);
  char read[kMaxNameBytes];
  const bool directly = __libc_single_threaded != 0 || ReadMemory(name, read, 1) == ReadResult::kUnsupported;
  if (directly) {
    char** array = Environment();
    for (size_t i = 0; array != nullptr; ++i) {
      const char* entry = __atomic_load_n(array + i, __ATOMIC_RELAXED);
      if (entry == nullptr) return false;
      if (IsVariable(entry, name, length)) return true;
    }
    return false;
  }
  Snapshot now;
  if (!now.Take(Environment(), true)) return false;
  for (size_t i = 0; i < now.count(); ++i) {
    if (ReadName(now.At(i), read) == length && std::memcmp(read, name, length) == 0) return true;
  }
  return false;
}

// What stands in the current array for what the old one had there. Gone: the program has newer plans.
void ReplaceEntry(char* from, char* to) noexcept {
  char** array = Environment();
  for (size_t i = 0; IsOurs(array) && array[i] != nullptr; ++i) {
    char* expected = from;
    if (__atomic_compare_exchange_n(array + i, &expected, to, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
      return;
  }
}

// The program stored into the old array while we copied it: the same happens to the new one.
void CarryOver(Publication& publication, Snapshot& now) noexcept {
  const Snapshot& before = publication.before;
  for (size_t i = 0; i < now.count(); ++i) {
    char* added = now.At(i);
    if (before.Has(added, i)) continue;
    char* replaced = nullptr;
    for (size_t k = 0; k < before.count() && replaced == nullptr; ++k) {
      if (!now.Has(before.At(k), k) && SameName(before.At(k), added)) replaced = before.At(k);
    }
    if (replaced != nullptr) {
      ReplaceEntry(replaced, added);
    } else {
      char name[kMaxNameBytes];
      if (ReadName(added, name) != 0) Replace(nullptr, added, nullptr, false);
    }
  }
  for (size_t i = 0; i < before.count(); ++i) {
    char* removed = before.At(i);
    bool replaced = now.Has(removed, i);
    for (size_t k = 0; k < now.count() && !replaced; ++k)
      replaced = !before.Has(now.At(k), k) && SameName(now.At(k), removed);
    if (!replaced) Replace(removed, nullptr, nullptr, false);
  }
  publication.before.Swap(now);
}

// The program's array, made from the one before ours, has most of that one. Anything else is a new
// environment, which is left alone.
bool MadeFrom(const Snapshot& before, const Snapshot& current) noexcept {
  size_t kept = 0;
  for (size_t i = 0; i < before.count(); ++i) kept += current.Has(before.At(i), i) ? 1 : 0;
  return current.count() != 0 && kept * 2 >= before.count();
}

void Repair(Publication& publication) noexcept {
  char** current = Environment();
  Snapshot now;
  if (IsOurs(current)) {
    // As long as one of ours is current, nobody has made the old one longer, and so nobody has freed it.
    const bool read = publication.old_array != nullptr && now.Take(publication.old_array, false);
    if (read && Environment() == current && !(now == publication.before)) CarryOver(publication, now);
    return;
  }
  if (publication.ours == nullptr || current == nullptr || !now.Take(current, false)) return;
  if (Environment() != current || now.Has(publication.ours) || !MadeFrom(publication.before, now)) return;
  // Once: then it counts as a new publication, and if the program takes it out, out it stays.
  char* ours = publication.ours;
  publication.ours = nullptr;
  char name[kMaxNameBytes];
  for (size_t i = 0; i < now.count(); ++i) {
    if (ReadName(now.At(i), name) != 0 && SameName(now.At(i), ours)) return;
  }
  // Next time, if the program keeps changing its array.
  if (!Replace(nullptr, nullptr, ours, false)) publication.ours = ours;
}

}  // namespace

bool PublishVariable(const char* name, const char* value) noexcept {
  if (IsSet(name)) return true;
  const size_t bytes = std::strlen(name) + std::strlen(value) + sizeof("=");
  auto* entry = static_cast<char*>(MapMemory(bytes));
  if (entry == nullptr) return false;
  char* const equals = stpcpy(entry, name);
  *equals = '=';
  stpcpy(equals + 1, value);
  if (Replace(nullptr, nullptr, entry, true)) {
    // What the program stored into the old array meanwhile is lost if it makes another one before this.
    if (__libc_single_threaded == 0) RepairEnvironment();
    return true;
  }
  UnmapMemory(entry, bytes);
  return false;
}

void RepairEnvironment() noexcept {
  const int count = publication_count.load(std::memory_order_acquire);
  if (count == 0) return;
  const uint64_t now_ns = MonotonicNs();
  for (int i = 0; i < count; ++i) {
    Publication& publication = PublicationAt(i);
    if (publication.time_ns == 0) continue;
    const bool last = now_ns - publication.time_ns > kWatchedNs;
    Repair(publication);
    if (last) Settle(publication);
  }
}

void ForgetPublicationsForTest() noexcept { SettleAll(publication_count.exchange(0)); }

}  // namespace gpuprobe::injector
