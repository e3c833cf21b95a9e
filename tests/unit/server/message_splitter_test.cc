#include "server/wire/message_splitter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "inference/grpc_service.pb.h"
#include "server/wire/attend_fields.h"
#include "server/wire/infer_inputs.h"
#include "tests/support/restore_elements.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/server/attend_requests.h"

namespace attention::server {
namespace {

using ::attention::test::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

struct SplitAttend {
  v1::AttendRequest message;
  MessageElements elements;
};

absl::StatusOr<SplitAttend> Split(std::vector<grpc::Slice> slices) {
  SplitAttend split;
  absl::StatusOr<MessageElements> elements =
      SplitMessage(std::move(slices), AttendRules(), split.message);
  if (!elements.ok()) return elements.status();
  split.elements = *std::move(elements);
  return split;
}

// The request as the generated class would have parsed it.
v1::AttendRequest Restored(SplitAttend& split) {
  v1::AttendRequest message = split.message;
  RestoreElements(split.elements, message);
  return message;
}

// Both parsers on the same bytes, which protobuf accepts.
void ExpectAsProtobuf(const std::string& bytes) {
  v1::AttendRequest expected;
  ASSERT_TRUE(expected.ParseFromString(bytes));
  ASSERT_OK_AND_ASSIGN(SplitAttend decoded, Split(OneSlice(bytes)));
  EXPECT_EQ(Restored(decoded).DebugString(), expected.DebugString());
}

absl::Status DecodeStatus(const std::string& bytes) {
  return Split(OneSlice(bytes)).status();
}

// A field of wire type 2 with a number below 16.
std::string Field(int number, const std::string& content) {
  return std::string{static_cast<char>(number << 3 | 2),
                     static_cast<char>(content.size())} +
         content;
}

TEST(SplitMessage, HasEveryField) {
  ExpectAsProtobuf(FullRequest().SerializeAsString());
}

TEST(SplitMessage, HasEveryScoring) {
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

TEST(SplitMessage, AcceptsNoBytesAsAnEmptyMessage) {
  ASSERT_OK_AND_ASSIGN(SplitAttend decoded, Split({}));
  EXPECT_FALSE(decoded.message.has_query());
}

TEST(SplitMessage, SmallTensorsAreAlignedTo64Bytes) {
  ASSERT_OK_AND_ASSIGN(SplitAttend decoded,
                       Split(OneSlice(FullRequest().SerializeAsString())));
  const TensorBytes* query =
      decoded.elements.Find(decoded.message.query().data());
  ASSERT_NE(query, nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(query->bytes().data()) % 64, 0U);
}

TEST(SplitMessage, GivesTheSameForEveryCutBetweenSlices) {
  const v1::AttendRequest request = FullRequest();
  const std::string bytes = request.SerializeAsString();
  for (size_t cut = 0; cut <= bytes.size(); ++cut) {
    ASSERT_OK_AND_ASSIGN(SplitAttend decoded, Split(CutAt(bytes, cut)));
    ASSERT_EQ(Restored(decoded).SerializeAsString(), bytes) << "cut at " << cut;
  }
}

TEST(SplitMessage, GivesTheSameForSlicesOfOneByte) {
  const std::string bytes = FullRequest().SerializeAsString();
  std::vector<grpc::Slice> slices;
  for (const char& byte : bytes) slices.emplace_back(&byte, 1);
  ASSERT_OK_AND_ASSIGN(SplitAttend decoded, Split(std::move(slices)));
  EXPECT_EQ(Restored(decoded).SerializeAsString(), bytes);
}

TEST(SplitMessage, AcceptsEveryTruncationThatProtobufAcceptsAndNoOther) {
  const std::string bytes = FullRequest().SerializeAsString();
  int accepted = 0;
  for (size_t size = 0; size < bytes.size(); ++size) {
    const std::string cut = bytes.substr(0, size);
    v1::AttendRequest expected;
    const bool parses = expected.ParseFromString(cut);
    const auto decoded = Split(OneSlice(cut));
    ASSERT_EQ(decoded.ok(), parses) << size << " " << decoded.status();
    if (!parses) {
      ASSERT_THAT(decoded, StatusIs(kInvalid, HasSubstr("not an Attend")));
    }
    accepted += parses ? 1 : 0;
  }
  EXPECT_GT(accepted, 10);  // between any two fields
}

TEST(SplitMessage, MergesRepeatedFieldsAsProtobufDoes) {
  v1::AttendRequest first = SmallRequest();
  v1::AttendRequest second;
  second.set_id("second");
  SetTensor(*second.mutable_query(), v1::DATA_TYPE_BF16, {9}, "later");
  second.mutable_key_value()->mutable_value()->add_shape(8);
  ExpectAsProtobuf(first.SerializeAsString() + second.SerializeAsString());
}

TEST(SplitMessage, TakesTheLastDataOfOneTensorEvenIfItIsEmpty) {
  const std::string with = Field(3, "abc");
  const std::string without = Field(3, "");
  ExpectAsProtobuf(Field(2, with + with + Field(3, "last")));
  ExpectAsProtobuf(Field(2, with + without));
  ExpectAsProtobuf(Field(2, with) + Field(2, without));
  ExpectAsProtobuf(Field(2, with) + Field(2, ""));
}

TEST(SplitMessage, TheLastMemberOfAOneofWins) {
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

TEST(SplitMessage, AcceptsFieldsInAnyOrder) {
  const v1::AttendRequest request = SmallRequest();
  v1::AttendRequest head;
  head.set_id(request.id());
  v1::AttendRequest tail = request;
  tail.clear_id();
  ExpectAsProtobuf(tail.SerializeAsString() + head.SerializeAsString());
}

TEST(SplitMessage, AcceptsShapesThatAreNotPacked) {
  const std::string unpacked = {1 << 3, 1, 2 << 3, 3, 2 << 3, 4};
  ExpectAsProtobuf(Field(2, unpacked));
}

TEST(SplitMessage, NamesAnUnknownFieldOfTheRequest) {
  EXPECT_THAT(DecodeStatus(SmallRequest().SerializeAsString() +
                           std::string{static_cast<char>(0x98), 0x06, 1}),
              StatusIs(kInvalid,
                       "field 99 of AttendRequest is unknown to "
                       "this server"));
}

TEST(SplitMessage, NamesAnUnknownFieldAtEveryDepth) {
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

TEST(SplitMessage, RefusesAKnownFieldOfAnotherWireType) {
  // softcap as a varint is unknown to protobuf, which would drop it.
  EXPECT_THAT(DecodeStatus({9 << 3, 1}),
              StatusIs(kInvalid, StartsWith("softcap: wire type 0")));
}

TEST(SplitMessage, RefusesGroups) {
  EXPECT_FALSE(DecodeStatus({2 << 3 | 3, 2 << 3 | 4}).ok());
}

TEST(SplitMessage, RefusesBytesThatAreNoMessage) {
  EXPECT_THAT(DecodeStatus(std::string(100, '\xFF')),
              StatusIs(kInvalid, HasSubstr("not an AttendRequest")));
  EXPECT_THAT(DecodeStatus("GET / HTTP/1.1\r\n\r\n"),
              StatusIs(kInvalid, ::testing::_));
}

TEST(SplitMessage, AllocatesNothingForALengthThatIsNotThere) {
  // data claims 2^31 - 1 bytes, within a tensor that claims as many.
  const std::string claim = {'\xFF', '\xFF', '\xFF', '\xFF', '\x07'};
  EXPECT_THAT(DecodeStatus(std::string{2 << 3 | 2} + claim),
              StatusIs(kInvalid, HasSubstr("query is cut")));
  const std::string data = std::string{3 << 3 | 2} + claim;
  EXPECT_THAT(DecodeStatus(Field(2, data)),
              StatusIs(kInvalid, HasSubstr("data is cut")));
}

TEST(SplitMessage, RefusesAnIdThatIsNotUtf8) {
  EXPECT_THAT(DecodeStatus(Field(1, "a\xC0\x80")),
              StatusIs(kInvalid, "id: is not UTF-8"));
}

TEST(SplitMessage, RefusesSmallFieldsOfUnreasonableSize) {
  v1::AttendRequest request;
  request.set_id(std::string(1 << 20, 'x'));
  EXPECT_THAT(DecodeStatus(request.SerializeAsString()),
              StatusIs(kInvalid, StartsWith("id: takes 1048576 bytes")));
  request.Clear();
  for (int i = 0; i < 100'000; ++i) request.mutable_query()->add_shape(1);
  EXPECT_THAT(DecodeStatus(request.SerializeAsString()),
              StatusIs(kInvalid, AllOf(StartsWith("shape: takes"))));
}

TEST(SplitMessage, SaysWhichFieldsOfAMessageAreTooMany) {
  v1::AttendRequest request;
  const std::string name(32, 'x');
  for (int n = 0; n < 2000; ++n) {
    request.mutable_sequences()->add_entries()->set_name(name);
  }
  EXPECT_THAT(DecodeStatus(request.SerializeAsString()),
              StatusIs(kInvalid, StartsWith("entries: the fields other than "
                                            "tensor elements take more than "
                                            "65536 bytes")));
}

TEST(SplitMessage, RefusesMoreTensorsThanAnyRequestHas) {
  std::string bytes;
  for (int i = 0; i < 64; ++i) bytes += Field(2, Field(3, "0123456789"));
  ExpectAsProtobuf(bytes);
  EXPECT_THAT(DecodeStatus(bytes + Field(2, Field(3, "x"))),
              StatusIs(kInvalid, "data: more than 64 tensors"));
}

TEST(SplitMessage, RefusesAnUnknownFieldInAScoringThatIsReplaced) {
  const std::string bytes = Field(7, Field(3, "x")) + Field(5, "");
  EXPECT_THAT(
      DecodeStatus(bytes),
      StatusIs(kInvalid, "field 3 of Gaussian is unknown to this server"));
}

int slices_alive = 0;

TEST(SplitMessage, LetsGoOfEverySlice) {
  static std::string bytes = SmallRequest().SerializeAsString();
  std::vector<grpc::Slice> slices;
  for (char& byte : bytes) {
    ++slices_alive;
    slices.emplace_back(
        &byte, 1, [](void*) { --slices_alive; }, nullptr);
  }
  ASSERT_OK_AND_ASSIGN(SplitAttend decoded, Split(std::move(slices)));
  EXPECT_EQ(slices_alive, 0);
}

// A ModelInferRequest with elements in both places, and the message without.
inference::ModelInferRequest InferRequest() {
  inference::ModelInferRequest request;
  request.set_model_name("gaussian_attention");
  request.set_id("infer");
  auto& query = *request.add_inputs();
  query.set_name("query");
  query.add_shape(2);
  query.mutable_contents()->add_fp32_contents(1.5);
  request.add_inputs()->set_name("key");
  (*request.mutable_parameters())["sigma"].set_double_param(2);
  request.add_raw_input_contents("first");
  request.add_raw_input_contents("");
  request.add_raw_input_contents("third");
  return request;
}

struct SplitInfer {
  inference::ModelInferRequest message;
  MessageElements elements;
};

absl::StatusOr<SplitInfer> SplitOfInfer(const std::string& bytes) {
  SplitInfer split;
  absl::StatusOr<MessageElements> elements =
      SplitMessage(OneSlice(bytes), InferRules(), split.message);
  if (!elements.ok()) return elements.status();
  split.elements = *std::move(elements);
  return split;
}

std::string TextOf(const TensorBytes* bytes) {
  if (bytes == nullptr) return {};
  return {reinterpret_cast<const char*>(bytes->bytes().data()),
          bytes->bytes().size()};
}

TEST(SplitMessage, SplitsEntriesOfARepeatedField) {
  ASSERT_OK_AND_ASSIGN(SplitInfer split,
                       SplitOfInfer(InferRequest().SerializeAsString()));
  ASSERT_EQ(split.message.raw_input_contents_size(), 3);
  const auto raw = [&](int n) {
    return TextOf(split.elements.Find(split.message.raw_input_contents(n)));
  };
  EXPECT_EQ(raw(0), "first");
  EXPECT_EQ(raw(1), "");
  EXPECT_EQ(raw(2), "third");
}

TEST(SplitMessage, KeepsAMessageOfElementsAsItsBytes) {
  const inference::ModelInferRequest request = InferRequest();
  ASSERT_OK_AND_ASSIGN(SplitInfer split,
                       SplitOfInfer(request.SerializeAsString()));
  ASSERT_TRUE(split.message.inputs(0).has_contents());
  EXPECT_FALSE(split.message.inputs(1).has_contents());
  const auto& marks = split.message.inputs(0).contents().bytes_contents();
  ASSERT_EQ(marks.size(), 1);
  EXPECT_EQ(TextOf(split.elements.Find(marks[0])),
            request.inputs(0).contents().SerializeAsString());
}

TEST(SplitMessage, LeavesEveryOtherFieldAsItIs) {
  const inference::ModelInferRequest request = InferRequest();
  ASSERT_OK_AND_ASSIGN(SplitInfer split,
                       SplitOfInfer(request.SerializeAsString()));
  EXPECT_EQ(split.message.model_name(), request.model_name());
  EXPECT_EQ(split.message.id(), request.id());
  EXPECT_EQ(split.message.inputs(0).shape(0), 2);
  EXPECT_EQ(split.message.parameters().at("sigma").double_param(), 2);
}

TEST(SplitMessage, ReadsWhatIsKnownBesideUnknownFields) {
  const std::string unknown = Field(15, "x");
  const std::string group = {14 << 3 | 3, 1 << 3, 7, 14 << 3 | 4};
  inference::ModelInferRequest message;
  EXPECT_THAT(
      SplitMessage(OneSlice(Field(5, unknown) + group + Field(3, "id")),
                   InferRules(), message)
          .status(),
      StatusIs(kInvalid,
               "field 15 of InferInputTensor is unknown to this server"));
  EXPECT_EQ(message.id(), "id");
  EXPECT_EQ(message.inputs_size(), 1);
}

TEST(SplitMessage, ReadsOnBehindAFewUnknownFieldsAlone) {
  for (const std::string& unknown :
       {Field(15, std::string(100, 'x')), std::string{15 << 3, 1}}) {
    std::string bytes;
    while (bytes.size() <= 65 << 10) bytes += unknown;
    inference::ModelInferRequest message;
    EXPECT_THAT(
        SplitMessage(OneSlice(bytes + Field(3, "id")), InferRules(), message)
            .status(),
        StatusIs(kInvalid,
                 "field 15 of ModelInferRequest is unknown "
                 "to this server"));
    EXPECT_EQ(message.id(), "");
  }
}

TEST(SplitMessage, RefusesAMapKeyThatIsNotUtf8) {
  EXPECT_THAT(SplitOfInfer(Field(4, Field(1, "\xC0\x80"))).status(),
              StatusIs(kInvalid, "key: is not UTF-8"));
}

}  // namespace
}  // namespace attention::server
