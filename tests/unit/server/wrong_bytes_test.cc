// Messages that are not an AttendRequest, or that hold more than this server
// knows.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/service/wrong_input.h"
#include "tests/unit/server/refusals.h"

namespace attention::test {
namespace {

// The wire format's own terms: a tag is a field number and one of these.
enum WireType : uint8_t {
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
std::string FieldOfBytes(int field, const std::string& bytes) {
  return Tag(field, kBytes) + Varint(bytes.size()) + bytes;
}
std::string GoodBytes() { return GoodRequest("bad").SerializeAsString(); }

struct WrongBytes {
  std::string name;
  std::string bytes;
  std::vector<std::string> message;
};

class WrongBytesTest : public testing::TestWithParam<WrongBytes> {};

TEST_P(WrongBytesTest, AreRefused) {
  ExpectRefusal(server::StatusOf(GetParam().bytes),
                absl::StatusCode::kInvalidArgument, GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(
    NotAMessage, WrongBytesTest,
    testing::ValuesIn(std::vector<WrongBytes>{
        {"Empty", "", {"query: missing"}},
        {"Text", "hello, is this attention?", {""}},
        {"Zeros", std::string(100, '\0'), {""}},
        {"Ones", std::string(100, '\xff'), {"the bytes are not an Attend"}},
        {"CutInATag", GoodBytes() + "\x80", {"the bytes are not an Attend"}},
        {"CutInATensor",
         GoodBytes().substr(0, 400),
         {"the bytes are not an Attend"}},
        {"CutInAScalar",
         GoodBytes() + Tag(16, kVarint) + "\x80",
         {"the bytes are not an Attend"}},
        {"LengthBeyondTheEnd",
         GoodBytes() + Tag(2, kBytes) + Varint(1 << 20),
         {"the bytes are not an Attend"}},
        {"LengthBeyondTwoGiB",
         GoodBytes() + Tag(2, kBytes) + Varint(1ULL << 40),
         {"the bytes are not an Attend"}},
        {"LengthBeyondItsMessage",
         GoodBytes() + FieldOfBytes(2, Tag(3, kBytes) + Varint(100)) +
             std::string(99, 'x'),
         {"the bytes are not an Attend"}},
        {"TagBeyondItsMessage",
         GoodBytes() + FieldOfBytes(2, "\x88") + FieldOfBytes(1, "id"),
         {"the bytes are not an Attend"}},
        {"VarintBeyondItsMessage",
         GoodBytes() + FieldOfBytes(2, Tag(1, kVarint)) + FieldOfBytes(1, "id"),
         {"the bytes are not an Attend", "datatype"}},
        {"Fixed64BeyondItsMessage",
         GoodBytes() + FieldOfBytes(5, Tag(1, kFixed64) + "1234") +
             FieldOfBytes(1, "id"),
         {"the bytes are not an Attend", "scale"}},
        {"TextBeyondItsMessage",
         GoodBytes() + FieldOfBytes(25, Tag(1, kBytes) + Varint(6) + "12") +
             FieldOfBytes(1, "id"),
         {"the bytes are not an Attend", "name"}},
        {"PackedFieldBeyondItsMessage",
         GoodBytes() + FieldOfBytes(2, Tag(2, kBytes) + Varint(5) + "\1") +
             FieldOfBytes(1, "id"),
         {"the bytes are not an Attend", "shape"}},
        {"MessageBeyondItsMessage",
         GoodBytes() + FieldOfBytes(6, Tag(1, kBytes) + Varint(4)) +
             FieldOfBytes(1, "id"),
         {"the bytes are not an Attend", "w_q"}},
        {"UnknownFieldBeyondItsMessage",
         GoodBytes() + FieldOfBytes(2, Tag(99, kFixed64) + "1234") +
             FieldOfBytes(1, "id"),
         {"field 99 of Tensor is unknown"}},
        {"FieldZero", GoodBytes() + Tag(0, kVarint) + "\1", {""}},
        {"Group",
         GoodBytes() + Tag(2, kGroup) + Tag(2, WireType(4)),
         {"query"}},
        {"DeeplyNestedGroups",
         [] {
           std::string bytes;
           for (int i = 0; i < 100000; ++i) bytes += Tag(2, kGroup);
           return bytes;
         }(),
         {""}},
        {"VarintForATensor", GoodBytes() + Tag(2, kVarint) + "\1", {"query"}},
        {"BytesForAScalar",
         GoodBytes() + FieldOfBytes(9, "12345678"),
         {"softcap"}},
        {"Fixed32ForADouble",
         GoodBytes() + Tag(9, kFixed32) + "1234",
         {"softcap"}},
        {"IdIsNotUtf8",
         GoodBytes() + FieldOfBytes(1, "caf\xe9"),
         {"id: is not UTF-8"}},
        {"IdIsASurrogate",
         GoodBytes() + FieldOfBytes(1, "\xed\xa0\x80"),
         {"id: is not UTF-8"}},
    }),
    [](const auto& row) { return row.param.name; });

INSTANTIATE_TEST_SUITE_P(
    UnknownField, WrongBytesTest,
    testing::ValuesIn(std::vector<WrongBytes>{
        {"OfTheRequest",
         GoodBytes() + Tag(99, kVarint) + "\1",
         {"field 99 of AttendRequest is unknown"}},
        {"FarAway",
         GoodBytes() + FieldOfBytes(536870911, "x"),
         {"field 536870911 of AttendRequest is unknown"}},
        {"OfATensor",
         GoodBytes() + FieldOfBytes(2, FieldOfBytes(4, "strides")),
         {"field 4 of Tensor is unknown"}},
        {"OfKeysAndValues",
         GoodBytes() + FieldOfBytes(3, Tag(9, kVarint) + "\1"),
         {"field 9 of KeyValueTensors is unknown"}},
        {"OfATensorWithinKeysAndValues",
         GoodBytes() +
             FieldOfBytes(3, FieldOfBytes(2, Tag(9, kFixed64) + "12345678")),
         {"field 9 of Tensor is unknown"}},
        {"ParameterOfAnotherScoringFunction",
         GoodBytes() + FieldOfBytes(5, FieldOfBytes(2, "a matrix")),
         {"field 2 of ScaledDotProduct is unknown"}},
        {"OfAScoringThatIsReplacedLater",
         GoodBytes() + FieldOfBytes(7, FieldOfBytes(3, "x")) +
             FieldOfBytes(5, ""),
         {"field 3 of Gaussian is unknown"}},
    }),
    [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace attention::test
