#include "server/wire/request_decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/support/status_matchers.h"
#include "tests/unit/server/attend_requests.h"

namespace attention::server {
namespace {

using ::attention::test::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

std::string Elements(const DecodedAttendRequest& decoded,
                     const std::string& field, const v1::Tensor& tensor) {
  const auto elements = decoded.Elements(field, tensor);
  return {reinterpret_cast<const char*>(elements.data()), elements.size()};
}

// The request as the generated class would have parsed it: elements in place.
v1::AttendRequest Restored(const DecodedAttendRequest& decoded) {
  v1::AttendRequest message = decoded.message();
  const auto restore = [&](const char* field, v1::Tensor& tensor) {
    tensor.set_data(Elements(decoded, field, tensor));
  };
  if (message.has_query()) restore("query", *message.mutable_query());
  if (message.has_key_value()) {
    v1::KeyValueTensors& tensors = *message.mutable_key_value();
    if (tensors.has_key()) restore("key", *tensors.mutable_key());
    if (tensors.has_value()) restore("value", *tensors.mutable_value());
  }
  if (message.has_additive()) {
    v1::Additive& additive = *message.mutable_additive();
    if (additive.has_w_q()) restore("w_q", *additive.mutable_w_q());
    if (additive.has_w_k()) restore("w_k", *additive.mutable_w_k());
    if (additive.has_w_v()) restore("w_v", *additive.mutable_w_v());
  }
  if (message.has_bilinear() && message.bilinear().has_m()) {
    restore("m", *message.mutable_bilinear()->mutable_m());
  }
  if (message.has_valid_lens()) {
    restore("valid_lens", *message.mutable_valid_lens());
  }
  if (message.has_attend_mask()) {
    restore("attend_mask", *message.mutable_attend_mask());
  }
  if (message.has_bias()) restore("bias", *message.mutable_bias());
  return message;
}

// Both parsers on the same bytes, which protobuf accepts.
void ExpectAsProtobuf(const std::string& bytes) {
  v1::AttendRequest expected;
  ASSERT_TRUE(expected.ParseFromString(bytes));
  ASSERT_OK_AND_ASSIGN(const DecodedAttendRequest decoded,
                       DecodeFieldByField(OneSlice(bytes)));
  EXPECT_EQ(Restored(decoded).DebugString(), expected.DebugString());
}

absl::Status DecodeStatus(const std::string& bytes) {
  return DecodeFieldByField(OneSlice(bytes)).status();
}

// A field of wire type 2 with a number below 16.
std::string Field(int number, const std::string& content) {
  return std::string{static_cast<char>(number << 3 | 2),
                     static_cast<char>(content.size())} +
         content;
}

TEST(RequestDecoder, HasEveryField) {
  ExpectAsProtobuf(FullRequest().SerializeAsString());
}

TEST(RequestDecoder, HasEveryScoring) {
  v1::AttendRequest request = SmallRequest();
  request.mutable_scaled_dot_product()->set_scale(0);
  ExpectAsProtobuf(request.SerializeAsString());
  request.mutable_gaussian()->set_sigma(2);
  ExpectAsProtobuf(request.SerializeAsString());
  request.mutable_bilinear()->set_scale(2);
  SetTensor(*request.mutable_bilinear()->mutable_m(), v1::DATA_TYPE_FP32,
            {2, 2}, Floats({1, 2, 3, 4}));
  ExpectAsProtobuf(request.SerializeAsString());
}

TEST(RequestDecoder, AcceptsNoBytesAsAnEmptyMessage) {
  ASSERT_OK_AND_ASSIGN(const DecodedAttendRequest decoded,
                       DecodeFieldByField({}));
  EXPECT_FALSE(decoded.message().has_query());
}

TEST(RequestDecoder, SmallTensorsAreAlignedTo64Bytes) {
  ASSERT_OK_AND_ASSIGN(
      const DecodedAttendRequest decoded,
      DecodeFieldByField(OneSlice(FullRequest().SerializeAsString())));
  const auto elements = decoded.Elements("query", decoded.message().query());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(elements.data()) % 64, 0U);
}

TEST(RequestDecoder, GivesTheSameForEveryCutBetweenSlices) {
  const v1::AttendRequest request = FullRequest();
  const std::string bytes = request.SerializeAsString();
  for (size_t cut = 0; cut <= bytes.size(); ++cut) {
    ASSERT_OK_AND_ASSIGN(const DecodedAttendRequest decoded,
                         DecodeFieldByField(CutAt(bytes, cut)));
    ASSERT_EQ(Restored(decoded).SerializeAsString(), bytes) << "cut at " << cut;
  }
}

TEST(RequestDecoder, GivesTheSameForSlicesOfOneByte) {
  const std::string bytes = FullRequest().SerializeAsString();
  std::vector<grpc::Slice> slices;
  for (const char& byte : bytes) slices.emplace_back(&byte, 1);
  ASSERT_OK_AND_ASSIGN(const DecodedAttendRequest decoded,
                       DecodeFieldByField(std::move(slices)));
  EXPECT_EQ(Restored(decoded).SerializeAsString(), bytes);
}

TEST(RequestDecoder, AcceptsEveryTruncationThatProtobufAcceptsAndNoOther) {
  const std::string bytes = FullRequest().SerializeAsString();
  int accepted = 0;
  for (size_t size = 0; size < bytes.size(); ++size) {
    const std::string cut = bytes.substr(0, size);
    v1::AttendRequest expected;
    const bool parses = expected.ParseFromString(cut);
    const auto decoded = DecodeFieldByField(OneSlice(cut));
    ASSERT_EQ(decoded.ok(), parses) << size << " " << decoded.status();
    if (!parses) {
      ASSERT_THAT(decoded, StatusIs(kInvalid, HasSubstr("not an Attend")));
    }
    accepted += parses ? 1 : 0;
  }
  EXPECT_GT(accepted, 10);  // between any two fields
}

TEST(RequestDecoder, MergesRepeatedFieldsAsProtobufDoes) {
  v1::AttendRequest first = SmallRequest();
  v1::AttendRequest second;
  second.set_id("second");
  SetTensor(*second.mutable_query(), v1::DATA_TYPE_BF16, {9}, "later");
  second.mutable_key_value()->mutable_value()->add_shape(8);
  ExpectAsProtobuf(first.SerializeAsString() + second.SerializeAsString());
}

TEST(RequestDecoder, TakesTheLastDataOfOneTensorEvenIfItIsEmpty) {
  const std::string with = Field(3, "abc");
  const std::string without = Field(3, "");
  ExpectAsProtobuf(Field(2, with + with + Field(3, "last")));
  ExpectAsProtobuf(Field(2, with + without));
  ExpectAsProtobuf(Field(2, with) + Field(2, without));
  ExpectAsProtobuf(Field(2, with) + Field(2, ""));
}

TEST(RequestDecoder, TheLastMemberOfAOneofWins) {
  v1::AttendRequest bilinear;
  SetTensor(*bilinear.mutable_bilinear()->mutable_m(), v1::DATA_TYPE_FP32,
            {1, 1}, Floats({1}));
  v1::AttendRequest gaussian;
  gaussian.mutable_gaussian()->set_sigma(3);
  v1::AttendRequest scale_only;
  scale_only.mutable_bilinear()->set_scale(4);
  const std::string m = bilinear.SerializeAsString();
  const std::string g = gaussian.SerializeAsString();
  const std::string s = scale_only.SerializeAsString();
  ExpectAsProtobuf(m + g);
  ExpectAsProtobuf(g + m);
  ExpectAsProtobuf(m + s);      // merged
  ExpectAsProtobuf(m + g + s);  // m is gone
}

TEST(RequestDecoder, AcceptsFieldsInAnyOrder) {
  const v1::AttendRequest request = SmallRequest();
  v1::AttendRequest head;
  head.set_id(request.id());
  v1::AttendRequest tail = request;
  tail.clear_id();
  ExpectAsProtobuf(tail.SerializeAsString() + head.SerializeAsString());
}

TEST(RequestDecoder, AcceptsShapesThatAreNotPacked) {
  const std::string unpacked = {1 << 3, 1, 2 << 3, 3, 2 << 3, 4};
  ExpectAsProtobuf(Field(2, unpacked));
}

TEST(RequestDecoder, NamesAnUnknownFieldOfTheRequest) {
  EXPECT_THAT(DecodeStatus(SmallRequest().SerializeAsString() +
                           std::string{static_cast<char>(0x98), 0x06, 1}),
              StatusIs(kInvalid,
                       "field 99 of AttendRequest is unknown to "
                       "this server"));
}

TEST(RequestDecoder, NamesAnUnknownFieldAtEveryDepth) {
  const std::string unknown = Field(15, "x");
  EXPECT_THAT(DecodeStatus(Field(2, unknown)),
              StatusIs(kInvalid, HasSubstr("field 15 of Tensor")));
  EXPECT_THAT(DecodeStatus(Field(3, unknown)),
              StatusIs(kInvalid, HasSubstr("field 15 of KeyValueTensors")));
  EXPECT_THAT(DecodeStatus(Field(3, Field(1, unknown))),
              StatusIs(kInvalid, HasSubstr("field 15 of Tensor")));
  EXPECT_THAT(DecodeStatus(Field(5, unknown)),
              StatusIs(kInvalid, HasSubstr("field 15 of ScaledDotProduct")));
  EXPECT_THAT(DecodeStatus(Field(6, unknown)),
              StatusIs(kInvalid, HasSubstr("field 15 of Additive")));
  EXPECT_THAT(DecodeStatus(Field(7, unknown)),
              StatusIs(kInvalid, HasSubstr("field 15 of Gaussian")));
  EXPECT_THAT(DecodeStatus(Field(8, unknown)),
              StatusIs(kInvalid, HasSubstr("field 15 of Bilinear")));
}

TEST(RequestDecoder, RefusesTheReservedField) {
  EXPECT_THAT(DecodeStatus(Field(4, "")),
              StatusIs(kInvalid, HasSubstr("field 4 of AttendRequest")));
}

TEST(RequestDecoder, RefusesAKnownFieldOfAnotherWireType) {
  // softcap as a varint is unknown to protobuf, which would drop it.
  EXPECT_THAT(DecodeStatus({9 << 3, 1}),
              StatusIs(kInvalid, StartsWith("softcap: wire type 0")));
}

TEST(RequestDecoder, RefusesGroups) {
  EXPECT_FALSE(DecodeStatus({2 << 3 | 3, 2 << 3 | 4}).ok());
}

TEST(RequestDecoder, RefusesBytesThatAreNoMessage) {
  EXPECT_THAT(DecodeStatus(std::string(100, '\xFF')),
              StatusIs(kInvalid, HasSubstr("not an AttendRequest")));
  EXPECT_THAT(DecodeStatus("GET / HTTP/1.1\r\n\r\n"),
              StatusIs(kInvalid, ::testing::_));
}

TEST(RequestDecoder, AllocatesNothingForALengthThatIsNotThere) {
  // data claims 2^31 - 1 bytes, within a tensor that claims as many.
  const std::string claim = {'\xFF', '\xFF', '\xFF', '\xFF', '\x07'};
  EXPECT_THAT(DecodeStatus(std::string{2 << 3 | 2} + claim),
              StatusIs(kInvalid, HasSubstr("query is cut")));
  const std::string data = std::string{3 << 3 | 2} + claim;
  EXPECT_THAT(DecodeStatus(Field(2, data)),
              StatusIs(kInvalid, HasSubstr("data is cut")));
}

TEST(RequestDecoder, RefusesAnIdThatIsNotUtf8) {
  EXPECT_THAT(DecodeStatus(Field(1, "a\xC0\x80")),
              StatusIs(kInvalid, "id: is not UTF-8"));
}

TEST(RequestDecoder, RefusesSmallFieldsOfUnreasonableSize) {
  v1::AttendRequest request;
  request.set_id(std::string(1 << 20, 'x'));
  EXPECT_THAT(DecodeStatus(request.SerializeAsString()),
              StatusIs(kInvalid, StartsWith("id: takes 1048576 bytes")));
  request.Clear();
  for (int i = 0; i < 100'000; ++i) request.mutable_query()->add_shape(1);
  EXPECT_THAT(DecodeStatus(request.SerializeAsString()),
              StatusIs(kInvalid, AllOf(StartsWith("shape: takes"))));
}

TEST(RequestDecoder, HoldsOneBufferPerTensorHoweverOftenItComes) {
  std::string bytes;
  for (int i = 0; i < 1000; ++i) bytes += Field(2, Field(3, "0123456789"));
  ASSERT_OK_AND_ASSIGN(const DecodedAttendRequest decoded,
                       DecodeFieldByField(OneSlice(bytes)));
  EXPECT_EQ(Elements(decoded, "query", decoded.message().query()),
            "0123456789");
}

// A small message takes the generated parser first: the outcome is the same.
void ExpectSameByBothWays(const std::string& bytes) {
  const auto fast = DecodeAttendRequest(OneSlice(bytes));
  const auto thorough = DecodeFieldByField(OneSlice(bytes));
  ASSERT_EQ(fast.status(), thorough.status());
  if (!fast.ok()) return;
  EXPECT_EQ(Restored(*fast).SerializeAsString(),
            Restored(*thorough).SerializeAsString());
}

TEST(SmallRequest, DecodesAsALargeOneWould) {
  const std::string bytes = FullRequest().SerializeAsString();
  for (size_t size = 0; size <= bytes.size(); ++size) {
    ExpectSameByBothWays(bytes.substr(0, size));
  }
  for (size_t cut = 0; cut <= bytes.size(); ++cut) {
    ASSERT_OK_AND_ASSIGN(const DecodedAttendRequest decoded,
                         DecodeAttendRequest(CutAt(bytes, cut)));
    ASSERT_EQ(Restored(decoded).SerializeAsString(), bytes) << "cut at " << cut;
  }
}

TEST(SmallRequest, WithAnUnknownFieldAnywhereIsRefusedAsALargeOneWouldBe) {
  const std::string unknown = Field(15, "x");
  const std::string full = FullRequest().SerializeAsString();
  for (const std::string& bytes :
       {unknown, full + unknown, Field(2, unknown), Field(3, unknown),
        Field(3, Field(1, unknown)), Field(3, Field(2, unknown)),
        Field(5, unknown), Field(6, unknown), Field(6, Field(1, unknown)),
        Field(7, unknown), Field(8, unknown), Field(8, Field(1, unknown)),
        Field(10, unknown), Field(11, unknown), Field(12, unknown)}) {
    EXPECT_FALSE(DecodeAttendRequest(OneSlice(bytes)).ok());
    ExpectSameByBothWays(bytes);
  }
}

TEST(SmallRequest, WithAnUnknownFieldInAScoringThatIsReplacedIsRefused) {
  const std::string bytes = Field(7, Field(3, "x")) + Field(5, "");
  EXPECT_THAT(DecodeAttendRequest(OneSlice(bytes)),
              StatusIs(kInvalid,
                       "field 3 of Gaussian is unknown to this "
                       "server"));
}

// What the small way relies on.
TEST(SmallRequest, HasOneofsAtItsTopAlone) {
  const auto* descriptor = v1::AttendRequest::descriptor();
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const auto* message = descriptor->field(i)->message_type();
    if (message == nullptr) continue;
    EXPECT_FALSE(descriptor->field(i)->is_repeated());
    EXPECT_EQ(message->real_oneof_decl_count(), 0) << message->name();
    for (int k = 0; k < message->field_count(); ++k) {
      const auto* inner = message->field(k)->message_type();
      if (inner == nullptr) continue;
      EXPECT_FALSE(message->field(k)->is_repeated());
      EXPECT_EQ(inner->real_oneof_decl_count(), 0) << inner->name();
    }
  }
}

TEST(SmallRequest, ThatIsNoMessageIsRefusedAsALargeOneWouldBe) {
  ExpectSameByBothWays(std::string(100, '\xFF'));
  ExpectSameByBothWays(Field(1, "a\xC0\x80"));
  ExpectSameByBothWays({9 << 3, 1});
  ExpectSameByBothWays({2 << 3 | 3, 2 << 3 | 4});
}

int slices_alive = 0;

TEST(RequestDecoder, LetsGoOfEverySlice) {
  static std::string bytes = SmallRequest().SerializeAsString();
  std::vector<grpc::Slice> slices;
  for (char& byte : bytes) {
    ++slices_alive;
    slices.emplace_back(
        &byte, 1, [](void*) { --slices_alive; }, nullptr);
  }
  ASSERT_OK_AND_ASSIGN(const DecodedAttendRequest decoded,
                       DecodeAttendRequest(std::move(slices)));
  EXPECT_EQ(slices_alive, 0);
}

}  // namespace
}  // namespace attention::server
