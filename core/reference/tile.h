#ifndef ATTENTION_CORE_REFERENCE_TILE_H_
#define ATTENTION_CORE_REFERENCE_TILE_H_

#include <Eigen/Core>
#include <cstdint>

#include "core/tensor_view.h"
#include "core/validate.h"

namespace attention::reference {

/// Row-major, as the tensors are.
using Matrix =
    Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

/// Rows first ... first + count - 1 of head (i0, i1) of a four-dimensional
/// view, widened to FP64. Reuses the matrix's memory where it fits.
void LoadRows(const TensorView& view, int64_t i0, int64_t i1, int64_t first,
              int64_t count, Matrix& rows);

/// Multiplies them by their scales, of a (B, Hkv, n) view. What INT8 or FP8
/// stands for is an FP32 number: the products are rounded to it.
void ScaleRows(const TensorView& scales, int64_t i0, int64_t i1, int64_t first,
               Matrix& rows);

/// A whole (rows, columns) parameter of one head, from a (Hq, rows, columns)
/// view.
Matrix LoadParameter(const TensorView& view, int64_t head);

/// How a problem is cut. Follows from the problem's extents alone, never from
/// the number of threads or what else runs, so that the bits do not either.
/// Wide rows get smaller tiles: a tile of FP64 stays below half a MiB unless
/// one row is wider than that.
struct TileSizes {
  int64_t rows;
  int64_t keys;
};
TileSizes ChooseTileSizes(const ValidatedProblem& problem);

/// Bytes that a thread takes for one tile of rows and one of keys, at most.
int64_t RowTileBytes(const ValidatedProblem& problem);

}  // namespace attention::reference

#endif  // ATTENTION_CORE_REFERENCE_TILE_H_
