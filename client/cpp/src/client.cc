#include "attention_client/client.h"

#include <grpcpp/client_context.h>

#include <utility>

#include "attention/v1/attention.grpc.pb.h"
#include "client/cpp/src/channel.h"
#include "client/cpp/src/status.h"
#include "client/cpp/src/stream.h"
#include "client/cpp/src/wire.h"
#include "grpc/health/v1/health.grpc.pb.h"

namespace attention::client {

struct Client::Impl {
  explicit Impl(const ClientOptions& client_options)
      : options(client_options),
        channel(MakeChannel(options)),
        attention(channel),
        health(channel) {}

  void SetDeadline(grpc::ClientContext& context) const {
    if (options.deadline.count() > 0) {
      context.set_deadline(std::chrono::system_clock::now() + options.deadline);
    }
  }

  const ClientOptions options;
  const std::shared_ptr<grpc::Channel> channel;
  // Stubs have no state beyond the channel; their methods are not const.
  mutable v1::AttentionService::Stub attention;
  mutable grpc::health::v1::Health::Stub health;
};

absl::StatusOr<Client> Client::Create(const ClientOptions& options) {
  if (absl::Status checked = CheckOptions(options); !checked.ok()) {
    return checked;
  }
  return Client(std::make_unique<Impl>(options));
}

absl::StatusOr<AttendResult> Client::Attend(
    const AttendRequest& request) const {
  absl::Status sendable =
      CheckSendable(request, impl_->options.max_message_bytes);
  if (!sendable.ok()) return sendable;
  grpc::ClientContext context;
  impl_->SetDeadline(context);
  v1::AttendResponse response;
  const grpc::Status status =
      impl_->attention.Attend(&context, ToProto(request), &response);
  if (!status.ok()) return ToAbslStatus(status);
  return FromProto(request, response);
}

absl::Status Client::AttendMany(
    const std::vector<AttendRequest>& requests,
    const std::function<void(size_t, absl::StatusOr<AttendResult>)>& on_reply)
    const {
  grpc::ClientContext context;
  impl_->SetDeadline(context);
  return RunStream(impl_->attention, context, impl_->options.max_message_bytes,
                   requests, on_reply);
}

absl::StatusOr<ServerInfo> Client::GetServerInfo() const {
  grpc::ClientContext context;
  impl_->SetDeadline(context);
  v1::GetServerInfoResponse response;
  const grpc::Status status =
      impl_->attention.GetServerInfo(&context, {}, &response);
  if (!status.ok()) return ToAbslStatus(status);
  return FromProto(response);
}

absl::StatusOr<Health> Client::CheckHealth(const std::string& service) const {
  grpc::ClientContext context;
  impl_->SetDeadline(context);
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
