// Small numbers for what makes operations of different steps equal.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "collector/model/state/members.h"

namespace gpuprobe::model {

// Mixes a value into a hash (splitmix64's finalizer).
inline uint64_t MixHash(uint64_t hash, uint64_t value) {
  hash = hash * 0xff51afd7ed558ccd + value + 0x9e3779b97f4a7c15;  // 1 with 2 is not 2 with 1, nor 0 with 3
  hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9;
  hash = (hash ^ (hash >> 27)) * 0x94d049bb133111eb;
  return hash ^ (hash >> 31);
}

class OperationTokens {
 public:
  static constexpr size_t kMax = 65536;

  struct Token {
    uint32_t fine = 0;
    uint32_t coarse = 0;
  };
  // `coarse`, `fine`: hashes of what makes two operations equal without, and with, geometry and size. Once
  // there are kMax tokens, unknown ones are 0.
  Token Of(uint64_t coarse, uint64_t fine) {
    Token token;
    token.coarse = IdOf(coarse, 0);
    token.fine = IdOf(fine, token.coarse);
    return token;
  }

 private:
  uint32_t IdOf(uint64_t hash, uint32_t otherwise);

  absl::flat_hash_map<uint64_t, uint32_t> ids_;

  friend StateAccess;
  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, ids_);
  }
};

}  // namespace gpuprobe::model
