// Messages about sequences, as they are sent and read.
#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <google/protobuf/util/message_differencer.h>
#include <grpcpp/support/slice.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "client/cpp/src/request_encoder.h"
#include "client/cpp/src/sequence_messages.h"
#include "tests/client/sequences_of_test.h"

namespace attention::client {
namespace {

using ::google::protobuf::util::MessageDifferencer;
using ::testing::HasSubstr;

template <typename Message>
Message Parse(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  std::string bytes;
  EXPECT_TRUE(buffer.Dump(&slices).ok());
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  Message message;
  EXPECT_TRUE(message.ParseFromString(bytes));
  return message;
}

// Expects the message to be what the text says.
template <typename Message>
void ExpectText(const Message& message, const std::string& text) {
  Message expected;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &expected));
  EXPECT_TRUE(MessageDifferencer::Equals(expected, message))
      << message.DebugString();
}

TEST(SequenceWireTest, SequencesTakeThePlaceOfKeys) {
  AttendRequest request;
  request.query = *Tensor::Create(DataType::kFloat16, {1, 1});
  request.sequences = SequenceKeys{
      .entries = {{.name = "a"}, {.name = "b", .layer = 0, .position = 0}}};
  ExpectText(Parse<v1::AttendRequest>(EncodeRequest(request, "")), R"(
    query { datatype: DATA_TYPE_FP16 shape: [1, 1] data: "\0\0" }
    sequences { entries { name: "a" }
                entries { name: "b" layer: 0 position: 0 } }
    scaled_dot_product {})");
}

TEST(SequenceWireTest, WhatARequestAppendsIsSentWithItsSequences) {
  AttendRequest request;
  request.query = *Tensor::Create(DataType::kFloat16, {0, 1});
  request.sequences = SequenceKeys{
      .entries = {{.name = "a"}},
      .append = KeysAndValues{*Tensor::Create(DataType::kFloat16, {1, 1}),
                              *Tensor::Create(DataType::kFloat16, {1, 0})}};
  ExpectText(Parse<v1::AttendRequest>(EncodeRequest(request, "")), R"(
    query { datatype: DATA_TYPE_FP16 shape: [0, 1] }
    sequences {
      entries { name: "a" }
      append { key { datatype: DATA_TYPE_FP16 shape: [1, 1] data: "\0\0" }
               value { datatype: DATA_TYPE_FP16 shape: [1, 0] } } }
    scaled_dot_product {})");
}

// Their bytes are in the message where they lie, in slices of their own.
TEST(SequenceWireTest, LargeTensorsAreNotCopied) {
  const KeysAndValues rows = SmallKeys(0, 1000);
  const grpc::ByteBuffer buffer =
      EncodeAppend({.name = "a", .layer = 1, .position = 2},
                   {rows.key, rows.value, rows.key_scale, rows.value_scale});
  std::vector<grpc::Slice> slices;
  ASSERT_TRUE(buffer.Dump(&slices).ok());
  std::vector<const void*> places;
  places.reserve(slices.size());
  for (const grpc::Slice& slice : slices) places.push_back(slice.begin());
  EXPECT_THAT(places, ::testing::IsSupersetOf<const void*>(
                          {rows.key.data(), rows.value.data()}));
  const auto message = Parse<v1::AppendRequest>(buffer);
  EXPECT_EQ(message.name(), "a");
  EXPECT_EQ(message.layer(), 1);
  EXPECT_EQ(message.position(), 2);
  EXPECT_EQ(message.key().data().size(), rows.key.bytes().size());
  EXPECT_EQ(message.value().data().size(), rows.value.bytes().size());
}

TEST(SequenceWireTest, WhatANewSequenceLeavesOpenIsNotSent) {
  const auto request = ToProto(
      std::vector<NewSequence>{{.form = SmallForm()},
                               {.form = SmallForm(5),
                                .name = "a",
                                .label = "b",
                                .idle_limit = std::chrono::milliseconds(0)}});
  ASSERT_TRUE(request.ok()) << request.status();
  ExpectText(*request, R"(
    sequences { form { heads: 2 key_width: 4 value_width: 4
                       datatype: DATA_TYPE_FP32 layers: 1 } }
    sequences { form { heads: 2 key_width: 4 value_width: 4
                       datatype: DATA_TYPE_FP32 layers: 5 }
                name: "a" label: "b" idle_limit_ms: 0 })");
}

TEST(SequenceWireTest, AForkSendsWhatItChanges) {
  ExpectText(ToProto("a", {}), R"(name: "a")");
  ExpectText(ToProto("a", {.length = 0,
                           .name = "b",
                           .label = "",
                           .idle_limit = std::chrono::milliseconds(7)}),
             R"(name: "a" length: 0 new_name: "b" label: ""
                idle_limit_ms: 7)");
}

TEST(SequenceWireTest, AQueryHasOneOfBothLabels) {
  ExpectText(ToProto(SequenceQuery{.label_prefix = "a"}),
             R"(label_prefix: "a")");
  ExpectText(
      ToProto(SequenceQuery{
          .label_prefix = "a", .label = "", .page_size = 3, .page_token = "t"}),
      R"(label: "" page_size: 3 page_token: "t")");
}

TEST(SequenceWireTest, ADescriptionOfAnUnknownDatatypeIsInternal) {
  v1::SequenceDescription message;
  message.set_name("a");
  const absl::Status status = FromProto(message).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("'a'"));
}

}  // namespace
}  // namespace attention::client
