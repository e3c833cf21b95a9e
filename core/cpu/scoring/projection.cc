#include "core/cpu/scoring/projection.h"

#include <algorithm>

#include "core/cpu/plan.h"

namespace attention::cpu {
namespace {

// Columns of the matrix that are widened at a time.
constexpr int64_t kColumns = 256;

}  // namespace

Projection::Projection(const Kernels& kernels, Scratch& scratch)
    : kernels_(kernels), piece_(scratch.Take<float>(kDepth * kColumns)) {}

void Projection::SetMatrix(const RowSource& m, int64_t depth, int64_t columns) {
  m_ = m;
  depth_ = depth;
  in_place_ = columns % kernels_.lanes == 0 && InPlace(m).data != nullptr;
}

FloatRows Projection::Piece(int64_t first_row, int64_t rows,
                            int64_t first_column, int64_t columns) {
  RowSource from = ColumnsFrom(m_, first_column);
  from.data += first_row * m_.row_stride;
  if (in_place_) return InPlace(from);
  kernels_.widen_rows(from, rows, columns, piece_, kColumns,
                      RoundUp(columns, kernels_.lanes));
  return {piece_, kColumns};
}

void Projection::Project(int64_t rows, int64_t first, int64_t columns,
                         absl::FunctionRef<FloatRows(int64_t, int64_t)> read,
                         absl::FunctionRef<bool()> pause, float* to,
                         int64_t to_stride) {
  for (int64_t i = 0; i < depth_; i += kDepth) {
    const int64_t depth = std::min(kDepth, depth_ - i);
    const FloatRows from = read(i, depth);
    for (int64_t c = 0; c < columns; c += kColumns) {
      if ((i > 0 || c > 0) && !pause()) return;
      const int64_t count = std::min(kColumns, columns - c);
      const FloatRows m = Piece(i, depth, first + c, count);
      kernels_.project({.from = from.data,
                        .from_stride = from.stride,
                        .rows = rows,
                        .depth = depth,
                        .m = m.data,
                        .m_stride = m.stride,
                        .columns = RoundUp(count, kernels_.lanes),
                        .to = to + c,
                        .to_stride = to_stride,
                        .add = i > 0});
    }
  }
}

}  // namespace attention::cpu
