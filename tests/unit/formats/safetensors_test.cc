#include "core/formats/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "core/formats/file.h"
#include "tests/support/temporary_folder.h"

namespace attention {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

absl::StatusOr<SafetensorsFile> Parse(const std::string& text) {
  return ParseSafetensors(
      {reinterpret_cast<const std::byte*>(text.data()), text.size()});
}

std::string Length(uint64_t length) {
  std::string text;
  for (int i = 0; i < 8; ++i) {
    text.push_back(static_cast<char>(length >> 8 * i));
  }
  return text;
}

std::string File(const std::string& header, const std::string& data = "") {
  return Length(header.size()) + header + data;
}

// The object of one tensor in a header.
std::string Entry(const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
  return absl::StrCat(R"({"dtype":")", dtype, R"(","shape":[)", shape,
                      R"(],"data_offsets":[)", offsets, "]}");
}

// A file of one tensor "x" with `data`.
std::string Single(const std::string& dtype, const std::string& shape,
                   const std::string& offsets, const std::string& data = "") {
  return File(absl::StrCat(R"({"x":)", Entry(dtype, shape, offsets), "}"),
              data);
}

TEST(SafetensorsTest, ReadsFp8) {
  const auto file = Parse(Single("F8_E4M3", "2", "0,2", "\x38\xC0"));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->tensors.at("x").type(), DataType::kFloat8);
  EXPECT_THAT(file->tensors.at("x").ToFloats(), ElementsAre(1.0f, -2.0f));
}

TEST(SafetensorsTest, ReadsTensorsAndMetadata) {
  const auto file = Parse(File(
      absl::StrCat(R"({"__metadata__":{"k":"v"},"b":)", Entry("U8", "2", "2,4"),
                   R"(,"a":)", Entry("I16", "", "0,2"), "}   "),
      std::string("\x01\x00\x02\x03", 4)));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_THAT(file->metadata, ElementsAre(Pair("k", "v")));
  ASSERT_EQ(file->tensors.size(), 2u);
  EXPECT_EQ(file->tensors.at("a").type(), DataType::kInt16);
  EXPECT_THAT(file->tensors.at("a").shape(), ElementsAre());
  EXPECT_THAT(file->tensors.at("a").ToFloats(), ElementsAre(1.0f));
  EXPECT_EQ(file->tensors.at("b").type(), DataType::kUint8);
  EXPECT_THAT(file->tensors.at("b").ToFloats(), ElementsAre(2.0f, 3.0f));
}

TEST(SafetensorsTest, ReadsAFileWithoutTensors) {
  const auto file = Parse(File("{}"));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_TRUE(file->tensors.empty());
}

TEST(SafetensorsTest, ReadsTensorsWithoutElements) {
  const auto file =
      Parse(File(absl::StrCat(R"({"a":)", Entry("F32", "0,3", "1,1"),
                              R"(,"b":)", Entry("U8", "1", "0,1"), "}"),
                 "x"));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_THAT(file->tensors.at("a").shape(), ElementsAre(0, 3));
}

TEST(SafetensorsTest, ReadsARealFile) {
  const auto file =
      ReadSafetensors(ATTENTION_TEST_DATA "/minilm_layer3.safetensors");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->metadata.count("tokens"), 1u);
  EXPECT_EQ(file->tensors.at("query").shape().size(), 4u);
}

TEST(SafetensorsTest, WritesWhatReadsBackTheSame) {
  SafetensorsFile file;
  file.metadata = {{"quotes\"", "and\nlines"}};
  file.tensors["floats"] = Tensor::FromFloats({3}, {1, 2, 3});
  file.tensors["ints"] = Tensor::FromInts({1, 2}, {-1, 7});
  file.tensors["nothing"] = Tensor();
  const auto read = Parse(SerializeSafetensors(file));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->metadata, file.metadata);
  ASSERT_EQ(read->tensors.size(), 3u);
  EXPECT_THAT(read->tensors.at("floats").ToFloats(), ElementsAre(1, 2, 3));
  EXPECT_THAT(read->tensors.at("ints").shape(), ElementsAre(1, 2));
  EXPECT_THAT(read->tensors.at("ints").ToFloats(), ElementsAre(-1, 7));
  EXPECT_EQ(read->tensors.at("nothing").element_count(), 0);
}

TEST(SafetensorsTest, WritesEveryTensorAlignedToItsElements) {
  SafetensorsFile file;
  file.tensors["a"] = Tensor::Create(DataType::kBool, {3}).value();
  file.tensors["b"] = Tensor::FromFloats({1}, {1});
  file.tensors["c"] = Tensor::Create(DataType::kInt64, {1}).value();
  const std::string text = SerializeSafetensors(file);
  EXPECT_EQ((text.size() - 8 - 4 - 3) % 8, 0u) << "data begin aligned";
  EXPECT_THAT(text, HasSubstr(R"("c":{"data_offsets":[0,8])"));
  EXPECT_THAT(text, HasSubstr(R"("b":{"data_offsets":[8,12])"));
  EXPECT_THAT(text, HasSubstr(R"("a":{"data_offsets":[12,15])"));
}

TEST(SafetensorsTest, ErrorsAboutAFileBeginWithItsPath) {
  const test::TemporaryFolder folder;
  const std::string path = folder.path() + "/x.safetensors";
  SafetensorsFile file;
  file.tensors["x"] = Tensor::FromInts({1}, {5});
  ASSERT_EQ(WriteSafetensors(path, file), absl::OkStatus());
  EXPECT_THAT(ReadSafetensors(path).value().tensors,
              UnorderedElementsAre(Pair("x", testing::_)));
  ASSERT_EQ(WriteFile(path, "short"), absl::OkStatus());
  EXPECT_THAT(std::string(ReadSafetensors(path).status().message()),
              StartsWith(path + ": header"));
  file.tensors["__metadata__"] = Tensor();
  const absl::Status written = WriteSafetensors(path, file);
  EXPECT_EQ(written.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(written.message()), StartsWith(path));
}

struct BadFile {
  const char* name;
  std::string text;
  const char* message;
};

class BadSafetensorsTest : public testing::TestWithParam<BadFile> {};

TEST_P(BadSafetensorsTest, IsRefusedByName) {
  const absl::Status status = Parse(GetParam().text).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr(GetParam().message));
}

std::string Two(const std::string& first, const std::string& second) {
  return absl::StrCat(R"({"a":)", first, R"(,"b":)", second, "}");
}

INSTANTIATE_TEST_SUITE_P(
    Framing, BadSafetensorsTest,
    testing::ValuesIn(std::vector<BadFile>{
        {"Empty", "", "has 0 bytes"},
        {"NoHeader", Length(0), "does not begin with {"},
        {"HeaderPastTheEnd", Length(100) + "{}", "100 bytes, 2 are left"},
        {"HugeHeader", Length(~0ULL) + "{}", "18446744073709551615 bytes"},
        {"LongHeader", Length(100000001) + "{}", "100000001 bytes"},
        {"OfAnotherKind", "\x93NUMPY\x01\x01{}", "(expected a safetensors"},
        {"BlankFirst", File(" {}"), "does not begin with {"},
        {"NotJson", File("{oops}"), "not JSON at byte 2"},
        {"EndsEarly", File(R"({"x":)"), "not JSON"},
        {"TextAfter", File("{} x"), "not JSON"},
        {"NulAfter", File(std::string("{}\0x", 4)), "not JSON at byte 3"},
        {"BadUtf8", File("{\"\xff\":{}}"), "not JSON"},
        {"NumberBeyondDouble", File(R"({"x":{"shape":[1e999]}})"), "not JSON"},
        {"DeepArrays", File(R"({"x":)" + std::string(1000000, '[')),
         "tensor \"x\": is an array"},
        {"DeepObjects", File([] {
           std::string text = "{";
           for (int i = 0; i < 100000; ++i) text += R"("x":{)";
           return text;
         }()),
         "unknown field \"x\""},
    }),
    [](const auto& row) { return row.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Header, BadSafetensorsTest,
    testing::ValuesIn(std::vector<BadFile>{
        {"NameTwice",
         File(absl::StrCat(R"({"x":)", Entry("U8", "0", "0,0"), R"(,"x":)",
                           Entry("U8", "0", "0,0"), "}")),
         "tensor \"x\": comes twice"},
        {"FieldTwice", File(R"({"x":{"dtype":"U8","dtype":"U8"}})"),
         "tensor \"x\": dtype comes twice"},
        {"MetadataTwice", File(R"({"__metadata__":{},"__metadata__":{}})"),
         "__metadata__: comes twice"},
        {"MetadataKeyTwice", File(R"({"__metadata__":{"k":"","k":""}})"),
         "\"k\" comes twice"},
        {"MetadataNumber", File(R"({"__metadata__":{"k":1}})"),
         "__metadata__: \"k\" is a number"},
        {"MetadataNested", File(R"({"__metadata__":{"k":{}}})"),
         "is an object, expected a string"},
        {"NotAnObject", File(R"({"x":null})"), "tensor \"x\": is null"},
        {"UnknownField", File(R"({"x":{"stride":1}})"), "field \"stride\""},
        {"NoShape", File(R"({"x":{"dtype":"U8","data_offsets":[0,0]}})"),
         "tensor \"x\": has no shape"},
        {"NoDtype", File(R"({"x":{}})"), "has no dtype"},
        {"NoOffsets", File(R"({"x":{"dtype":"U8","shape":[]}})"),
         "has no data_offsets"},
        {"UnknownDtype", Single("F8_E5M2", "0", "0,0"), "dtype \"F8_E5M2\""},
        {"DtypeIsANumber", File(R"({"x":{"dtype":7}})"), "expected a string"},
        {"ShapeIsAString", File(R"({"x":{"shape":"2"}})"), "shape is a string"},
        {"NestedShape", Single("U8", "[1]", "0,1"), "shape holds an array"},
        {"NegativeExtent", Single("U8", "-1", "0,1"), "shape has -1"},
        {"FractionalExtent", Single("U8", "1.5", "0,1"), "shape has 1.5"},
        {"BooleanExtent", Single("U8", "true", "0,1"), "holds a boolean"},
        {"ExtentBeyondInt64", Single("U8", "9223372036854775808", "0,1"),
         "beyond 2^63 - 1"},
        {"ExtentBeyondUint64", Single("U8", "18446744073709551616", "0,1"),
         "shape has 18446744073709551616"},
        {"OneOffset", Single("U8", "1", "0", "x"), "fewer than two"},
        {"ThreeOffsets", Single("U8", "1", "0,1,2", "x"), "more than two"},
        {"NegativeOffset", Single("U8", "1", "-1,0", "x"), "has -1"},
    }),
    [](const auto& row) { return row.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Layout, BadSafetensorsTest,
    testing::ValuesIn(std::vector<BadFile>{
        {"Overflow", Single("F32", "4294967296,4294967296", "0,4", "1234"),
         "tensor \"x\": shape"},
        {"OverflowWithAZero", Single("F32", "4294967296,0,4294967296", "0,0"),
         "2^63"},
        {"PastTheEnd", Single("U8", "2", "0,2", "1"), "run past the end"},
        {"FarPastTheEnd", Single("U8", "1", "0,9223372036854775807", "1"),
         "run past the end"},
        {"Backwards", Single("U8", "0", "1,0", "1"), "end before they begin"},
        {"WrongSize", Single("F32", "2", "0,4", "1234"),
         "hold 4 bytes, shape [2] of F32 needs 8"},
        {"HoleInFront", Single("U8", "1", "1,2", "12"), "leave a hole"},
        {"Hole",
         File(Two(Entry("U8", "1", "0,1"), Entry("U8", "1", "2,3")), "123"),
         "tensor \"b\": data_offsets [2, 3] leave a hole"},
        {"Overlap",
         File(Two(Entry("U8", "2", "0,2"), Entry("U8", "2", "1,3")), "123"),
         "tensor \"b\": data_offsets [1, 3] overlap"},
        {"SameBytes",
         File(Two(Entry("U8", "1", "0,1"), Entry("U8", "1", "0,1")), "1"),
         "overlap"},
        {"BytesLeft", Single("U8", "1", "0,1", "123"), "2 bytes at the end"},
        {"BytesWithoutTensors", File("{}", "1"), "1 bytes at the end"},
    }),
    [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace attention
