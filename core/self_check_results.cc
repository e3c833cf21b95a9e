#include "core/self_check_results.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace attention::self_check {
namespace {

// What roundings of numbers up to 1 may come to; scores are up to some tens.
double Tolerance(DataType type) {
  switch (type) {
    case DataType::kFloat16:
      return 8e-3;
    case DataType::kBFloat16:
      return 4e-2;
    default:
      return 2e-4;
  }
}

absl::Status CompareTensor(absl::string_view tensor, const Tensor& found,
                           const Tensor& expected, double tolerance) {
  const std::vector<double> had = found.ToDoubles();
  const std::vector<double> wanted = expected.ToDoubles();
  for (size_t n = 0; n < wanted.size(); ++n) {
    // Not NaN either.
    if (std::abs(had[n] - wanted[n]) <=
        tolerance * std::max(1.0, std::abs(wanted[n]))) {
      continue;
    }
    return absl::InternalError(absl::StrCat(tensor, " element ", n, " is ",
                                            had[n], " (", wanted[n],
                                            " is expected)"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Results> MakeResults(const ValidatedProblem& problem) {
  Results results;
  const auto make = [](Tensor& tensor, DataType type, const Shape& shape) {
    absl::StatusOr<Tensor> made = Tensor::Create(type, shape);
    if (!made.ok()) return made.status();
    tensor = *std::move(made);
    return absl::OkStatus();
  };
  absl::Status status =
      make(results.output, problem.query.type, problem.output_shape);
  if (status.ok() && problem.wanted.weights) {
    status = make(results.weights, DataType::kFloat32, problem.weights_shape);
  }
  if (status.ok()) {
    status = make(results.lse, DataType::kFloat32, problem.lse_shape);
  }
  if (!status.ok()) return status;
  return results;
}

AttentionJob JobOf(const ValidatedProblem& problem, Results& results) {
  AttentionJob job;
  job.problem = &problem;
  job.outputs = {results.output.mutable_view(), results.weights.mutable_view(),
                 results.lse.mutable_view()};
  return job;
}

absl::StatusOr<Results> Compute(const Backend& backend,
                                const ValidatedProblem& problem,
                                WorkerPool& workers, std::string& kernel) {
  if (absl::Status status = backend.Supports(problem); !status.ok()) {
    return status;
  }
  absl::StatusOr<Results> results = MakeResults(problem);
  if (!results.ok()) return results;
  AttentionJob job = JobOf(problem, *results);
  backend.Run(absl::MakeSpan(&job, 1), {workers});
  kernel = static_cast<std::string>(job.kernel);
  if (!job.status.ok()) return job.status;
  return results;
}

absl::Status Compare(const ValidatedProblem& problem, const Results& expected,
                     const Results& found) {
  const double fp32 = Tolerance(DataType::kFloat32);
  absl::Status status = CompareTensor("output", found.output, expected.output,
                                      Tolerance(problem.query.type));
  if (status.ok()) {
    status = CompareTensor("weights", found.weights, expected.weights, fp32);
  }
  if (status.ok()) {
    status = CompareTensor("lse", found.lse, expected.lse, fp32);
  }
  return status;
}

absl::Status Failed(absl::string_view case_name, absl::string_view kernel,
                    const absl::Status& status) {
  return absl::InternalError(
      absl::StrCat(case_name, ": kernel ", kernel, ": ", status.message()));
}

}  // namespace attention::self_check
