#include "attention_client/client.h"

#include <grpcpp/client_context.h>

#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/string_view.h"
#include "client/cpp/src/channel.h"
#include "client/cpp/src/client_impl.h"
#include "client/cpp/src/reply_decoder.h"
#include "client/cpp/src/request_encoder.h"
#include "client/cpp/src/security.h"
#include "client/cpp/src/status.h"
#include "client/cpp/src/stream.h"
#include "client/cpp/src/unary_call.h"
#include "client/cpp/src/wire.h"

namespace attention::client {

namespace {

constexpr char kAttendMethod[] = "/attention.v1.AttentionService/Attend";

ClientOptions WithoutRetries(ClientOptions options) {
  options.max_attempts = 1;
  return options;
}

// Whether computing the request twice leaves what computing it once does: keys
// that are appended behind the last one would be there twice.
bool IsRepeatable(const AttendRequest& request) {
  return !request.sequences || !request.sequences->append ||
         absl::c_all_of(request.sequences->entries,
                        [](const SequenceLayer& entry) {
                          return entry.position.has_value();
                        });
}

// What Envoy and HAProxy of deploy/proxy hash: what the name has before a '/',
// so that a fork may be named after its sequence. What is no name is left to
// the server to refuse; gRPC ends a program that sends it in a header.
void AddSequence(absl::string_view name, grpc::ClientContext& context) {
  const absl::string_view route = name.substr(0, name.find('/'));
  const bool is_name =
      !route.empty() && route.size() <= 256 &&
      absl::c_all_of(route, [](char c) {
        return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
               absl::string_view("._-:+=@").find(c) != absl::string_view::npos;
      });
  if (!is_name) return;
  const std::string value(route.data(), route.size());
  context.AddMetadata("attention-sequence", value);
}

}  // namespace

Client::Impl::Impl(const ClientOptions& client_options,
                   const std::shared_ptr<grpc::ChannelCredentials>& credentials)
    : options(client_options),
      channel(MakeChannel(options, credentials)),
      once(options.max_attempts == 1
               ? channel
               : MakeChannel(WithoutRetries(options), credentials)),
      attention(channel),
      key_values(channel),
      raw(channel),
      raw_once(once),
      health(channel) {}

void Client::Impl::Prepare(grpc::ClientContext& context,
                           absl::string_view sequence) const {
  AddToken(options, context);
  AddSequence(sequence, context);
  if (options.deadline.count() > 0) {
    context.set_deadline(std::chrono::system_clock::now() + options.deadline);
  }
}

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
  const bool is_on_sequences =
      request.sequences.has_value() && !request.sequences->entries.empty();
  impl_->Prepare(context, is_on_sequences
                              ? request.sequences->entries.front().name
                              : absl::string_view());
  grpc::ByteBuffer message;
  const grpc::Status status =
      CallUnary(impl_->Raw(IsRepeatable(request)), context, kAttendMethod,
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
