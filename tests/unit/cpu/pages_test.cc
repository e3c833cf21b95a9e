// Keys and values in pages: the bits of one piece, whatever kernel computes
// them.

#include <cmath>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "tests/unit/cpu/cpu_test.h"

namespace attention::test {
namespace {

class PagesTest : public CpuTest {
 protected:
  // Pages of some sizes around those of vectors and tiles.
  void ExpectBitsOfOnePiece(const ProblemSpec& spec) {
    const OwnedProblem whole = MakeProblem(spec, TestSeed());
    ASSERT_OK_AND_ASSIGN(const Results expected, runner_.Run(whole.problem));
    for (const int64_t keys : {1, 16, 64, 100}) {
      SCOPED_TRACE(absl::StrCat(spec.key_length, " keys in pages of ", keys));
      OwnedProblem paged = MakeProblem(spec, TestSeed());
      SplitIntoBlocks(paged.problem, keys);
      ASSERT_OK_AND_ASSIGN(const Results results, runner_.Run(paged.problem));
      EXPECT_TRUE(SameBits(expected, results));
    }
  }

  static ProblemSpec Prefill(DataType type) {
    return {.batch = 2,
            .query_heads = 4,
            .kv_heads = 2,
            .query_length = 37,
            .key_length = 1100,
            .width = 32,
            .value_width = 32,
            .type = type,
            .wanted = {.weights = false, .lse = true}};
  }
};

constexpr DataType kTypes[] = {DataType::kFloat32, DataType::kFloat16,
                               DataType::kBFloat16};

TEST_P(PagesTest, OfEveryType) {
  for (const DataType type : kTypes) ExpectBitsOfOnePiece(Prefill(type));
}

TEST_P(PagesTest, OfStoredKeys) {
  for (const DataType key_type : {DataType::kInt8, DataType::kFloat8}) {
    for (const Layout layout : {Layout::kRowMajor, Layout::kReversed}) {
      ProblemSpec spec = Prefill(DataType::kBFloat16);
      spec.key_type = key_type;
      spec.layout = layout;
      ExpectBitsOfOnePiece(spec);
    }
  }
}

TEST_P(PagesTest, WithWeights) {
  for (const DataType type : kTypes) {
    ProblemSpec spec = Prefill(type);
    spec.wanted.weights = true;
    ExpectBitsOfOnePiece(spec);
  }
}

// They are computed by passes of their own, or by a second sweep.
TEST_P(PagesTest, WithMoreResults) {
  for (const DataType type : kTypes) {
    ProblemSpec spec = Prefill(type);
    spec.causal = Causal::kBottomRight;
    spec.wanted = {
        .top_k = 7, .key_weights = true, .scores = ScoreStage::kMasked};
    ExpectBitsOfOnePiece(spec);
    spec.wanted = {.lse = true, .scores = ScoreStage::kScaled};
    ExpectBitsOfOnePiece(spec);
  }
}

TEST_P(PagesTest, WithMoreResultsOfStoredKeys) {
  for (const DataType key_type : {DataType::kInt8, DataType::kFloat8}) {
    ProblemSpec spec = Prefill(DataType::kBFloat16);
    spec.key_type = key_type;
    spec.wanted = {
        .top_k = 7, .key_weights = true, .scores = ScoreStage::kMasked};
    ExpectBitsOfOnePiece(spec);
  }
}

// A window moves where tiles begin.
TEST_P(PagesTest, InAWindow) {
  ProblemSpec spec = Prefill(DataType::kFloat32);
  spec.causal = Causal::kBottomRight;
  spec.window = {.left = 700, .right = {}};
  ExpectBitsOfOnePiece(spec);
}

TEST_P(PagesTest, OfEveryScoringFunction) {
  for (const ScoringKind scoring :
       {ScoringKind::kAdditive, ScoringKind::kGaussian,
        ScoringKind::kBilinear}) {
    ProblemSpec spec = Prefill(DataType::kFloat32);
    spec.scoring = scoring;
    spec.key_length = 530;
    ExpectBitsOfOnePiece(spec);
  }
}

TEST_P(PagesTest, OfDecode) {
  for (const DataType type : kTypes) {
    ProblemSpec spec = Prefill(type);
    spec.query_length = 2;
    spec.width = 40;
    spec.value_width = 24;
    ExpectBitsOfOnePiece(spec);
  }
}

// Rows that do not lie side by side are copied before they are read.
TEST_P(PagesTest, OfDecodeOfStoredKeys) {
  for (const DataType key_type : {DataType::kInt8, DataType::kFloat8}) {
    for (const Layout layout :
         {Layout::kRowMajor, Layout::kLengthFirst, Layout::kReversed}) {
      ProblemSpec spec = Prefill(DataType::kBFloat16);
      spec.query_length = 2;
      spec.key_type = key_type;
      spec.layout = layout;
      ExpectBitsOfOnePiece(spec);
    }
  }
}

// AMX takes them for so many rows of a group.
TEST_P(PagesTest, OfDecodeOfEightRowsOfInt8Keys) {
  ProblemSpec spec = Prefill(DataType::kBFloat16);
  spec.query_length = 4;
  spec.key_type = DataType::kInt8;
  ExpectBitsOfOnePiece(spec);
}

TEST_P(PagesTest, OfSmallProblems) {
  ProblemSpec spec = Prefill(DataType::kFloat32);
  spec.query_length = 5;
  spec.key_length = 13;
  spec.wanted.lse = false;
  ExpectBitsOfOnePiece(spec);
}

TEST_P(PagesTest, InOddLayouts) {
  for (const Layout layout :
       {Layout::kLengthFirst, Layout::kReversed, Layout::kMisaligned}) {
    for (const int64_t queries : {1, 37}) {
      ProblemSpec spec = Prefill(DataType::kFloat32);
      spec.query_length = queries;
      spec.layout = layout;
      ExpectBitsOfOnePiece(spec);
    }
  }
}

// What is not finite among values is looked for page by page.
TEST_P(PagesTest, WithValuesThatAreNotFinite) {
  for (const DataType type : kTypes) {
    for (const int64_t queries : {1, 37}) {
      ProblemSpec spec = Prefill(type);
      spec.query_length = queries;
      spec.causal = Causal::kTopLeft;
      spec.query_offset = 500;
      const auto with_infinity = [&spec] {
        OwnedProblem owned = MakeProblem(spec, TestSeed());
        for (const int64_t key : {0, 63, 517, 530, 1099}) {
          Fill(Slice(owned.problem.key_value[0].value, 2, key, key + 1),
               HUGE_VAL);
        }
        return owned;
      };
      const OwnedProblem whole = with_infinity();
      OwnedProblem paged = with_infinity();
      SplitIntoBlocks(paged.problem, 16);
      ASSERT_OK_AND_ASSIGN(const Results expected, runner_.Run(whole.problem));
      ASSERT_OK_AND_ASSIGN(const Results results, runner_.Run(paged.problem));
      EXPECT_TRUE(SameBits(expected, results));
    }
  }
}

// Pages lie anywhere in memory, and may be shared.
TEST_P(PagesTest, ThatAreSharedAndOutOfOrder) {
  constexpr int64_t kPage = 16;
  const std::vector<size_t> order = {3, 0, 0, 2, 1, 3};
  for (const int64_t queries : {1, 37}) {
    ProblemSpec spec = Prefill(DataType::kFloat32);
    spec.query_length = queries;
    spec.key_length = 4 * kPage;
    OwnedProblem owned = MakeProblem(spec, TestSeed());
    SplitIntoBlocks(owned.problem, kPage);
    const auto pages = owned.problem.key_value;
    // The same in one piece.
    const auto in_order = [&](TensorView KeyValueBlock::*of) {
      std::vector<std::vector<double>> numbers;
      for (const KeyValueBlock& page : pages) {
        numbers.push_back(Materialize(page.*of).ToDoubles());
      }
      return owned.Add(
          spec.type, {2, 2, 6 * kPage, 32}, Layout::kRowMajor,
          [&](absl::Span<const int64_t> at) {
            const int64_t row = (at[0] * 2 + at[1]) * kPage + at[2] % kPage;
            return numbers[order[static_cast<size_t>(at[2] / kPage)]]
                          [static_cast<size_t>(row * 32 + at[3])];
          });
    };
    AttentionProblem whole = owned.problem;
    whole.key_value = {{.key = in_order(&KeyValueBlock::key),
                        .value = in_order(&KeyValueBlock::value)}};
    owned.problem.key_value.clear();
    for (const size_t page : order) {
      owned.problem.key_value.push_back(pages[page]);
    }
    ASSERT_OK_AND_ASSIGN(const Results expected, runner_.Run(whole));
    ASSERT_OK_AND_ASSIGN(const Results results, runner_.Run(owned.problem));
    EXPECT_TRUE(SameBits(expected, results));
  }
}

INSTANTIATE_FOR_TARGETS(PagesTest);

}  // namespace
}  // namespace attention::test
