// NaN of every bit pattern is NaN: in a key or a query that takes part it gives
// NaN in its rows and in no other.

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/parity/backend_test.h"
#include "tests/parity/ways.h"
#include "tests/support/random.h"
#include "tests/support/special_numbers.h"

namespace attention::test {
namespace {

// The plain one, with payloads, of both signs, and signaling ones: of FP32; the
// 16-bit types have the upper bits of most.
std::vector<uint32_t> BitsOfNan(DataType type) {
  if (type == DataType::kFloat32) {
    return {0x7FC00000, 0x7FC00001, 0xFFC00000,
            0xFFFFFFFF, 0x7F800001, 0xFF812345};
  }
  return {0x7FC0, 0x7FC1, 0xFFFF, 0x7F81};
}

// Parameter: backend, way, type, scoring.
class NanPayloadTest
    : public ::testing::TestWithParam<
          std::tuple<std::string, Way, DataType, ScoringKind>> {
 protected:
  NanPayloadTest() {
    const auto& [backend, way, type, scoring] = GetParam();
    ProblemSpec spec = SpecOf(way, type);
    spec.scoring = scoring;
    spec.causal = Causal::kBottomRight;
    spec.wanted.weights = way.query_length != 1;
    owned_ = MakeProblem(spec, TestSeed());
  }

  // Plants every NaN in turn, and compares with one answer.
  void CheckEveryNan(const TensorView& view, const std::vector<int64_t>& at) {
    SetElement(view, at, kNan);
    const Expected expected = ComputeExpected(owned_.problem);
    ASSERT_TRUE(std::isnan(expected.lse.back()));
    const auto engine = MakeEngine(std::get<0>(GetParam()));
    for (const uint32_t bits : BitsOfNan(view.type)) {
      SCOPED_TRACE(absl::StrCat(absl::Hex(bits)));
      std::memcpy(ElementAddress(OwnedProblem::Writable(view), at), &bits,
                  static_cast<size_t>(ByteSize(view.type)));
      ASSERT_OK_AND_ASSIGN(const Results results,
                           RunOn(*engine, owned_.problem));
      EXPECT_TRUE(Matches(owned_.problem, expected, results));
    }
  }

  OwnedProblem owned_;
};

// The last row alone reads the last key.
TEST_P(NanPayloadTest, InAKeyReachesItsRows) {
  const TensorView& key = owned_.problem.key_value[0].key;
  CheckEveryNan(key, {0, 0, key.shape[2] - 1, key.shape[3] - 1});
}

TEST_P(NanPayloadTest, InAQueryReachesItsRow) {
  const TensorView& query = owned_.problem.query;
  CheckEveryNan(query, {0, query.shape[1] - 1, query.shape[2] - 1, 0});
}

std::string NameOfNanPayloadTest(
    const ::testing::TestParamInfo<NanPayloadTest::ParamType>& test) {
  static constexpr const char* kScorings[] = {"dot_product", "additive",
                                              "Gaussian", "bilinear"};
  const auto& [backend, way, type, scoring] = test.param;
  return absl::StrCat(backend, "_", way.name, "_", Name(type), "_",
                      kScorings[static_cast<int>(scoring)]);
}

INSTANTIATE_TEST_SUITE_P(
    Backends, NanPayloadTest,
    ::testing::Combine(
        ::testing::ValuesIn(Backends()), ::testing::ValuesIn(kWays),
        ::testing::ValuesIn(kWayTypes),
        ::testing::Values(ScoringKind::kDotProduct, ScoringKind::kAdditive,
                          ScoringKind::kGaussian, ScoringKind::kBilinear)),
    NameOfNanPayloadTest);

}  // namespace
}  // namespace attention::test
