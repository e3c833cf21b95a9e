#include "attention_client/client.h"

#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>

#include <utility>

#include "attention/v1/attention.grpc.pb.h"
#include "client/cpp/src/channel.h"
#include "client/cpp/src/reply_decoder.h"
#include "client/cpp/src/request_encoder.h"
#include "client/cpp/src/security.h"
#include "client/cpp/src/status.h"
#include "client/cpp/src/stream.h"
#include "client/cpp/src/wire.h"
#include "grpc/health/v1/health.grpc.pb.h"

namespace attention::client {

namespace {

constexpr char kAttendMethod[] = "/attention.v1.AttentionService/Attend";

// A blocking call, as a generated stub makes it for messages that are classes.
grpc::Status CallUnary(grpc::GenericStub& stub, grpc::ClientContext& context,
                       const char* method, const grpc::ByteBuffer& request,
                       grpc::ByteBuffer& reply) {
  grpc::CompletionQueue queue;
  const auto call = stub.PrepareUnaryCall(&context, method, request, &queue);
  call->StartCall();
  grpc::Status status;
  call->Finish(&reply, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  queue.Shutdown();
  while (queue.Next(&tag, &ok)) {
  }
  return status;
}

}  // namespace

struct Client::Impl {
  Impl(const ClientOptions& client_options,
       const std::shared_ptr<grpc::ChannelCredentials>& credentials)
      : options(client_options),
        channel(MakeChannel(options, credentials)),
        attention(channel),
        raw(channel),
        health(channel) {}

  // What every call has: its deadline, and who makes it.
  void Prepare(grpc::ClientContext& context) const {
    AddToken(options, context);
    if (options.deadline.count() > 0) {
      context.set_deadline(std::chrono::system_clock::now() + options.deadline);
    }
  }

  const ClientOptions options;
  const std::shared_ptr<grpc::Channel> channel;
  // Stubs have no state beyond the channel; their methods are not const.
  mutable v1::AttentionService::Stub attention;
  mutable grpc::GenericStub raw;  // for messages that carry tensors
  mutable grpc::health::v1::Health::Stub health;
};

absl::StatusOr<Client> Client::Create(const ClientOptions& options) {
  if (absl::Status checked = CheckOptions(options); !checked.ok()) {
    return checked;
  }
  const auto credentials = MakeCredentials(options);
  if (!credentials.ok()) return credentials.status();
  return Client(std::make_unique<Impl>(options, *credentials));
}

absl::StatusOr<AttendResult> Client::Attend(
    const AttendRequest& request) const {
  absl::Status sendable =
      CheckSendable(request, impl_->options.max_message_bytes);
  if (!sendable.ok()) return sendable;
  grpc::ClientContext context;
  impl_->Prepare(context);
  grpc::ByteBuffer message;
  const grpc::Status status =
      CallUnary(impl_->raw, context, kAttendMethod,
                EncodeRequest(request, request.id), message);
  if (!status.ok()) return ToAbslStatus(status);
  absl::StatusOr<Reply> reply = DecodeReply(message);
  if (!reply.ok()) return reply.status();
  return ToResult(request, *std::move(reply));
}

absl::Status Client::AttendMany(
    const std::vector<AttendRequest>& requests,
    const std::function<void(size_t, absl::StatusOr<AttendResult>)>& on_reply)
    const {
  grpc::ClientContext context;
  impl_->Prepare(context);
  return RunStream(impl_->raw, context, impl_->options.max_message_bytes,
                   requests, on_reply);
}

absl::StatusOr<ServerInfo> Client::GetServerInfo() const {
  grpc::ClientContext context;
  impl_->Prepare(context);
  v1::GetServerInfoResponse response;
  const grpc::Status status =
      impl_->attention.GetServerInfo(&context, {}, &response);
  if (!status.ok()) return ToAbslStatus(status);
  return FromProto(response);
}

absl::StatusOr<Health> Client::CheckHealth(const std::string& service) const {
  grpc::ClientContext context;
  impl_->Prepare(context);
  grpc::health::v1::HealthCheckRequest request;
  request.set_service(service);
  grpc::health::v1::HealthCheckResponse response;
  const grpc::Status status = impl_->health.Check(&context, request, &response);
  if (!status.ok()) return ToAbslStatus(status);
  switch (response.status()) {
    case grpc::health::v1::HealthCheckResponse::SERVING:
      return Health::kServing;
    case grpc::health::v1::HealthCheckResponse::NOT_SERVING:
      return Health::kNotServing;
    default:
      return Health::kUnknown;
  }
}

Client::Client(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Client::Client(Client&&) noexcept = default;
Client& Client::operator=(Client&&) noexcept = default;
Client::~Client() = default;

}  // namespace attention::client
