// The GPUPROBE_* environment of this process, read once.
//
// The table itself is proto/settings.h, which the collector shares. Thread: the starting thread reads, any
// thread looks up. Allocation: none; texts are copied into fixed room. Failure: a bad value keeps the default
// and is counted in `rejected`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "proto/settings.h"

namespace gpuprobe::injector {

inline constexpr size_t kSettingCount = sizeof(settings::kSettings) / sizeof(settings::kSettings[0]);
inline constexpr size_t kMaxSettingText = 1024;

// Index of a name in the table; a name that is not there does not compile.
consteval size_t SettingIndex(std::string_view name) {
  size_t i = 0;
  while (settings::kSettings[i].name != name) ++i;
  return i;
}

class Settings {
 public:
  // Reads `environment` (as environ: "NAME=value", ended by null).
  void Read(const char* const* environment) noexcept;

  // Values of kNumber and kFlag settings. IsSet says whether the environment gave a good value.
  int64_t Number(size_t index) const noexcept { return numbers_[index]; }
  bool Flag(size_t index) const noexcept { return numbers_[index] != 0; }
  // Value of a kText setting; empty when unset.
  const char* Text(size_t index) const noexcept { return texts_[index]; }
  bool IsSet(size_t index) const noexcept { return set_[index]; }

  // Treats a value as unset, and counts it, when its user finds it meaningless. `remedy`: a literal that
  // continues "NAME=VALUE is ignored: "; null: the value does not have the form given in the table.
  void Reject(size_t index, const char* remedy = nullptr) noexcept;

  // Values that could not be used, in the order in which they were rejected.
  struct Rejected {
    size_t index = 0;
    const char* remedy = nullptr;
    char value[48] = {};  // its beginning
    bool cut = false;
  };
  int rejected() const noexcept { return rejected_; }
  const Rejected& rejected(int i) const noexcept { return rejections_[i]; }
  // GPUPROBE_* names that the table does not have, and the first of them.
  int unknown() const noexcept { return unknown_; }
  std::string_view first_unknown() const noexcept { return {first_unknown_, first_unknown_size_}; }

 private:
  void NoteRejected(size_t index, const char* value, const char* remedy) noexcept;
  void Apply(size_t index, const char* value) noexcept;

  int64_t numbers_[kSettingCount] = {};
  char texts_[kSettingCount][kMaxSettingText] = {};  // of every kind, as given
  bool set_[kSettingCount] = {};
  int rejected_ = 0;
  Rejected rejections_[kSettingCount] = {};
  int unknown_ = 0;
  char first_unknown_[128] = {};
  size_t first_unknown_size_ = 0;
};

}  // namespace gpuprobe::injector
