// Kernels that read keys and values in pages give the bits that they give in
// one piece.

#include <cstdint>
#include <limits>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/random.h"
#include "tests/support/random_problem.h"
#include "tests/unit/cuda/kernels/kernel_run.h"

namespace attention::cuda::test {
namespace {

using attention::test::Fill;
using attention::test::LengthsShape;
using attention::test::MakeProblem;
using attention::test::MaskExtents;
using attention::test::OwnedProblem;
using attention::test::PerHeadShape;
using attention::test::ProblemSpec;
using attention::test::SameBits;
using attention::test::ScoringKind;
using attention::test::TestSeed;

// Parameter: the way, the type, keys of a page.
class PagedKernelTest
    : public ::testing::TestWithParam<std::tuple<Way, DataType, int64_t>> {
 protected:
  static Way way() { return std::get<0>(GetParam()); }

  static OwnedProblem Make(ProblemSpec spec) {
    spec.batch = 1;
    spec.type = std::get<1>(GetParam());
    spec.wanted = {.weights = false, .lse = true};
    return MakeProblem(spec, TestSeed());
  }

  static void ExpectBitsOfOnePiece(const OwnedProblem& owned,
                                   RunOptions options = {}) {
    options.way = way();
    const KernelResults whole = RunKernels(owned.problem, options);
    options.keys_per_page = std::get<2>(GetParam());
    const KernelResults paged = RunKernels(owned.problem, options);
    EXPECT_TRUE(SameBits(paged.results, whole.results));
    EXPECT_EQ(paged.marked_rows, whole.marked_rows);
  }
};

// Rows that a block's warps share, one tile for each warp, and two.
TEST_P(PagedKernelTest, AnyNumberOfRows) {
  for (const auto& [rows, width] :
       {std::pair(1, 128), std::pair(5, 256), std::pair(20, 256),
        std::pair(20, 64), std::pair(70, 128), std::pair(150, 64)}) {
    SCOPED_TRACE(absl::StrCat(rows, " ", width));
    ExpectBitsOfOnePiece(Make({.query_heads = 4,
                               .kv_heads = 2,
                               .query_length = rows,
                               .key_length = 170,
                               .width = width,
                               .value_width = width}),
                         {.shares_tiles = true});
  }
}

TEST_P(PagedKernelTest, AnyNumberOfKeys) {
  for (const int64_t keys : {1, 16, 17, 101, 128}) {
    SCOPED_TRACE(keys);
    ExpectBitsOfOnePiece(Make({.query_heads = 2,
                               .kv_heads = 2,
                               .query_length = 3,
                               .key_length = keys,
                               .width = 64,
                               .value_width = 40}));
  }
}

// Rows that are not whole units of a copy.
TEST_P(PagedKernelTest, OddWidths) {
  for (const int64_t rows : {9, 130}) {
    ExpectBitsOfOnePiece(Make({.query_heads = 2,
                               .kv_heads = 2,
                               .query_length = rows,
                               .key_length = 170,
                               .width = 33,
                               .value_width = 7}));
  }
}

TEST_P(PagedKernelTest, SplitKeys) {
  for (const int64_t rows : {1, 20}) {
    SCOPED_TRACE(rows);
    ExpectBitsOfOnePiece(Make({.query_heads = 4,
                               .kv_heads = 2,
                               .query_length = rows,
                               .key_length = 400,
                               .width = 64,
                               .value_width = 64}),
                         {.shares_tiles = true, .keys_per_split = 256});
  }
}

TEST_P(PagedKernelTest, RangesOfKeysThatBeginInAnyPage) {
  ExpectBitsOfOnePiece(Make({.query_heads = 2,
                             .kv_heads = 1,
                             .query_length = 90,
                             .key_length = 310,
                             .width = 64,
                             .value_width = 64,
                             .causal = Causal::kTopLeft,
                             .query_offset = 200,
                             .window = {.left = 70, .right = 90}}));
}

TEST_P(PagedKernelTest, EveryOption) {
  ExpectBitsOfOnePiece(Make({.query_heads = 2,
                             .kv_heads = 1,
                             .query_length = 70,
                             .key_length = 210,
                             .width = 64,
                             .value_width = 64,
                             .softcap = 3,
                             .valid_lens = LengthsShape::kPerRow,
                             .attend_mask = MaskExtents::kAll,
                             .bias = MaskExtents::kAll,
                             .alibi_slopes = PerHeadShape::kPerHead,
                             .sinks = PerHeadShape::kPerHead,
                             .dropout = {.training = true, .p = 0.3, .seed = 5},
                             .empty_rows = EmptyRows::kUniform}));
}

TEST_P(PagedKernelTest, DistancesOfPoints) {
  if (way() == Way::kMma) return;  // computes dot products alone
  ExpectBitsOfOnePiece(Make({.query_length = 9,
                             .key_length = 170,
                             .scoring = ScoringKind::kGaussian}));
}

// Such rows are computed again, from the same pages.
TEST_P(PagedKernelTest, ValuesThatAreNotFinite) {
  OwnedProblem owned = Make({.query_length = 20,
                             .key_length = 210,
                             .width = 64,
                             .value_width = 64,
                             .causal = Causal::kBottomRight});
  TensorView last = owned.problem.key_value[0].value;
  last.data += 209 * last.strides[2];
  last.shape[2] = 1;
  Fill(last, std::numeric_limits<double>::quiet_NaN());
  ExpectBitsOfOnePiece(owned);
}

std::string NameOfPagedKernelTest(
    const ::testing::TestParamInfo<PagedKernelTest::ParamType>& info) {
  return absl::StrCat(NameOf(std::get<0>(info.param)), "_",
                      Name(std::get<1>(info.param)), "_",
                      std::get<2>(info.param));
}

INSTANTIATE_TEST_SUITE_P(
    Tiles, PagedKernelTest,
    ::testing::Combine(::testing::Values(Way::kAttend),
                       ::testing::Values(DataType::kFloat32, DataType::kFloat16,
                                         DataType::kBFloat16),
                       ::testing::Values(1, 16, 100)),
    NameOfPagedKernelTest);
INSTANTIATE_TEST_SUITE_P(
    TensorCores, PagedKernelTest,
    ::testing::Combine(::testing::Values(Way::kMma),
                       ::testing::Values(DataType::kFloat16,
                                         DataType::kBFloat16),
                       ::testing::Values(1, 16, 100, 128)),
    NameOfPagedKernelTest);

}  // namespace
}  // namespace attention::cuda::test
