#include "core/cpu/scoring/row_widener.h"

namespace attention::cpu {

RowWidener::RowWidener(const ValidatedProblem& problem, const Kernels& kernels,
                       int64_t rows, int64_t columns, Scratch& scratch)
    : problem_(problem),
      kernels_(kernels),
      stride_(RoundUp(columns, kernels.lanes)),
      rows_(scratch.Take<float>(rows * stride_)) {}

FloatRows RowWidener::Queries(const BlockRows& rows, int64_t first,
                              int64_t columns) {
  const TensorView& query = problem_.query;
  const bool in_order =
      rows.HeadOf(0) == rows.HeadOf(rows.count() - 1) ||
      query.strides[1] == query.strides[2] * problem_.query_length;
  if (in_order) {
    const FloatRows in_place = InPlace(ColumnsFrom(
        RowsOf(query, rows.batch(), rows.HeadOf(0), rows.QueryOf(0)), first));
    if (in_place.data != nullptr) return in_place;
  }
  ForEachHead(problem_, rows,
              [&](const RowSource& from, int64_t row, int64_t count) {
                kernels_.widen_rows(ColumnsFrom(from, first), count, columns,
                                    rows_ + row * stride_, stride_, columns);
              });
  return {rows_, stride_};
}

FloatRows RowWidener::Keys(const TileRows& keys, int64_t row, int64_t count,
                           int64_t first, int64_t columns) {
  const TileRows::Piece piece = keys.From(row);
  if (piece.count >= count) {
    const FloatRows in_place = InPlace(ColumnsFrom(piece.rows, first));
    if (in_place.data != nullptr) return in_place;
  }
  keys.ForEachPiece(
      row, count, [&](const RowSource& some, int64_t at, int64_t n) {
        kernels_.widen_rows(ColumnsFrom(some, first), n, columns,
                            rows_ + at * stride_, stride_, columns);
      });
  return {rows_, stride_};
}

}  // namespace attention::cpu
