#include "server/wire/status_table.h"

#include <gtest/gtest.h>

#include <string>

#include "server/utf8.h"

namespace attention::server {
namespace {

struct Row {
  absl::StatusCode from;
  grpc::StatusCode to;
  const char* name;
};

class StatusTable : public ::testing::TestWithParam<Row> {};

TEST_P(StatusTable, KeepsTheCodesMeaning) {
  const auto& [from, to, name] = GetParam();
  EXPECT_EQ(ToGrpcStatus(absl::Status(from, "m")).error_code(), to);
  EXPECT_EQ(absl::StatusCodeToString(from), name);  // as the log has it
}

INSTANTIATE_TEST_SUITE_P(
    Codes, StatusTable,
    ::testing::Values(
        Row{absl::StatusCode::kOk, grpc::StatusCode::OK, "OK"},
        Row{absl::StatusCode::kCancelled, grpc::StatusCode::CANCELLED,
            "CANCELLED"},
        Row{absl::StatusCode::kUnknown, grpc::StatusCode::UNKNOWN, "UNKNOWN"},
        Row{absl::StatusCode::kInvalidArgument,
            grpc::StatusCode::INVALID_ARGUMENT, "INVALID_ARGUMENT"},
        Row{absl::StatusCode::kDeadlineExceeded,
            grpc::StatusCode::DEADLINE_EXCEEDED, "DEADLINE_EXCEEDED"},
        Row{absl::StatusCode::kNotFound, grpc::StatusCode::NOT_FOUND,
            "NOT_FOUND"},
        Row{absl::StatusCode::kAlreadyExists, grpc::StatusCode::ALREADY_EXISTS,
            "ALREADY_EXISTS"},
        Row{absl::StatusCode::kPermissionDenied,
            grpc::StatusCode::PERMISSION_DENIED, "PERMISSION_DENIED"},
        Row{absl::StatusCode::kResourceExhausted,
            grpc::StatusCode::RESOURCE_EXHAUSTED, "RESOURCE_EXHAUSTED"},
        Row{absl::StatusCode::kFailedPrecondition,
            grpc::StatusCode::FAILED_PRECONDITION, "FAILED_PRECONDITION"},
        Row{absl::StatusCode::kAborted, grpc::StatusCode::ABORTED, "ABORTED"},
        Row{absl::StatusCode::kOutOfRange, grpc::StatusCode::OUT_OF_RANGE,
            "OUT_OF_RANGE"},
        Row{absl::StatusCode::kUnimplemented, grpc::StatusCode::UNIMPLEMENTED,
            "UNIMPLEMENTED"},
        Row{absl::StatusCode::kInternal, grpc::StatusCode::INTERNAL,
            "INTERNAL"},
        Row{absl::StatusCode::kUnavailable, grpc::StatusCode::UNAVAILABLE,
            "UNAVAILABLE"},
        Row{absl::StatusCode::kDataLoss, grpc::StatusCode::DATA_LOSS,
            "DATA_LOSS"},
        Row{absl::StatusCode::kUnauthenticated,
            grpc::StatusCode::UNAUTHENTICATED, "UNAUTHENTICATED"}),
    [](const auto& row) { return std::string(row.param.name); });

TEST(StatusTable, KeepsTheMessage) {
  EXPECT_EQ(ToGrpcStatus(absl::NotFoundError("no such key")).error_message(),
            "no such key");
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
