#include "injector/settings.h"

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
  if (setting.kind == settings::Kind::kText) {
    if (length < kMaxSettingText) {
      std::memcpy(texts_[index], value, length + 1);
      set_[index] = true;
      return;
    }
  } else {
    int64_t number = 0;
    if (ParseNumber(value, &number) && number >= setting.minimum && number <= setting.maximum) {
      numbers_[index] = number;
      set_[index] = true;
      return;
    }
  }
  CountRejected(index);
}

void Settings::CountRejected(size_t index) noexcept {
  if (rejected_++ == 0) first_rejected_ = settings::kSettings[index].name;
}

void Settings::Reject(size_t index) noexcept {
  texts_[index][0] = '\0';
  set_[index] = false;
  CountRejected(index);
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
