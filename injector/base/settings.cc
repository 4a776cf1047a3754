#include "injector/base/settings.h"

#include <cstring>

namespace gpuprobe::injector {

namespace {

constexpr std::string_view kPrefix = "GPUPROBE_";

bool StartsWith(const char* text, std::string_view prefix) noexcept {
  return std::strncmp(text, prefix.data(), prefix.size()) == 0;
}

// A decimal number, optional sign, nothing behind it.
bool ParseNumber(const char* text, int64_t* number) noexcept {
  const bool negative = *text == '-';
  if (negative) ++text;
  if (*text == '\0') return false;
  int64_t value = 0;
  for (; *text != '\0'; ++text) {
    if (*text < '0' || *text > '9' || value > INT64_MAX / 10 - 1) return false;
    value = value * 10 + (*text - '0');
  }
  *number = negative ? -value : value;
  return true;
}

}  // namespace

void Settings::Apply(size_t index, const char* value) noexcept {
  const settings::Setting& setting = settings::kSettings[index];
  const size_t length = std::strlen(value);
  if (length == 0) return;  // set to nothing is not set
  int64_t number = 0;
  const bool fits = length < kMaxSettingText;
  const bool good = setting.kind == settings::Kind::kText ||
                    (ParseNumber(value, &number) && number >= setting.minimum && number <= setting.maximum);
  if (!fits || !good) {
    NoteRejected(index, value, nullptr);
    return;
  }
  std::memcpy(texts_[index], value, length + 1);
  if (setting.kind != settings::Kind::kText) numbers_[index] = number;
  set_[index] = true;
}

void Settings::NoteRejected(size_t index, const char* value, const char* remedy) noexcept {
  if (rejected_ == static_cast<int>(kSettingCount)) return;  // one name several times
  Rejected& rejected = rejections_[rejected_++];
  rejected.index = index;
  rejected.remedy = remedy;
  const size_t length = std::strlen(value);
  rejected.cut = length >= sizeof(rejected.value);
  std::memcpy(rejected.value, value, rejected.cut ? sizeof(rejected.value) - 1 : length);
}

void Settings::Reject(size_t index, const char* remedy) noexcept {
  NoteRejected(index, texts_[index], remedy);
  texts_[index][0] = '\0';
  set_[index] = false;
}

void Settings::Read(const char* const* environment) noexcept {
  *this = Settings{};
  for (size_t i = 0; i < kSettingCount; ++i) {
    const settings::Setting& setting = settings::kSettings[i];
    char text[32] = {};
    std::memcpy(
        text, setting.default_text.data(),
        setting.default_text.size() < sizeof(text) - 1 ? setting.default_text.size() : sizeof(text) - 1);
    if (setting.kind != settings::Kind::kText && !ParseNumber(text, &numbers_[i])) numbers_[i] = 0;
  }
  if (environment == nullptr) return;
  for (; *environment != nullptr; ++environment) {
    const char* entry = *environment;
    if (!StartsWith(entry, kPrefix)) continue;
    const char* equals = std::strchr(entry, '=');
    if (equals == nullptr) continue;
    const std::string_view name(entry, static_cast<size_t>(equals - entry));
    size_t index = 0;
    while (index < kSettingCount && settings::kSettings[index].name != name) ++index;
    if (index < kSettingCount) {
      Apply(index, equals + 1);
    } else if (unknown_++ == 0) {
      first_unknown_size_ = name.size() < sizeof(first_unknown_) ? name.size() : sizeof(first_unknown_);
      std::memcpy(first_unknown_, name.data(), first_unknown_size_);
    }
  }
}

}  // namespace gpuprobe::injector
