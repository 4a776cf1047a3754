// Who is at the other end of a connection, as far as the kernel knows.
//
// Example: mallory, uid 1002, connects from 127.0.0.1:40112. The kernel knows whose socket that is and says
// 1002 (netlink's sock_diag). A connection from another host has no uid that we could ask for; then its
// address stands for it.
#pragma once

#include <string>

namespace gpuprobe::http {

struct Peer {
  bool is_owner = false;  // our user, or root
  std::string name;       // "uid 1002", "10.0.0.7"; of IPv6 the network, of which one host has many addresses
};

Peer PeerOf(int fd);

}  // namespace gpuprobe::http
