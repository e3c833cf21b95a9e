#include "tests/support/uneven_scores.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "core/datatype.h"
#include "tests/support/random.h"
#include "tests/support/random_problem.h"

namespace attention::test {
namespace {

constexpr int64_t kQueries = 32;
constexpr int64_t kKeys = 64;

ProblemSpec Around(double centre, DataType type, int64_t width) {
  return {.batch = 1,
          .query_length = kQueries,
          .key_length = kKeys,
          .width = width,
          .value_width = 8,
          .type = type,
          .magnitudes = Magnitudes::kFarFromOrigin,
          .centre = centre};
}

// Small beside the distance from the origin, and such that a row has a few
// keys whose weights are not 0.
ProblemSpec FarFromOrigin(int64_t width) {
  ProblemSpec spec = Around(100, DataType::kFloat32, width);
  spec.scoring = ScoringKind::kGaussian;
  spec.sigma = width > 100 ? 2 : 0.3;
  return spec;
}

// The first term is larger than all others together.
OwnedProblem OneLargeElement(DataType type, int64_t width) {
  OwnedProblem owned = MakeProblem(Around(0, type, width), TestSeed());
  for (int64_t i = 0; i < kQueries; ++i) {
    SetElement(owned.problem.query, {0, 0, i, 0}, 30);
  }
  for (int64_t j = 0; j < kKeys; ++j) {
    SetElement(owned.problem.key_value[0].key, {0, 0, j, 0}, 30);
  }
  return owned;
}

OwnedProblem ProductsOfOneSign(DataType type, int64_t width) {
  return MakeProblem(Around(3, type, width), TestSeed());
}

// One element of one key is 0.
OwnedProblem GaussianWithFarKey(int64_t width, int64_t key) {
  OwnedProblem owned = MakeProblem(FarFromOrigin(width), TestSeed());
  SetElement(owned.problem.key_value[0].key, {0, 0, key, 0}, 0);
  return owned;
}

OwnedProblem GaussianWithFarQuery(int64_t width, int64_t query) {
  OwnedProblem owned = MakeProblem(FarFromOrigin(width), TestSeed());
  SetElement(owned.problem.query, {0, 0, query, 0}, 0);
  return owned;
}

// The first row attends the first 8 keys alone, and it and they lie around 1.
OwnedProblem GaussianWithNearKeys(int64_t width) {
  constexpr int64_t kNear = 8;
  ProblemSpec spec = FarFromOrigin(width);
  spec.causal = Causal::kTopLeft;
  spec.query_offset = kNear - 1;
  OwnedProblem owned = MakeProblem(spec, TestSeed());
  const auto bring = [width](const TensorView& rows, int64_t row) {
    for (int64_t i = 0; i < width; ++i) {
      const auto step = static_cast<double>((row * 31 + i * 7) % 17);
      SetElement(rows, {0, 0, row, i}, 0.125 * step);
    }
  };
  bring(owned.problem.query, 0);
  for (int64_t j = 0; j < kNear; ++j) {
    bring(owned.problem.key_value[0].key, j);
  }
  return owned;
}

}  // namespace

std::vector<UnevenScores> AllUnevenScores() {
  std::vector<UnevenScores> all;
  for (const DataType type :
       {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16}) {
    for (const int64_t width : {64, 128, 300, 1000}) {
      const std::string of = absl::StrCat("_", Name(type), "_width", width);
      all.push_back({"OneLargeElement" + of,
                     [=] { return OneLargeElement(type, width); }});
      // Wider ones are not for tensor cores.
      const bool of_tensor_cores = type == DataType::kFloat16 && width < 300;
      all.push_back({.name = "ProductsOfOneSign" + of,
                     .make = [=] { return ProductsOfOneSign(type, width); },
                     .of_tensor_cores = of_tensor_cores});
      all.push_back({.name = "ProductsOfOneSignWithoutWeights" + of,
                     .make =
                         [=] {
                           OwnedProblem owned = ProductsOfOneSign(type, width);
                           owned.problem.wanted.weights = false;
                           return owned;
                         },
                     .of_tensor_cores = of_tensor_cores});
    }
  }
  for (const int64_t width : {36, 150}) {
    const std::string of = absl::StrCat("_width", width);
    for (const int64_t key : {0, 10, 32, 53, 63}) {
      all.push_back({absl::StrCat("GaussianWithFarKey", key, of),
                     [=] { return GaussianWithFarKey(width, key); }});
    }
    all.push_back({"GaussianWithFarQuery" + of,
                   [=] { return GaussianWithFarQuery(width, 5); }});
    all.push_back({"GaussianWithNearKeys" + of,
                   [=] { return GaussianWithNearKeys(width); }});
  }
  return all;
}

}  // namespace attention::test
