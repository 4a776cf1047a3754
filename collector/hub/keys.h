// The keys that hosts have sent to a hub, sealed by munge, for as long as they use them.
//
// A host whose key is forgotten, or that finds a new hub, sends another one. Safe from several threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "collector/hub/secret.h"

namespace gpuprobe::hub {

class Keys {
 public:
  static constexpr size_t kMost = 8192;  // of which the least recently used one makes room

  Keys();
  void Add(const Secret& key);
  // By Secret::Name. If there is none: one that nobody else has, so that no signature is right.
  Secret Find(const std::string& name);

 private:
  struct Key {
    Secret secret;
    uint64_t used = 0;  // the higher, the later
  };
  const Secret nobodys_;
  std::mutex mutex_;
  uint64_t uses_ = 0;  // under the mutex, as all that follows
  std::map<std::string, Key> keys_;
};

}  // namespace gpuprobe::hub
