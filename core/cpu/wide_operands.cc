#include "core/cpu/wide_operands.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <variant>

#include "core/cpu/prepare.h"

namespace attention::cpu {
namespace {

// Doubles of a thread's scratch that rows and keys may take, unless a single
// group or vector is wider.
constexpr int64_t kRowDoubles = int64_t{32} * 1024;
constexpr int64_t kKeyDoubles = int64_t{48} * 1024;
// Rows that share a tile brought into FP64, at most.
constexpr int64_t kMostRows = 64;
// Rows that are widened at once.
constexpr int64_t kAtOnce = 4;

int64_t RoundUp(int64_t a, int64_t b) { return (a + b - 1) / b * b; }

}  // namespace

WideOperands::WideOperands(const ValidatedProblem& problem,
                           const Kernels& kernels, int64_t row_block,
                           Scratch& scratch)
    : problem_(problem), kernels_(kernels) {
  SetExtents(row_block);
  queries_ = scratch.Take<double>(most_rows_ * width_);
  keys_ = scratch.Take<double>(width_ * key_columns_);
  values_ = scratch.Take<double>(tile_keys_ * value_stride_);
  value_finite_ = scratch.Take<uint8_t>(kWideKeys);
  const int64_t widest = std::max(query_stride_, key_stride_);
  narrow_ = scratch.Take<float>(std::max(kAtOnce * widest, value_stride_));
  wide_ = scratch.Take<double>(kAtOnce * widest);
  projected_ = scratch.Take<double>(kAtOnce * projected_stride_);
  if (projected_stride_ > 0) {
    w_q_ = scratch.Take<float>(problem_.query_width * projected_stride_);
  }
  if (std::holds_alternative<Additive>(problem_.scoring)) {
    w_k_ = scratch.Take<float>(problem_.key_width * projected_stride_);
    w_v_narrow_ = scratch.Take<float>(projected_stride_);
    w_v_ = scratch.Take<double>(projected_stride_);
    query_exponentials_ = scratch.Take<double>(most_rows_ * width_);
    key_exponentials_ = scratch.Take<double>(width_ * key_columns_);
    large_ = scratch.Take<uint8_t>(most_rows_);
    exact_ = scratch.Take<uint8_t>(kWideRows);
  }
}

void WideOperands::SetExtents(int64_t row_block) {
  const int64_t lanes = kernels_.lanes;
  const bool additive = std::holds_alternative<Additive>(problem_.scoring);
  query_stride_ = RoundUp(problem_.query_width, lanes);
  key_stride_ = RoundUp(problem_.key_width, lanes);
  value_stride_ = RoundUp(problem_.value_width, lanes);
  width_ = additive ? problem_.hidden_width : problem_.key_width;
  if (additive) projected_stride_ = RoundUp(width_, lanes);
  if (std::holds_alternative<Bilinear>(problem_.scoring)) {
    projected_stride_ = key_stride_;
  }
  const int64_t doubles = (additive ? 2 : 1) * width_ + value_stride_;
  most_rows_ =
      std::clamp(kRowDoubles / doubles / kWideRows * kWideRows, kWideRows,
                 std::min(kMostRows, RoundUp(row_block, kWideRows)));
  tile_keys_ =
      std::clamp(kKeyDoubles / doubles / lanes * lanes, lanes, kWideKeys);
  // Not a power of two, so that the rows do not fall into the same cache sets.
  key_columns_ = tile_keys_ + lanes;
}

void WideOperands::SetHead(int64_t batch, int64_t head, WideArgs& args) {
  batch_ = batch;
  kv_head_ = problem_.KvHead(head);
  const int64_t stride = projected_stride_;
  args = {};
  args.width = width_;
  args.score = Score::kDot;
  args.factor = problem_.scale;
  args.softcap = problem_.softcap.value_or(0);
  if (const auto* bilinear = std::get_if<Bilinear>(&problem_.scoring)) {
    kernels_.widen_rows(ParameterRows(bilinear->m, head), problem_.query_width,
                        problem_.key_width, w_q_, stride, stride);
  } else if (const auto* gaussian = std::get_if<Gaussian>(&problem_.scoring)) {
    args.score = Score::kDifference;
    args.factor = -0.5 / (gaussian->sigma * gaussian->sigma);
  } else if (const auto* additive = std::get_if<Additive>(&problem_.scoring)) {
    args.score = Score::kTanhExact;
    args.factor = 1;
    kernels_.widen_rows(ParameterRows(additive->w_q, head),
                        problem_.query_width, width_, w_q_, stride, stride);
    kernels_.widen_rows(ParameterRows(additive->w_k, head), problem_.key_width,
                        width_, w_k_, stride, stride);
    kernels_.widen_rows(ParameterVector(additive->w_v, head), 1, width_,
                        w_v_narrow_, stride, stride);
    kernels_.widen_to_double(w_v_narrow_, stride, w_v_);
    args.tanh_weight_sum = std::accumulate(w_v_, w_v_ + width_, 0.0);
  }
}

void WideOperands::SetRows(absl::Span<const RowId> rows) {
  const int64_t padded = RoundUp(static_cast<int64_t>(rows.size()), kWideRows);
  std::fill_n(queries_, padded * width_, 0.0);
  if (large_ != nullptr) std::fill_n(large_, padded, uint8_t{0});
  for (size_t r = 0; r < rows.size(); ++r) {
    SetQuery(static_cast<int64_t>(r), rows[r]);
  }
}

// Where a query's first element is among those of its group.
int64_t WideOperands::PlaceOf(int64_t row) const {
  return row / kWideRows * kWideRows * width_ + row % kWideRows;
}

void WideOperands::SetQuery(int64_t row, RowId id) {
  kernels_.widen_rows(RowsOf(problem_.query, batch_, id.head, id.query), 1,
                      problem_.query_width, narrow_, query_stride_,
                      query_stride_);
  kernels_.widen_to_double(narrow_, query_stride_, wide_);
  const double* from = wide_;
  if (w_q_ != nullptr) {
    kernels_.wide_project({.from = wide_,
                           .from_stride = query_stride_,
                           .rows = 1,
                           .from_width = problem_.query_width,
                           .m = w_q_,
                           .m_stride = projected_stride_,
                           .to_width = projected_stride_,
                           .to = projected_});
    from = projected_;
  }
  double* to = queries_ + PlaceOf(row);
  for (int64_t i = 0; i < width_; ++i) to[i * kWideRows] = from[i];
  if (query_exponentials_ != nullptr) SetExponentials(row);
}

// Of the query that was projected last.
void WideOperands::SetExponentials(int64_t row) {
  double* const from = projected_ + projected_stride_;
  const bool good =
      kernels_.wide_exp_twice(projected_, projected_stride_, from);
  large_[row] = good ? 0 : 1;
  double* to = query_exponentials_ + PlaceOf(row);
  for (int64_t i = 0; i < width_; ++i) to[i * kWideRows] = from[i];
}

void WideOperands::LoadKeys(const KeyTile& tile) {
  for (int64_t k = 0; k < tile.count; k += kAtOnce) {
    const int64_t count = std::min(kAtOnce, tile.count - k);
    kernels_.widen_rows(
        RowsOf(tile.block->key, batch_, kv_head_, tile.first + k), count,
        problem_.key_width, narrow_, key_stride_, key_stride_);
    kernels_.widen_to_double(narrow_, count * key_stride_, wide_);
    const double* from = wide_;
    int64_t stride = key_stride_;
    if (w_k_ != nullptr) {
      kernels_.wide_project({.from = wide_,
                             .from_stride = key_stride_,
                             .rows = count,
                             .from_width = problem_.key_width,
                             .m = w_k_,
                             .m_stride = projected_stride_,
                             .to_width = projected_stride_,
                             .to = projected_});
      from = projected_;
      stride = projected_stride_;
    }
    for (int64_t i = 0; i < width_; ++i) {
      double* to = keys_ + i * key_columns_ + k;
      for (int64_t n = 0; n < count; ++n) to[n] = from[n * stride + i];
    }
  }
  FinishKeys(tile.count);
}

// What stands beside the last key, and exponentials.
void WideOperands::FinishKeys(int64_t count) {
  const int64_t padded = RoundUp(count, kernels_.lanes);
  large_keys_ = false;
  for (int64_t i = 0; i < width_; ++i) {
    double* const row = keys_ + i * key_columns_;
    std::fill(row + count, row + padded, 0.0);
    if (key_exponentials_ == nullptr) continue;
    const bool good = kernels_.wide_exp_twice(
        row, padded, key_exponentials_ + i * key_columns_);
    large_keys_ |= !good;
  }
}

void WideOperands::LoadValues(const KeyTile& tile) {
  values_finite_ = true;
  for (int64_t k = 0; k < tile.count; ++k) {
    kernels_.widen_rows(
        RowsOf(tile.block->value, batch_, kv_head_, tile.first + k), 1,
        problem_.value_width, narrow_, value_stride_, value_stride_);
    const bool finite = kernels_.widen_to_double(narrow_, value_stride_,
                                                 values_ + k * value_stride_);
    value_finite_[k] = finite ? 1 : 0;
    values_finite_ &= finite;
  }
}

void WideOperands::SetGroup(int64_t first, WideArgs& args) {
  args.queries = queries_ + first * width_;
  args.keys = keys_;
  args.key_stride = key_columns_;
  args.values = values_;
  args.value_width = value_stride_;
  args.value_finite = values_finite_ ? nullptr : value_finite_;
  if (exact_ == nullptr) return;
  args.tanh_weights = w_v_;
  args.query_exponentials = query_exponentials_ + first * width_;
  args.key_exponentials = key_exponentials_;
  args.exact = exact_;
  // An infinite w_v cannot be taken apart into the sum of all and what is
  // subtracted from it.
  const bool exact = large_keys_ || !std::isfinite(args.tanh_weight_sum);
  for (int64_t n = 0; n < kWideRows; ++n) {
    exact_[n] = exact || large_[first + n] != 0 ? 1 : 0;
  }
}

}  // namespace attention::cpu
