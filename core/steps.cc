#include "core/steps.h"

#include "absl/strings/str_cat.h"
#include "core/element.h"
#include "core/softmax_state.h"
#include "core/validate_parts.h"

namespace attention {
namespace {

using internal::FieldError;

absl::Status CheckRankThree(absl::string_view field, const TensorView& view) {
  if (absl::Status status = internal::CheckHostView(field, view);
      !status.ok()) {
    return status;
  }
  if (view.rank() == 3) return absl::OkStatus();
  return FieldError(field,
                    absl::StrCat("shape ", ShapeToString(view.shape), " has ",
                                 view.rank(), " dimensions (expected 3)"));
}

const std::byte* ElementAt(const TensorView& view, int64_t i, int64_t j,
                           int64_t k) {
  return view.data + i * view.strides[0] + j * view.strides[1] +
         k * view.strides[2];
}

// The rule for lengths is the engine's own: a problem with these extents keeps
// it.
absl::StatusOr<ValidatedProblem> ProblemWithLengths(
    const TensorView& scores, const std::optional<TensorView>& valid_lens) {
  const int64_t batch = scores.shape[0];
  const int64_t keys = scores.shape[2];
  const auto view = [](const Shape& shape) {
    return ContiguousView(DataType::kFloat32, shape, nullptr);
  };
  AttentionProblem problem;
  problem.query = view({batch, scores.shape[1], 1});
  problem.key_value.push_back({view({batch, keys, 1}), view({batch, keys, 0})});
  problem.masks.valid_lens = valid_lens;
  return Validate(problem);
}

void SoftmaxRow(const TensorView& scores, int64_t b, int64_t i, int64_t length,
                EmptyRows empty_rows, float* weights) {
  SoftmaxState<double> state;
  const auto score = [&](int64_t j) {
    return LoadElement(scores.type, ElementAt(scores, b, i, j));
  };
  for (int64_t j = 0; j < length; ++j) state.Add(score(j));
  const int64_t keys = scores.shape[2];
  const bool uniform = state.empty() && empty_rows == EmptyRows::kUniform;
  for (int64_t j = 0; j < keys; ++j) {
    weights[j] = uniform      ? 1.0F / static_cast<float>(keys)
                 : j < length ? static_cast<float>(state.Weight(score(j)))
                              : 0.0F;
  }
}

}  // namespace

absl::StatusOr<Tensor> MaskedSoftmax(
    const TensorView& scores, const std::optional<TensorView>& valid_lens,
    EmptyRows empty_rows) {
  if (absl::Status status = CheckRankThree("scores", scores); !status.ok()) {
    return status;
  }
  if (scores.type != DataType::kFloat32) {
    return FieldError("scores", absl::StrCat("datatype ", Name(scores.type),
                                             " (expected FP32)"));
  }
  const auto problem = ProblemWithLengths(scores, valid_lens);
  if (!problem.ok()) return problem.status();
  absl::StatusOr<Tensor> weights =
      Tensor::Create(DataType::kFloat32, scores.shape);
  if (!weights.ok() || weights->element_count() == 0) return weights;
  auto* row = reinterpret_cast<float*>(weights->data());
  for (int64_t b = 0; b < scores.shape[0]; ++b) {
    for (int64_t i = 0; i < scores.shape[1]; ++i) {
      const int64_t length = KeysInRange(*problem, b, i).end;
      SoftmaxRow(scores, b, i, length, empty_rows, row);
      row += scores.shape[2];
    }
  }
  return weights;
}

absl::StatusOr<Tensor> BatchMatMul(const TensorView& a, const TensorView& b) {
  absl::Status status = CheckRankThree("a", a);
  if (status.ok()) status = CheckRankThree("b", b);
  if (!status.ok()) return status;
  if (!IsAttentionType(a.type)) {
    return FieldError("a", absl::StrCat("datatype ", Name(a.type),
                                        " (expected FP32, FP16 or BF16)"));
  }
  if (a.type != b.type) {
    return FieldError(
        "b", absl::StrCat("datatype ", Name(b.type), ", a has ", Name(a.type)));
  }
  if (a.shape[0] != b.shape[0] || a.shape[2] != b.shape[1]) {
    return FieldError(
        "b", absl::StrCat("shape ", ShapeToString(b.shape), " (expected [",
                          a.shape[0], ", ", a.shape[2], ", p] to follow a's ",
                          ShapeToString(a.shape), ")"));
  }
  absl::StatusOr<Tensor> product =
      Tensor::Create(a.type, {a.shape[0], a.shape[1], b.shape[2]});
  if (!product.ok()) return product.status();
  if (product->element_count() == 0) return product;
  std::byte* element = product->data();
  for (int64_t n = 0; n < a.shape[0]; ++n) {
    for (int64_t i = 0; i < a.shape[1]; ++i) {
      for (int64_t j = 0; j < b.shape[2]; ++j) {
        double sum = 0;
        for (int64_t k = 0; k < a.shape[2]; ++k) {
          sum += LoadElement(a.type, ElementAt(a, n, i, k)) *
                 LoadElement(b.type, ElementAt(b, n, k, j));
        }
        StoreElement(a.type, sum, element);
        element += ByteSize(a.type);
      }
    }
  }
  return product;
}

}  // namespace attention
