#include "stacks/python_stack.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <ctime>

#include "stacks/mapped_objects.h"
#include "stacks/proc_path.h"
#include "stacks/python_lines.h"

namespace gpuprobe::stacks {
namespace {

constexpr int kAttempts = 4;
constexpr int kAttemptsForOuter = 12;  // while there is nothing to keep
constexpr size_t kMostInterpreters = 64;
// Frames of the interpreter's own between two of Python's (3.12 and newer): one for each call from C.
constexpr size_t kMostLinks = PythonStack::kMostFrames * 4;
// FRAME_OWNED_BY_CSTACK in 3.12 and 3.13, FRAME_OWNED_BY_INTERPRETER in 3.14; no Python code runs in such a
// frame.
constexpr uint8_t kFirstForeignOwner = 3;
// struct pthread of glibc 2.x for 64-bit machines keeps the thread's number here.
constexpr uint64_t kTidInPthread = 720;
constexpr uint64_t kMostTextBytes = 512;
// From the lock's holder to the end of its last mutex: a number, a counter, two conditions, two mutexes.
constexpr uint64_t kLockBytes = 8 + 8 + 8 + 2 * (48 + 40);
// The largest structure of which more than one member is read, a code object's.
constexpr size_t kMostBlock = 256;
// Objects that are looked into: a process may map one file any number of times.
constexpr int kMostObjects = 4096;
// Writable memory that is searched for an interpreter which exports nothing.
constexpr uint64_t kMostSearched = uint64_t{64} << 20;

// "libpython3.10.so.1.0", "python3.10": 3.10. 0: no version in the name.
uint32_t VersionInName(std::string_view path) {
  const size_t slash = path.rfind('/');
  std::string_view name = path;
  if (slash != std::string_view::npos) name.remove_prefix(slash + 1);
  constexpr std::string_view kPython3 = "python3.";
  const size_t at = name.find(kPython3);
  if (at == std::string_view::npos) return 0;
  name.remove_prefix(at + kPython3.size());
  uint32_t minor = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), minor);
  return error == std::errc() && minor < 256 ? 0x03000000U | minor << 16 : 0;
}

struct Found {
  uint64_t runtime = 0;
  uint32_t version = 0;
};

// What the object that is mapped at `base` exports.
Found LookIn(const ProcessMemory& memory, uint64_t base, std::string_view path) {
  Found found;
  found.runtime = FindExported(memory, base, "_PyRuntime");
  if (found.runtime == 0) return found;
  uint64_t version = 0;  // Py_Version, from 3.11 on
  const uint64_t symbol = FindExported(memory, base, "Py_Version");
  if (symbol != 0 && memory.Read(symbol, version)) found.version = static_cast<uint32_t>(version);
  if (found.version == 0) found.version = VersionInName(path);
  return found;
}

// The table of CPython 3.13 and newer, in an interpreter that is linked into a program and exports nothing.
uint64_t SearchCookie(const ProcessMemory& memory, const Mapping& mapping, uint64_t& searched) {
  alignas(8) char page[4096];
  for (uint64_t at = mapping.begin; at < mapping.end && searched < kMostSearched; at += sizeof page) {
    searched += sizeof page;
    if (!memory.Read(at, page, sizeof page)) continue;
    for (size_t i = 0; i < sizeof page; i += 8) {
      if (std::memcmp(page + i, "xdebugpy", 8) == 0) return at + i;
    }
  }
  return 0;
}

// A member of a structure that was read up to its last member that is needed.
template <class T>
T At(const char* block, uint32_t offset) {
  T value{};
  if (offset + sizeof value <= kMostBlock) std::memcpy(&value, block + offset, sizeof value);
  return value;
}

bool IsThreadOf(pid_t pid, pid_t tid) { return access(ProcPath(pid, "/task/").Add(tid).c_str(), F_OK) == 0; }

}  // namespace

std::string_view PythonStack::Keep(const char* text, size_t size) {
  for (size_t i = 0; i < size_; ++i) {  // frames of one file follow each other
    if (frames_[i].file == std::string_view(text, size)) return frames_[i].file;
  }
  if (size > text_.size() - text_used_) return {};
  char* const to = text_.data() + text_used_;
  std::memcpy(to, text, size);
  text_used_ += size;
  return {to, size};
}

void PythonStack::AddInnermost(std::string_view function) {
  if (size_ == kMostFrames) {
    --size_;
    quality_ = StackQuality::kOuterMissing;
  }
  std::copy_backward(frames_.begin(), frames_.begin() + static_cast<ptrdiff_t>(size_),
                     frames_.begin() + static_cast<ptrdiff_t>(size_) + 1);
  frames_[0] = {};
  frames_[0].function = function;
  frames_[0].file = "<CPython>";
  ++size_;
}

// Both times that the chain was read, a frame outside of all that changed was called from the same place. The
// innermost of these may have gone on to another line since.
size_t PythonStack::CountOuter() const {
  size_t same = 0;
  while (same < std::min(size_ - unknown_, again_.size) && size_ == chain_.size) {
    const Link& before = chain_.links[chain_.size - 1 - same];
    const Link& after = again_.links[again_.size - 1 - same];
    if (before.frame != after.frame || before.code != after.code) break;
    ++same;
    if (before.instruction != after.instruction) break;
  }
  return same;
}

void PythonStack::KeepOuter(size_t count) {
  std::copy_n(frames_.begin() + static_cast<ptrdiff_t>(size_ - count), count, frames_.begin());
  size_ = count;
}

// Where a class is called often, 3.12 and newer run its `__init__` without a call from C, with a frame of
// their own between it and its caller. That frame's code is named and filed by one and the same string.
void PythonStack::DropInternal() {
  size_t kept = 0;
  for (size_t i = 0; i < size_; ++i) {
    const PythonFrame& frame = frames_[i];
    if (frame.place.code != 0 && frame.place.file == frame.place.function) {
      if (kept > 0 && frame.entry && !frames_[kept - 1].entry) {
        frames_[kept - 1].entry = true;
        frames_[kept - 1].loop = frame.loop;
      }
      continue;
    }
    if (kept != i) frames_[kept] = frame;
    ++kept;
  }
  size_ = kept;
}

Unreadable PythonProcess::Open() {
  runtime_ = 0;
  code_type_ = 0;
  layout_ = {};
  Found found;
  {
    Mappings mappings(memory_.pid());
    if (!mappings.opened())
      return errno == EACCES || errno == EPERM ? Unreadable::kNotPermitted : Unreadable::kNoProcess;
    Mapping mapping;
    bool any = false;
    int objects = 0;
    while (found.runtime == 0 && objects < kMostObjects && mappings.Next(mapping)) {
      any = true;
      if (mapping.offset != 0 || mapping.path.empty() || mapping.path.front() != '/') continue;
      ++objects;
      found = LookIn(memory_, mapping.begin, mapping.path);
      if (memory_.refused() != 0)
        return memory_.refused() == ESRCH ? Unreadable::kNoProcess : Unreadable::kNotPermitted;
    }
    if (!any) return Unreadable::kNoProcess;  // a zombie, or one of the kernel's
  }
  if (found.runtime == 0) {
    Mappings mappings(memory_.pid());
    Mapping mapping;
    uint64_t searched = 0;
    while (found.runtime == 0 && mappings.Next(mapping)) {
      if (mapping.writable && !mapping.path.empty() && mapping.path.front() == '/') {
        found.runtime = SearchCookie(memory_, mapping, searched);
      }
    }
  }
  if (found.runtime == 0) return Unreadable::kNoInterpreter;
  const Unreadable result = ReadPythonLayout(memory_, found.runtime, found.version, layout_);
  if (result == Unreadable::kNo) runtime_ = found.runtime;
  return result;
}

Unreadable PythonProcess::OpenAt(uint64_t base, std::string_view path) {
  runtime_ = 0;
  code_type_ = 0;
  layout_ = {};
  const Found found = LookIn(memory_, base, path);
  if (memory_.refused() != 0) return Unreadable::kNotPermitted;
  if (found.runtime == 0) return Unreadable::kNoInterpreter;
  const Unreadable result = ReadPythonLayout(memory_, found.runtime, found.version, layout_);
  if (result == Unreadable::kNo) runtime_ = found.runtime;
  return result;
}

bool PythonProcess::NextThread(Cursor& cursor, PythonThread& thread) const {
  if (runtime_ == 0 || cursor.seen >= kMostThreads) return false;
  uint64_t next = 0;
  if (!cursor.begun) {
    cursor.begun = true;
    if (!memory_.Read(runtime_ + layout_.runtime_interpreters, cursor.interpreter)) return false;
  } else if (cursor.thread != 0 && !memory_.Read(cursor.thread + layout_.thread_next, next)) {
    next = 0;
  }
  if (cursor.thread == 0) next = 0;
  for (size_t i = 0; next == 0 && i < kMostInterpreters; ++i) {
    if (cursor.thread != 0 || i > 0) {  // this interpreter's threads are done
      if (!memory_.Read(cursor.interpreter + layout_.interpreter_next, cursor.interpreter)) return false;
    }
    if (cursor.interpreter == 0) return false;
    if (!memory_.Read(cursor.interpreter + layout_.interpreter_id, cursor.id) ||
        !memory_.Read(cursor.interpreter + layout_.interpreter_threads, next)) {
      return false;
    }
    cursor.thread = next;
  }
  if (next == 0) return false;
  cursor.thread = next;
  ++cursor.seen;
  thread = {
      .state = next, .interpreter_state = cursor.interpreter, .interpreter = cursor.id, .tid = TidOf(next)};
  return true;
}

pid_t PythonProcess::TidOf(uint64_t thread) const {
  if (layout_.thread_native_id != 0) {
    uint64_t tid = 0;
    return memory_.Read(thread + layout_.thread_native_id, tid) ? static_cast<pid_t>(tid) : 0;
  }
  uint64_t pthread = 0;
  uint32_t tid = 0;
  if (!memory_.Read(thread + layout_.thread_pthread, pthread) || pthread == 0 ||
      !memory_.Read(pthread + kTidInPthread, tid)) {
    return 0;
  }
  return IsThreadOf(memory_.pid(), static_cast<pid_t>(tid)) ? static_cast<pid_t>(tid) : 0;
}

bool PythonProcess::IsLate() const {
  if (until_ns_ == UINT64_MAX) return false;
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec) > until_ns_;
}

bool PythonProcess::IsCodeType(uint64_t type) const {
  if (type == code_type_) return type != 0;
  uint64_t name = 0;
  char text[5];
  if (!memory_.Read(type + layout_.type_name, name) || !memory_.Read(name, text) ||
      std::memcmp(text, "code", 5) != 0) {
    return false;
  }
  code_type_ = type;
  return true;
}

bool PythonProcess::ReadInnermost(uint64_t thread, uint64_t& frame) const {
  if (!memory_.Read(thread + layout_.thread_frame, frame)) return false;
  return !layout_.frame_behind_pointer || (frame != 0 && memory_.Read(frame + layout_.pointer_frame, frame));
}

// Addresses that cannot be read any more are forgotten, with those that were read together with them.
void PythonProcess::ReadBlocks(PythonStack::Blocks& blocks, size_t bytes) const {
  for (size_t begin = 0; begin < blocks.size; begin += ProcessMemory::kMostAtOnce) {
    const size_t count = std::min(ProcessMemory::kMostAtOnce, blocks.size - begin);
    if (!memory_.ReadEach(&blocks.addresses[begin], count, &blocks.bytes[begin * bytes], bytes))
      std::fill_n(blocks.addresses.begin() + static_cast<ptrdiff_t>(begin), count, 0);
  }
}

bool PythonProcess::ReadChain(uint64_t thread, PythonStack::Blocks& blocks, PythonStack::Chain& chain) const {
  chain.size = 0;
  chain.cut = false;
  chain.whole = false;
  uint64_t frame = 0;
  if (!ReadInnermost(thread, frame)) return false;
  const uint64_t innermost = frame;
  const uint32_t last = std::max({layout_.frame_previous, layout_.frame_code, layout_.frame_instruction,
                                  layout_.frame_owner, layout_.frame_entry});
  const size_t bytes = last + 8;
  if (bytes > PythonStack::kBlockBytes) return false;
  ReadBlocks(blocks, bytes);
  uint64_t visited[PythonStack::kMostBlocks];
  size_t at = 0;  // in the blocks: callers keep their order
  char single[PythonStack::kBlockBytes];
  bool read = true;
  size_t i = 0;
  for (; frame != 0; ++i) {
    if (i == kMostLinks || chain.size == chain.links.size()) {
      chain.cut = true;
      break;
    }
    if (i < PythonStack::kMostBlocks) visited[i] = frame;
    const auto begin = blocks.addresses.begin();
    const auto found =
        std::find(begin + static_cast<ptrdiff_t>(at), begin + static_cast<ptrdiff_t>(blocks.size), frame);
    const auto place = static_cast<size_t>(found - begin);
    const char* block = single;
    if (place < blocks.size) {
      block = &blocks.bytes[place * bytes];
      at = place + 1;
    } else if (IsLate() || !memory_.Read(frame, single, bytes)) {
      read = false;
      break;
    }
    // Before 3.11 frames are objects. Freed ones keep their code, and f_back then links the free ones.
    if (layout_.instruction_is_index && At<int64_t>(block, 0) <= 0) {
      read = false;
      break;
    }
    PythonStack::Link link{.frame = frame, .code = At<uint64_t>(block, layout_.frame_code)};
    link.instruction = layout_.instruction_is_index
                           ? static_cast<uint64_t>(int64_t{At<int32_t>(block, layout_.frame_instruction)} *
                                                   layout_.instruction_scale)
                           : At<uint64_t>(block, layout_.frame_instruction);
    const uint8_t owner = layout_.frame_owner == 0 ? uint8_t{0} : At<uint8_t>(block, layout_.frame_owner);
    if (owner < kFirstForeignOwner) {
      link.code &= ~uint64_t{7};  // 3.14 keeps a tag there
      // Before 3.11 each frame has a call of the evaluation loop of its own. 3.12 and newer have a frame
      // of the interpreter's own on the C stack where a call of it begins.
      link.entry = layout_.instruction_is_index ||
                   (layout_.frame_entry != 0 && At<uint8_t>(block, layout_.frame_entry) != 0);
      chain.links[chain.size++] = link;
    } else if (chain.size > 0) {
      chain.links[chain.size - 1].entry = true;
      chain.links[chain.size - 1].loop = frame;
    }
    frame = At<uint64_t>(block, layout_.frame_previous);
  }
  blocks.size = std::min(i, PythonStack::kMostBlocks);
  std::copy_n(visited, blocks.size, blocks.addresses.begin());
  // A function that has returned meanwhile still refers to where its caller was.
  chain.whole = read && !chain.cut;
  return read && ReadInnermost(thread, frame) && frame == innermost;
}

std::string_view PythonProcess::ReadText(uint64_t string, PythonStack& stack) const {
  unsigned char raw[kMostTextBytes];
  const size_t got = memory_.ReadSome(string, raw, sizeof raw);
  if (got < layout_.string_compact) return {};
  uint64_t length = 0;
  uint32_t state = 0;
  std::memcpy(&length, raw + layout_.string_length, sizeof length);
  std::memcpy(&state, raw + layout_.string_state, sizeof state);
  const uint32_t kind = (state >> 2) & 7;
  const bool compact = (state & 32) != 0;
  const bool ascii = (state & 64) != 0;
  if (!compact || (kind != 1 && kind != 2 && kind != 4)) return {};
  const uint32_t begin = ascii ? layout_.string_ascii : layout_.string_compact;
  length = std::min<uint64_t>(length, (sizeof raw - begin) / kind);
  if (begin + length * kind > got) return {};
  char text[kMostTextBytes * 3];
  size_t size = 0;
  for (size_t i = 0; i < length; ++i) {
    uint32_t c = 0;
    std::memcpy(&c, raw + begin + i * kind, kind);
    if (c < 0x80) {
      text[size++] = static_cast<char>(c);
    } else if (c < 0x800) {
      text[size++] = static_cast<char>(0xc0 | c >> 6);
      text[size++] = static_cast<char>(0x80 | (c & 63));
    } else if (c < 0x10000) {
      text[size++] = static_cast<char>(0xe0 | c >> 12);
      text[size++] = static_cast<char>(0x80 | (c >> 6 & 63));
      text[size++] = static_cast<char>(0x80 | (c & 63));
    } else if (c < 0x110000) {
      text[size++] = static_cast<char>(0xf0 | c >> 18);
      text[size++] = static_cast<char>(0x80 | (c >> 12 & 63));
      text[size++] = static_cast<char>(0x80 | (c >> 6 & 63));
      text[size++] = static_cast<char>(0x80 | (c & 63));
    } else {
      return {};
    }
  }
  return stack.Keep(text, size);
}

int32_t PythonProcess::LineOf(const PythonPlace& place) const {
  uint64_t size = 0;
  if (!memory_.Read(place.lines + layout_.bytes_size, size)) return 0;
  const int64_t offset =
      layout_.instruction_is_index
          ? static_cast<int64_t>(place.instruction)
          : static_cast<int64_t>(place.instruction - (place.code + layout_.code_instructions));
  return FindLine(memory_, layout_.lines, place.lines + layout_.bytes_data, size, offset, place.first_line);
}

bool PythonProcess::AddFrame(PythonStack& stack, const PythonPlace& place, uint32_t known) const {
  const PythonStack::Link& link = stack.chain_.links[stack.size_];
  PythonFrame& frame = stack.frames_[stack.size_];
  frame = {.place = place,
           .known = known,
           .line = 0,
           .entry = link.entry,
           .loop = link.loop,
           .function = {},
           .file = {}};
  if (known == 0) {
    frame.line = LineOf(place);
    const auto end = stack.frames_.begin() + static_cast<ptrdiff_t>(stack.size_);
    const auto same = std::find_if(stack.frames_.begin(), end, [&](const PythonFrame& other) {
      return other.place.code == place.code && other.known == 0;
    });
    if (same != end) {  // recursion
      frame.function = same->function;
      frame.file = same->file;
    } else {
      frame.file = ReadText(place.file, stack);
      frame.function = ReadText(place.function, stack);
      if (frame.function.empty()) return false;
    }
  }
  ++stack.size_;
  return true;
}

// `torn`: whether frames that no longer exist may be among them, the innermost ones.
bool PythonProcess::ReadNames(PythonStack& stack, FindPlace find, const void* in, Torn torn) const {
  stack.size_ = 0;
  stack.unknown_ = 0;
  stack.text_used_ = 0;
  const size_t bytes = std::max({layout_.object_type, layout_.code_first_line, layout_.code_file,
                                 layout_.code_name, layout_.code_lines}) +
                       8;
  if (bytes > kMostBlock) return false;
  char codes[(ProcessMemory::kMostAtOnce + 1) * kMostBlock];  // the last one may be read beyond its end
  uint64_t addresses[ProcessMemory::kMostAtOnce];
  for (size_t begin = 0; begin < stack.chain_.size; begin += ProcessMemory::kMostAtOnce) {
    const size_t count = std::min(ProcessMemory::kMostAtOnce, stack.chain_.size - begin);
    for (size_t i = 0; i < count; ++i) addresses[i] = stack.chain_.links[begin + i].code;
    if (IsLate()) return false;
    const bool all = memory_.ReadEach(addresses, count, codes, bytes);
    if (!all && torn == Torn::kNothing) return false;
    for (size_t i = 0; i < count; ++i) {
      char* const code = codes + i * bytes;
      const bool is_code = (all || memory_.Read(addresses[i], code, bytes)) &&
                           IsCodeType(At<uint64_t>(code, layout_.object_type));
      if (!is_code) {
        if (torn == Torn::kNothing) return false;
        AddUnknown(stack);
        continue;
      }
      const PythonPlace place{.code = addresses[i],
                              .instruction = stack.chain_.links[begin + i].instruction,
                              .function = At<uint64_t>(code, layout_.code_name),
                              .file = At<uint64_t>(code, layout_.code_file),
                              .lines = At<uint64_t>(code, layout_.code_lines),
                              .first_line = At<int32_t>(code, layout_.code_first_line)};
      if (AddFrame(stack, place, find == nullptr ? 0 : find(in, place))) continue;
      if (torn == Torn::kNothing) return false;
      AddUnknown(stack);
    }
  }
  return true;
}

void PythonProcess::AddUnknown(PythonStack& stack) {
  stack.frames_[stack.size_++] = {};
  stack.unknown_ = stack.size_;
}

uint64_t PythonProcess::AddressOfLock(const PythonThread& thread) const {
  return layout_.lock_in_runtime ? runtime_ : thread.interpreter_state;
}

uint64_t PythonProcess::HolderOfLock(const PythonThread& thread) const {
  if (layout_.lock_holder == 0) return 0;
  const uint64_t lock = AddressOfLock(thread);
  uint64_t holder = 0;
  int32_t locked = 0;
  const bool is_held = memory_.Read(lock + layout_.lock_holder, holder) &&
                       memory_.Read(lock + layout_.lock_locked, locked) && locked == 1;
  return is_held ? holder : 0;
}

bool PythonProcess::IsLock(const PythonThread& thread, uint64_t address) const {
  const uint64_t lock = AddressOfLock(thread) + layout_.lock_holder;
  return layout_.lock_holder != 0 && address >= lock && address - lock < kLockBytes;
}

// It is the holder of the interpreter's lock that collects.
bool PythonProcess::IsCollecting(const PythonThread& thread) const {
  if (layout_.collecting == 0) return false;
  const uint64_t collector = layout_.collecting_in_runtime ? runtime_ : thread.interpreter_state;
  int32_t collecting = 0;
  return memory_.Read(collector + layout_.collecting, collecting) && collecting == 1 &&
         HolderOfLock(thread) == thread.state;
}

// Both times that the chain was read. The innermost function may have gone on to another line; its callers
// cannot.
bool PythonProcess::Agree(const PythonStack& stack) {
  const PythonStack::Chain& before = stack.chain_;
  const PythonStack::Chain& after = stack.again_;
  bool agree = before.size == after.size && before.cut == after.cut;
  for (size_t i = 0; agree && i < before.size; ++i) {
    const PythonStack::Link& a = before.links[i];
    const PythonStack::Link& b = after.links[i];
    agree = a.frame == b.frame && a.code == b.code && (i == 0 || a.instruction == b.instruction);
  }
  return agree;
}

bool PythonProcess::ReadStack(const PythonThread& thread, PythonStack& stack, FindPlace find, const void* in,
                              Torn torn) const {
  stack.size_ = 0;
  stack.quality_ = StackQuality::kTorn;
  const int attempts = torn == Torn::kOuter ? kAttemptsForOuter : kAttempts;
  for (int attempt = 0; attempt < attempts; ++attempt) {
    const bool collecting = IsCollecting(thread);
    const bool read = ReadChain(thread.state, stack.blocks_, stack.chain_);
    stack.size_ = 0;
    if (!(read || (torn == Torn::kOuter && stack.chain_.whole)) || !ReadNames(stack, find, in, torn))
      continue;
    const bool read_again = ReadChain(thread.state, stack.blocks_, stack.again_);
    if (read && read_again && stack.unknown_ == 0 && collecting == IsCollecting(thread) && Agree(stack)) {
      stack.quality_ = stack.chain_.cut ? StackQuality::kOuterMissing : StackQuality::kWhole;
      stack.DropInternal();
      if (collecting) stack.AddInnermost(kCollecting);
      return true;
    }
    if (attempt + 1 < kAttempts || torn == Torn::kNothing) continue;
    size_t outer = stack.chain_.whole && stack.again_.whole ? stack.CountOuter() : 0;
    if (outer == 0) continue;
    // A thread that does the same again and again may fool two readings in the same way: it left a frame
    // between the readings of that and of its caller.
    ReadChain(thread.state, stack.blocks_, stack.again_);
    outer = stack.again_.whole ? std::min(outer, stack.CountOuter()) : 0;
    if (outer == 0) continue;
    stack.KeepOuter(outer);
    stack.DropInternal();
    return true;
  }
  stack.size_ = 0;
  return !(thread.tid != 0 && !IsThreadOf(memory_.pid(), thread.tid));
}

void PythonProcess::ReadStopped(const PythonThread& thread, uint64_t until_ns, PythonStack& stack) {
  until_ns_ = until_ns;
  const bool read = ReadChain(thread.state, stack.blocks_, stack.chain_) &&
                    ReadNames(stack, nullptr, nullptr, Torn::kNothing);
  until_ns_ = UINT64_MAX;
  if (!read) stack.size_ = 0;
  stack.DropInternal();
  stack.quality_ = !read              ? StackQuality::kTorn
                   : stack.chain_.cut ? StackQuality::kOuterMissing
                                      : StackQuality::kWhole;
}

}  // namespace gpuprobe::stacks
