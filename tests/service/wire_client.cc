#include "tests/service/wire_client.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/channel_arguments.h>
#include <grpcpp/support/client_callback.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <limits>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "attention/v1/attention.grpc.pb.h"

namespace attention::test {
namespace {

constexpr char kDetails[] = "grpc-status-details-bin";

std::string ToBytes(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  std::string bytes;
  if (!buffer.Valid() || !buffer.Dump(&slices).ok()) return bytes;
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return bytes;
}

grpc::ByteBuffer ToBuffer(const std::string& bytes) {
  const grpc::Slice slice(bytes);
  return {&slice, 1};
}

// Both sides number the codes alike, as google.rpc.Code does.
absl::Status ToStatus(const grpc::Status& status) {
  absl::Status told(static_cast<absl::StatusCode>(status.error_code()),
                    status.error_message());
  if (!status.error_details().empty()) {
    told.SetPayload(kDetails, absl::Cord(status.error_details()));
  }
  return told;
}

void Prepare(const std::string& authorization,
             std::chrono::milliseconds timeout, grpc::ClientContext& context) {
  context.set_deadline(std::chrono::system_clock::now() + timeout);
  if (!authorization.empty()) {
    context.AddMetadata("authorization", authorization);
  }
}

class UnaryCall final : public PendingCall {
 public:
  UnaryCall(grpc::GenericStub& stub, const std::string& authorization,
            const std::string& method, const std::string& message,
            std::chrono::milliseconds timeout)
      : request_(ToBuffer(message)) {
    Prepare(authorization, timeout, context_);
    stub.UnaryCall(&context_, method, {}, &request_, &reply_,
                   [this](grpc::Status status) {
                     const std::lock_guard lock(mutex_);
                     status_ = std::move(status);
                     done_.notify_all();
                   });
  }
  ~UnaryCall() override {
    context_.TryCancel();
    (void)Wait();
  }

  void Cancel() override { context_.TryCancel(); }

  absl::StatusOr<std::string> Wait() override {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [this] { return status_.has_value(); });
    if (!status_->ok()) return ToStatus(*status_);
    return ToBytes(reply_);
  }

 private:
  grpc::ClientContext context_;
  grpc::ByteBuffer request_;
  grpc::ByteBuffer reply_;
  std::mutex mutex_;
  std::condition_variable done_;
  std::optional<grpc::Status> status_;
};

class Stream final
    : public ByteStream,
      public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  Stream(grpc::GenericStub& stub, const std::string& authorization,
         const std::string& method, std::chrono::milliseconds timeout) {
    Prepare(authorization, timeout, context_);
    stub.PrepareBidiStreamingCall(&context_, method, {}, this);
    AddHold();  // until Finish(): reads and writes start outside of reactions
    StartCall();
  }
  ~Stream() override {
    context_.TryCancel();
    (void)Finish();
  }

  bool Write(const std::string& message) override {
    outgoing_ = ToBuffer(message);
    Forget(written_);
    StartWrite(&outgoing_);
    return WaitFor(written_);
  }

  void WritesDone() override { StartWritesDone(); }

  std::optional<std::string> Read() override {
    Forget(read_);
    StartRead(&incoming_);
    if (!WaitFor(read_)) return std::nullopt;
    return ToBytes(incoming_);
  }

  void Cancel() override { context_.TryCancel(); }

  absl::Status Finish() override {
    if (!std::exchange(hold_removed_, true)) RemoveHold();
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return status_.has_value(); });
    return ToStatus(*status_);
  }

  void OnWriteDone(bool ok) override { Set(written_, ok); }
  void OnReadDone(bool ok) override { Set(read_, ok); }
  void OnDone(const grpc::Status& status) override { Set(status_, status); }

 private:
  template <typename T>
  void Set(std::optional<T>& variable, const T& value) {
    const std::lock_guard lock(mutex_);
    variable = value;
    changed_.notify_all();
  }
  void Forget(std::optional<bool>& variable) {
    const std::lock_guard lock(mutex_);
    variable.reset();
  }
  bool WaitFor(const std::optional<bool>& variable) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&variable] { return variable.has_value(); });
    return *variable;
  }

  grpc::ClientContext context_;
  grpc::ByteBuffer outgoing_;
  grpc::ByteBuffer incoming_;
  bool hold_removed_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<bool> written_;
  std::optional<bool> read_;
  std::optional<grpc::Status> status_;
};

std::shared_ptr<grpc::Channel> Connect(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(std::numeric_limits<int>::max());
  arguments.SetMaxSendMessageSize(std::numeric_limits<int>::max());
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(),
                                   arguments);
}

}  // namespace

struct WireClient::Impl {
  Impl(const std::string& address, std::string header)
      : authorization(std::move(header)),
        channel(Connect(address)),
        generic(channel),
        typed(channel) {}

  const std::string authorization;
  std::shared_ptr<grpc::Channel> channel;
  grpc::GenericStub generic;
  v1::AttentionService::Stub typed;
};

WireClient::WireClient(const std::string& address,
                       const std::string& authorization)
    : impl_(std::make_unique<Impl>(address, authorization)) {}
WireClient::~WireClient() = default;

std::unique_ptr<PendingCall> WireClient::Start(
    const std::string& method, const std::string& message,
    std::chrono::milliseconds timeout) {
  return std::make_unique<UnaryCall>(impl_->generic, impl_->authorization,
                                     method, message, timeout);
}

std::unique_ptr<ByteStream> WireClient::OpenStream(
    const std::string& method, std::chrono::milliseconds timeout) {
  return std::make_unique<Stream>(impl_->generic, impl_->authorization, method,
                                  timeout);
}

absl::StatusOr<v1::AttendResponse> WireClient::Attend(
    const v1::AttendRequest& request) {
  grpc::ClientContext context;
  Prepare(impl_->authorization, kPatience, context);
  v1::AttendResponse response;
  const grpc::Status status = impl_->typed.Attend(&context, request, &response);
  if (!status.ok()) return ToStatus(status);
  return response;
}

absl::StatusOr<v1::GetServerInfoResponse> WireClient::GetServerInfo() {
  grpc::ClientContext context;
  Prepare(impl_->authorization, kPatience, context);
  v1::GetServerInfoResponse response;
  const grpc::Status status =
      impl_->typed.GetServerInfo(&context, {}, &response);
  if (!status.ok()) return ToStatus(status);
  return response;
}

bool SaysWhenToTryAgain(const absl::Status& status) {
  const auto details = status.GetPayload(kDetails);
  if (!details) return false;
  EXPECT_TRUE(absl::StrContains(static_cast<std::string>(*details),
                                "type.googleapis.com/google.rpc.RetryInfo"));
  return true;
}

absl::StatusOr<v1::AttendResponse> AttendOnceAdmitted(
    WireClient& client, const v1::AttendRequest& request) {
  while (true) {
    absl::StatusOr<v1::AttendResponse> reply = client.Attend(request);
    if (reply.status().code() != absl::StatusCode::kResourceExhausted) {
      return reply;
    }
  }
}

}  // namespace attention::test
