#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <string>
#include <utility>

#include "server/request/results.h"
#include "server/scheduling/retry_after.h"
#include "server/wire/attend_wire.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/server/attend_requests.h"

namespace attention::server {
namespace {

using ::attention::test::IsOk;
using ::testing::ElementsAre;
using ::testing::StartsWith;

RequestFacts Facts() {
  RequestFacts facts;
  facts.backend = "reference";
  facts.kernel = "fp64_tiles";
  facts.queue_time = std::chrono::nanoseconds(12);
  facts.compute_time = std::chrono::nanoseconds(345);
  return facts;
}

// Everything up to a reply, without computing.
struct AttendReply {
  explicit AttendReply(const v1::AttendRequest& message, bool on_stream = false)
      : wire(on_stream, models),
        request(wire.Decode(OneSlice(message.SerializeAsString()),
                            server::HoldUncounted)
                    .value()),
        results(request.results, ValidateBatch(request.problem).value()) {}

  grpc::ByteBuffer Encode() {
    return wire.Encode(results.sent(), Facts()).bytes();
  }

  ModelRepository models;
  AttendWire wire;
  AttentionRequest request;
  Results results;
};

v1::AttendRequest RequestForAll() {
  v1::AttendRequest request = SmallRequest();
  request.set_return_weights(true);
  request.set_return_lse(true);
  return request;
}

// Recognisable bytes in every result.
void Fill(Results& results) {
  const AttentionOutputs outputs = results.Outputs();
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

TEST(AttendReply, IsWhatTheGeneratedClassReads) {
  AttendReply reply(RequestForAll());
  ASSERT_THAT(reply.results.Allocate(), IsOk());
  Fill(reply.results);
  v1::AttendResponse response;
  ASSERT_TRUE(response.ParseFromString(Flatten(reply.Encode())));
  ExpectAll(response);
}

TEST(AttendReply, IsWhatTheGeneratedClassReadsOnAStream) {
  AttendReply reply(RequestForAll(), /*on_stream=*/true);
  ASSERT_THAT(reply.results.Allocate(), IsOk());
  Fill(reply.results);
  v1::AttendStreamResponse response;
  ASSERT_TRUE(response.ParseFromString(Flatten(reply.Encode())));
  EXPECT_EQ(response.id(), "small");
  ExpectAll(response.result());
}

TEST(AttendReply, HoldsOnlyWhatWasAskedFor) {
  AttendReply reply(SmallRequest());
  ASSERT_THAT(reply.results.Allocate(), IsOk());
  std::memcpy(reply.results.Outputs().output.data, "outp", 4);
  v1::AttendResponse response;
  ASSERT_TRUE(response.ParseFromString(Flatten(reply.Encode())));
  EXPECT_FALSE(response.has_weights());
  EXPECT_FALSE(response.has_lse());
}

TEST(AttendReply, ComputesInMemoryAlignedTo64Bytes) {
  AttendReply reply(RequestForAll());
  ASSERT_THAT(reply.results.Allocate(), IsOk());
  const auto address = [](const std::byte* data) {
    return reinterpret_cast<uintptr_t>(data) % 64;
  };
  EXPECT_EQ(address(reply.results.Outputs().output.data), 0U);
  EXPECT_EQ(address(reply.results.Outputs().weights.data), 0U);
}

TEST(AttendReply, DoesNotCopyLargeResults) {
  v1::AttendRequest request = SmallRequest();
  SetTensor(*request.mutable_key_value()->mutable_value(), v1::DATA_TYPE_FP32,
            {2, 4096}, std::string(size_t{2} * 4096 * 4, '\0'));
  AttendReply reply(request);
  ASSERT_THAT(reply.results.Allocate(), IsOk());
  const auto* output =
      reinterpret_cast<const uint8_t*>(reply.results.Outputs().output.data);
  std::memcpy(reply.results.Outputs().output.data, "outp", 4);
  std::vector<grpc::Slice> slices;
  ASSERT_TRUE(reply.Encode().Dump(&slices).ok());
  ASSERT_EQ(slices.size(), 3U);
  EXPECT_EQ(slices[1].begin(), output);
}

TEST(AttendReply, ASmallReplyIsOneSlice) {
  AttendReply reply(SmallRequest());
  ASSERT_THAT(reply.results.Allocate(), IsOk());
  std::vector<grpc::Slice> slices;
  ASSERT_TRUE(reply.Encode().Dump(&slices).ok());
  EXPECT_EQ(slices.size(), 1U);
}

TEST(AttendReply, EncodesEmptyResults) {
  v1::AttendRequest request = RequestForAll();
  SetTensor(*request.mutable_query(), v1::DATA_TYPE_FP32, {0, 2}, "");
  AttendReply reply(request);
  ASSERT_THAT(reply.results.Allocate(), IsOk());
  v1::AttendResponse response;
  ASSERT_TRUE(response.ParseFromString(Flatten(reply.Encode())));
  EXPECT_THAT(response.output().shape(), ElementsAre(0, 1));
  EXPECT_EQ(response.output().data(), "");
  EXPECT_TRUE(response.has_weights());
}

TEST(AttendReply, KnowsABoundOfTheMessage) {
  AttendReply reply(RequestForAll(), /*on_stream=*/true);
  ASSERT_THAT(reply.results.Allocate(), IsOk());
  Fill(reply.results);
  const int64_t bound = reply.results.Bytes() + reply.wire.OtherBytes();
  const auto size = static_cast<int64_t>(reply.Encode().Length());
  EXPECT_LE(size, bound);
  EXPECT_GE(size, bound - 640);
}

TEST(EncodeStreamError, HasIdCodeAndMessage) {
  v1::AttendStreamResponse response;
  ASSERT_TRUE(response.ParseFromString(
      Flatten(EncodeStreamError("a", absl::InvalidArgumentError("key: missing"))
                  .bytes())));
  EXPECT_EQ(response.id(), "a");
  EXPECT_EQ(response.error().code(), 3);
  EXPECT_EQ(response.error().message(), "key: missing");
  EXPECT_FALSE(response.error().has_retry_after_ms());
}

TEST(EncodeStreamError, IsShortWhateverTheIdAndTheMessage) {
  const std::string text(1 << 20, 'x');
  const std::string reply = Flatten(
      EncodeStreamError(text, absl::InvalidArgumentError(text)).bytes());
  EXPECT_LT(reply.size(), 2048);
  v1::AttendStreamResponse response;
  ASSERT_TRUE(response.ParseFromString(reply));
  EXPECT_THAT(response.id(), StartsWith("xxx"));
  EXPECT_THAT(response.error().message(), StartsWith("xxx"));
}

TEST(EncodeStreamError, SaysWhenToTryAgain) {
  const absl::Status full = RetryAfter(absl::ResourceExhaustedError("full"),
                                       std::chrono::milliseconds(1500));
  v1::AttendStreamResponse response;
  ASSERT_TRUE(
      response.ParseFromString(Flatten(EncodeStreamError("a", full).bytes())));
  EXPECT_EQ(response.error().retry_after_ms(), 1500);
}

}  // namespace
}  // namespace attention::server
