// Messages that are not an AttendRequest, or that hold more than this server
// knows: unary calls of raw bytes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/service/gated_server.h"
#include "tests/service/wire_client.h"
#include "tests/service/wrong_input.h"

namespace attention::test {
namespace {

// The wire format's own terms: a tag is a field number and one of these.
enum WireType {
  kVarint = 0,
  kFixed64 = 1,
  kBytes = 2,
  kGroup = 3,
  kFixed32 = 5
};

std::string Varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) {
    bytes.push_back(static_cast<char>((value & 0x7f) | 0x80));
  }
  bytes.push_back(static_cast<char>(value));
  return bytes;
}
std::string Tag(int field, WireType type) {
  return Varint(static_cast<uint64_t>(field) << 3 | type);
}
std::string Field(int field, const std::string& bytes) {
  return Tag(field, kBytes) + Varint(bytes.size()) + bytes;
}
std::string Good() { return GoodRequest("bad").SerializeAsString(); }

struct WrongBytes {
  std::string name;
  std::string bytes;
  std::vector<std::string> message;
};

class WrongBytesTest : public testing::TestWithParam<WrongBytes> {};

TEST_P(WrongBytesTest, AreRefused) {
  TileGate gate;
  const auto server = StartServer(TestOptions(), &gate);
  WireClient client(server->address());
  ExpectRefusal(client.Call(kAttend, GetParam().bytes).status(),
                absl::StatusCode::kInvalidArgument, GetParam().message);
  EXPECT_EQ(gate.tiles(), 0);
  ExpectGoodReply(client.Attend(GoodRequest()));
}

INSTANTIATE_TEST_SUITE_P(
    NotAMessage, WrongBytesTest,
    testing::ValuesIn(std::vector<WrongBytes>{
        {"Empty", "", {"query: missing"}},
        {"Text", "hello, is this attention?", {""}},
        {"Zeros", std::string(100, '\0'), {""}},
        {"Ones", std::string(100, '\xff'), {"the bytes are not an Attend"}},
        {"CutInATag", Good() + "\x80", {"the bytes are not an Attend"}},
        {"CutInATensor",
         Good().substr(0, 400),
         {"the bytes are not an Attend"}},
        {"CutInAScalar",
         Good() + Tag(16, kVarint) + "\x80",
         {"the bytes are not an Attend"}},
        {"LengthBeyondTheEnd",
         Good() + Tag(2, kBytes) + Varint(1 << 20),
         {"the bytes are not an Attend"}},
        {"LengthBeyondTwoGiB",
         Good() + Tag(2, kBytes) + Varint(1ULL << 40),
         {"the bytes are not an Attend"}},
        {"LengthBeyondItsMessage",
         Good() + Field(2, Tag(3, kBytes) + Varint(100)) + std::string(99, 'x'),
         {"the bytes are not an Attend"}},
        {"FieldZero", Good() + Tag(0, kVarint) + "\1", {""}},
        {"Group", Good() + Tag(2, kGroup) + Tag(2, WireType(4)), {"query"}},
        {"DeeplyNestedGroups",
         [] {
           std::string bytes;
           for (int i = 0; i < 100000; ++i) bytes += Tag(2, kGroup);
           return bytes;
         }(),
         {""}},
        {"VarintForATensor", Good() + Tag(2, kVarint) + "\1", {"query"}},
        {"BytesForAScalar", Good() + Field(9, "12345678"), {"softcap"}},
        {"Fixed32ForADouble", Good() + Tag(9, kFixed32) + "1234", {"softcap"}},
        {"IdIsNotUtf8", Good() + Field(1, "caf\xe9"), {"id: is not UTF-8"}},
        {"IdIsASurrogate",
         Good() + Field(1, "\xed\xa0\x80"),
         {"id: is not UTF-8"}},
    }),
    [](const auto& row) { return row.param.name; });

INSTANTIATE_TEST_SUITE_P(
    UnknownField, WrongBytesTest,
    testing::ValuesIn(std::vector<WrongBytes>{
        {"OfTheRequest",
         Good() + Tag(26, kVarint) + "\1",
         {"field 26 of AttendRequest is unknown"}},
        {"Reserved",
         Good() + Field(4, ""),
         {"field 4 of AttendRequest is unknown"}},
        {"FarAway",
         Good() + Field(536870911, "x"),
         {"field 536870911 of AttendRequest is unknown"}},
        {"OfATensor",
         Good() + Field(2, Field(4, "strides")),
         {"field 4 of Tensor is unknown"}},
        {"OfKeysAndValues",
         Good() + Field(3, Tag(3, kVarint) + "\1"),
         {"field 3 of KeyValueTensors is unknown"}},
        {"OfATensorWithinKeysAndValues",
         Good() + Field(3, Field(2, Tag(9, kFixed64) + "12345678")),
         {"field 9 of Tensor is unknown"}},
        {"ParameterOfAnotherScoringFunction",
         Good() + Field(5, Field(2, "a matrix")),
         {"field 2 of ScaledDotProduct is unknown"}},
        {"OfAScoringThatIsReplacedLater",
         Good() + Field(7, Field(3, "x")) + Field(5, ""),
         {"field 3 of Gaussian is unknown"}},
    }),
    [](const auto& row) { return row.param.name; });

// What protobuf allows, however odd: the server must not refuse it.
TEST(OddBytesTest, OfTwoScoringFunctionsTheLastOneCounts) {
  const auto server = StartServer();
  WireClient client(server->address());
  // Gaussian, with a sigma that would be refused, then scaled dot product.
  v1::AttendRequest bad;
  bad.mutable_gaussian()->set_sigma(-1);
  v1::AttendRequest good;
  good.mutable_scaled_dot_product();
  EXPECT_TRUE(client
                  .Call(kAttend, Good() + bad.SerializeAsString() +
                                     good.SerializeAsString())
                  .ok());
  ExpectRefusal(client
                    .Call(kAttend, Good() + good.SerializeAsString() +
                                       bad.SerializeAsString())
                    .status(),
                absl::StatusCode::kInvalidArgument, {"sigma: -1"});
}

TEST(OddBytesTest, FieldsMayComeInAnyOrderAndInPieces) {
  const auto server = StartServer();
  WireClient client(server->address());
  const v1::AttendRequest request = GoodRequest("pieces");
  v1::AttendRequest value_only = request;
  value_only.clear_query();
  value_only.mutable_key_value()->clear_key();
  v1::AttendRequest shape_only;
  *shape_only.mutable_query() = request.query();
  shape_only.mutable_query()->clear_data();
  v1::AttendRequest data_only;
  data_only.mutable_query()->set_data(request.query().data());
  v1::AttendRequest key_only;
  *key_only.mutable_key_value()->mutable_key() = request.key_value().key();

  const auto bytes = client.Call(kAttend, value_only.SerializeAsString() +
                                              shape_only.SerializeAsString() +
                                              key_only.SerializeAsString() +
                                              data_only.SerializeAsString());
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  v1::AttendResponse response;
  ASSERT_TRUE(response.ParseFromString(*bytes));
  ExpectGoodReply(response, "pieces");
}

TEST(OddBytesTest, OfDataThatComeTwiceTheLastCount) {
  const auto server = StartServer();
  WireClient client(server->address());
  v1::AttendRequest data_only;
  data_only.mutable_query()->set_data("too few bytes");
  const std::string first = data_only.SerializeAsString();
  EXPECT_TRUE(client.Call(kAttend, first + Good()).ok());
  ExpectRefusal(client.Call(kAttend, Good() + first).status(),
                absl::StatusCode::kInvalidArgument,
                {"query: 13 bytes of data", "needs 768"});
}

TEST(OddBytesTest, AnUnknownMethodIsUnimplementedAndTheServerGoesOn) {
  const auto server = StartServer();
  WireClient client(server->address());
  EXPECT_EQ(client.Call("/attention.v1.AttentionService/Forget", Good())
                .status()
                .code(),
            absl::StatusCode::kUnimplemented);
  ExpectGoodReply(client.Attend(GoodRequest()));
}

}  // namespace
}  // namespace attention::test
