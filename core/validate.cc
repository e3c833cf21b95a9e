#include "core/validate.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "core/validate_parts.h"

namespace attention {
namespace internal {

absl::Status CheckQueryExtents(const TensorView& query, int64_t heads) {
  if (heads > 0 && query.shape.back() > 0) return absl::OkStatus();
  return ZeroExtent("query", ShapeToString(query.shape),
                    heads == 0 ? "0 heads" : "width 0");
}

absl::Status CheckQuery(const TensorView& query) {
  if (absl::Status status = CheckView("query", query); !status.ok()) {
    return status;
  }
  if (query.rank() < 2 || query.rank() > 4) {
    return FieldError(
        "query",
        absl::StrCat("shape ", ShapeToString(query.shape), " has ",
                     query.rank(), " dimensions (expected 2, 3 or 4)"));
  }
  if (!IsAttentionType(query.type)) {
    return FieldError("query", absl::StrCat("datatype ", Name(query.type),
                                            " (expected FP32, FP16 or BF16)"));
  }
  return CheckQueryExtents(query, query.rank() == 4 ? query.shape[1] : 1);
}

}  // namespace internal

namespace {

using internal::FieldError;

absl::Status ValidateQuery(const TensorView& query, ValidatedProblem& valid) {
  if (absl::Status status = internal::CheckQuery(query); !status.ok()) {
    return status;
  }
  valid.query = internal::Widen(query);
  valid.batch = valid.query.shape[0];
  valid.query_heads = valid.query.shape[1];
  valid.query_length = valid.query.shape[2];
  valid.query_width = valid.query.shape[3];
  return absl::OkStatus();
}

absl::Status ValidateDropout(const Dropout& dropout, ValidatedProblem& valid) {
  if (!(dropout.p >= 0 && dropout.p < 1)) {
    return FieldError("dropout_p",
                      absl::StrCat(dropout.p, " (expected 0 <= p < 1)"));
  }
  valid.dropout = dropout;
  if (!dropout.training) valid.dropout.p = 0;
  return absl::OkStatus();
}

absl::Status Fill(const AttentionProblem& problem, ValidatedProblem& valid) {
  if (problem.query_starts || problem.key_starts) {
    return FieldError(problem.query_starts ? "query_starts" : "key_starts",
                      "was given where one problem is expected");
  }
  if (!problem.key_value_of_entries.empty()) {
    return FieldError("key",
                      "entries have their own, where one problem is "
                      "expected");
  }
  absl::Status status = ValidateQuery(problem.query, valid);
  if (!status.ok()) return status;
  const int rank = problem.query.rank();
  status = internal::ValidateKeys(problem, valid);
  if (status.ok()) status = internal::ValidateScoring(problem, valid);
  if (status.ok()) status = internal::ValidateMasks(problem, rank, valid);
  if (status.ok()) status = internal::ValidatePerHead(problem, valid);
  if (status.ok()) status = ValidateDropout(problem.dropout, valid);
  if (status.ok()) status = internal::SetResultShapes(rank, valid);
  if (!status.ok()) return status;
  valid.empty_rows = problem.empty_rows;
  return internal::ValidateWanted(problem.wanted, valid);
}

}  // namespace

// Returned by its one name, so that it is made where it is returned.
absl::StatusOr<ValidatedProblem> Validate(const AttentionProblem& problem) {
  absl::StatusOr<ValidatedProblem> result(absl::in_place,
                                          ValidatedProblem::OnlyValidate());
  absl::Status status = Fill(problem, *result);
  if (!status.ok()) result = std::move(status);
  return result;
}

}  // namespace attention
