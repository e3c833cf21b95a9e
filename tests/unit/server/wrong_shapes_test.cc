// Tensors that are missing, of the wrong type, or whose shapes do not fit.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "tests/service/requests.h"
#include "tests/service/wrong_input.h"
#include "tests/unit/server/refusals.h"

namespace attention::test {
namespace {

using v1::AttendRequest;
using WrongInputs = std::vector<WrongInput>;
using Extents = std::vector<int64_t>;

constexpr int64_t k2To32 = int64_t{1} << 32;

// Only the shape: the data are left as they are, or taken away.
void SetShape(v1::Tensor& tensor, const Extents& shape) {
  tensor.mutable_shape()->Assign(shape.begin(), shape.end());
}
void SetShapeWithoutData(v1::Tensor& tensor, const Extents& shape) {
  SetShape(tensor, shape);
  tensor.clear_data();
}

v1::Tensor& Query(AttendRequest& r) { return *r.mutable_query(); }
v1::Tensor& Key(AttendRequest& r) {
  return *r.mutable_key_value()->mutable_key();
}
v1::Tensor& Value(AttendRequest& r) {
  return *r.mutable_key_value()->mutable_value();
}

class WrongShapesTest : public testing::TestWithParam<WrongInput> {};
TEST_P(WrongShapesTest, IsRefused) { server::ExpectRefused(GetParam()); }

INSTANTIATE_TEST_SUITE_P(
    Missing, WrongShapesTest,
    testing::ValuesIn(WrongInputs{
        {"Everything", [](AttendRequest& r) { r.Clear(); }, {"query: missing"}},
        {"Query",
         [](AttendRequest& r) { r.clear_query(); },
         {"query: missing"}},
        {"KeysAndValues",
         [](AttendRequest& r) { r.clear_key_value(); },
         {"key_value: missing"}},
        {"Key",
         [](AttendRequest& r) { r.mutable_key_value()->clear_key(); },
         {"key: missing"}},
        {"Value",
         [](AttendRequest& r) { r.mutable_key_value()->clear_value(); },
         {"value: missing"}},
    }),
    WrongInputName);

INSTANTIATE_TEST_SUITE_P(
    Datatype, WrongShapesTest,
    testing::ValuesIn(WrongInputs{
        {"Unspecified",
         [](AttendRequest& r) { Query(r).clear_datatype(); },
         {"query: datatype", "unspecified", "expected FP32, FP16 or BF16"}},
        {"Unknown",
         [](AttendRequest& r) {
           Key(r).set_datatype(static_cast<v1::DataType>(99));
         },
         {"key: datatype 99", "expected FP32, FP16, BF16, INT8 or FP8"}},
        {"Integer",
         [](AttendRequest& r) { Query(r).set_datatype(v1::DATA_TYPE_INT32); },
         {"query: datatype INT32", "expected FP32, FP16 or BF16"}},
        {"IntegerKey",
         [](AttendRequest& r) {
           Key(r) = Filled(v1::DATA_TYPE_INT32, {2, 2, 5, 8}, 0);
         },
         {"key: datatype INT32", "expected FP32, FP16, BF16, INT8 or FP8"}},
        {"MixedKey",
         [](AttendRequest& r) {
           Key(r) = Filled(v1::DATA_TYPE_FP16, {2, 2, 5, 8}, 0);
         },
         {"value: datatype FP32, key has FP16"}},
        {"MixedValue",
         [](AttendRequest& r) {
           Value(r) = Filled(v1::DATA_TYPE_BF16, {2, 2, 5, 6}, 0);
         },
         {"value: datatype BF16, key has FP32"}},
        {"NoScale",
         [](AttendRequest& r) {
           Key(r) = Filled(v1::DATA_TYPE_FP8, {2, 2, 5, 8}, 0);
           Value(r) = Filled(v1::DATA_TYPE_FP8, {2, 2, 5, 6}, 0);
         },
         {"key_scale: missing"}},
        {"ScaleOfFloats",
         [](AttendRequest& r) {
           *r.mutable_key_value()->mutable_value_scale() = Zeros({2, 2, 5});
         },
         {"value_scale: was given beside FP32"}},
    }),
    WrongInputName);

INSTANTIATE_TEST_SUITE_P(
    Rank, WrongShapesTest,
    testing::ValuesIn(WrongInputs{
        {"Zero",
         [](AttendRequest& r) { Query(r) = Zeros({}); },
         {"query: shape [] has 0 dimensions (expected 2, 3 or 4)"}},
        {"One",
         [](AttendRequest& r) { Query(r) = Zeros({8}); },
         {"query: shape [8] has 1 dimensions (expected 2, 3 or 4)"}},
        {"Five",
         [](AttendRequest& r) {
           Query(r) = Zeros({1, 2, 4, 3, 8});
         },
         {"query: shape [1, 2, 4, 3, 8] has 5 dimensions"}},
        {"UnequalKey",
         [](AttendRequest& r) {
           Key(r) = Zeros({2, 5, 8});
         },
         {"key: shape [2, 5, 8] has 3 dimensions, query has 4"}},
        {"UnequalValue",
         [](AttendRequest& r) {
           Value(r) = Zeros({5, 6});
         },
         {"value: shape [5, 6] has 2 dimensions, query has 4"}},
    }),
    WrongInputName);

INSTANTIATE_TEST_SUITE_P(
    ByteCount, WrongShapesTest,
    testing::ValuesIn(WrongInputs{
        {"OneTooFew",
         [](AttendRequest& r) { Query(r).mutable_data()->pop_back(); },
         {"query: 767 bytes of data", "[2, 4, 3, 8]", "needs 768"}},
        {"OneTooMany",
         [](AttendRequest& r) { Value(r).mutable_data()->push_back('x'); },
         {"value: 481 bytes of data", "[2, 2, 5, 6]", "needs 480"}},
        {"None",
         [](AttendRequest& r) { Key(r).clear_data(); },
         {"key: 0 bytes of data", "needs 640"}},
        {"SomeForAnEmptyTensor",
         [](AttendRequest& r) {
           SetShape(Query(r), {2, 4, 0, 8});
         },
         {"query: 768 bytes of data", "needs 0"}},
        {"OfAnotherType",
         [](AttendRequest& r) { Query(r).set_datatype(v1::DATA_TYPE_FP16); },
         {"query: 768 bytes of data", "FP16 needs 384"}},
    }),
    WrongInputName);

INSTANTIATE_TEST_SUITE_P(
    Extent, WrongShapesTest,
    testing::ValuesIn(WrongInputs{
        {"Negative",
         [](AttendRequest& r) {
           SetShape(Query(r), {2, 4, -3, 8});
         },
         {"query: shape [2, 4, -3, 8] has a negative extent"}},
        {"TwoNegatives",
         [](AttendRequest& r) {
           SetShape(Key(r), {2, -2, -5, 8});
         },
         {"key: shape [2, -2, -5, 8] has a negative extent"}},
        {"Overflow",
         [](AttendRequest& r) {
           SetShapeWithoutData(Key(r), {k2To32, k2To32, 1, 8});
         },
         {"key: shape [4294967296, 4294967296, 1, 8]", "2^63"}},
        {"OverflowOfBytesAlone",
         [](AttendRequest& r) {
           SetShapeWithoutData(Query(r), {1, 1, int64_t{1} << 61, 1});
         },
         {"query: shape", "2^63"}},
        {"OverflowToZero",
         [](AttendRequest& r) {
           SetShapeWithoutData(Query(r), {k2To32, k2To32, k2To32, k2To32});
         },
         {"query: shape", "2^63"}},
        {"OverflowBesideAZero",
         [](AttendRequest& r) {
           SetShapeWithoutData(Key(r), {k2To32, 0, k2To32, 8});
         },
         {"key: shape [4294967296, 0, 4294967296, 8]", "2^63"}},
        {"ScoresOverflowBesideAZero",
         [](AttendRequest& r) {
           SetShapeWithoutData(Query(r), {0, 1, k2To32, 1});
           SetShapeWithoutData(Key(r), {0, 1, k2To32, 1});
           SetShapeWithoutData(Value(r), {0, 1, k2To32, 1});
         },
         {"key: the weights'", "2^63"}},
        {"OutputOverflows",
         [](AttendRequest& r) {
           SetShapeWithoutData(Key(r), {2, 2, 0, 8});
           SetShapeWithoutData(Value(r), {2, 2, 0, int64_t{1} << 58});
         },
         {"value: the output's", "2^63"}},
        {"ZeroWidth",
         [](AttendRequest& r) {
           SetShapeWithoutData(Query(r), {2, 4, 3, 0});
         },
         {"query: shape [2, 4, 3, 0] has width 0 (expected 1 or more)"}},
        {"ZeroKeyWidth",
         [](AttendRequest& r) {
           SetShapeWithoutData(Key(r), {2, 2, 5, 0});
         },
         {"key: shape [2, 2, 5, 0] has width 0 (expected 1 or more)"}},
        {"ZeroHeads",
         [](AttendRequest& r) {
           SetShapeWithoutData(Query(r), {2, 0, 3, 8});
         },
         {"query: shape [2, 0, 3, 8] has 0 heads (expected 1 or more)"}},
        {"ZeroKeyHeads",
         [](AttendRequest& r) {
           SetShapeWithoutData(Key(r), {2, 0, 5, 8});
         },
         {"key: shape [2, 0, 5, 8] has 0 heads (expected 1 or more)"}},
    }),
    WrongInputName);

INSTANTIATE_TEST_SUITE_P(
    Fit, WrongShapesTest,
    testing::ValuesIn(WrongInputs{
        {"KeyWidth",
         [](AttendRequest& r) {
           Key(r) = Zeros({2, 2, 5, 7});
         },
         {"key: shape [2, 2, 5, 7] has width 7, query has 8", "equal widths"}},
        {"KeyWidthOfAGaussian",
         [](AttendRequest& r) {
           r.mutable_gaussian();
           Key(r) = Zeros({2, 2, 5, 9});
         },
         {"key: shape [2, 2, 5, 9] has width 9, query has 8", "equal widths"}},
        {"ValueLength",
         [](AttendRequest& r) {
           Value(r) = Zeros({2, 2, 4, 6});
         },
         {"value: shape [2, 2, 4, 6] has length 4, key has 5"}},
        {"ValueHeads",
         [](AttendRequest& r) {
           Value(r) = Zeros({2, 1, 5, 6});
         },
         {"value: shape [2, 1, 5, 6] has heads 1, key has 2"}},
        {"KeyBatch",
         [](AttendRequest& r) {
           Key(r) = Zeros({1, 2, 5, 8});
         },
         {"key: shape [1, 2, 5, 8] has batch 1, query has 2"}},
        {"ValueBatch",
         [](AttendRequest& r) {
           Value(r) = Zeros({3, 2, 5, 6});
         },
         {"value: shape [3, 2, 5, 6] has batch 3, query has 2"}},
        {"HeadsThatDoNotDivide",
         [](AttendRequest& r) {
           Key(r) = Zeros({2, 3, 5, 8});
           Value(r) = Zeros({2, 3, 5, 6});
         },
         {"key: shape [2, 3, 5, 8] has 3 heads, query has 4", "multiple"}},
        {"MoreKeyHeadsThanQueryHeads",
         [](AttendRequest& r) {
           Key(r) = Zeros({2, 8, 5, 8});
           Value(r) = Zeros({2, 8, 5, 6});
         },
         {"key: shape [2, 8, 5, 8] has 8 heads, query has 4", "multiple"}},
    }),
    WrongInputName);

}  // namespace
}  // namespace attention::test
