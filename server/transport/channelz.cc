#include "server/transport/channelz.h"

#include <grpc/grpc.h>
#include <grpc/support/alloc.h>

#include <memory>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "server/base/json.h"

namespace attention::server::channelz {
namespace {

// What gRPC has rendered; null where it has nothing.
Json Parsed(char* text) {
  const std::unique_ptr<char, decltype(&gpr_free)> owned(text, &gpr_free);
  if (text == nullptr) return {};
  return ParseJson(text);
}

// A member; null where `object` has none.
const Json& Member(const Json& object, const char* key) {
  static const auto& none = *new Json();
  if (!object.is_object()) return none;
  const auto found = object.find(key);
  return found == object.end() ? none : *found;
}

// 64-bit numbers are text in protobuf's JSON, and absent where they are 0.
int64_t Number(const Json& object, const char* key) {
  const Json& value = Member(object, key);
  int64_t number = 0;
  if (!value.is_string() ||
      !absl::SimpleAtoi(value.get_ref<const std::string&>(), &number)) {
    return 0;
  }
  return number;
}

std::string PeerIn(const Json& ref) {
  const Json& name = Member(ref, "name");
  if (!name.is_string()) return "";
  absl::string_view peer = name.get_ref<const std::string&>();
  absl::ConsumePrefix(&peer, "chttp2 ");
  return static_cast<std::string>(peer);
}

}  // namespace

int64_t NewestServer() {
  int64_t newest = 0;
  Json page;
  do {
    page = Parsed(grpc_channelz_get_servers(newest + 1));
    const Json& servers = Member(page, "server");
    if (!servers.is_array() || servers.empty()) break;
    newest = Number(Member(servers.back(), "ref"), "serverId");
  } while (Member(page, "end") != Json(true));
  return newest;
}

std::vector<Socket> SocketsOf(int64_t server, int64_t after) {
  std::vector<Socket> sockets;
  Json page;
  do {
    page = Parsed(grpc_channelz_get_server_sockets(server, after + 1,
                                                   /*max_results=*/0));
    const Json& refs = Member(page, "socketRef");
    if (!refs.is_array() || refs.empty()) break;
    for (const Json& ref : refs) {
      after = Number(ref, "socketId");
      sockets.push_back({after, PeerIn(ref)});
    }
  } while (Member(page, "end") != Json(true));
  return sockets;
}

std::optional<Calls> CallsOf(int64_t socket) {
  const Json page = Parsed(grpc_channelz_get_socket(socket));
  if (!page.is_object()) return std::nullopt;
  const Json& data = Member(Member(page, "socket"), "data");
  const int64_t started = Number(data, "streamsStarted");
  return Calls{started, started - Number(data, "streamsSucceeded") -
                            Number(data, "streamsFailed")};
}

Source SourceOf(int64_t server) {
  return {[server](int64_t after) { return SocketsOf(server, after); },
          CallsOf};
}

}  // namespace attention::server::channelz
