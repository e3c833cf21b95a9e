#ifndef ATTENTION_SERVER_TRANSPORT_CHANNELZ_H_
#define ATTENTION_SERVER_TRANSPORT_CHANNELZ_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

/// What gRPC tells of its own connections (channelz, gRFC A14).
namespace attention::server::channelz {

/// The server that was started last; 0 where there is none.
int64_t NewestServer();

struct Socket {
  int64_t id = 0;
  std::string peer;  // as grpc::ServerContext::peer() says it
};
/// The connections of a server whose numbers are above `after`, in their order.
std::vector<Socket> SocketsOf(int64_t server, int64_t after);

/// Calls of a connection, whether the server has been told of them or not.
struct Calls {
  int64_t started = 0;
  int64_t open = 0;  // gRPC holds memory for them still
};
/// None where the connection has ended. Takes some 10 us.
std::optional<Calls> CallsOf(int64_t socket);

/// The two, where a test has others in their place. They may throw
/// std::bad_alloc.
struct Source {
  std::function<std::vector<Socket>(int64_t after)> sockets;
  std::function<std::optional<Calls>(int64_t socket)> calls;
};
Source SourceOf(int64_t server);

}  // namespace attention::server::channelz

#endif  // ATTENTION_SERVER_TRANSPORT_CHANNELZ_H_
