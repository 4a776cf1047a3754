#include "injector/rows/interner.h"

#include <cstring>

namespace gpuprobe::injector {

namespace {

constexpr uint64_t kStep = 0x9e3779b97f4a7c15u;  // another key for another text with the same hash

uint64_t HashBytes(const char* data, size_t size) noexcept {
  uint64_t hash = size * kStep;
  while (size >= 8) {
    uint64_t word = 0;
    std::memcpy(&word, data, 8);
    hash = (hash ^ word) * 0x9fb21c651e98df25u;
    hash ^= hash >> 32;
    data += 8;
    size -= 8;
  }
  if (size > 0) {
    uint64_t word = 0;
    std::memcpy(&word, data, size);
    hash = (hash ^ word) * 0x9fb21c651e98df25u;
    hash ^= hash >> 32;
  }
  return hash;
}

// Two independent multiply-xor lanes: 13 words in about 4 ns.
uint64_t HashSite(const SiteKey& key) noexcept {
  uint32_t words[14] = {};
  static_assert(sizeof(SiteKey) == 13 * sizeof(uint32_t));
  std::memcpy(words, &key, sizeof(key));
  uint64_t a = kStep;
  uint64_t b = 0xd6e8feb86659fd93u;
  for (int i = 0; i < 14; i += 2) {
    const uint64_t word = words[i] | (static_cast<uint64_t>(words[i + 1]) << 32);
    if ((i & 2) != 0) {
      a = (a ^ word) * 0x9fb21c651e98df25u;
      a ^= a >> 29;
    } else {
      b = (b ^ word) * 0xa0761d6478bd642fu;
      b ^= b >> 31;
    }
  }
  return a ^ (b * kStep);
}

}  // namespace

bool StringInterner::Init() noexcept {
  if (!text_.Reserve(kCacheBytes + kTextBytes) || !text_.Use(kCacheBytes + kLeastTextBytes)) return false;
  cache_ = reinterpret_cast<CachedPointer*>(text_.data());
  return true;
}

void StringInterner::Forget() noexcept {
  entries_.Clear();
  text_used_ = 0;
  std::memset(cache_, 0, kCacheBytes);
}

// Null: there is no room for it.
const StringInterner::Entry* StringInterner::Add(std::string_view text) noexcept {
  const size_t end = text_used_ + text.size() + 1;
  if (entries_.size() >= kMaxTexts || end > kTextBytes || !text_.Use(kCacheBytes + end)) return nullptr;
  uint64_t key = HashBytes(text.data(), text.size());
  while (entries_.Find(key) != nullptr) key += kStep;
  const Entry* stored =
      entries_.Insert(key, {static_cast<uint32_t>(text_used_), static_cast<uint32_t>(text.size()), next_id_});
  if (stored == nullptr) return nullptr;
  std::memcpy(TextAt(text_used_), text.data(), text.size());
  *TextAt(end - 1) = '\0';
  text_used_ = end;
  ++next_id_;
  return stored;
}

const StringInterner::Entry* StringInterner::Lookup(std::string_view text, bool* is_new) noexcept {
  *is_new = false;
  uint64_t key = HashBytes(text.data(), text.size());
  while (const Entry* entry = entries_.Find(key)) {
    if (entry->length == text.size() && std::memcmp(TextAt(entry->offset), text.data(), text.size()) == 0) {
      return entry;
    }
    key += kStep;
  }
  const Entry* added = Add(text);
  if (added == nullptr && text_used_ != 0) {
    Forget();
    added = Add(text);
  }
  *is_new = added != nullptr;
  return added;
}

Interned StringInterner::Intern(std::string_view text) noexcept {
  if (text.empty() || text.size() >= kTextBytes) return {};
  Interned result;
  const Entry* entry = Lookup(text, &result.is_new);
  if (entry != nullptr) result.id = entry->id;
  return result;
}

Interned StringInterner::InternPointer(const char* text, uint32_t epoch) noexcept {
  if (text == nullptr) return {};
  CachedPointer* pair = cache_ + PlaceOf(text);
  CachedPointer* known = pair[0].pointer != text && pair[1].pointer == text ? pair + 1 : pair;
  if (known->pointer == text) {
    if (known->epoch == epoch) return {known->id, false};
    if (std::strcmp(TextAt(known->offset), text) == 0) {
      known->epoch = epoch;
      return {known->id, false};
    }
  }
  const size_t length = strnlen(text, kTextBytes);
  if (length == 0 || length == kTextBytes) return {};
  Interned result;
  const Entry* entry = Lookup({text, length}, &result.is_new);
  if (entry == nullptr) return {};
  result.id = entry->id;
  if (known->pointer != text) pair[1] = pair[0];
  *known = {text, epoch, entry->id, entry->offset};
  return result;
}

Interned SiteInterner::Intern(const SiteKey& key) noexcept {
  uint64_t hash = HashSite(key);
  while (const Entry* entry = entries_.Find(hash)) {
    if (entry->key == key) return {entry->id, false};
    hash += kStep;
  }
  const Entry entry{key, next_id_};
  if (entries_.Insert(hash, entry) == nullptr) {
    entries_.Clear();
    if (entries_.Insert(HashSite(key), entry) == nullptr) return {};
  }
  return {next_id_++, true};
}

Interned FrameInterner::Intern(const FrameKey& key) noexcept {
  uint64_t hash = MixBits(uint64_t{key.caller} << 32 | key.function) ^
                  MixBits((uint64_t{key.file} << 32 | key.line) + kStep);
  while (const Entry* entry = entries_.Find(hash)) {
    if (entry->key == key) return {entry->id, false};
    hash += kStep;
  }
  if (entries_.Insert(hash, {key, next_id_}) == nullptr) return {};
  return {next_id_++, true};
}

}  // namespace gpuprobe::injector
