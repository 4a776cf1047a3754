#include "injector/capture/nccl/unknown_functions.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace gpuprobe::injector::nccl {
namespace {

class UnknownFunctions : public ::testing::Test {
 protected:
  // By name, how many objects import it.
  static std::map<std::string, uint32_t> All() {
    std::map<std::string, uint32_t> all;
    for (size_t i = 0;; ++i) {
      uint32_t imports = 0;
      const std::string name = UnknownFunction(i, &imports);
      if (name.empty()) return all;
      all[name] = imports;
    }
  }
};

TEST_F(UnknownFunctions, AreNamedWithoutTheirPrefixOnceForEachImporter) {
  const char first[] = "ncclConjure";  // as it lies in an object's own table of strings
  const char second[] = "ncclConjure";
  const char profiling[] = "pncclConjure";
  NoteUnknownFunction(first);
  NoteUnknownFunction(first);  // the next scan of the same object
  NoteUnknownFunction(second);
  NoteUnknownFunction(profiling);
  NoteUnknownFunction("ncclAwait");
  EXPECT_EQ(All(), (std::map<std::string, uint32_t>{{"Conjure", 3}, {"Await", 1}}));
}

TEST_F(UnknownFunctions, WhatIsNotNcclsOrMovesNothingIsNotNamed) {
  for (const char* symbol : {"cudaMalloc", "nccl", "nccl_private", "ncclGetErrorString",
                             "ncclRedOpCreatePreMulSum", "pncclCommGetAsyncError", "p", ""})
    NoteUnknownFunction(symbol);
  EXPECT_TRUE(All().empty());
}

TEST_F(UnknownFunctions, NeitherTableGrowsBeyondItsPlaces) {
  std::string copies[12];
  for (std::string& copy : copies) {
    copy = "ncclConjure";
    NoteUnknownFunction(copy.c_str());
  }
  EXPECT_EQ(All()["Conjure"], 8u) << "importers that are told apart";
  for (char letter = 'A'; letter <= 'Z'; ++letter)
    NoteUnknownFunction((std::string("nccl") + letter).c_str());
  EXPECT_EQ(All().size(), kUnknownFunctions);
  EXPECT_EQ(OtherUnknownFunctions(), 26 - (kUnknownFunctions - 1)) << "those that found no place";
  NoteUnknownFunction("ncclZ");
  EXPECT_EQ(OtherUnknownFunctions(), 26 - (kUnknownFunctions - 1)) << "the next scan";
  NoteUnknownFunction(("nccl" + std::string(200, 'X')).c_str());
  EXPECT_EQ(OtherUnknownFunctions(), 27 - (kUnknownFunctions - 1));
  EXPECT_EQ(All().size(), kUnknownFunctions);
  uint32_t imports = 7;
  EXPECT_STREQ(UnknownFunction(kUnknownFunctions, &imports), "");
  EXPECT_EQ(imports, 7u);
}

}  // namespace
}  // namespace gpuprobe::injector::nccl
