#include "core/reference/tile.h"

#include <algorithm>
#include <variant>

#include "core/element.h"

namespace attention::reference {
namespace {

void WidenRow(DataType type, const std::byte* from, int64_t stride,
              int64_t count, double* to) {
  for (int64_t i = 0; i < count; ++i) {
    to[i] = LoadElement(type, from + i * stride);
  }
}

}  // namespace

void LoadRows(const TensorView& view, int64_t i0, int64_t i1, int64_t first,
              int64_t count, Matrix& rows) {
  const int64_t width = view.shape[3];
  rows.resize(count, width);
  if (width == 0) return;
  for (int64_t r = 0; r < count; ++r) {
    WidenRow(view.type, view.At(i0, i1, first + r, 0), view.strides[3], width,
             rows.row(r).data());
  }
}

void ScaleRows(const TensorView& scales, int64_t i0, int64_t i1, int64_t first,
               Matrix& rows) {
  for (Eigen::Index r = 0; r < rows.rows(); ++r) {
    const std::byte* const address = scales.data + i0 * scales.strides[0] +
                                     i1 * scales.strides[1] +
                                     (first + r) * scales.strides[2];
    const double scale = LoadElement(scales.type, address);
    for (double& element : rows.row(r)) {
      element = static_cast<float>(element * scale);
    }
  }
}

Matrix LoadParameter(const TensorView& view, int64_t head) {
  Matrix parameter(view.shape[1], view.shape[2]);
  for (int64_t r = 0; r < view.shape[1]; ++r) {
    WidenRow(view.type,
             view.data + head * view.strides[0] + r * view.strides[1],
             view.strides[2], view.shape[2], parameter.row(r).data());
  }
  return parameter;
}

TileSizes ChooseTileSizes(const ValidatedProblem& problem) {
  constexpr int64_t kTileElements = 1 << 16;
  constexpr int64_t kMostRows = 32;
  constexpr int64_t kMostKeys = 64;
  const int64_t width =
      std::max({problem.query_width, problem.key_width, problem.value_width,
                problem.hidden_width, int64_t{1}});
  const int64_t fitting = std::max<int64_t>(1, kTileElements / width);
  return {std::min(kMostRows, fitting), std::min(kMostKeys, fitting)};
}

int64_t RowTileBytes(const ValidatedProblem& problem) {
  const TileSizes sizes = ChooseTileSizes(problem);
  const int64_t rows = std::min(sizes.rows, problem.query_length);
  const int64_t keys = std::min(sizes.keys, problem.key_length);
  const int64_t query_width =
      std::max({problem.query_width, problem.key_width, problem.hidden_width});
  // Of one head, and packed by Eigen for a product.
  const int64_t parameters =
      2 *
      (problem.hidden_width * (problem.query_width + problem.key_width + 1) +
       (std::holds_alternative<Bilinear>(problem.scoring)
            ? problem.query_width * problem.key_width
            : 0));
  // Queries as they are loaded, kept and projected; output; keys with their
  // projection; values; sums of weights.
  const int64_t key_sums = problem.wanted.key_weights ? problem.key_length : 0;
  const int64_t elements =
      key_sums + rows * (3 * query_width + problem.value_width) +
      keys * (problem.key_width + problem.hidden_width + problem.value_width) +
      parameters;
  // Scores, and what Eigen packs of the rest.
  constexpr int64_t kMore = 1 << 20;
  return elements * static_cast<int64_t>(sizeof(double)) + kMore;
}

}  // namespace attention::reference
