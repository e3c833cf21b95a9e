#include "tests/support/values.h"

#include <cstdint>

#include "tests/support/random.h"

namespace attention::test {
namespace {

const TensorView& Query(const OwnedProblem& owned) {
  return owned.problem.query;
}
const TensorView& Key(const OwnedProblem& owned) {
  return owned.problem.key_value[0].key;
}
const TensorView& Value(const OwnedProblem& owned) {
  return owned.problem.key_value[0].value;
}

// Every element of the last extent's first place.
void FillFirstColumn(const TensorView& view, double value) {
  Fill(Slice(view, 3, 0, 1), value);
}

void MultiplyValues(const OwnedProblem& owned, double factor) {
  const TensorView& value = Value(owned);
  const Tensor copy = Materialize(value);
  int64_t n = 0;
  const std::vector<double> numbers = copy.ToDoubles();
  ForEachIndex(value.shape, [&](absl::Span<const int64_t> index) {
    SetElement(value, index, factor * numbers[n++]);
  });
}

void AsTheyAre(ProblemSpec&) {}
void Unchanged(const OwnedProblem&) {}

}  // namespace

std::vector<Values> AllValues() {
  return {
      {"TimesMillionth", [](ProblemSpec& spec) { spec.spread = 1e-6; },
       Unchanged},
      {"TimesThousandth", [](ProblemSpec& spec) { spec.spread = 1e-3; },
       Unchanged},
      {"TimesTenth", [](ProblemSpec& spec) { spec.spread = 0.1; }, Unchanged},
      {"TimesTen", [](ProblemSpec& spec) { spec.spread = 10; }, Unchanged},
      {"TimesThirty", [](ProblemSpec& spec) { spec.spread = 30; }, Unchanged},
      {"Subnormal",
       [](ProblemSpec& spec) { spec.magnitudes = Magnitudes::kSubnormal; },
       Unchanged},
      {"Huge", [](ProblemSpec& spec) { spec.magnitudes = Magnitudes::kHuge; },
       Unchanged},
      {"ZeroQueries", AsTheyAre,
       [](const OwnedProblem& owned) { Fill(Query(owned), 0); }},
      {"ZeroKeys", AsTheyAre,
       [](const OwnedProblem& owned) { Fill(Key(owned), 0); }},
      {"ConstantKeys", AsTheyAre,
       [](const OwnedProblem& owned) { Fill(Key(owned), 0.1); }},
      {"OneHugeTermPerScore", AsTheyAre,
       [](const OwnedProblem& owned) {
         FillFirstColumn(Query(owned), 30);
         FillFirstColumn(Key(owned), 30);
       }},
      {"OneHugeKey", AsTheyAre,
       [](const OwnedProblem& owned) {
         Fill(Slice(Key(owned), 2, 77, 78), 500);
       }},
      {"TermsOfOneSign",
       [](ProblemSpec& spec) {
         spec.magnitudes = Magnitudes::kFarFromOrigin;
         spec.centre = 3;
       },
       Unchanged},
      {"FarFromTheOrigin",
       [](ProblemSpec& spec) {
         spec.magnitudes = Magnitudes::kFarFromOrigin;
         spec.centre = 100;
       },
       Unchanged},
      {"QueriesFarAway", AsTheyAre,
       [](const OwnedProblem& owned) { Fill(Query(owned), 200); }},
      {"ValuesOf1eMinus30", AsTheyAre,
       [](const OwnedProblem& owned) { MultiplyValues(owned, 1e-30); }},
      {"ValuesAsLargeAsTheTypeHas", AsTheyAre,
       [](const OwnedProblem& owned) {
         const bool half = Value(owned).type == DataType::kFloat16;
         MultiplyValues(owned, half ? 1e3 : 1e30);
       }},
  };
}

ProblemSpec PrefillOfValues() {
  return {.batch = 1,
          .query_heads = 2,
          .kv_heads = 1,
          .query_length = 43,
          .key_length = 150,
          .width = 36,
          .value_width = 33};
}

ProblemSpec DecodeOfValues() {
  return {.batch = 1,
          .query_heads = 6,
          .kv_heads = 2,
          .query_length = 1,
          .key_length = 1500,
          .width = 24,
          .value_width = 24,
          .wanted = {.weights = false, .lse = true}};
}

OwnedProblem MakeProblemOf(const Values& values, ScoringKind scoring,
                           bool decode, DataType type) {
  ProblemSpec spec = decode ? DecodeOfValues() : PrefillOfValues();
  spec.scoring = scoring;
  spec.type = type;
  spec.sigma = 4;
  values.specify(spec);
  OwnedProblem owned = MakeProblem(spec, TestSeed());
  values.change(owned);
  return owned;
}

}  // namespace attention::test
