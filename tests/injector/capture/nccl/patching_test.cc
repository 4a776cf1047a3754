// Relocation patching on real shared objects, loaded every way a program may be linked.
#include "injector/capture/nccl/patching.h"

#include <dlfcn.h>
#include <sys/mman.h>

#include <cstdio>
#include <string>

#include "injector/capture/nccl/communicators.h"
#include "injector/capture/nccl/providers.h"
#include "injector/capture/nccl/real_functions.h"
#include "injector/capture/nccl/torn_groups.h"
#include "injector/capture/nccl/unknown_functions.h"
#include "injector/core/self_report.h"
#include "tests/injector/capture/nccl/fake_nccl.h"
#include "tests/injector/live_probe.h"

namespace gpuprobe::injector::nccl {
namespace {

using AllReduceCall = ncclResult_t (*)(ncclComm_t, size_t);

class Patching : public LiveProbe {
 protected:
  void SetUp() override {
    LiveProbe::SetUp();
    nccl_ = dlopen(FAKE_NCCL_A, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(nccl_, nullptr) << dlerror();
    fake_ = Fake(nccl_);
  }

  static const FakeNccl* Fake(void* library) {
    const auto* fake = reinterpret_cast<const FakeNccl* (*)()>(dlsym(library, "fake_nccl"))();
    fake->reset();
    return fake;
  }

  template <typename Function>
  static Function In(void* library, const char* name) {
    return reinterpret_cast<Function>(dlsym(library, name));
  }

  // The stand-in launches nothing; on a thread that may be inside a group whose start we missed, such calls
  // would be held (torn_groups_test.cc).
  static void Patch() {
    PatchLoadedObjects();
    CallsOf(CurrentThread()).patches_seen = LatePatches();
  }

  // Calls through the library's own relocations; the number of records.
  static size_t RecordsOf(void* victim) {
    CallsOf(CurrentThread()).patches_seen = LatePatches();
    ncclComm_t comm = nullptr;
    EXPECT_EQ(In<ncclResult_t (*)(ncclComm_t*, int)>(victim, "victim_init")(&comm, 4), ncclSuccess);
    EXPECT_EQ(In<AllReduceCall>(victim, "victim_all_reduce")(comm, 8), ncclSuccess);
    FlushHeld(CurrentThread());  // the stand-in launches nothing, as if a group went on
    const auto calls = Only<CollectiveEvent>(Events());
    for (const CollectiveEvent& call : calls) {
      EXPECT_EQ(call.source, static_cast<uint8_t>(wire::CallSource::kCallSourceRelocation));
    }
    return calls.size();
  }

  void* nccl_ = nullptr;
  const FakeNccl* fake_ = nullptr;
};

class PatchingVariants : public Patching, public ::testing::WithParamInterface<const char*> {};

TEST_P(PatchingVariants, ACallIsSeenOnceAfterPatchingAndNotBefore) {
  void* victim = dlopen(GetParam(), RTLD_LAZY | RTLD_LOCAL);
  ASSERT_NE(victim, nullptr) << dlerror();
  EXPECT_GT(PatchLoadedObjects(), 0u);
  EXPECT_EQ(RecordsOf(victim), 1u);
  EXPECT_EQ(fake_->calls("AllReduce"), 1);
  EXPECT_EQ(PatchLoadedObjects(), 0u) << "a second scan finds nothing to do";
  EXPECT_EQ(RecordsOf(victim), 1u);
  dlclose(victim);
}

TEST_P(PatchingVariants, FunctionsThatOnlyNcclKnowsAreNotedAndNotThoseOfPluginsNorData) {
  void* victim = dlopen(GetParam(), RTLD_LAZY | RTLD_LOCAL);
  ASSERT_NE(victim, nullptr) << dlerror();
  Patch();
  EXPECT_EQ(In<int (*)(ncclComm_t)>(victim, "victim_conjure")(nullptr), 4);
  Patch();
  uint32_t imports = 0;
  EXPECT_STREQ(UnknownFunction(0, &imports), "Conjure");
  EXPECT_EQ(imports, 1u);
  EXPECT_STREQ(UnknownFunction(1, &imports), "");
  EXPECT_EQ(OtherUnknownFunctions(), 0u);

  const auto look_up = In<void* (*)(void*, const char*)>(victim, "victim_lookup");
  EXPECT_NE(look_up(victim, "ncclIbMalloc"), nullptr);
  EXPECT_NE(look_up(victim, "ncclNIbDevs"), nullptr);
  EXPECT_NE(look_up(nccl_, "ncclConjured"), nullptr);
  EXPECT_STREQ(UnknownFunction(1, &imports), "");
  EXPECT_NE(look_up(nccl_, "ncclConjure"), nullptr);
  EXPECT_STREQ(UnknownFunction(0, &imports), "Conjure");
  EXPECT_EQ(imports, 2u) << "the look-up is one more";
  dlclose(victim);
}

TEST_P(PatchingVariants, FunctionPointersInTablesLeadToUsToo) {
  void* victim = dlopen(GetParam(), RTLD_LAZY | RTLD_LOCAL);
  ASSERT_NE(victim, nullptr) << dlerror();
  Patch();
  ncclComm_t comm = nullptr;
  In<ncclResult_t (*)(ncclComm_t*, int)>(victim, "victim_init")(&comm, 4);
  Events();
  const auto call = In<ncclResult_t (*)(ncclComm_t, int)>(victim, "victim_table_call");
  EXPECT_EQ(call(comm, 0), ncclSuccess);
  EXPECT_EQ(call(comm, 1), ncclSuccess) << "pncclAllReduce";
  EXPECT_EQ(Only<CollectiveEvent>(Events()).size(), 2u);
  dlclose(victim);
}

TEST_P(PatchingVariants, DlsymGivesOurWrapperForNcclNamesAndTheRealThingElse) {
  void* victim = dlopen(GetParam(), RTLD_LAZY | RTLD_LOCAL);
  ASSERT_NE(victim, nullptr) << dlerror();
  Patch();
  ncclComm_t comm = nullptr;
  In<ncclResult_t (*)(ncclComm_t*, int)>(victim, "victim_init")(&comm, 4);
  Events();
  const auto call = In<ncclResult_t (*)(void*, const char*, ncclComm_t)>(victim, "victim_dlsym");
  EXPECT_EQ(call(nccl_, "ncclAllReduce", comm), ncclSuccess);
  EXPECT_EQ(call(nccl_, "pncclAllReduce", comm), ncclSuccess);
  EXPECT_EQ(Only<CollectiveEvent>(Events()).size(), 2u);
  EXPECT_EQ(call(nccl_, "ncclNoSuchFunction", comm), ncclSystemError);

  const auto look_up = In<void* (*)(void*, const char*)>(victim, "victim_lookup");
  EXPECT_EQ(look_up(nccl_, "fake_nccl"), dlsym(nccl_, "fake_nccl"));
  // Only dlsym's caller itself can see these: the pass-through must not look like a call of ours. The second
  // name starts like NCCL's.
  EXPECT_EQ(look_up(RTLD_DEFAULT, "victim_marker"), dlsym(victim, "victim_marker"));
  EXPECT_EQ(look_up(RTLD_DEFAULT, "next_to_victim_marker"), dlsym(victim, "next_to_victim_marker"));
  EXPECT_EQ(dlsym(RTLD_DEFAULT, "victim_marker"), nullptr);
  // RTLD_NEXT: the question of an interposer, which must not get itself or us.
  EXPECT_EQ(look_up(RTLD_NEXT, "ncclAllReduce"), dlsym(nccl_, "ncclAllReduce"));
  dlclose(victim);
}

INSTANTIATE_TEST_SUITE_P(Linked, PatchingVariants, ::testing::Values(VICTIM_LAZY, VICTIM_NOW, VICTIM_NOPLT));

TEST_F(Patching, AnAlreadyResolvedSlotIsPatchedToo) {
  void* victim = dlopen(VICTIM_LAZY, RTLD_LAZY | RTLD_LOCAL);
  ASSERT_NE(victim, nullptr);
  ncclComm_t comm = nullptr;
  In<ncclResult_t (*)(ncclComm_t*, int)>(victim, "victim_init")(&comm, 4);
  Patch();
  EXPECT_EQ(RecordsOf(victim), 1u);
  dlclose(victim);
}

// Protection of the page that holds `address`, as "rw-p".
std::string ProtectionOf(const void* address) {
  FILE* maps = fopen("/proc/self/maps", "r");
  char line[512];
  std::string found;
  while (maps != nullptr && fgets(line, sizeof(line), maps) != nullptr) {
    uintptr_t start = 0;
    uintptr_t end = 0;
    char protection[8] = {};
    if (sscanf(line, "%lx-%lx %7s", &start, &end, protection) == 3 &&
        reinterpret_cast<uintptr_t>(address) >= start && reinterpret_cast<uintptr_t>(address) < end) {
      found = protection;
    }
  }
  if (maps != nullptr) fclose(maps);
  return found;
}

// The slot through which victim_now calls ncclAllReduce.
void** SlotOfVictimNow() {
  // The address of the slot: found as the policy finds it.
  struct Search {
    const char* file;
    void** slot = nullptr;
  } search{"victim_now", nullptr};
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        auto* wanted = static_cast<Search*>(data);
        if (std::string_view(info->dlpi_name).find(wanted->file) == std::string_view::npos) return 0;
        ElfObject(*info).ForEachSymbolRelocation([wanted](void** slot, const char* symbol, uint32_t type) {
          if (std::string_view(symbol) == "ncclAllReduce" && type == R_X86_64_JUMP_SLOT) wanted->slot = slot;
        });
        return 0;
      },
      &search);
  return search.slot;
}

TEST_F(Patching, ReadOnlyRelocationsAreReadOnlyAgain) {
  void* victim = dlopen(VICTIM_NOW, RTLD_LAZY | RTLD_LOCAL);
  ASSERT_NE(victim, nullptr);
  void** slot = SlotOfVictimNow();
  ASSERT_NE(slot, nullptr);
  const void* before = *slot;
  ASSERT_EQ(ProtectionOf(slot), "r--p");
  Patch();
  EXPECT_NE(*slot, before);
  EXPECT_EQ(ProtectionOf(slot), "r--p");
  dlclose(victim);
}

TEST_F(Patching, AnObjectThatIsStillBeingRelocatedIsLeftForLater) {
  void* victim = dlopen(VICTIM_NOW, RTLD_LAZY | RTLD_LOCAL);
  ASSERT_NE(victim, nullptr);
  void** slot = SlotOfVictimNow();
  ASSERT_NE(slot, nullptr);
  const void* before = *slot;
  // As the loader has it until all relocations are done.
  void* page = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(slot) & ~uintptr_t{4095});
  ASSERT_EQ(mprotect(page, 4096, PROT_READ | PROT_WRITE), 0);
  Patch();
  EXPECT_EQ(*slot, before);
  ASSERT_EQ(mprotect(page, 4096, PROT_READ), 0);
  PatchNewObjects();
  EXPECT_NE(*slot, before);
  dlclose(victim);
}

TEST_F(Patching, ObjectsThatComeLaterAreFoundByTheNextLook) {
  Patch();
  for (int i = 0; i < 5; ++i) PatchNewObjects();  // settles
  void* victim = dlopen(VICTIM_NOPLT, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(victim, nullptr);
  const uint64_t before = SelfCount(SelfCounter::kRelocationsPatched);
  PatchNewObjects();
  EXPECT_GT(SelfCount(SelfCounter::kRelocationsPatched), before);
  EXPECT_EQ(RecordsOf(victim), 1u);
  dlclose(victim);
}

TEST_F(Patching, TwoCopiesOfNcclAreKeptApart) {
  void* second = dlopen(FAKE_NCCL_B, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(second, nullptr) << dlerror();
  const FakeNccl* second_fake = Fake(second);
  void* first_victim = dlopen(VICTIM_NOW, RTLD_NOW | RTLD_LOCAL);
  void* second_victim = dlopen(VICTIM_OF_B, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(first_victim, nullptr);
  ASSERT_NE(second_victim, nullptr) << dlerror();
  Patch();
  EXPECT_EQ(RecordsOf(first_victim), 1u);
  EXPECT_EQ(fake_->calls("AllReduce"), 1);
  EXPECT_EQ(second_fake->calls("AllReduce"), 0);
  EXPECT_EQ(RecordsOf(second_victim), 1u);
  EXPECT_EQ(fake_->calls("AllReduce"), 1);
  EXPECT_EQ(second_fake->calls("AllReduce"), 1);
  dlclose(first_victim);
  dlclose(second_victim);
  dlclose(second);
}

TEST_F(Patching, NcclItselfIsLeftAlone) {
  void* victim = dlopen(VICTIM_NOW, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(victim, nullptr);
  Patch();
  ncclComm_t comm = nullptr;
  In<ncclResult_t (*)(ncclComm_t*, int)>(victim, "victim_init")(&comm, 4);
  Events();
  EXPECT_EQ(In<AllReduceCall>(victim, "victim_bcast")(comm, 8), ncclSuccess);
  EXPECT_EQ(fake_->calls("Bcast"), 1);
  EXPECT_EQ(fake_->calls("Broadcast"), 1);
  EXPECT_EQ(Only<CollectiveEvent>(Events()).size(), 1u);
  // Called from the outside, its inner call would show if the library's own slot were patched.
  In<ncclResult_t (*)(void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t)>(nccl_, "ncclBcast")(
      nullptr, 8, ncclFloat, 0, comm, nullptr);
  EXPECT_TRUE(Only<CollectiveEvent>(Events()).empty());
  dlclose(victim);
}

}  // namespace
}  // namespace gpuprobe::injector::nccl
