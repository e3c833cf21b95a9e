// Parameters of scoring functions that are missing or do not fit.
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

class WrongParametersTest : public testing::TestWithParam<WrongInput> {};
TEST_P(WrongParametersTest, IsRefused) { server::ExpectRefused(GetParam()); }

// GoodRequest() has Hq = 4 and Dq = Dk = 8; with h = 3 these would fit:
// w_q and w_k (8, 3), w_v (3). An absent shape leaves the parameter out.
WrongInput Additive(const char* name, const std::vector<Extents>& shapes,
                    const std::string& message) {
  return {name,
          [=](AttendRequest& r) {
            v1::Additive& additive = *r.mutable_additive();
            *additive.mutable_w_q() = Zeros(shapes[0]);
            *additive.mutable_w_k() = Zeros(shapes[1]);
            *additive.mutable_w_v() = Zeros(shapes[2]);
          },
          {message}};
}

void SetGoodAdditive(AttendRequest& r) {
  *r.mutable_additive()->mutable_w_q() = Zeros({8, 3});
  *r.mutable_additive()->mutable_w_k() = Zeros({8, 3});
  *r.mutable_additive()->mutable_w_v() = Zeros({3});
}

INSTANTIATE_TEST_SUITE_P(
    Additive, WrongParametersTest,
    testing::ValuesIn(WrongInputs{
        {"AllMissing",
         [](AttendRequest& r) { r.mutable_additive(); },
         {"w_q: missing"}},
        {"QueryMatrixMissing",
         [](AttendRequest& r) {
           SetGoodAdditive(r);
           r.mutable_additive()->clear_w_q();
         },
         {"w_q: missing"}},
        {"KeyMatrixMissing",
         [](AttendRequest& r) {
           SetGoodAdditive(r);
           r.mutable_additive()->clear_w_k();
         },
         {"w_k: missing"}},
        {"VectorMissing",
         [](AttendRequest& r) {
           SetGoodAdditive(r);
           r.mutable_additive()->clear_w_v();
         },
         {"w_v: missing"}},
        {"IntegerMatrix",
         [](AttendRequest& r) {
           SetGoodAdditive(r);
           *r.mutable_additive()->mutable_w_k() =
               Filled(v1::DATA_TYPE_INT32, {8, 3}, 1);
         },
         {"w_k: datatype INT32 (expected FP32"}},
        Additive("TransposedAsInPyTorch", {{3, 8}, {3, 8}, {3}},
                 "w_q: shape [3, 8] (expected [8, h] or [4, 8, h])"),
        Additive("HiddenWidthsDiffer", {{8, 3}, {8, 4}, {3}},
                 "w_k: shape [8, 4] (expected [8, 3] or [4, 8, 3])"),
        Additive("VectorTooLong", {{8, 3}, {8, 3}, {4}},
                 "w_v: shape [4] (expected [3] or [4, 3]"),
        Additive("RowVector", {{8, 3}, {8, 3}, {1, 3}},
                 "w_v: shape [1, 3] (expected [3]"),
        Additive("HeadsDiffer", {{2, 8, 3}, {8, 3}, {3}},
                 "w_q: shape [2, 8, 3] (expected [8, h] or [4, 8, h])"),
        Additive("ZeroHiddenWidth", {{8, 0}, {8, 0}, {0}},
                 "w_q: shape [8, 0] has hidden width 0 (expected 1 or more)"),
    }),
    WrongInputName);

INSTANTIATE_TEST_SUITE_P(
    Bilinear, WrongParametersTest,
    testing::ValuesIn(WrongInputs{
        {"MatrixMissing",
         [](AttendRequest& r) { r.mutable_bilinear()->set_scale(2); },
         {"m: missing"}},
        {"Transposed",
         [](AttendRequest& r) {
           *r.mutable_key_value()->mutable_key() = Zeros({2, 2, 5, 7});
           *r.mutable_bilinear()->mutable_m() = Zeros({7, 8});
         },
         {"m: shape [7, 8] (expected [8, 7] or [4, 8, 7])"}},
        {"HeadsOfTheKeys",
         [](AttendRequest& r) {
           *r.mutable_bilinear()->mutable_m() = Zeros({2, 8, 8});
         },
         {"m: shape [2, 8, 8] (expected [8, 8] or [4, 8, 8])"}},
        {"TooFewBytes",
         [](AttendRequest& r) {
           *r.mutable_bilinear()->mutable_m() = Zeros({8, 8});
           r.mutable_bilinear()->mutable_m()->mutable_data()->pop_back();
         },
         {"m: 255 bytes of data", "needs 256"}},
        {"AnotherFloat",
         [](AttendRequest& r) {
           *r.mutable_bilinear()->mutable_m() =
               Filled(v1::DATA_TYPE_BF16, {8, 8}, 1);
         },
         {"m: datatype BF16 (expected FP32"}},
    }),
    WrongInputName);

}  // namespace
}  // namespace attention::test
