#include "collector/observe/native_frames.h"

#include <cxxabi.h>
#include <dwarf.h>
#include <elfutils/libdw.h>
#include <elfutils/libdwfl.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>

#include "absl/strings/str_cat.h"
#include "collector/observe/mapped_file.h"
#include "stacks/mapped_objects.h"

namespace gpuprobe::observe {
namespace {

std::string Demangled(const std::string& symbol) {
  int status = 0;
  char* const text = abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status);
  if (text == nullptr) return symbol;
  std::string name = text;
  std::free(text);
  return name;
}

std::string NameOf(Dwarf_Die* die) {
  Dwarf_Attribute attribute;
  for (const unsigned name : {DW_AT_linkage_name, DW_AT_MIPS_linkage_name}) {
    const char* const text = dwarf_formstring(dwarf_attr_integrate(die, name, &attribute));
    if (text != nullptr) return Demangled(text);
  }
  const char* const text = dwarf_formstring(dwarf_attr_integrate(die, DW_AT_name, &attribute));
  return text == nullptr ? "" : text;
}

int NumberOf(Dwarf_Die* die, unsigned name) {
  Dwarf_Attribute attribute;
  Dwarf_Word value = 0;
  return dwarf_formudata(dwarf_attr(die, name, &attribute), &value) == 0 ? static_cast<int>(value) : 0;
}

// Absolute, where the compiler says in which folder it ran; distributions shorten that to "./nptl".
std::string WholePath(Dwarf_Die* unit, const char* file) {
  if (file == nullptr) return "";
  Dwarf_Attribute attribute;
  const char* const folder = dwarf_formstring(dwarf_attr(unit, DW_AT_comp_dir, &attribute));
  std::filesystem::path path = file;
  if (path.is_relative() && folder != nullptr && *folder == '/') path = folder / path;
  std::string text = path.lexically_normal().string();
  while (text.starts_with("../")) text.erase(0, 3);
  return text;
}

// The compilation unit of an address; `bias` is what to subtract from it.
Dwarf_Die* UnitOf(Dwfl_Module* module, uint64_t pc, Dwarf_Addr& bias) {
  Dwarf_Die* unit = dwfl_module_addrdie(module, pc, &bias);
  if (unit != nullptr) return unit;
  // Clang writes no table of addresses.
  while ((unit = dwfl_module_nextcu(module, unit, &bias)) != nullptr) {
    if (dwarf_haspc(unit, pc - bias) == 1) return unit;
  }
  return nullptr;
}

struct Place {
  std::string file;
  int line = 0;
};

Place PlaceOf(Dwarf_Die* unit, uint64_t pc) {
  Place place;
  Dwarf_Line* const line = dwarf_getsrc_die(unit, pc);
  if (line == nullptr) return place;
  place.file = WholePath(unit, dwarf_linesrc(line, nullptr, nullptr));
  dwarf_lineno(line, &place.line);
  return place;
}

// Where the caller calls the inlined function of `die`.
Place CallerOf(Dwarf_Die* unit, Dwarf_Die* die) {
  Place place;
  Dwarf_Files* files = nullptr;
  size_t count = 0;
  const int file = NumberOf(die, DW_AT_call_file);
  if (dwarf_getsrcfiles(unit, &files, &count) == 0 && file >= 0 && static_cast<size_t>(file) < count)
    place.file = WholePath(unit, dwarf_filesrc(files, static_cast<size_t>(file), nullptr, nullptr));
  place.line = NumberOf(die, DW_AT_call_line);
  return place;
}

StackFrame FrameAt(const std::string& function, const Place& place) {
  StackFrame frame;
  frame.function = function;
  frame.file = place.file;
  frame.line = place.line;
  frame.native = true;
  return frame;
}

// Functions at an address from the debug information, inlined ones first. Empty: there is none.
std::vector<StackFrame> FunctionsAt(Dwfl_Module* module, uint64_t pc) {
  std::vector<StackFrame> frames;
  Dwarf_Addr bias = 0;
  Dwarf_Die* const unit = UnitOf(module, pc, bias);
  if (unit == nullptr) return frames;
  Place place = PlaceOf(unit, pc - bias);
  Dwarf_Die* innermost = nullptr;
  Dwarf_Die* scopes = nullptr;  // around it; dwarf_getscopes goes on where an inlined function is declared
  const bool found = dwarf_getscopes(unit, pc - bias, &innermost) > 0;
  const int count = found ? dwarf_getscopes_die(innermost, &scopes) : 0;
  for (int i = 0; i < count; ++i) {
    const int tag = dwarf_tag(&scopes[i]);
    if (tag != DW_TAG_inlined_subroutine && tag != DW_TAG_subprogram) continue;
    // A function that is inlined in part into what is left of it is one.
    const std::string name = NameOf(&scopes[i]);
    if (frames.empty() || frames.back().function != name || frames.back().file != place.file)
      frames.push_back(FrameAt(name, place));
    if (tag == DW_TAG_subprogram) break;
    place = CallerOf(unit, &scopes[i]);
  }
  std::free(innermost);
  std::free(scopes);
  if (frames.empty()) frames.push_back(FrameAt("", place));
  return frames;
}

// Whether the object says how to leave the function at `pc`. libdw would guess otherwise.
bool HasUnwindInformation(Dwfl_Module* module, uint64_t pc) {
  if (module == nullptr) return false;
  for (const bool debug : {false, true}) {
    Dwarf_Addr bias = 0;
    Dwarf_CFI* const cfi = debug ? dwfl_module_dwarf_cfi(module, &bias) : dwfl_module_eh_cfi(module, &bias);
    Dwarf_Frame* frame = nullptr;
    if (cfi == nullptr || dwarf_cfi_addrframe(cfi, pc - bias, &frame) != 0) continue;
    std::free(frame);
    return true;
  }
  return false;
}

}  // namespace

struct NativeUnwinder::State {
  struct Call {
    uint64_t pc = 0;
    uint64_t stack_pointer = 0;
    bool active = false;  // it is executing `pc`, which is not a return address
  };
  struct Source {
    const stacks::ProcessMemory* memory;
    MappedObject object;
  };

  explicit State(pid_t pid) : memory(pid) {}

  void ReadMappings();
  void Begin();
  bool ReadMemory(uint64_t address, Dwarf_Word& value) const;
  NativeFrame Name(uint64_t pc);

  stacks::ProcessMemory memory;
  std::vector<MappedPart> mappings;  // all, in order
  std::vector<Source> objects;       // with code
  std::string debug_folders;
  char* debug_folders_text = nullptr;
  Dwfl_Callbacks callbacks{};
  Dwfl_Thread_Callbacks thread_callbacks{};
  Dwfl* dwfl = nullptr;
  bool attached = false;
  const ThreadCopy* copy = nullptr;  // that is being unwound
  std::vector<Call> calls;
  std::map<uint64_t, NativeFrame> named;  // by address: many threads wait in the same places
};

void NativeUnwinder::State::ReadMappings() {
  stacks::Mappings list(memory.pid());
  stacks::Mapping mapping;
  MappedObject object;
  bool has_code = false;
  const auto end_object = [&] {
    if (has_code) objects.push_back({.memory = &memory, .object = std::move(object)});
    object = {};
    has_code = false;
  };
  while (list.Next(mapping)) {
    const MappedPart part{
        .begin = mapping.begin, .end = mapping.end, .offset = mapping.offset, .writable = mapping.writable};
    mappings.push_back(part);
    if (mapping.path.empty() || (mapping.path.front() != '/' && mapping.path != kVdso)) continue;
    if (mapping.path != object.path || mapping.offset == 0) {
      end_object();
      object.path = std::string(mapping.path);
    }
    object.parts.push_back(part);
    has_code = has_code || mapping.executable;
  }
  end_object();
}

bool NativeUnwinder::State::ReadMemory(uint64_t address, Dwarf_Word& value) const {
  if (address >= copy->stack_begin) {
    const uint64_t at = address - copy->stack_begin;
    if (at < copy->stack.size() && copy->stack.size() - at >= sizeof value) {
      std::memcpy(&value, copy->stack.data() + at, sizeof value);
      return true;
    }
  }
  // The thread may have changed what can be written since.
  const auto after = std::upper_bound(mappings.begin(), mappings.end(), address,
                                      [](uint64_t a, const MappedPart& part) { return a < part.begin; });
  return after != mappings.begin() && !std::prev(after)->writable && memory.Read(address, value);
}

void NativeUnwinder::State::Begin() {
  // libdw would ask a server for debug information: that takes long, and says what runs here.
  unsetenv("DEBUGINFOD_URLS");
  debug_folders = absl::StrCat(":.debug:/usr/lib/debug:/proc/", memory.pid(), "/root/usr/lib/debug");
  debug_folders_text = debug_folders.data();
  callbacks.find_elf = [](Dwfl_Module* /*module*/, void** data, const char* /*name*/, Dwarf_Addr /*base*/,
                          char** path, Elf** /*elf*/) {
    const Source& source = *static_cast<const Source*>(*data);
    const OpenedObject opened = OpenMapped(*source.memory, source.object);
    if (opened.file >= 0 && !opened.path.empty()) *path = strdup(opened.path.c_str());
    return opened.file;
  };
  callbacks.find_debuginfo = dwfl_standard_find_debuginfo;
  callbacks.debuginfo_path = &debug_folders_text;
  dwfl = dwfl_begin(&callbacks);
  if (dwfl == nullptr) return;
  dwfl_report_begin(dwfl);
  for (Source& source : objects) {
    const MappedObject& object = source.object;
    Dwfl_Module* const module =
        dwfl_report_module(dwfl, object.path.c_str(), object.parts.front().begin, object.parts.back().end);
    void** data = nullptr;
    if (module == nullptr) continue;
    dwfl_module_info(module, &data, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr);
    *data = &source;
  }
  dwfl_report_end(dwfl, nullptr, nullptr);
  thread_callbacks.next_thread = [](Dwfl* /*dwfl*/, void* /*state*/, void** /*thread*/) { return 0; };
  thread_callbacks.get_thread = [](Dwfl* /*dwfl*/, pid_t /*tid*/, void* state, void** thread) {
    *thread = state;
    return true;
  };
  thread_callbacks.memory_read = [](Dwfl* /*dwfl*/, Dwarf_Addr address, Dwarf_Word* value, void* state) {
    return static_cast<State*>(state)->ReadMemory(address, *value);
  };
  thread_callbacks.set_initial_registers = [](Dwfl_Thread* thread, void* state) {
    const auto& registers = static_cast<State*>(state)->copy->registers;
    return dwfl_thread_state_registers(thread, 0, registers.size(), registers.data());
  };
  attached = dwfl_attach_state(dwfl, nullptr, memory.pid(), &thread_callbacks, this);
}

NativeFrame NativeUnwinder::State::Name(uint64_t pc) {
  NativeFrame frame;
  StackFrame place = FrameAt("", {});
  place.offset = pc;
  Dwfl_Module* const module = dwfl_addrmodule(dwfl, pc);
  if (module != nullptr) {
    void** data = nullptr;
    Dwarf_Addr begin = 0;
    Dwarf_Addr bias = 0;
    dwfl_module_info(module, &data, &begin, nullptr, nullptr, nullptr, nullptr, nullptr);
    place.object = static_cast<const Source*>(*data)->object.path;
    place.offset = pc - (dwfl_module_getelf(module, &bias) == nullptr ? begin : bias);
    GElf_Off offset = 0;
    GElf_Sym symbol{};
    const char* const name = dwfl_module_addrinfo(module, pc, &offset, &symbol, nullptr, nullptr, nullptr);
    // The nearest symbol of a stripped object may be that of another function.
    if (name != nullptr && offset < symbol.st_size) frame.symbol = name;
    frame.frames = FunctionsAt(module, pc);
  }
  if (frame.frames.empty()) frame.frames.push_back(place);
  for (StackFrame& each : frame.frames) {
    each.object = place.object;
    each.offset = place.offset;
  }
  // Debug information may have the name alone, without its class.
  std::string& outermost = frame.frames.back().function;
  if (outermost.empty() || frame.symbol.starts_with("_Z")) outermost = Demangled(frame.symbol);
  return frame;
}

NativeUnwinder::NativeUnwinder(pid_t pid) : state_(std::make_unique<State>(pid)) { state_->ReadMappings(); }

NativeUnwinder::~NativeUnwinder() {
  if (state_->dwfl != nullptr) dwfl_end(state_->dwfl);
}

uint64_t NativeUnwinder::EndOfMapping(uint64_t address) const {
  const std::vector<MappedPart>& mappings = state_->mappings;
  const auto after = std::upper_bound(mappings.begin(), mappings.end(), address,
                                      [](uint64_t a, const MappedPart& part) { return a < part.begin; });
  return after == mappings.begin() || std::prev(after)->end <= address ? address : std::prev(after)->end;
}

NativeStack NativeUnwinder::Unwind(const ThreadCopy& copy) {
  NativeStack stack;
  if (state_->dwfl == nullptr) state_->Begin();
  state_->copy = &copy;
  state_->calls.clear();
  int end = DWARF_CB_ABORT;
  if (state_->attached) {
    end = dwfl_getthread_frames(
        state_->dwfl, state_->memory.pid(),
        [](Dwfl_Frame* frame, void* data) -> int {
          State& state = *static_cast<State*>(data);
          State::Call call;
          if (!dwfl_frame_pc(frame, &call.pc, &call.active)) return DWARF_CB_ABORT;
          if (dwfl_frame_reg(frame, ThreadCopy::kStackPointer, &call.stack_pointer) != 0)
            call.stack_pointer = 0;
          state.calls.push_back(call);
          const uint64_t pc = call.active ? call.pc : call.pc - 1;
          const bool can_go_on = HasUnwindInformation(dwfl_addrmodule(state.dwfl, pc), pc);
          return can_go_on && state.calls.size() < kMostCalls ? DWARF_CB_OK : DWARF_CB_ABORT;
        },
        state_.get());
  }
  if (state_->calls.empty()) state_->calls.push_back({.pc = copy.registers.back(), .active = true});
  stack.whole = end == DWARF_CB_OK;
  for (const State::Call& call : state_->calls) {
    const uint64_t pc = call.active ? call.pc : call.pc - 1;
    const auto [at, is_new] = state_->named.try_emplace(pc);
    if (is_new) at->second = state_->Name(pc);
    stack.calls.push_back(at->second);
    stack.calls.back().stack_pointer = call.stack_pointer;
    stack.calls.back().interrupted = call.active && stack.calls.size() > 1;
  }
  return stack;
}

}  // namespace gpuprobe::observe
