#ifndef ATTENTION_TESTS_SERVICE_WIRE_CLIENT_H_
#define ATTENTION_TESTS_SERVICE_WIRE_CLIENT_H_

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attention/v1/attention.pb.h"

/// One connection to a server, for messages that are well formed and for bytes
/// that are not. Free of gRPC's headers, which take long to compile.
namespace attention::test {

inline constexpr char kAttend[] = "/attention.v1.AttentionService/Attend";
inline constexpr char kAttendStream[] =
    "/attention.v1.AttentionService/AttendStream";
inline constexpr char kHealthCheck[] = "/grpc.health.v1.Health/Check";
inline constexpr char kHealthWatch[] = "/grpc.health.v1.Health/Watch";
inline constexpr char kReflection[] =
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";

/// Long enough for every call that ends by itself: a test that waits in vain
/// fails with DEADLINE_EXCEEDED.
inline constexpr std::chrono::milliseconds kPatience{600'000};

/// A unary call that was sent. Its destructor cancels it and waits.
class PendingCall {
 public:
  virtual ~PendingCall() = default;
  virtual void Cancel() = 0;
  /// The reply's bytes, or how the call ended.
  virtual absl::StatusOr<std::string> Wait() = 0;
};

/// A stream of messages in both directions. One thread may write while another
/// reads. Its destructor cancels it and waits.
class ByteStream {
 public:
  virtual ~ByteStream() = default;
  /// Returns when the transport has taken the message, which it does not while
  /// the server does not read; false where the stream is over.
  virtual bool Write(const std::string& message) = 0;
  /// The client will write no more.
  virtual void WritesDone() = 0;
  /// The next message; nothing where the stream is over.
  virtual std::optional<std::string> Read() = 0;
  virtual void Cancel() = 0;
  /// How the stream ended. Call it when Read() gave nothing, or after Cancel().
  virtual absl::Status Finish() = 0;
};

class WireClient {
 public:
  /// A connection of its own to "127.0.0.1:PORT", with no limit to messages.
  /// Its calls carry the header "authorization", where one is given.
  explicit WireClient(const std::string& address,
                      const std::string& authorization = "");
  ~WireClient();

  /// A unary call of any method with any bytes.
  std::unique_ptr<PendingCall> Start(
      const std::string& method, const std::string& message,
      std::chrono::milliseconds timeout = kPatience);
  absl::StatusOr<std::string> Call(
      const std::string& method, const std::string& message,
      std::chrono::milliseconds timeout = kPatience) {
    return Start(method, message, timeout)->Wait();
  }
  std::unique_ptr<ByteStream> OpenStream(
      const std::string& method, std::chrono::milliseconds timeout = kPatience);

  /// Through the generated stub.
  absl::StatusOr<v1::AttendResponse> Attend(const v1::AttendRequest& request);
  absl::StatusOr<v1::GetServerInfoResponse> GetServerInfo();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Whether the server says when to try again (google.rpc.RetryInfo). Everything
/// else that it adds to a status fails the test.
bool SaysWhenToTryAgain(const absl::Status& status);

/// Sends a request until the server is not full any more: it lets go of a
/// request only after that one's caller has its reply, or has gone away.
absl::StatusOr<v1::AttendResponse> AttendOnceAdmitted(
    WireClient& client, const v1::AttendRequest& request);

}  // namespace attention::test

#endif  // ATTENTION_TESTS_SERVICE_WIRE_CLIENT_H_
