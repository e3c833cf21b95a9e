#include "server/wire/reply_encoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <utility>

#include "server/wire/problem_translation.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/server/attend_requests.h"

namespace attention::server {
namespace {

using ::attention::test::IsOk;
using ::attention::test::StatusIs;
using ::testing::ElementsAre;
using ::testing::StartsWith;

const RequestFacts kFacts = {.backend = "reference",
                             .kernel = "fp64_tiles",
                             .queue_time = std::chrono::nanoseconds(12),
                             .compute_time = std::chrono::nanoseconds(345)};

// A builder for the reply to a request; what the problem views need not live.
ReplyBuilder BuilderFor(const v1::AttendRequest& request) {
  const auto decoded =
      DecodeAttendRequest(OneSlice(request.SerializeAsString())).value();
  const auto problem = TranslateToProblem(decoded).value();
  return {request.id(), Validate(problem).value()};
}

v1::AttendRequest RequestForAll() {
  v1::AttendRequest request = SmallRequest();
  request.set_return_weights(true);
  request.set_return_lse(true);
  return request;
}

// Recognisable bytes in every result.
void Fill(ReplyBuilder& builder) {
  const AttentionOutputs outputs = builder.Outputs();
  std::memcpy(outputs.output.data, "outp", 4);
  std::memcpy(outputs.weights.data, "weights0", 8);
  std::memcpy(outputs.lse.data, "lse0", 4);
}

void ExpectAll(const v1::AttendResponse& response) {
  EXPECT_EQ(response.id(), "small");
  EXPECT_EQ(response.output().datatype(), v1::DATA_TYPE_FP32);
  EXPECT_THAT(response.output().shape(), ElementsAre(1, 1));
  EXPECT_EQ(response.output().data(), "outp");
  EXPECT_THAT(response.weights().shape(), ElementsAre(1, 2));
  EXPECT_EQ(response.weights().data(), "weights0");
  EXPECT_THAT(response.lse().shape(), ElementsAre(1));
  EXPECT_EQ(response.lse().data(), "lse0");
  EXPECT_EQ(response.backend(), "reference");
  EXPECT_EQ(response.kernel(), "fp64_tiles");
  EXPECT_EQ(response.queue_ns(), 12U);
  EXPECT_EQ(response.compute_ns(), 345U);
}

TEST(ReplyBuilder, IsWhatTheGeneratedClassReads) {
  ReplyBuilder builder = BuilderFor(RequestForAll());
  ASSERT_THAT(builder.Allocate(), IsOk());
  Fill(builder);
  v1::AttendResponse response;
  ASSERT_TRUE(
      response.ParseFromString(Flatten(std::move(builder).Build(kFacts))));
  ExpectAll(response);
}

TEST(ReplyBuilder, IsWhatTheGeneratedClassReadsOnAStream) {
  ReplyBuilder builder = BuilderFor(RequestForAll());
  ASSERT_THAT(builder.Allocate(), IsOk());
  Fill(builder);
  v1::AttendStreamResponse response;
  ASSERT_TRUE(response.ParseFromString(
      Flatten(std::move(builder).BuildForStream(kFacts))));
  EXPECT_EQ(response.id(), "small");
  ExpectAll(response.result());
}

TEST(ReplyBuilder, HoldsOnlyWhatWasAskedFor) {
  ReplyBuilder builder = BuilderFor(SmallRequest());
  ASSERT_THAT(builder.Allocate(), IsOk());
  std::memcpy(builder.Outputs().output.data, "outp", 4);
  v1::AttendResponse response;
  ASSERT_TRUE(
      response.ParseFromString(Flatten(std::move(builder).Build(kFacts))));
  EXPECT_FALSE(response.has_weights());
  EXPECT_FALSE(response.has_lse());
}

TEST(ReplyBuilder, ComputesInMemoryAlignedTo64Bytes) {
  ReplyBuilder builder = BuilderFor(RequestForAll());
  ASSERT_THAT(builder.Allocate(), IsOk());
  const auto address = [](const std::byte* data) {
    return reinterpret_cast<uintptr_t>(data) % 64;
  };
  EXPECT_EQ(address(builder.Outputs().output.data), 0U);
  EXPECT_EQ(address(builder.Outputs().weights.data), 0U);
}

TEST(ReplyBuilder, DoesNotCopyLargeResults) {
  v1::AttendRequest request = SmallRequest();
  SetTensor(*request.mutable_key_value()->mutable_value(), v1::DATA_TYPE_FP32,
            {2, 4096}, std::string(size_t{2} * 4096 * 4, '\0'));
  ReplyBuilder builder = BuilderFor(request);
  ASSERT_THAT(builder.Allocate(), IsOk());
  const auto* output =
      reinterpret_cast<const uint8_t*>(builder.Outputs().output.data);
  std::memcpy(builder.Outputs().output.data, "outp", 4);
  std::vector<grpc::Slice> slices;
  ASSERT_TRUE(std::move(builder).Build(kFacts).Dump(&slices).ok());
  ASSERT_EQ(slices.size(), 3U);
  EXPECT_EQ(slices[1].begin(), output);
}

TEST(ReplyBuilder, ASmallReplyIsOneSlice) {
  ReplyBuilder builder = BuilderFor(SmallRequest());
  ASSERT_THAT(builder.Allocate(), IsOk());
  std::vector<grpc::Slice> slices;
  ASSERT_TRUE(std::move(builder).Build(kFacts).Dump(&slices).ok());
  EXPECT_EQ(slices.size(), 1U);
}

TEST(ReplyBuilder, EncodesEmptyResults) {
  v1::AttendRequest request = RequestForAll();
  SetTensor(*request.mutable_query(), v1::DATA_TYPE_FP32, {0, 2}, "");
  ReplyBuilder builder = BuilderFor(request);
  ASSERT_THAT(builder.Allocate(), IsOk());
  v1::AttendResponse response;
  ASSERT_TRUE(
      response.ParseFromString(Flatten(std::move(builder).Build(kFacts))));
  EXPECT_THAT(response.output().shape(), ElementsAre(0, 1));
  EXPECT_EQ(response.output().data(), "");
  EXPECT_TRUE(response.has_weights());
}

TEST(ReplyBuilder, BytesIsABoundOfTheMessage) {
  ReplyBuilder builder = BuilderFor(RequestForAll());
  ASSERT_THAT(builder.Allocate(), IsOk());
  Fill(builder);
  const int64_t bound = builder.Bytes();
  const auto size =
      static_cast<int64_t>(std::move(builder).BuildForStream(kFacts).Length());
  EXPECT_LE(size, bound);
  EXPECT_GE(size, bound - 512);
}

TEST(ReplyBuilder, NamesTheOutputThatDoesNotFit) {
  v1::AttendRequest request = RequestForAll();
  // 64 x 64 weights take 16 KiB, the output and lse 256 bytes each.
  std::string zeros(size_t{64} * 4, '\0');
  SetTensor(*request.mutable_query(), v1::DATA_TYPE_FP32, {64, 1}, zeros);
  SetTensor(*request.mutable_key_value()->mutable_key(), v1::DATA_TYPE_FP32,
            {64, 1}, zeros);
  SetTensor(*request.mutable_key_value()->mutable_value(), v1::DATA_TYPE_FP32,
            {64, 1}, zeros);
  const ReplyBuilder builder = BuilderFor(request);
  EXPECT_THAT(builder.CheckFits(32 << 10), IsOk());
  EXPECT_THAT(
      builder.CheckFits(8 << 10),
      StatusIs(absl::StatusCode::kResourceExhausted,
               StartsWith("weights: shape [64, 64] takes 16384 bytes")));
}

TEST(ReplyBuilder, RefusesAnOutputThatNoMemoryHolds) {
  // Legal on paper: no key, so no value of that width either.
  v1::AttendRequest request = SmallRequest();
  SetTensor(*request.mutable_key_value()->mutable_key(), v1::DATA_TYPE_FP32,
            {0, 2}, "");
  SetTensor(*request.mutable_key_value()->mutable_value(), v1::DATA_TYPE_FP32,
            {0, int64_t{1} << 40}, "");
  EXPECT_THAT(BuilderFor(request).CheckFits(256 << 20),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       StartsWith("output: shape [1, 1099511627776] takes "
                                  "4398046511104 bytes")));
}

TEST(EncodeStreamError, HasIdCodeAndMessage) {
  v1::AttendStreamResponse response;
  ASSERT_TRUE(response.ParseFromString(Flatten(
      EncodeStreamError("a", absl::InvalidArgumentError("key: missing")))));
  EXPECT_EQ(response.id(), "a");
  EXPECT_EQ(response.error().code(), 3);
  EXPECT_EQ(response.error().message(), "key: missing");
}

}  // namespace
}  // namespace attention::server
