// Which libcupti is found, and which release it is, from files made here.
#include "collector/cli/doctor/cupti_library.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/collector/testing/temp_dir.h"

namespace gpuprobe::cli::doctor {
namespace {

namespace fs = std::filesystem;
using gpuprobe::testing::TempDir;

class CuptiLibraryTest : public ::testing::Test {
 protected:
  std::string Make(const std::string& path) {
    const fs::path whole = fs::path(dir_.path()) / path;
    fs::create_directories(whole.parent_path());
    std::ofstream(whole) << "no library";
    return whole.string();
  }
  static std::string PathOf(const CuptiFacts& facts) {
    return facts.library.has_value() ? facts.library->path : "";
  }

  TempDir dir_;
};

TEST_F(CuptiLibraryTest, TheProgramsCudaComesFirst) {
  const std::string newer = Make("lib/libcupti.so.13");
  const std::string older = Make("lib/libcupti.so.12");
  Make("lib/libcudart.so.12");
  ProgramLibraries program;
  program.variables["LD_LIBRARY_PATH"] = dir_.path() + "/lib";
  EXPECT_EQ(PathOf(FindCupti(program, 13)), newer);
  EXPECT_EQ(PathOf(FindCupti(program, 0)), newer) << "the driver is not known";
  EXPECT_EQ(PathOf(FindCupti(program, 12)), older);
  program.needed = {"libcudart.so.12"};
  EXPECT_EQ(PathOf(FindCupti(program, 13)), older);
}

TEST_F(CuptiLibraryTest, ACopyThatTheProgramLinksIsTheOne) {
  const std::string own = Make("app/lib/libcupti.so.12");
  Make("lib/libcupti.so.13");
  ProgramLibraries program;
  program.program = Make("app/bin/train");
  program.variables["LD_LIBRARY_PATH"] = dir_.path() + "/lib";
  program.needed = {"libc.so.6", "libcupti.so.12"};
  program.search_path = "/nowhere:$ORIGIN/../lib";
  EXPECT_EQ(fs::path(PathOf(FindCupti(program, 13))).lexically_normal(), own);
}

TEST_F(CuptiLibraryTest, BesideTheRuntimeOfAWheel) {
  Make("nvidia/cuda_runtime/lib/libcudart.so.11.0");
  const std::string beside = Make("nvidia/cuda_cupti/lib/libcupti.so.11.8");
  ProgramLibraries program;
  program.program = dir_.path() + "/train";
  program.needed = {"libcudart.so.11.0"};
  program.search_path = "$ORIGIN/nvidia/cuda_runtime/lib";
  EXPECT_EQ(fs::path(PathOf(FindCupti(program, 11))).lexically_normal(), beside);
}

TEST_F(CuptiLibraryTest, WhatIsTooNewOrTooOldIsNamed) {
  const std::string old = Make("lib/libcupti.so.11.5");
  ProgramLibraries program;
  program.variables["LD_LIBRARY_PATH"] = dir_.path() + "/lib";
  const CuptiFacts facts = FindCupti(program, 11);  // whatever this machine has is newer
  EXPECT_FALSE(facts.library.has_value() && facts.library->major != 11);
  if (!facts.library.has_value()) {
    ASSERT_TRUE(facts.unsupported.has_value());
    EXPECT_TRUE(facts.unsupported->path == old || facts.unsupported->major > 11) << facts.unsupported->path;
  }
}

TEST_F(CuptiLibraryTest, ThePackageOfAWheel) {
  const std::string path = Make("nvidia/cuda_cupti/lib/libcupti.so.12");
  fs::create_directories(dir_.path() + "/nvidia_cuda_cupti_cu12-12.4.127.dist-info");
  const CuptiLibrary library = DescribeCupti(path, "");
  EXPECT_EQ(library.package, "12.4.127");
  EXPECT_EQ(library.major, 12);
  EXPECT_EQ(library.version, 0u) << "no ELF file";
}

TEST(CuptiRelease, NumbersAsPeopleKnowThem) {
  EXPECT_EQ(CuptiRelease(0), "");
  EXPECT_EQ(CuptiRelease(17), "before 11.8");
  EXPECT_EQ(CuptiRelease(18), "11.8 to 12.1");
  EXPECT_EQ(CuptiRelease(24), "12.6");
  EXPECT_EQ(CuptiRelease(130000), "13.0");
  EXPECT_EQ(CuptiRelease(130101), "13.1 Update 1");
}

}  // namespace
}  // namespace gpuprobe::cli::doctor
