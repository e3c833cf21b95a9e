#include "tests/parity/golden_cases.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "tests/support/test_data.h"
#include "tests/support/tolerance.h"

namespace attention::test {
namespace {

constexpr double kGoldenTolerance = 2e-6;

// "multi_head/bias/query" -> {"multi_head/bias", "query"}; a file that holds
// one case names its tensors alone.
std::pair<std::string, std::string> SplitName(const std::string& name) {
  const size_t slash = name.rfind('/');
  if (slash == std::string::npos) return {"all", name};
  return {name.substr(0, slash), name.substr(slash + 1)};
}

const Tensor* Find(const GoldenCase& golden, const std::string& name) {
  const auto found = golden.tensors.find(name);
  return found == golden.tensors.end() ? nullptr : &found->second;
}

// (batch, size, size).
Tensor Identities(int64_t batch, int64_t size) {
  std::vector<float> elements(batch * size * size);
  for (int64_t n = 0; n < batch * size; ++n) {
    elements[n * size + n % size] = 1;
  }
  return Tensor::FromFloats({batch, size, size}, elements);
}

// The case has scores and the weights that a softmax makes of them. Queries
// that are rows of scores have those very scores with keys, and weights as
// outputs with values, that are the rows of an identity matrix.
void AttentionOverScores(GoldenCase& golden) {
  auto scores = golden.tensors.extract("scores");
  scores.key() = "query";
  const Shape shape = scores.mapped().shape();
  golden.tensors.insert(std::move(scores));
  golden.tensors.emplace("key", Identities(shape[0], shape[2]));
  golden.tensors.emplace("value", Identities(shape[0], shape[2]));
  golden.tensors.emplace("output", golden.tensors.at("weights"));
}

absl::Status SetScoring(const GoldenCase& golden, AttentionProblem& problem) {
  const std::string kind = golden.name.substr(0, golden.name.find('/'));
  if (kind == "additive") {
    problem.scoring = Additive{.w_q = golden.tensors.at("w_q").view(),
                               .w_k = golden.tensors.at("w_k").view(),
                               .w_v = golden.tensors.at("w_v").view()};
  } else if (kind == "bilinear") {
    problem.scoring = Bilinear{.m = golden.tensors.at("m").view()};
  } else if (kind == "gaussian") {
    problem.scoring = Gaussian{};
  } else if (kind == "masked_softmax") {
    problem.scoring = ScaledDotProduct{.scale = 1};
  } else if (kind != "dot_product" && kind != "multi_head" && kind != "all") {
    return absl::InvalidArgumentError(
        absl::StrCat(golden.name, ": unknown kind of case"));
  }
  return absl::OkStatus();
}

void SetMasks(const GoldenCase& golden, Masks& masks) {
  if (const Tensor* lengths = Find(golden, "valid_lens")) {
    masks.valid_lens = lengths->view();
  }
  if (const Tensor* mask = Find(golden, "mask")) {
    masks.attend_mask = mask->view();
  }
  if (const Tensor* bias = Find(golden, "bias")) masks.bias = bias->view();
  if (golden.name == "multi_head/causal") masks.causal = Causal::kTopLeft;
  if (const Tensor* window = Find(golden, "window")) {
    const std::vector<double> reach = window->ToDoubles();  // (left, right)
    masks.window = {.left = static_cast<int64_t>(reach.at(0)),
                    .right = static_cast<int64_t>(reach.at(1))};
  }
}

}  // namespace

absl::StatusOr<std::vector<GoldenCase>> LoadGoldenCases() {
  std::vector<GoldenCase> cases;
  for (const std::string& file : SafetensorsInTestData()) {
    absl::StatusOr<SafetensorsFile> contents = ReadTestData(file);
    if (!contents.ok()) return contents.status();
    const std::string framework(absl::StripSuffix(file, ".safetensors"));
    std::map<std::string, GoldenCase> by_name;
    for (auto& [full_name, tensor] : contents->tensors) {
      const auto [case_name, tensor_name] = SplitName(full_name);
      GoldenCase& golden = by_name[case_name];
      golden.framework = framework;
      golden.name = case_name;
      const std::string short_name(absl::StripPrefix(tensor_name, "expected_"));
      golden.tensors.emplace(short_name, std::move(tensor));
    }
    for (auto& [name, golden] : by_name) {
      if (golden.tensors.count("scores") != 0) AttentionOverScores(golden);
      cases.push_back(std::move(golden));
    }
  }
  return cases;
}

absl::StatusOr<AttentionProblem> GoldenProblem(const GoldenCase& golden) {
  static constexpr const char* kUnderstood[] = {
      "query", "key",  "value",      "w_q",    "w_k",    "w_v",    "m",
      "bias",  "mask", "valid_lens", "window", "output", "weights"};
  for (const auto& [name, tensor] : golden.tensors) {
    if (std::find(std::begin(kUnderstood), std::end(kUnderstood), name) ==
        std::end(kUnderstood)) {
      return absl::InvalidArgumentError(
          absl::StrCat(golden.name, ": no test knows the tensor ", name));
    }
  }
  for (const char* name : {"query", "key", "value", "output"}) {
    if (Find(golden, name) == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat(golden.name, ": has no ", name));
    }
  }
  AttentionProblem problem;
  problem.query = golden.tensors.at("query").view();
  problem.key_value.push_back({.key = golden.tensors.at("key").view(),
                               .value = golden.tensors.at("value").view()});
  absl::Status status = SetScoring(golden, problem);
  if (!status.ok()) return status;
  SetMasks(golden, problem.masks);
  // What a fill with -1e6 gives.
  problem.empty_rows = EmptyRows::kUniform;
  problem.wanted.weights = Find(golden, "weights") != nullptr;
  return problem;
}

::testing::AssertionResult MatchesGolden(const GoldenCase& golden,
                                         const Expected& expected,
                                         absl::Span<const double> output,
                                         absl::Span<const double> weights) {
  const std::vector<double> wanted = golden.tensors.at("output").ToDoubles();
  if (wanted.size() != expected.output.size()) {
    return ::testing::AssertionFailure()
           << "the case's output has another size";
  }
  std::vector<double> tolerances(wanted.size());
  for (size_t n = 0; n < wanted.size(); ++n) {
    tolerances[n] =
        kGoldenTolerance * (std::abs(wanted[n]) + expected.weighted[n]);
  }
  auto check = IsWithin("output", output, wanted, tolerances);
  const Tensor* golden_weights = Find(golden, "weights");
  if (!check || golden_weights == nullptr) return check;
  // A weight w is the output of a value that is 1 at its key: |o| = sum = w.
  // Where it is tiny, one FP32 rounding of the framework's own scores weighs
  // more.
  const std::vector<double> wanted_weights = golden_weights->ToDoubles();
  tolerances.resize(wanted_weights.size());
  for (size_t n = 0; n < wanted_weights.size(); ++n) {
    const double kappa = expected.kappa[n / expected.key_length];
    tolerances[n] =
        2 * wanted_weights[n] *
        (kGoldenTolerance + kappa * UnitRoundoff(DataType::kFloat32));
  }
  return IsWithin("weights", weights, wanted_weights, tolerances);
}

}  // namespace attention::test
