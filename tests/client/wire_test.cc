#include "client/cpp/src/wire.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <google/protobuf/util/message_differencer.h>
#include <grpcpp/support/slice.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "client/cpp/src/reply_decoder.h"
#include "client/cpp/src/request_encoder.h"
#include "tests/client/requests.h"

namespace attention::client {
namespace {

using ::google::protobuf::util::MessageDifferencer;
using ::testing::ElementsAre;
using ::testing::StartsWith;

std::string Flatten(const grpc::ByteBuffer& message) {
  std::vector<grpc::Slice> slices;
  std::string bytes;
  EXPECT_TRUE(message.Dump(&slices).ok());
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return bytes;
}

grpc::ByteBuffer ToBuffer(const std::string& bytes) {
  const grpc::Slice slice(bytes);
  return {&slice, 1};
}

// The message of NumberRequest(0) with zeros for numbers, so that the text
// below can say what is added to it.
AttendRequest Base() {
  AttendRequest request;
  request.query = *Tensor::Create(DataType::kFloat16, {1, 1});
  request.key = *Tensor::Create(DataType::kFloat16, {1, 1});
  request.value = *Tensor::Create(DataType::kFloat16, {1, 0});
  return request;
}

constexpr char kBase[] = R"(
  query { datatype: DATA_TYPE_FP16 shape: [1, 1] data: "\0\0" }
  key_value {
    key { datatype: DATA_TYPE_FP16 shape: [1, 1] data: "\0\0" }
    value { datatype: DATA_TYPE_FP16 shape: [1, 0] })";

// Expects the message of `request` to be Base()'s with `added`.
void ExpectMessage(const AttendRequest& request, const std::string& added) {
  v1::AttendRequest expected;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
      std::string(kBase) + "}" + added, &expected));
  std::string difference;
  MessageDifferencer differencer;
  differencer.ReportDifferencesToString(&difference);
  v1::AttendRequest sent;
  ASSERT_TRUE(
      sent.ParseFromString(Flatten(EncodeRequest(request, request.id))));
  EXPECT_TRUE(differencer.Compare(expected, sent)) << difference;
}

TEST(WireTest, WhatIsNotSetIsNotSent) {
  ExpectMessage(Base(), "scaled_dot_product {}");
}

TEST(WireTest, EveryMaskAndOptionIsSent) {
  AttendRequest request = Base();
  request.id = "name";
  request.softcap = 30.5;
  request.valid_lens = Tensor::FromInts({1}, {1});
  request.attend_mask = *Tensor::Create(DataType::kBool, {1, 1});
  request.bias = *Tensor::Create(DataType::kBFloat16, {1});
  request.causal = Causal::kTopLeft;
  request.query_offset = -3;
  request.key_offset = 4;
  request.window_left = 5;
  request.window_right = 6;
  request.training = true;
  request.dropout_p = 0.25;
  request.seed = 18'446'744'073'709'551'615U;
  request.weights_after_dropout = true;
  request.empty_rows = EmptyRows::kUniform;
  request.return_weights = true;
  request.return_lse = true;
  ExpectMessage(request, R"(
    id: "name" scaled_dot_product {} softcap: 30.5
    valid_lens { datatype: DATA_TYPE_INT32 shape: [1] data: "\001\0\0\0" }
    attend_mask { datatype: DATA_TYPE_BOOL shape: [1, 1] data: "\0" }
    bias { datatype: DATA_TYPE_BF16 shape: [1] data: "\0\0" }
    causal: CAUSAL_TOP_LEFT query_offset: -3 key_offset: 4
    window_left: 5 window_right: 6 training: true dropout_p: 0.25
    seed: 18446744073709551615 weights_after_dropout: true
    empty_rows: EMPTY_ROWS_UNIFORM return_weights: true return_lse: true)");
}

TEST(WireTest, ScalesAreSentWithKeysAndValues) {
  AttendRequest request;
  request.query = *Tensor::Create(DataType::kFloat16, {0, 1});
  request.key = *Tensor::Create(DataType::kInt8, {1, 1});
  request.value = *Tensor::Create(DataType::kFloat8, {1, 2});
  request.key_scale = *Tensor::Create(DataType::kFloat32, {1});
  request.value_scale = *Tensor::Create(DataType::kFloat32, {0});
  v1::AttendRequest sent;
  ASSERT_TRUE(sent.ParseFromString(Flatten(EncodeRequest(request, ""))));
  const v1::KeyValueTensors& key_value = sent.key_value();
  EXPECT_EQ(key_value.key().datatype(), v1::DATA_TYPE_INT8);
  EXPECT_EQ(key_value.value().datatype(), v1::DATA_TYPE_FP8);
  EXPECT_EQ(key_value.value().data().size(), 2U);
  EXPECT_EQ(key_value.key_scale().datatype(), v1::DATA_TYPE_FP32);
  EXPECT_EQ(key_value.key_scale().data().size(), 4U);
  EXPECT_EQ(key_value.value_scale().shape(0), 0);
}

TEST(WireTest, ZeroIsAValueThatIsSent) {
  AttendRequest request = Base();
  request.scoring = ScaledDotProduct{.scale = 0.0};
  request.softcap = 0;
  request.causal = Causal::kNone;
  request.query_offset = 0;
  request.key_offset = 0;
  request.window_left = 0;
  request.window_right = 0;
  request.training = false;
  request.dropout_p = 0;
  request.seed = 0;
  request.weights_after_dropout = false;
  request.empty_rows = EmptyRows::kZero;
  ExpectMessage(request, R"(
    scaled_dot_product { scale: 0 } softcap: 0 causal: CAUSAL_NONE
    query_offset: 0 key_offset: 0 window_left: 0 window_right: 0
    training: false dropout_p: 0 seed: 0 weights_after_dropout: false
    empty_rows: EMPTY_ROWS_ZERO)");
}

TEST(WireTest, BottomRightIsSent) {
  AttendRequest request = Base();
  request.causal = Causal::kBottomRight;
  ExpectMessage(request, "scaled_dot_product {} causal: CAUSAL_BOTTOM_RIGHT");
}

TEST(WireTest, AdditiveIsSentWithItsParameters) {
  AttendRequest request = Base();
  request.scoring = Additive{*Tensor::Create(DataType::kFloat32, {1, 0}),
                             *Tensor::Create(DataType::kInt64, {2, 0}),
                             *Tensor::Create(DataType::kUint8, {3, 0})};
  ExpectMessage(request, R"(
    additive { w_q { datatype: DATA_TYPE_FP32 shape: [1, 0] }
               w_k { datatype: DATA_TYPE_INT64 shape: [2, 0] }
               w_v { datatype: DATA_TYPE_UINT8 shape: [3, 0] } })");
}

TEST(WireTest, GaussianIsSentWithItsParameter) {
  AttendRequest request = Base();
  request.scoring = Gaussian{};
  ExpectMessage(request, "gaussian {}");
  request.scoring = Gaussian{.sigma = 2.0};
  ExpectMessage(request, "gaussian { sigma: 2 }");
}

TEST(WireTest, BilinearIsSentWithItsParameters) {
  AttendRequest request = Base();
  request.scoring =
      Bilinear{*Tensor::Create(DataType::kFloat32, {1, 0}), std::nullopt};
  ExpectMessage(request, R"(
    bilinear { m { datatype: DATA_TYPE_FP32 shape: [1, 0] } })");
  std::get<Bilinear>(request.scoring).scale = -1;
  ExpectMessage(request, R"(
    bilinear { m { datatype: DATA_TYPE_FP32 shape: [1, 0] } scale: -1 })");
}

// Numbers that differ from one another, in every tensor that may be large.
Tensor Large(int seed) {
  std::vector<float> values(8192);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(seed + static_cast<int>(i));
  }
  return Tensor::FromFloats({8192}, values);
}

TEST(WireTest, LargeTensorsAreSentWhole) {
  AttendRequest request;
  request.query = Large(1);
  request.key = Large(2);
  request.value = Large(3);
  request.scoring = Additive{Large(4), Large(5), Large(6)};
  request.bias = Large(7);
  request.softcap = 2;
  v1::AttendRequest sent;
  ASSERT_TRUE(sent.ParseFromString(Flatten(EncodeRequest(request, "id"))));
  EXPECT_EQ(sent.id(), "id");
  EXPECT_EQ(sent.softcap(), 2);
  const v1::KeyValueTensors& key_value = sent.key_value();
  int seed = 0;
  for (const v1::Tensor* tensor :
       {&sent.query(), &key_value.key(), &key_value.value(),
        &sent.additive().w_q(), &sent.additive().w_k(), &sent.additive().w_v(),
        &sent.bias()}) {
    const Tensor expected = Large(++seed);
    EXPECT_EQ(tensor->data(),
              std::string(reinterpret_cast<const char*>(expected.data()),
                          static_cast<size_t>(expected.byte_size())));
  }
}

TEST(WireTest, ABilinearMatrixIsSentWithItsScale) {
  AttendRequest request = Base();
  request.scoring = Bilinear{Large(1), 0.5};
  v1::AttendRequest sent;
  ASSERT_TRUE(sent.ParseFromString(Flatten(EncodeRequest(request, ""))));
  EXPECT_EQ(sent.bilinear().scale(), 0.5);
  EXPECT_EQ(sent.bilinear().m().data().size(), 32768u);
}

TEST(WireTest, AMessageKeepsTheBytesOfTensorsThatAreGone) {
  grpc::ByteBuffer message;
  {
    AttendRequest request = Base();
    request.query = Large(9);
    message = EncodeRequest(request, "");
  }
  v1::AttendRequest sent;
  ASSERT_TRUE(sent.ParseFromString(Flatten(message)));
  float first = 0;
  std::memcpy(&first, sent.query().data().data(), sizeof(first));
  EXPECT_EQ(first, 9.0F);
}

TEST(WireTest, ATypeWithoutAWireNameIsRefusedByField) {
  AttendRequest request = Base();
  request.bias = *Tensor::Create(DataType::kFloat64, {1});
  const absl::Status status = CheckSendable(request, 1 << 20);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), StartsWith("bias: datatype FP64"));
}

TEST(WireTest, EveryTensorHasAWireNameOrIsRefused) {
  for (const auto tensor :
       {&AttendRequest::alibi_slopes, &AttendRequest::sinks,
        &AttendRequest::query_offsets, &AttendRequest::query_starts,
        &AttendRequest::key_starts}) {
    AttendRequest request = Base();
    request.*tensor = *Tensor::Create(DataType::kFloat64, {1});
    EXPECT_EQ(CheckSendable(request, 1 << 20).code(),
              absl::StatusCode::kInvalidArgument);
  }
}

TEST(WireTest, KeysMayMoveIntoWhatASequenceIsToGet) {
  AttendRequest request = Base();
  request.sequences.emplace().append =
      KeysAndValues{std::move(request.key), std::move(request.value)};
  EXPECT_TRUE(CheckSendable(request, 1 << 20).ok());
}

// A reply as the text says, to a request that wants weights and lse.
absl::StatusOr<AttendResult> Read(const std::string& text) {
  v1::AttendResponse response;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &response));
  AttendRequest request;
  request.return_weights = true;
  request.return_lse = true;
  grpc::ByteBuffer message = ToBuffer(response.SerializeAsString());
  absl::StatusOr<Reply> reply = DecodeReply(message);
  if (!reply.ok()) return reply.status();
  return ToResult(request, *std::move(reply));
}

constexpr char kTensor[] =
    R"({ datatype: DATA_TYPE_FP32 shape: [1, 1] data: "\0\0\200?" })";

TEST(WireTest, AReplyIsReadInFull) {
  const auto result =
      Read(std::string("id: 'a' backend: 'reference' kernel: 'k' queue_ns: 5 "
                       "compute_ns: 7 output ") +
           kTensor + "weights" + kTensor + "lse" + kTensor);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->id, "a");
  EXPECT_EQ(result->backend, "reference");
  EXPECT_EQ(result->kernel, "k");
  EXPECT_EQ(result->queue_time.count(), 5);
  EXPECT_EQ(result->compute_time.count(), 7);
  EXPECT_THAT(result->output.shape(), ElementsAre(1, 1));
  for (const Tensor* tensor :
       {&result->output, &*result->weights, &*result->lse}) {
    EXPECT_THAT(tensor->ToFloats(), ElementsAre(1.0F));
  }
}

TEST(WireTest, TheCostOfABackendIsReadWhereItWasMeasured) {
  v1::GetServerInfoResponse response;
  response.add_backends()->set_name("cpu");
  v1::BackendCost& cost = *response.add_backends()->mutable_cost();
  cost.set_of_problem(900);
  cost.set_of_multiply_add(0.25);
  cost.set_of_byte(0.5);
  const ServerInfo info = FromProto(response);
  ASSERT_EQ(info.backends.size(), 2);
  EXPECT_FALSE(info.backends[0].cost);
  ASSERT_TRUE(info.backends[1].cost);
  EXPECT_EQ(info.backends[1].cost->of_problem, 900);
  EXPECT_EQ(info.backends[1].cost->of_multiply_add, 0.25);
  EXPECT_EQ(info.backends[1].cost->of_byte, 0.5);
}

TEST(WireTest, FieldsOfALaterServerArePassedOver) {
  v1::AttendResponse response;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      std::string("backend: 'cpu' output ") + kTensor, &response));
  // Field 99: a varint, then a string.
  const std::string later = "\x98\x06\x01\x9a\x06\x03new";
  grpc::ByteBuffer message =
      ToBuffer(later + response.SerializeAsString() + later);
  absl::StatusOr<Reply> reply = DecodeReply(message);
  ASSERT_TRUE(reply.ok()) << reply.status();
  const auto result = ToResult(AttendRequest(), *std::move(reply));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->backend, "cpu");
  EXPECT_THAT(result->output.ToFloats(), ElementsAre(1.0F));
}

TEST(WireTest, BytesThatAreNoReplyAreInternalErrors) {
  v1::AttendResponse response;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      std::string("backend: 'cpu' output ") + kTensor, &response));
  const std::string bytes = response.SerializeAsString();
  int refused = 0;
  for (size_t size = 0; size < bytes.size(); ++size) {
    grpc::ByteBuffer message = ToBuffer(bytes.substr(0, size));
    v1::AttendResponse expected;
    const bool parses = expected.ParseFromString(bytes.substr(0, size));
    const auto reply = DecodeReply(message);
    ASSERT_EQ(reply.ok(), parses) << size;
    refused += parses ? 0 : 1;
  }
  EXPECT_GT(refused, 5);
}

// Replies that are not what they say: the error names the tensor.
struct BadReply {
  const char* name;
  std::string text;
  const char* message;
};

class BadReplyTest : public ::testing::TestWithParam<BadReply> {};

TEST_P(BadReplyTest, IsInternalAndNamed) {
  const absl::Status status = Read(GetParam().text).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
  EXPECT_THAT(std::string(status.message()), StartsWith(GetParam().message));
}

const std::string kOutput = std::string("output ") + kTensor;

INSTANTIATE_TEST_SUITE_P(
    All, BadReplyTest,
    ::testing::Values(
        BadReply{"Empty", "", "reply: output: missing"},
        BadReply{"NoWeights", kOutput, "reply: weights: missing"},
        BadReply{"NoLse", kOutput + " weights" + kTensor,
                 "reply: lse: missing"},
        BadReply{"NoType", "output { shape: [0] }",
                 "reply: output: unknown datatype 0"},
        BadReply{"NewType", "output { datatype: 99 shape: [0] }",
                 "reply: output: unknown datatype 99"},
        BadReply{"TooFewBytes",
                 "output { datatype: DATA_TYPE_FP32 shape: [2] data: '1234' }",
                 "reply: output"},
        BadReply{"TooManyBytes",
                 "output { datatype: DATA_TYPE_FP32 shape: [0] data: '1234' }",
                 "reply: output"},
        BadReply{"Negative",
                 "output { datatype: DATA_TYPE_FP32 shape: [-1, -1] data: "
                 "'1234' }",
                 "reply: output"},
        BadReply{"Overflow",
                 "output { datatype: DATA_TYPE_FP32 shape: "
                 "[4611686018427387904, 4] data: '' }",
                 "reply: output"}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace attention::client
