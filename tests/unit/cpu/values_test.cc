// Finite numbers of every kind give results within the contract's tolerances:
// small activations, zeros, subnormals, sums of numbers that are large beside
// what tells the scores apart.

#include "tests/support/values.h"

#include <string>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "core/datatype.h"
#include "gtest/gtest.h"
#include "tests/unit/cpu/cpu_test.h"

namespace attention::test {
namespace {

// Parameter: values, scoring, whether decode, type.
using ValuesTest =
    ::testing::TestWithParam<std::tuple<Values, ScoringKind, bool, DataType>>;

TEST_P(ValuesTest, AreWithinTheTolerances) {
  const auto& [values, scoring, decode, type] = GetParam();
  CheckOnEveryTarget(MakeProblemOf(values, scoring, decode, type).problem);
}

std::string NameOfValuesTest(
    const ::testing::TestParamInfo<ValuesTest::ParamType>& test) {
  const auto& [values, scoring, decode, type] = test.param;
  return absl::StrCat(values.name, "_", NameOf(scoring),
                      decode ? "_decode_" : "_prefill_", Name(type));
}

INSTANTIATE_TEST_SUITE_P(
    All, ValuesTest,
    ::testing::Combine(::testing::ValuesIn(AllValues()),
                       ::testing::ValuesIn(kAllScorings), ::testing::Bool(),
                       ::testing::Values(DataType::kFloat32, DataType::kFloat16,
                                         DataType::kBFloat16)),
    NameOfValuesTest);

// Small scores beside everything else that a row can have.
class SmallScoresTest : public CpuTest {
 protected:
  static ProblemSpec Small() {
    ProblemSpec spec = PrefillOfValues();
    spec.scale = 1e-6;
    return spec;
  }
};

TEST_P(SmallScoresTest, UnderEveryMask) {
  ProblemSpec spec = Small();
  spec.valid_lens = LengthsShape::kPerRow;
  Check(spec);
  spec.causal = Causal::kBottomRight;
  spec.window.left = 50;
  Check(spec);
  spec.attend_mask = MaskExtents::kAll;
  spec.bias = MaskExtents::kAll;
  spec.bias_masks = 0.2;
  Check(spec);
}

TEST_P(SmallScoresTest, UnderDropoutAndASoftcap) {
  for (const bool after : {false, true}) {
    ProblemSpec spec = Small();
    spec.dropout = {.training = true, .p = 0.3, .seed = 7};
    spec.wanted.weights_after_dropout = after;
    Check(spec);
    spec.softcap = 2;
    Check(spec);
  }
}

TEST_P(SmallScoresTest, InBlocksOfKeysAndOddLayouts) {
  for (const Layout layout :
       {Layout::kLengthFirst, Layout::kMisaligned, Layout::kReversed}) {
    ProblemSpec spec = Small();
    spec.layout = layout;
    spec.keys_per_block = 50;
    Check(spec);
  }
}

TEST_P(SmallScoresTest, OfAdditiveWithSmallOutputWeights) {
  for (const double w_v : {0.0, 1e-7, 1e-3}) {
    for (const double spread : {1.0, 30.0}) {
      ProblemSpec spec = PrefillOfValues();
      spec.scoring = ScoringKind::kAdditive;
      spec.spread = spread;
      spec.per_head_parameters = true;
      const OwnedProblem owned = MakeProblem(spec, TestSeed());
      Fill(std::get<Additive>(owned.problem.scoring).w_v, w_v);
      Check(owned.problem);
    }
  }
}

INSTANTIATE_FOR_TARGETS(SmallScoresTest);

}  // namespace
}  // namespace attention::test
