#include "core/formats/npy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "core/formats/file.h"
#include "tests/support/temporary_folder.h"

namespace attention {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

absl::StatusOr<Tensor> Parse(const std::string& text) {
  return ParseNpy(
      {reinterpret_cast<const std::byte*>(text.data()), text.size()});
}

// A version 1.0 file of `header` and `data`.
std::string File(const std::string& header, const std::string& data = "") {
  std::string text("\x93NUMPY\x01\x00", 8);
  text.push_back(static_cast<char>(header.size() & 0xff));
  text.push_back(static_cast<char>(header.size() >> 8));
  return text + header + data;
}

std::string Header(const std::string& descr, const std::string& shape) {
  return absl::StrCat("{'descr': ", descr,
                      ", 'fortran_order': False, 'shape': ", shape, ", }\n");
}

TEST(NpyTest, ReadsTheDocumentedForm) {
  const auto tensor = Parse(
      File(Header("'<i2'", "(2, 1)"), std::string("\x01\x00\xff\xff", 4)));
  ASSERT_TRUE(tensor.ok()) << tensor.status();
  EXPECT_EQ(tensor->type(), DataType::kInt16);
  EXPECT_THAT(tensor->shape(), ElementsAre(2, 1));
  EXPECT_THAT(tensor->ToFloats(), ElementsAre(1.0f, -1.0f));
}

TEST(NpyTest, ReadsKeysInAnyOrderAndEitherKindOfQuotes) {
  const auto tensor = Parse(File(
      "{\"shape\":(3,),\"fortran_order\":False,\"descr\":\"|b1\"}", "\1\1\1"));
  ASSERT_TRUE(tensor.ok()) << tensor.status();
  EXPECT_EQ(tensor->type(), DataType::kBool);
  EXPECT_THAT(tensor->shape(), ElementsAre(3));
}

TEST(NpyTest, ReadsAScalarAndAnEmptyArray) {
  const auto scalar = Parse(File(Header("'|u1'", "()"), "\x07"));
  ASSERT_TRUE(scalar.ok()) << scalar.status();
  EXPECT_THAT(scalar->shape(), ElementsAre());
  EXPECT_THAT(scalar->ToFloats(), ElementsAre(7.0f));
  const auto empty = Parse(File(Header("'<f8'", "(4, 0)")));
  ASSERT_TRUE(empty.ok()) << empty.status();
  EXPECT_THAT(empty->shape(), ElementsAre(4, 0));
}

TEST(NpyTest, ReadsVersionsTwoAndThree) {
  const std::string header = Header("'<u2'", "(1,)");
  for (const char version : {'\2', '\3'}) {
    std::string text("\x93NUMPY", 6);
    text += {version, 0, static_cast<char>(header.size()), 0, 0, 0};
    const auto tensor = Parse(text + header + std::string("\x05\x00", 2));
    ASSERT_TRUE(tensor.ok()) << tensor.status();
    EXPECT_THAT(tensor->ToFloats(), ElementsAre(5.0f));
  }
}

TEST(NpyTest, WritesAnAlignedFileThatReadsBackTheSame) {
  const Tensor tensor = Tensor::FromFloats({2, 3}, {1, 2, 3, 4, 5, 6});
  const auto text = SerializeNpy(tensor);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ((text->size() - 24) % 64, 0u);
  EXPECT_THAT(*text, HasSubstr("{'descr': '<f4', 'fortran_order': False, "
                               "'shape': (2, 3), }"));
  const auto read = Parse(*text);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->type(), DataType::kFloat32);
  EXPECT_THAT(read->shape(), ElementsAre(2, 3));
  EXPECT_THAT(read->ToFloats(), ElementsAre(1, 2, 3, 4, 5, 6));
}

TEST(NpyTest, WritesNoBFloat16) {
  const absl::Status status =
      SerializeNpy(Tensor::Create(DataType::kBFloat16, {1}).value()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("BF16"));
}

TEST(NpyTest, ErrorsAboutAFileBeginWithItsPath) {
  const test::TemporaryFolder folder;
  const std::string path = folder.path() + "/x.npy";
  const Tensor tensor = Tensor::FromInts({2}, {3, 4});
  ASSERT_EQ(WriteNpy(path, tensor), absl::OkStatus());
  EXPECT_THAT(ReadNpy(path).value().ToFloats(), ElementsAre(3, 4));
  ASSERT_EQ(WriteFile(path, "not an array"), absl::OkStatus());
  EXPECT_THAT(std::string(ReadNpy(path).status().message()),
              StartsWith(path + ": magic"));
  const auto bfloat = Tensor::Create(DataType::kBFloat16, {1}).value();
  EXPECT_THAT(std::string(WriteNpy(path, bfloat).message()),
              StartsWith(path + ": descr"));
}

struct BadFile {
  const char* name;
  std::string text;
  const char* message;
};

class BadNpyTest : public testing::TestWithParam<BadFile> {};

TEST_P(BadNpyTest, IsRefusedByName) {
  const absl::Status status = Parse(GetParam().text).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr(GetParam().message));
}

std::string Version(char major, char minor) {
  std::string text("\x93NUMPY", 6);
  return text + major + minor + std::string(8, '\0');
}

INSTANTIATE_TEST_SUITE_P(
    All, BadNpyTest,
    testing::ValuesIn(std::vector<BadFile>{
        {"Empty", "", "magic"},
        {"WrongMagic", "\x93NUMPX\x01", "magic"},
        {"OfAnotherKind", "PK\x03\x04", "(expected a .npy file"},
        {"EndsAtTheVersion", "\x93NUMPY\x01", "version"},
        {"VersionZero", Version(0, 0), "version: 0.0"},
        {"VersionFour", Version(4, 0), "version: 4.0"},
        {"MinorVersion", Version(1, 1), "version: 1.1"},
        {"EndsAtTheLength", std::string("\x93NUMPY\x01\x00\x05", 9), "header"},
        {"HeaderPastTheEnd", std::string("\x93NUMPY\x01\x00\xff\xff{}", 12),
         "65535 bytes, 2 are left"},
        {"NoDictionary", File("[1]"), "not a dictionary"},
        {"EmptyDictionary", File("{}"), "has no descr"},
        {"NoShape", File("{'descr': '<f4', 'fortran_order': False}"),
         "has no shape"},
        {"NoOrder", File("{'descr': '<f4', 'shape': ()}"), "no fortran_order"},
        {"UnknownKey", File("{'descr': '<f4', 'x': 1}"), "'x' is unknown"},
        {"KeyTwice", File("{'descr': '<f4', 'descr': '<f4'}"), "comes twice"},
        {"NoColon", File("{'descr' '<f4'}"), "not a dictionary"},
        {"NoComma", File("{'descr': '<f4' 'shape': ()}"), "no comma"},
        {"OpenString", File("{'descr"), "not a dictionary"},
        {"OpenDictionary", File("{'shape': (),"), "not a dictionary"},
        {"TextAfter", File(Header("'|u1'", "()") + "x", "\1"), "after"},
        {"BigEndian", File(Header("'>f4'", "(0,)")), "descr: '>f4' is big-end"},
        {"Structured", File(Header("[('a', '<f4')]", "(0,)")), "structured"},
        {"Object", File(Header("'|O'", "(0,)")), "descr: '|O'"},
        {"Complex", File(Header("'<c8'", "(0,)")), "descr: '<c8'"},
        {"NumberAsType", File(Header("4", "(0,)")), "descr: is not a string"},
        {"FortranOrder",
         File("{'descr': '<f4', 'fortran_order': True, "
              "'shape': (0, 2)}"),
         "fortran_order: the array is in Fortran order"},
        {"OrderIsANumber", File("{'fortran_order': 0}"), "neither True nor"},
        {"NegativeExtent", File(Header("'<f4'", "(2, -1)")), "negative extent"},
        {"ExtentTooLarge", File(Header("'<f4'", "(9223372036854775808,)")),
         "shape: '9223372036854775808'"},
        {"ProductTooLarge", File(Header("'<f4'", "(4294967296, 4294967296)")),
         "2^63"},
        {"ProductTooLargeWithAZero",
         File(Header("'<f4'", "(4294967296, 0, 4294967296)")), "2^63"},
        {"ParenthesesAreNoTuple", File(Header("'<f4'", "(3)")), "not a tuple"},
        {"ListForATuple", File(Header("'<f4'", "[3]")), "not a tuple"},
        {"CommaAlone", File(Header("'<f4'", "(,)")), "not an integer"},
        {"OpenTuple", File("{'shape': (3, 4"), "not a tuple of integers"},
        {"TooManyExtents",
         File(Header("'|u1'",
                     [] {
                       std::string shape = "(";
                       for (int i = 0; i < 65; ++i) shape += "1,";
                       return shape + ")";
                     }())),
         "more than 64"},
        {"TooFewBytes", File(Header("'<f4'", "(2,)"), "1234567"),
         "data: 7 bytes"},
        {"TooManyBytes", File(Header("'<f4'", "(2,)"), "123456789"),
         "data: 9 bytes"},
    }),
    [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace attention
