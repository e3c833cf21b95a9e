#include "server/wire/status_table.h"

#include <google/protobuf/any.pb.h>
#include <google/protobuf/duration.pb.h>
#include <google/protobuf/unknown_field_set.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "server/base/utf8.h"
#include "server/scheduling/retry_after.h"

namespace attention::server {
namespace {

struct StatusPair {
  absl::StatusCode from;
  grpc::StatusCode to;
  const char* name;
};

class StatusTable : public ::testing::TestWithParam<StatusPair> {};

TEST_P(StatusTable, KeepsTheCodesMeaning) {
  const auto& [from, to, name] = GetParam();
  EXPECT_EQ(ToGrpcStatus(absl::Status(from, "m")).error_code(), to);
  EXPECT_EQ(absl::StatusCodeToString(from), name);  // as the log has it
}

INSTANTIATE_TEST_SUITE_P(
    Codes, StatusTable,
    ::testing::Values(
        StatusPair{absl::StatusCode::kOk, grpc::StatusCode::OK, "OK"},
        StatusPair{absl::StatusCode::kCancelled, grpc::StatusCode::CANCELLED,
                   "CANCELLED"},
        StatusPair{absl::StatusCode::kUnknown, grpc::StatusCode::UNKNOWN,
                   "UNKNOWN"},
        StatusPair{absl::StatusCode::kInvalidArgument,
                   grpc::StatusCode::INVALID_ARGUMENT, "INVALID_ARGUMENT"},
        StatusPair{absl::StatusCode::kDeadlineExceeded,
                   grpc::StatusCode::DEADLINE_EXCEEDED, "DEADLINE_EXCEEDED"},
        StatusPair{absl::StatusCode::kNotFound, grpc::StatusCode::NOT_FOUND,
                   "NOT_FOUND"},
        StatusPair{absl::StatusCode::kAlreadyExists,
                   grpc::StatusCode::ALREADY_EXISTS, "ALREADY_EXISTS"},
        StatusPair{absl::StatusCode::kPermissionDenied,
                   grpc::StatusCode::PERMISSION_DENIED, "PERMISSION_DENIED"},
        StatusPair{absl::StatusCode::kResourceExhausted,
                   grpc::StatusCode::RESOURCE_EXHAUSTED, "RESOURCE_EXHAUSTED"},
        StatusPair{absl::StatusCode::kFailedPrecondition,
                   grpc::StatusCode::FAILED_PRECONDITION,
                   "FAILED_PRECONDITION"},
        StatusPair{absl::StatusCode::kAborted, grpc::StatusCode::ABORTED,
                   "ABORTED"},
        StatusPair{absl::StatusCode::kOutOfRange,
                   grpc::StatusCode::OUT_OF_RANGE, "OUT_OF_RANGE"},
        StatusPair{absl::StatusCode::kUnimplemented,
                   grpc::StatusCode::UNIMPLEMENTED, "UNIMPLEMENTED"},
        StatusPair{absl::StatusCode::kInternal, grpc::StatusCode::INTERNAL,
                   "INTERNAL"},
        StatusPair{absl::StatusCode::kUnavailable,
                   grpc::StatusCode::UNAVAILABLE, "UNAVAILABLE"},
        StatusPair{absl::StatusCode::kDataLoss, grpc::StatusCode::DATA_LOSS,
                   "DATA_LOSS"},
        StatusPair{absl::StatusCode::kUnauthenticated,
                   grpc::StatusCode::UNAUTHENTICATED, "UNAUTHENTICATED"}),
    [](const auto& row) { return std::string(row.param.name); });

TEST(StatusTable, KeepsTheMessage) {
  EXPECT_EQ(ToGrpcStatus(absl::NotFoundError("no such key")).error_message(),
            "no such key");
}

TEST(StatusTable, HasNoDetailsWithoutPayloads) {
  EXPECT_EQ(ToGrpcStatus(absl::NotFoundError("no")).error_details(), "");
}

// google.rpc.Status: 1 code, 2 message, 3 details (of Any: 1 type_url, 2
// value); google.rpc.RetryInfo: 1 retry_delay.
TEST(StatusTable, SendsTheTimeToTryAgainAsGooglesRetryInfo) {
  const std::string details =
      ToGrpcStatus(RetryAfter(absl::ResourceExhaustedError("full"),
                              std::chrono::milliseconds(1500)))
          .error_details();
  google::protobuf::UnknownFieldSet status;
  ASSERT_TRUE(status.ParseFromString(details));
  ASSERT_EQ(status.field_count(), 3);
  google::protobuf::Any any;
  google::protobuf::Duration delay;
  google::protobuf::UnknownFieldSet retry_info;
  for (int i = 0; i < 3; ++i) {
    const auto& field = status.field(i);
    if (field.number() == 1) {
      EXPECT_EQ(field.varint(), 8U);
    }
    if (field.number() == 2) {
      EXPECT_EQ(field.length_delimited(), "full");
    }
    if (field.number() == 3) {
      ASSERT_TRUE(any.ParseFromString(field.length_delimited()));
    }
  }
  EXPECT_EQ(any.type_url(), "type.googleapis.com/google.rpc.RetryInfo");
  ASSERT_TRUE(retry_info.ParseFromString(any.value()));
  ASSERT_EQ(retry_info.field_count(), 1);
  ASSERT_TRUE(delay.ParseFromString(retry_info.field(0).length_delimited()));
  EXPECT_EQ(delay.seconds(), 1);
  EXPECT_EQ(delay.nanos(), 500'000'000);
}

TEST(StatusTable, CutsLongMessagesBetweenCharacters) {
  std::string euros;
  for (int i = 0; i < 1000; ++i) euros += "\xE2\x82\xAC";
  const std::string message =
      ToGrpcStatus(absl::InternalError(euros)).error_message();
  EXPECT_LE(message.size(), kMostStatusMessageBytes);
  EXPECT_GT(message.size(), kMostStatusMessageBytes - 4);
  EXPECT_TRUE(IsUtf8(message));
  EXPECT_EQ(message.substr(message.size() - 3), "...");
}

TEST(ToUtf8, ReplacesWhatIsNoCharacter) {
  EXPECT_EQ(ToUtf8(""), "");
  EXPECT_EQ(ToUtf8("a\u00e9\u20ac\U0001F600"), "a\u00e9\u20ac\U0001F600");
  EXPECT_EQ(ToUtf8("a\xC3"), "a?");
  EXPECT_EQ(ToUtf8("\xE2\x82z"), "??z");
  EXPECT_EQ(ToUtf8("\xFF\u00e9\x80"), "?\u00e9?");
}

TEST(Shown, TellsTheBeginningAndThatThereIsMore) {
  EXPECT_EQ(Shown(""), "''");
  EXPECT_EQ(Shown("a b\n"), "'a b\\n'");
  const std::string longest(128, 'a');
  EXPECT_EQ(Shown(longest), "'" + longest + "'");
  EXPECT_EQ(Shown(longest + "b"), "'" + longest + "...'");
}

TEST(ToGrpcStatus, CutCharactersMakeNoBrokenMessage) {
  const grpc::Status status =
      ToGrpcStatus(absl::NotFoundError("'\u20ac\xC3' is unknown"));
  EXPECT_EQ(status.error_message(), "'\u20ac?' is unknown");
}

TEST(IsUtf8, AcceptsEveryLengthOfCharacter) {
  EXPECT_TRUE(IsUtf8(""));
  EXPECT_TRUE(
      IsUtf8("a\xC2\x80\xDF\xBF\xE0\xA0\x80\xED\x9F\xBF\xEF\xBF\xBF"
             "\xF0\x90\x80\x80\xF4\x8F\xBF\xBF"));
}

TEST(IsUtf8, RefusesWhatIsNone) {
  for (const char* text :
       {"\x80", "\xC0\x80", "\xC1\xBF", "\xC2", "\xC2z", "\xE0\x9F\xBF",
        "\xED\xA0\x80", "\xE2\x82", "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80",
        "\xF5\x80\x80\x80", "\xFF", "ok\xFEok"}) {
    EXPECT_FALSE(IsUtf8(text)) << testing::PrintToString(std::string(text));
  }
}

}  // namespace
}  // namespace attention::server
