#include "benchmarks/load/floors.h"

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "attention/v1/attention.grpc.pb.h"
#include "benchmarks/load/samples.h"
#include "benchmarks/load/sockets.h"

namespace attention::bench {
namespace {

// What a connection begins with: the sizes of its messages each way.
using Sizes = std::array<int64_t, 2>;

absl::Span<std::byte> Bytes(Sizes& sizes) {
  return {reinterpret_cast<std::byte*>(sizes.data()), sizeof(Sizes)};
}

void AnswerPings(const Socket& socket) {
  Sizes sizes{};
  if (!socket.Receive(Bytes(sizes))) return;
  std::vector<std::byte> request(static_cast<size_t>(sizes[0]));
  const std::vector<std::byte> reply(static_cast<size_t>(sizes[1]));
  while (socket.Receive(absl::MakeSpan(request)) && socket.Send(reply)) {
  }
}

// One connection at a time is enough here. Ends with the process.
void AnswerPingsOn(Socket listener) {
  std::thread([listener = std::move(listener)] {
    while (true) AnswerPings(listener.Accept());
  }).detach();
}

// The same kind of method as ours, and nothing in it.
class EchoService final
    : public v1::AttentionService::WithRawCallbackMethod_Attend<
          v1::AttentionService::WithRawCallbackMethod_AttendStream<
              v1::AttentionService::WithCallbackMethod_GetServerInfo<
                  v1::AttentionService::Service>>> {
  grpc::ServerUnaryReactor* Attend(grpc::CallbackServerContext* context,
                                   const grpc::ByteBuffer*,
                                   grpc::ByteBuffer* response) override {
    const grpc::Slice nothing;
    *response = grpc::ByteBuffer(&nothing, 1);
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
};

class RunningFloorServer final : public FloorServer {
 public:
  absl::Status Listen(const std::string& folder) {
    const std::string ping_unix = absl::StrCat("unix:", folder, "/ping.sock");
    const std::string echo_unix = absl::StrCat("unix:", folder, "/echo.sock");
    absl::StatusOr<Socket> tcp = Socket::ListenOn("tcp:127.0.0.1:0");
    if (!tcp.ok()) return tcp.status();
    absl::StatusOr<Socket> local = Socket::ListenOn(ping_unix);
    if (!local.ok()) return local.status();
    addresses_["ping_tcp"] = tcp->TcpAddress();
    addresses_["ping_unix"] = ping_unix;
    AnswerPingsOn(*std::move(tcp));
    AnswerPingsOn(*std::move(local));
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                             &port);
    builder.AddListeningPort(echo_unix, grpc::InsecureServerCredentials());
    builder.SetMaxReceiveMessageSize(-1);
    builder.RegisterService(&echo_);
    grpc_server_ = builder.BuildAndStart();
    if (grpc_server_ == nullptr) {
      return absl::UnavailableError("the echo server does not start");
    }
    addresses_["echo_tcp"] = absl::StrCat("127.0.0.1:", port);
    addresses_["echo_unix"] = echo_unix;
    return absl::OkStatus();
  }

  nlohmann::json Addresses() const override { return addresses_; }

 private:
  EchoService echo_;
  std::unique_ptr<grpc::Server> grpc_server_;
  nlohmann::json addresses_;
};

// Calls whose request was encoded beforehand and whose reply is nothing.
class EchoApi final : public Api {
 public:
  explicit EchoApi(const Api& api) : request_(api.Encode("")) {}
  const char* unary_method() const override {
    return "/attention.v1.AttentionService/Attend";
  }
  const char* stream_method() const override { return ""; }
  grpc::ByteBuffer Encode(const std::string&) const override {
    return request_;
  }
  absl::StatusOr<ReplyFacts> DecodeUnary(grpc::ByteBuffer&) const override {
    return ReplyFacts();
  }
  absl::StatusOr<ReplyFacts> DecodeStream(grpc::ByteBuffer&) const override {
    return ReplyFacts();
  }

 private:
  const grpc::ByteBuffer request_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<FloorServer>> FloorServer::Start(
    const std::string& folder) {
  auto server = std::make_unique<RunningFloorServer>();
  if (absl::Status status = server->Listen(folder); !status.ok()) return status;
  return server;
}

absl::StatusOr<nlohmann::json> Ping(const std::string& address, int64_t send,
                                    int64_t receive, double warm_up_seconds,
                                    double seconds) {
  const absl::StatusOr<Socket> socket = Socket::ConnectTo(address);
  if (!socket.ok()) return socket.status();
  Sizes sizes{send, receive};
  const std::vector<std::byte> request(static_cast<size_t>(send));
  std::vector<std::byte> reply(static_cast<size_t>(receive));
  if (!socket->Send(Bytes(sizes))) return absl::UnavailableError("lost");
  Samples samples(send + receive);
  const auto begin = Clock::now();
  const auto measure_from =
      begin + std::chrono::duration_cast<Clock::duration>(
                  std::chrono::duration<double>(warm_up_seconds));
  const auto end = measure_from + std::chrono::duration_cast<Clock::duration>(
                                      std::chrono::duration<double>(seconds));
  for (auto now = begin; now < end;) {
    if (!socket->Send(request) || !socket->Receive(absl::MakeSpan(reply))) {
      return absl::UnavailableError("the floor server has gone");
    }
    const auto after = Clock::now();
    if (now >= measure_from) samples.Add(after - now);
    now = after;
  }
  return samples.ToJson(Clock::now() - measure_from);
}

absl::StatusOr<nlohmann::json> EchoLoad(const LoadOptions& options,
                                        const LoadShape& shape,
                                        const Api& api) {
  LoadOptions unary = options;
  unary.stream = false;
  return RunLoad(unary, shape, EchoApi(api));
}

}  // namespace attention::bench
