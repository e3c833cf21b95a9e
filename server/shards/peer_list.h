#ifndef ATTENTION_SERVER_SHARDS_PEER_LIST_H_
#define ATTENTION_SERVER_SHARDS_PEER_LIST_H_

#include <string>
#include <vector>

namespace attention::server {

/// Whether it is an entry of --peers: HOST:PORT, where HOST is a name, an
/// address ([::1] in brackets) or a network (10.1.0.0/16, [fd00::]/8), and PORT
/// a number or *.
bool IsPeerEntry(const std::string& text);

/// Whether an entry says that others than this machine may be called.
bool ReachesBeyondLoopback(const std::string& entry);

/// Whether some entry has the target, "HOST:PORT". A network has addresses
/// only: of a name nobody knows where it leads.
bool HasPeer(const std::vector<std::string>& entries,
             const std::string& target);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_SHARDS_PEER_LIST_H_
