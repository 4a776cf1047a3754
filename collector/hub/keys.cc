#include "collector/hub/keys.h"

#include <algorithm>

namespace gpuprobe::hub {
namespace {

constexpr size_t kNobodysBytes = 32;

}  // namespace

Keys::Keys() : nobodys_(RandomHex(kNobodysBytes)) {}

void Keys::Add(const Secret& key) {
  const std::lock_guard lock(mutex_);
  if (keys_.size() >= kMost) {
    keys_.erase(std::min_element(keys_.begin(), keys_.end(),
                                 [](const auto& a, const auto& b) { return a.second.used < b.second.used; }));
  }
  keys_.insert_or_assign(key.Name(), Key{key, ++uses_});
}

Secret Keys::Find(const std::string& name) {
  const std::lock_guard lock(mutex_);
  const auto found = keys_.find(name);
  if (found == keys_.end()) return nobodys_;
  found->second.used = ++uses_;
  return found->second.secret;
}

}  // namespace gpuprobe::hub
