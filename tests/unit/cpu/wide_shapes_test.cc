// Widths of any size, of every kind: as correct as others, and computed by the
// same kernels.

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/datatype.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/cpu/cpu_test.h"

namespace attention::test {
namespace {

constexpr int64_t kWidths[] = {1, 3, 17, 640, 2049, 4100};

struct Widths {
  ScoringKind scoring;
  int64_t width, value_width, hidden_width;
};

// One of them wide, or all as wide as a quick oracle allows.
std::vector<Widths> AllWidths() {
  std::vector<Widths> all;
  for (const ScoringKind scoring : kAllScorings) {
    for (const int64_t wide : kWidths) {
      // Its matrix has the square of that, and a test of its own.
      if (scoring == ScoringKind::kBilinear && wide > 4000) continue;
      all.push_back({scoring, wide, 5, 5});
      all.push_back({scoring, 8, wide, 5});
      if (scoring == ScoringKind::kAdditive) {
        all.push_back({scoring, 8, 5, wide});
      }
    }
    all.push_back({scoring, 640, 641, 642});
  }
  return all;
}

// Parameter: widths, whether decode, type.
using WideShapesTest =
    ::testing::TestWithParam<std::tuple<Widths, bool, DataType>>;

OwnedProblem Make(const Widths& widths, bool decode, DataType type) {
  return MakeProblem({.batch = 1,
                      .query_heads = 2,
                      .kv_heads = 1,
                      .query_length = decode ? 1 : 5,
                      .key_length = 9,
                      .width = widths.width,
                      .value_width = widths.value_width,
                      .hidden_width = widths.hidden_width,
                      .type = type,
                      .scoring = widths.scoring,
                      .sigma = 20},
                     TestSeed());
}

TEST_P(WideShapesTest, AreWithinTheTolerances) {
  const auto& [widths, decode, type] = GetParam();
  CheckOnEveryTarget(Make(widths, decode, type).problem);
}

std::string NameOfWideShapesTest(
    const ::testing::TestParamInfo<WideShapesTest::ParamType>& test) {
  const auto& [widths, decode, type] = test.param;
  return absl::StrCat(NameOf(widths.scoring), "_D", widths.width, "_Dv",
                      widths.value_width, "_h", widths.hidden_width,
                      decode ? "_decode_" : "_prefill_", Name(type));
}

INSTANTIATE_TEST_SUITE_P(
    All, WideShapesTest,
    ::testing::Combine(::testing::ValuesIn(AllWidths()), ::testing::Bool(),
                       ::testing::Values(DataType::kFloat32,
                                         DataType::kBFloat16)),
    NameOfWideShapesTest);

TEST(WideBilinearTest, IsWithinTheTolerances) {
  CheckOnEveryTarget(
      Make({ScoringKind::kBilinear, 4100, 4100, 1}, false, DataType::kFloat32)
          .problem);
}

// The reference's kernels are "fp64_...".
TEST(WideKernelsTest, AreNotTheReferences) {
  for (const ScoringKind scoring : kAllScorings) {
    for (const Widths& widths :
         {Widths{scoring, 2049, 5, 5}, Widths{scoring, 8, 4100, 5},
          Widths{scoring, 8, 5, 4100}}) {
      const OwnedProblem owned = Make(widths, false, DataType::kFloat32);
      for (const std::string& target : CpuTestTargets()) {
        TargetRunner runner(target);
        ASSERT_THAT(runner.Run(owned.problem), IsOk());
        EXPECT_THAT(runner.kernel(),
                    ::testing::Not(::testing::StartsWith("fp64")));
      }
    }
  }
}

}  // namespace
}  // namespace attention::test
