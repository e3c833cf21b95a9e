// Masks, scoring parameters and scalars that break their rules.
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <vector>

#include "tests/service/requests.h"
#include "tests/service/wrong_input.h"
#include "tests/support/special_numbers.h"
#include "tests/unit/server/refusals.h"

namespace attention::test {
namespace {

using v1::AttendRequest;
using WrongInputs = std::vector<WrongInput>;

constexpr int64_t kLowest = std::numeric_limits<int64_t>::min();

class WrongOptionsTest : public testing::TestWithParam<WrongInput> {};
TEST_P(WrongOptionsTest, IsRefused) { server::ExpectRefused(GetParam()); }

// Rows that set one tensor or one scalar.
WrongInput Lens(const char* name, const v1::Tensor& tensor,
                const std::vector<std::string>& message) {
  return {name, [=](AttendRequest& r) { *r.mutable_valid_lens() = tensor; },
          message};
}
WrongInput Mask(const char* name, const v1::Tensor& tensor,
                const std::vector<std::string>& message) {
  return {name, [=](AttendRequest& r) { *r.mutable_attend_mask() = tensor; },
          message};
}
WrongInput Bias(const char* name, const v1::Tensor& tensor,
                const std::vector<std::string>& message) {
  return {name, [=](AttendRequest& r) { *r.mutable_bias() = tensor; }, message};
}

v1::Tensor Int32(const std::vector<int64_t>& shape,
                 const std::vector<double>& values) {
  return MakeTensor(v1::DATA_TYPE_INT32, shape, values);
}

INSTANTIATE_TEST_SUITE_P(
    ValidLens, WrongOptionsTest,
    testing::ValuesIn(WrongInputs{
        Lens("WrongLength", Int32({3}, {1, 1, 1}),
             {"valid_lens: shape [3] (expected [2] or [2, 3])"}),
        Lens("Transposed", Int32({3, 2}, {1, 1, 1, 1, 1, 1}),
             {"valid_lens: shape [3, 2] (expected [2] or [2, 3])"}),
        Lens("Scalar", Int32({}, {1}),
             {"valid_lens: shape [] (expected [2] or [2, 3])"}),
        Lens("Negative", Int32({2}, {5, -1}),
             {"valid_lens: element [1] is -1 (expected 0 to 5"}),
        Lens("BeyondTheKeys", Int32({2, 3}, {5, 5, 5, 5, 6, 5}),
             {"valid_lens: element [1, 1] is 6 (expected 0 to 5"}),
        Lens("BeyondTheKeysIn64Bits",
             MakeTensor(v1::DATA_TYPE_INT64, {2}, {4294967296, 1}),
             {"valid_lens: element [0] is 4294967296 (expected 0 to 5"}),
        Lens("OfFloats", Floats({2}, {1, 2}),
             {"valid_lens: datatype FP32 (expected INT32 or INT64)"}),
        Lens("OfBytes", Filled(v1::DATA_TYPE_UINT8, {2}, 1),
             {"valid_lens: datatype UINT8 (expected INT32 or INT64)"}),
        Lens("NoTensorInIt", v1::Tensor(),
             {"valid_lens: datatype", "unspecified"}),
        Lens("TooFewBytes",
             [] {
               v1::Tensor lens = Int32({2}, {1, 1});
               lens.mutable_data()->pop_back();
               return lens;
             }(),
             {"valid_lens: 7 bytes of data", "needs 8"}),
    }),
    WrongInputName);

INSTANTIATE_TEST_SUITE_P(
    AttendMask, WrongOptionsTest,
    testing::ValuesIn(WrongInputs{
        Mask("Two",
             MakeTensor(v1::DATA_TYPE_UINT8, {3, 5},
                        {1, 1, 1, 1, 1, 1, 1, 2, 1, 1, 1, 1, 1, 1, 1}),
             {"attend_mask: element [1, 2] is 2 (expected 1"}),
        Mask("TwoHundredAndFiftyFive",
             Filled(v1::DATA_TYPE_UINT8, {1, 1, 1, 1}, 255),
             {"attend_mask: element [0, 0, 0, 0] is 255"}),
        Mask("OfFloats", Filled(v1::DATA_TYPE_FP32, {3, 5}, 1),
             {"attend_mask: datatype FP32 (expected BOOL or UINT8)"}),
        Mask("LengthsDoNotBroadcast", Filled(v1::DATA_TYPE_BOOL, {3, 4}, 1),
             {"attend_mask: shape [3, 4] does not broadcast to [2, 4, 3, 5]"}),
        Mask("HeadsDoNotBroadcast", Filled(v1::DATA_TYPE_BOOL, {2, 2, 3, 5}, 1),
             {"attend_mask: shape [2, 2, 3, 5] does not broadcast to "
              "[2, 4, 3, 5]"}),
        Mask("TooManyDimensions",
             Filled(v1::DATA_TYPE_BOOL, {1, 2, 4, 3, 5}, 1),
             {"attend_mask: shape [1, 2, 4, 3, 5] does not broadcast"}),
        Mask("Empty", Filled(v1::DATA_TYPE_BOOL, {3, 0}, 1),
             {"attend_mask: shape [3, 0] does not broadcast"}),
        Bias("BiasDoesNotBroadcast", Filled(v1::DATA_TYPE_FP32, {3, 6}, 1),
             {"bias: shape [3, 6] does not broadcast to [2, 4, 3, 5]"}),
        Bias("BiasOfIntegers", Filled(v1::DATA_TYPE_INT32, {3, 5}, 1),
             {"bias: datatype INT32 (expected FP32"}),
        Bias("BiasOfAnotherFloat", Filled(v1::DATA_TYPE_FP16, {3, 5}, 1),
             {"bias: datatype FP16 (expected FP32"}),
    }),
    WrongInputName);

WrongInput Set(const char* name, std::function<void(AttendRequest&)> spoil,
               const std::string& message) {
  return {name, std::move(spoil), {message}};
}

INSTANTIATE_TEST_SUITE_P(
    Position, WrongOptionsTest,
    testing::ValuesIn(WrongInputs{
        Set(
            "UnknownCausal",
            [](AttendRequest& r) { r.set_causal(static_cast<v1::Causal>(7)); },
            "causal: 7"),
        Set(
            "QueryOffsetWithBottomRight",
            [](AttendRequest& r) {
              r.set_causal(v1::CAUSAL_BOTTOM_RIGHT);
              r.set_query_offset(2);
            },
            "query_offset: 2 was given with causal bottom_right"),
        Set(
            "ZeroOffsetWithBottomRight",
            [](AttendRequest& r) {
              r.set_causal(v1::CAUSAL_BOTTOM_RIGHT);
              r.set_key_offset(0);
            },
            "key_offset: 0 was given with causal bottom_right"),
        Set(
            "QueryOffsetTooFar",
            [](AttendRequest& r) { r.set_query_offset(kLowest); },
            "query_offset: -9223372036854775808 (expected -2^62 to 2^62)"),
        Set(
            "KeyOffsetTooFar",
            [](AttendRequest& r) { r.set_key_offset((int64_t{1} << 62) + 1); },
            "key_offset: 4611686018427387905 (expected -2^62 to 2^62)"),
        Set(
            "WindowLeft", [](AttendRequest& r) { r.set_window_left(-2); },
            "window_left: -2 (expected 0 or more"),
        Set(
            "WindowRight",
            [](AttendRequest& r) { r.set_window_right(kLowest); },
            "window_right: -9223372036854775808 (expected 0 or more"),
        Set(
            "UnknownEmptyRows",
            [](AttendRequest& r) {
              r.set_empty_rows(static_cast<v1::EmptyRows>(9));
            },
            "empty_rows: 9"),
        Set(
            "IdTooLong",
            [](AttendRequest& r) { r.set_id(std::string(257, 'x')); },
            "id: 257 bytes (expected at most 256)"),
    }),
    WrongInputName);

INSTANTIATE_TEST_SUITE_P(
    Scalar, WrongOptionsTest,
    testing::ValuesIn(WrongInputs{
        Set(
            "SoftcapNegative", [](AttendRequest& r) { r.set_softcap(-1); },
            "softcap: -1 (expected more than 0)"),
        Set(
            "SoftcapNaN", [](AttendRequest& r) { r.set_softcap(kNan); },
            "softcap: nan"),
        Set(
            "SoftcapInfinite",
            [](AttendRequest& r) { r.set_softcap(kInfinity); }, "softcap: inf"),
        Set(
            "SigmaZero",
            [](AttendRequest& r) { r.mutable_gaussian()->set_sigma(0); },
            "sigma: 0 (expected more than 0)"),
        Set(
            "SigmaNegative",
            [](AttendRequest& r) { r.mutable_gaussian()->set_sigma(-2); },
            "sigma: -2 (expected more than 0)"),
        Set(
            "SigmaNaN",
            [](AttendRequest& r) { r.mutable_gaussian()->set_sigma(kNan); },
            "sigma: nan"),
        Set(
            "ScaleNaN",
            [](AttendRequest& r) {
              r.mutable_scaled_dot_product()->set_scale(kNan);
            },
            "scale: nan"),
        Set(
            "ScaleInfinite",
            [](AttendRequest& r) {
              r.mutable_scaled_dot_product()->set_scale(-kInfinity);
            },
            "scale: -inf"),
        Set(
            "BilinearScaleNaN",
            [](AttendRequest& r) {
              *r.mutable_bilinear()->mutable_m() =
                  Filled(v1::DATA_TYPE_FP32, {8, 8}, 1);
              r.mutable_bilinear()->set_scale(kNan);
            },
            "scale: nan"),
        Set(
            "DropoutNegative",
            [](AttendRequest& r) {
              r.set_training(true);
              r.set_dropout_p(-0.5);
            },
            "dropout_p: -0.5 (expected 0 <= p < 1)"),
        Set(
            "DropoutOne",
            [](AttendRequest& r) {
              r.set_training(true);
              r.set_dropout_p(1);
            },
            "dropout_p: 1 (expected 0 <= p < 1)"),
        Set(
            "DropoutNaNWithoutTraining",
            [](AttendRequest& r) { r.set_dropout_p(kNan); },
            "dropout_p: nan (expected 0 <= p < 1)"),
        Set(
            "DropoutTooLargeWithTrainingFalse",
            [](AttendRequest& r) {
              r.set_training(false);
              r.set_dropout_p(1.5);
            },
            "dropout_p: 1.5 (expected 0 <= p < 1)"),
    }),
    WrongInputName);

}  // namespace
}  // namespace attention::test
