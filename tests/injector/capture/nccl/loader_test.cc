// What the loader's tables are asked and given: exports that are replaced, objects parts of which are away.
#include <dlfcn.h>
#include <sys/mman.h>

#include <cstring>
#include <string>
#include <vector>

#include "injector/capture/loader/exports.h"
#include "injector/capture/loader/page_access.h"
#include "injector/capture/loader/relocations.h"
#include "injector/capture/nccl/patching.h"
#include "injector/core/self_report.h"
#include "tests/injector/live_probe.h"

namespace gpuprobe::injector::nccl {
namespace {

// Inside the callback that ElfObject needs.
template <typename Visit>
void WithObject(const char* file, Visit visit) {
  struct Wanted {
    std::string_view file;
    Visit* visit;
  } wanted{file, &visit};
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        auto* search = static_cast<Wanted*>(data);
        const std::string_view name(info->dlpi_name);
        if (name.substr(name.rfind('/') + 1) == search->file.substr(search->file.rfind('/') + 1))
          (*search->visit)(*info, ElfObject(*info));
        return 0;
      },
      &wanted);
}

bool ReplaceOfB(const char* name, const void* real, const void* ours) {
  bool replaced = false;
  WithObject(FAKE_NCCL_B, [&](const dl_phdr_info&, const ElfObject& object) {
    replaced = Exports(object).Replace(name, real, ours);
  });
  return replaced;
}

int group_starts = 0;
int CountGroupStart() {
  ++group_starts;
  return 0;
}

class Exported : public ::testing::Test {
 protected:
  static constexpr char kName[] = "ncclGetVersion";
  void SetUp() override {
    nccl_ = dlopen(FAKE_NCCL_B, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(nccl_, nullptr) << dlerror();
    real_ = dlsym(nccl_, kName);
    ASSERT_NE(real_, nullptr);
  }
  void TearDown() override {
    if (real_ != nullptr) ReplaceOfB(kName, reinterpret_cast<void*>(&CountGroupStart), real_);
    dlclose(nccl_);
  }
  void* nccl_ = nullptr;
  void* real_ = nullptr;
};

TEST_F(Exported, AFunctionIsFoundAsItsReplacementFromThenOn) {
  auto* const ours = reinterpret_cast<void*>(&CountGroupStart);
  ASSERT_TRUE(ReplaceOfB(kName, real_, ours));
  EXPECT_EQ(dlsym(nccl_, kName), ours);
  EXPECT_TRUE(ReplaceOfB(kName, real_, ours)) << "again";
  EXPECT_TRUE(ReplaceOfB(kName, ours, real_));
  EXPECT_EQ(dlsym(nccl_, kName), real_);
}

TEST_F(Exported, WhatIsNotTheFunctionStaysAsItIs) {
  auto* const ours = reinterpret_cast<void*>(&CountGroupStart);
  EXPECT_FALSE(ReplaceOfB(kName, &group_starts, ours)) << "somebody else replaced it";
  EXPECT_FALSE(ReplaceOfB("no_such_function", real_, ours));
  EXPECT_EQ(dlsym(nccl_, kName), real_);
}

TEST_F(Exported, TheTableIsReadOnlyAgain) {
  uintptr_t value = 0;
  WithObject(FAKE_NCCL_B,
             [&](const dl_phdr_info&, const ElfObject& object) { value = object.FindSymbolValue(kName); });
  ASSERT_NE(value, 0u);
  ASSERT_TRUE(ReplaceOfB(kName, real_, reinterpret_cast<void*>(&CountGroupStart)));
  EXPECT_TRUE(CanRead(value & ~(kPageBytes - 1), (value & ~(kPageBytes - 1)) + kPageBytes));
  EXPECT_FALSE(CanWrite(value));
}

// Pages of a loaded object that are away for a while.
class Hidden {
 public:
  enum class How { kProtected, kUnmapped };
  Hidden(uintptr_t address, size_t bytes, How how, int protection) : how_(how), protection_(protection) {
    begin_ = address & ~(kPageBytes - 1);
    bytes_ = ((address + bytes + kPageBytes - 1) & ~(kPageBytes - 1)) - begin_;
    copy_.resize(bytes_);
    std::memcpy(copy_.data(), PointerTo<void>(begin_), bytes_);
    EXPECT_EQ(how == How::kUnmapped ? munmap(PointerTo<void>(begin_), bytes_)
                                    : mprotect(PointerTo<void>(begin_), bytes_, PROT_NONE),
              0);
  }
  ~Hidden() {
    if (how_ == How::kUnmapped) {
      EXPECT_EQ(mmap(PointerTo<void>(begin_), bytes_, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0),
                PointerTo<void>(begin_));
      std::memcpy(PointerTo<void>(begin_), copy_.data(), bytes_);
    }
    mprotect(PointerTo<void>(begin_), bytes_, protection_);
  }
  Hidden(const Hidden&) = delete;
  Hidden& operator=(const Hidden&) = delete;

 private:
  How how_;
  int protection_;
  uintptr_t begin_ = 0;
  size_t bytes_ = 0;
  std::vector<char> copy_;
};

struct ObjectPart {
  uintptr_t address = 0;
  size_t bytes = 0;
  int protection = PROT_READ;
};

// A part of victim_lazy, which calls NCCL through slots that are not resolved yet.
ObjectPart FindPart(const std::string& what) {
  ObjectPart part;
  WithObject(VICTIM_LAZY, [&](const dl_phdr_info& info, const ElfObject& object) {
    if (what == "headers") part = {reinterpret_cast<uintptr_t>(info.dlpi_phdr), 1, PROT_READ};
    for (int i = 0; i < info.dlpi_phnum; ++i) {
      const ElfW(Phdr)& header = info.dlpi_phdr[i];
      const uintptr_t at = info.dlpi_addr + header.p_vaddr;
      if (what == "dynamic section" && header.p_type == PT_DYNAMIC) part = {at, header.p_memsz, PROT_READ};
      if (what == "tables" && header.p_type == PT_LOAD && part.address == 0)
        part = {at, header.p_memsz, PROT_READ};
    }
    if (what == "slots") {
      object.ForEachSymbolRelocation([&](void** slot, const char* symbol, uint32_t type) {
        if (std::string_view(symbol) == "ncclAllReduce" && type == R_X86_64_JUMP_SLOT)
          part = {reinterpret_cast<uintptr_t>(slot), sizeof(*slot), PROT_READ | PROT_WRITE};
      });
    }
  });
  return part;
}

class PartsAway : public LiveProbe, public ::testing::WithParamInterface<const char*> {};

TEST_P(PartsAway, TheObjectIsLeftOutUntilTheyAreBack) {
  void* nccl = dlopen(FAKE_NCCL_A, RTLD_NOW | RTLD_LOCAL);
  PatchLoadedObjects();  // everything but the victim
  void* victim = dlopen(VICTIM_LAZY, RTLD_LAZY | RTLD_LOCAL);
  ASSERT_NE(victim, nullptr) << dlerror();
  const ObjectPart part = FindPart(GetParam());
  ASSERT_NE(part.address, 0u);
  for (const Hidden::How how : {Hidden::How::kProtected, Hidden::How::kUnmapped}) {
    const Hidden hidden(part.address, part.bytes, how, part.protection);
    EXPECT_EQ(PatchLoadedObjects(), 0u);
  }
  EXPECT_GT(PatchLoadedObjects(), 0u);
  dlclose(victim);
  dlclose(nccl);
}

INSTANTIATE_TEST_SUITE_P(Of, PartsAway, ::testing::Values("headers", "dynamic section", "tables", "slots"));

TEST_F(LiveProbe, ASlotThatTheProgramHasMadeReadOnlyIsLeftAlone) {
  void* nccl = dlopen(FAKE_NCCL_A, RTLD_NOW | RTLD_LOCAL);
  void* victim = dlopen(VICTIM_LAZY, RTLD_LAZY | RTLD_LOCAL);
  ASSERT_NE(victim, nullptr) << dlerror();
  const ObjectPart slots = FindPart("slots");
  auto* const page = PointerTo<void>(slots.address & ~(kPageBytes - 1));
  ASSERT_EQ(mprotect(page, kPageBytes, PROT_READ), 0);
  PatchLoadedObjects();
  EXPECT_FALSE(CanWrite(slots.address));
  ASSERT_EQ(mprotect(page, kPageBytes, PROT_READ | PROT_WRITE), 0);
  dlclose(victim);
  dlclose(nccl);
}

TEST_F(LiveProbe, ALibraryThatWasJustOpenedIsPatchedByTheFirstLookUp) {
  void* nccl = dlopen(FAKE_NCCL_A, RTLD_NOW | RTLD_LOCAL);
  PatchLoadedObjects();
  void* victim = dlopen(VICTIM_NOW, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(victim, nullptr) << dlerror();
  const uint64_t before = SelfCount(SelfCounter::kRelocationsPatched);
  EXPECT_EQ(gpuprobe_dlsym(victim, "no_such_function"), nullptr);
  EXPECT_EQ(SelfCount(SelfCounter::kRelocationsPatched), before) << "not after a call of dlopen that we saw";
  void* again = gpuprobe_dlopen(VICTIM_NOW, RTLD_NOW | RTLD_LOCAL);
  EXPECT_EQ(gpuprobe_dlsym(again, "no_such_function"), nullptr);
  dlclose(again);
  EXPECT_GT(SelfCount(SelfCounter::kRelocationsPatched), before);
  dlclose(victim);
  dlclose(nccl);
}

}  // namespace
}  // namespace gpuprobe::injector::nccl
