// Accepts connections on a socket, within bounds (places.h), and lets a service answer what comes in.
//
// A thread for each connection, besides one that accepts.
#pragma once

#include <cstddef>
#include <memory>

#include "collector/http/address.h"
#include "collector/http/encryption.h"
#include "collector/http/places.h"
#include "collector/http/service.h"

namespace gpuprobe::http {

class Connections {
 public:
  // Listens without accepting: it has no thread before Start. `encryption`: null: connections are not
  // encrypted. `most_of_peer`: connections of one user or host at a time.
  explicit Connections(Listener listener, std::shared_ptr<const Encryption> encryption = nullptr,
                       size_t most_of_peer = Places::kMostOfPeer);
  ~Connections();
  Connections(const Connections&) = delete;
  Connections& operator=(const Connections&) = delete;

  // `service` outlives it.
  void Start(Service& service);
  // Ends every connection, and waits for their threads. Also done by the end of this object.
  void Stop();
  const Address& address() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gpuprobe::http
