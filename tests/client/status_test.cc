#include "client/cpp/src/status.h"

#include <gmock/gmock.h>
#include <google/protobuf/duration.pb.h>
#include <google/protobuf/unknown_field_set.h>
#include <grpcpp/support/status.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "attention/v1/attention.pb.h"
#include "attention_client/client.h"
#include "client/cpp/cli/failure.h"
#include "client/cpp/src/wire.h"
#include "proto/status_details.h"

namespace attention::client {
namespace {

using ::google::protobuf::UnknownFieldSet;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kRetryInfo[] = "type.googleapis.com/google.rpc.RetryInfo";

std::string Bytes(const UnknownFieldSet& fields) {
  std::string bytes;
  EXPECT_TRUE(fields.SerializeToString(&bytes));
  return bytes;
}

// A google.rpc.RetryInfo as somebody else writes it.
std::string RetryInfo(int64_t seconds, int32_t nanos) {
  google::protobuf::Duration delay;
  delay.set_seconds(seconds);
  delay.set_nanos(nanos);
  UnknownFieldSet fields;
  fields.AddLengthDelimited(1, delay.SerializeAsString());
  return Bytes(fields);
}

std::optional<std::chrono::milliseconds> TimeOf(const std::string& retry_info) {
  absl::Status status = absl::ResourceExhaustedError("full");
  status.SetPayload(kRetryInfo, absl::Cord(retry_info));
  return RetryAfter(status);
}

TEST(StatusTest, CodesThatAreNoneBecomeUnknown) {
  EXPECT_EQ(StatusFromCode(5, "m"), absl::NotFoundError("m"));
  EXPECT_EQ(StatusFromCode(17, "m"), absl::UnknownError("m"));
  EXPECT_EQ(StatusFromCode(-1, "m"), absl::UnknownError("m"));
}

TEST(StatusTest, DetailsPassTheWire) {
  absl::Status sent = absl::ResourceExhaustedError("full");
  SetRetryTime(std::chrono::milliseconds(1500), sent);
  sent.SetPayload("type.googleapis.com/a.B", absl::Cord("bytes"));
  const grpc::Status wire(grpc::StatusCode::RESOURCE_EXHAUSTED, "full",
                          StatusDetails(sent, 8, "full"));
  EXPECT_EQ(ToAbslStatus(wire), sent);
  EXPECT_EQ(RetryAfter(ToAbslStatus(wire)), std::chrono::milliseconds(1500));
}

TEST(StatusTest, AStatusWithoutPayloadsHasNoDetails) {
  EXPECT_EQ(StatusDetails(absl::NotFoundError("m"), 5, "m"), "");
}

TEST(StatusTest, DetailsThatAreNoneAddNothing) {
  UnknownFieldSet wrong_type;
  wrong_type.AddVarint(3, 7);
  UnknownFieldSet no_any;
  no_any.AddLengthDelimited(3, "\xFF\xFF\xFF");
  for (const std::string& details :
       {std::string("\xFF garbage"), Bytes(wrong_type), Bytes(no_any)}) {
    const grpc::Status wire(grpc::StatusCode::NOT_FOUND, "m", details);
    EXPECT_EQ(ToAbslStatus(wire), absl::NotFoundError("m"));
  }
}

TEST(StatusTest, ATimeToCallAgainIsOneMillisecondToAYear) {
  constexpr std::chrono::hours kYear{365 * 24};
  constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(TimeOf(RetryInfo(0, 1)), std::chrono::milliseconds(1));
  EXPECT_EQ(TimeOf(RetryInfo(2, 500'000'001)), std::chrono::milliseconds(2501));
  EXPECT_EQ(TimeOf(RetryInfo(kLargest, 0)), kYear);
  EXPECT_EQ(TimeOf(RetryInfo(-1, 0)), std::nullopt);
  EXPECT_EQ(TimeOf(RetryInfo(0, -1)), std::nullopt);
  EXPECT_EQ(TimeOf("garbage"), std::nullopt);
  absl::Status status = absl::ResourceExhaustedError("full");
  SetRetryTime(std::chrono::milliseconds::min(), status);
  EXPECT_EQ(RetryAfter(status), std::chrono::milliseconds(1));
  SetRetryTime(std::chrono::milliseconds::max(), status);
  EXPECT_EQ(RetryAfter(status), kYear);
}

TEST(StatusTest, AnErrorOnAStreamKeepsItsTimeToCallAgain) {
  v1::Error error;
  error.set_code(static_cast<int>(absl::StatusCode::kResourceExhausted));
  error.set_message("full");
  EXPECT_EQ(RetryAfter(ToAbslStatus(error)), std::nullopt);
  error.set_retry_after_ms(1500);
  const absl::Status status = ToAbslStatus(error);
  EXPECT_EQ(RetryAfter(status), std::chrono::milliseconds(1500));
  EXPECT_EQ(status.message(), "full");
}

TEST(StatusTest, TheProgramSaysWhenToTryAgain) {
  absl::Status status = absl::ResourceExhaustedError("full");
  SetRetryTime(std::chrono::milliseconds(100), status);
  EXPECT_THAT(std::string(cli::CallError(status, "a:1").message()),
              HasSubstr("full; try again in 100 ms"));
}

TEST(StatusTest, TheProgramSaysThatNoServerAnswersOnlyWithoutAConnection) {
  const auto said = [](const absl::Status& status) {
    return std::string(cli::CallError(status, "a:1").message());
  };
  absl::Status status = absl::UnavailableError("the server is draining");
  EXPECT_EQ(said(status),
            "a:1 cannot serve now (UNAVAILABLE: the server is draining); try "
            "again");
  SetRetryTime(std::chrono::milliseconds(100), status);
  EXPECT_EQ(said(status),
            "a:1 cannot serve now (UNAVAILABLE: the server is draining); try "
            "again in 100 ms");
  for (const char* of_grpc :
       {"failed to connect to all addresses; last error: UNKNOWN: Connection "
        "refused",
        "DNS resolution failed for a:1: not found"}) {
    EXPECT_THAT(said(absl::UnavailableError(of_grpc)),
                StartsWith("no server answers at a:1 (UNAVAILABLE: "));
  }
}

TEST(StatusTest, TheProgramSaysWhatListensWhereAConnectionFails) {
  const auto said = [](const char* last) {
    const absl::Status status = absl::UnavailableError(
        absl::StrCat("failed to connect to all addresses; last error: ", last));
    return std::string(cli::CallError(status, "a:1").message());
  };
  EXPECT_THAT(said("UNKNOWN: ipv4:a:1: Ssl handshake failed: wrong version"),
              AllOf(StartsWith("no connection to a:1 (UNAVAILABLE: "),
                    HasSubstr("; TLS fails there: --tls-ca")));
  EXPECT_THAT(said("UNKNOWN: ipv4:a:1: Peer name b is not in peer certificate"),
              HasSubstr("; TLS fails there: --tls-ca"));
  EXPECT_THAT(said("INTERNAL: ipv4:a:1: Trying to connect an http1.x server"),
              HasSubstr("speaks HTTP/1.1: gRPC has a port of its own"));
  EXPECT_THAT(said("UNAVAILABLE: ipv4:a:1: Socket closed"),
              HasSubstr("a certificate needs --tls or --tls-ca"));
}

}  // namespace
}  // namespace attention::client
