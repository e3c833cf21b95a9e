#include "core/cpu/careful_rows.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/cpu/result_memory.h"
#include "core/element.h"

namespace attention::cpu {
namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

}  // namespace

CarefulRows::CarefulRows(JobRun& run, Scratch& scratch)
    : run_(run),
      problem_(run.problem()),
      kernels_(run.kernels()),
      operands_(problem_, kernels_, run.plan().row_block, scratch),
      masks_(problem_, kernels_, scratch) {
  const int64_t rows = operands_.most_rows();
  ranges_ = scratch.Take<KeyRange>(rows);
  begin_ = scratch.Take<int32_t>(kWideRows);
  end_ = scratch.Take<int32_t>(kWideRows);
  max_ = scratch.Take<double>(rows);
  sum_ = scratch.Take<double>(rows);
  output_ = scratch.Take<double>(rows * operands_.value_stride());
  scores_ = scratch.Take<double>(kWideRows * kWideStride);
}

bool CarefulRows::Compute(int64_t batch, absl::Span<const RowId> rows) {
  if (rows.empty()) return true;
  batch_ = batch;
  operands_.SetHead(batch, rows[0].head, args_);
  while (!rows.empty()) {
    const auto count = static_cast<size_t>(operands_.most_rows());
    SetRows(rows.subspan(0, count));
    if (!ComputeGroups()) return false;
    rows.remove_prefix(std::min(rows.size(), count));
  }
  return true;
}

void CarefulRows::SetRows(absl::Span<const RowId> rows) {
  rows_ = rows;
  operands_.SetRows(rows);
  all_ = {problem_.key_length, 0};
  const auto count = static_cast<int64_t>(rows.size());
  const int64_t padded = (count + kWideRows - 1) / kWideRows * kWideRows;
  std::fill_n(output_, padded * operands_.value_stride(), 0.0);
  for (int64_t r = 0; r < padded; ++r) {
    max_[r] = kMinusInfinity;
    sum_[r] = 0;
    ranges_[r] = {0, 0};
    if (r >= count) continue;
    ranges_[r] = KeysInRange(problem_, batch_, rows[r].query);
    if (ranges_[r].begin == ranges_[r].end) continue;
    all_.begin = std::min(all_.begin, ranges_[r].begin);
    all_.end = std::max(all_.end, ranges_[r].end);
  }
}

absl::Span<const RowId> CarefulRows::GroupOf(int64_t first) const {
  return rows_.subspan(static_cast<size_t>(first), kWideRows);
}

bool CarefulRows::ComputeGroups() {
  const auto rows = static_cast<int64_t>(rows_.size());
  const bool finished = ForEachTile([this, rows](const KeyTile& tile) {
    operands_.LoadKeys(tile);
    operands_.LoadValues(tile);
    for (int64_t r = 0; r < rows; r += kWideRows) {
      SetGroup(r, tile);
      masks_.SetDropout(batch_, GroupOf(r), tile, args_);
      kernels_.wide_attend(args_);
    }
  });
  if (!finished || !AverageEmptyRows()) return false;
  for (int64_t r = 0; r < rows; ++r) StoreRow(r);
  return !problem_.wanted.weights || StoreWeights();
}

template <typename Visit>
bool CarefulRows::ForEachTile(const Visit& visit) {
  const int64_t keys = operands_.tile_keys();
  const auto for_each = [this, keys](const auto& at) {
    for (const ValidatedProblem::Block& block : problem_.key_value) {
      const int64_t begin = std::max<int64_t>(0, all_.begin - block.first_key);
      const int64_t end = std::min(block.key_count, all_.end - block.first_key);
      // At multiples of the size, whatever the ranges of the rows.
      for (int64_t first = begin / keys * keys; first < end; first += keys) {
        if (!at(KeyTile{&block, first, std::min(keys, block.key_count - first),
                        block.first_key + first})) {
          return false;
        }
      }
    }
    return true;
  };
  int64_t tiles = 0;
  for_each([&tiles](const KeyTile&) { return ++tiles > 0; });
  run_.ExpectTiles(tiles);
  return for_each([this, &visit](const KeyTile& tile) {
    if (!run_.BeginTile()) return false;
    visit(tile);
    return true;
  });
}

void CarefulRows::SetGroup(int64_t first, const KeyTile& tile) {
  for (int64_t n = 0; n < kWideRows; ++n) {
    const auto clamp = [&tile](int64_t key) {
      return static_cast<int32_t>(
          std::clamp<int64_t>(key - tile.first_key, 0, tile.count));
    };
    begin_[n] = clamp(ranges_[first + n].begin);
    end_[n] = clamp(ranges_[first + n].end);
  }
  args_.begin = begin_;
  args_.end = end_;
  args_.max = max_ + first;
  args_.sum = sum_ + first;
  args_.output = output_ + first * operands_.value_stride();
  args_.scores = scores_;
  operands_.SetGroup(first, args_);
  masks_.SetAddends(batch_, GroupOf(first), tile, args_);
}

double CarefulRows::DropoutFactor(int64_t row, int64_t key) const {
  return masks_.DropoutFactor(batch_, rows_[row], key);
}

// A row in which no key takes part, where all values count.
bool CarefulRows::IsAveraged(int64_t row) const {
  return problem_.empty_rows == EmptyRows::kUniform &&
         row < static_cast<int64_t>(rows_.size()) && sum_[row] == 0;
}

bool CarefulRows::AverageEmptyRows() {
  const auto rows = static_cast<int64_t>(rows_.size());
  bool any = false;
  for (int64_t r = 0; r < rows; ++r) any |= IsAveraged(r);
  if (!any) return true;
  const KeyRange attended = all_;
  all_ = {0, problem_.key_length};  // masked keys count here
  const bool finished = ForEachTile([this, rows](const KeyTile& tile) {
    operands_.LoadValues(tile);
    for (int64_t r = 0; r < rows; r += kWideRows) {
      SetGroup(r, tile);
      SetUniformWeights(r, tile);
      kernels_.wide_average(args_);
    }
  });
  all_ = attended;
  return finished;
}

void CarefulRows::SetUniformWeights(int64_t first, const KeyTile& tile) {
  const double weight = 1 / static_cast<double>(problem_.key_length);
  for (int64_t n = 0; n < kWideRows; ++n) {
    const bool averaged = IsAveraged(first + n);
    begin_[n] = 0;
    end_[n] = averaged ? static_cast<int32_t>(tile.count) : 0;
    double* const to = scores_ + n * kWideStride;
    for (int64_t j = 0; j < tile.count; ++j) {
      const double kept =
          averaged ? DropoutFactor(first + n, tile.first_key + j) : 0;
      // A negative 0 is a key whose value is left out, not multiplied.
      to[j] = kept == 0 ? -0.0 : weight * kept;
    }
  }
}

int64_t CarefulRows::ResultOf(int64_t row) const {
  return ResultRow(problem_, batch_, rows_[row]);
}

float* CarefulRows::WeightRow(int64_t row) const {
  return reinterpret_cast<float*>(run_.outputs().weights.data) +
         ResultOf(row) * problem_.key_length;
}

void CarefulRows::StoreRow(int64_t row) const {
  const DataType type = problem_.query.type;
  const int64_t width = problem_.value_width;
  const double* from = output_ + row * operands_.value_stride();
  const double normalizer = sum_[row] == 0 ? 1 : 1 / sum_[row];
  std::byte* to =
      run_.outputs().output.data + ResultOf(row) * width * ByteSize(type);
  for (int64_t i = 0; i < width; ++i) {
    StoreElement(type, from[i] * normalizer, to + i * ByteSize(type));
  }
  if (!problem_.wanted.lse) return;
  const double lse =
      sum_[row] == 0 ? kMinusInfinity : max_[row] + std::log(sum_[row]);
  StoreFloat(static_cast<float>(lse),
             reinterpret_cast<float*>(run_.outputs().lse.data) + ResultOf(row));
}

bool CarefulRows::StoreWeights() {
  const auto rows = static_cast<int64_t>(rows_.size());
  for (int64_t r = 0; r < rows; ++r) FillWeights(r, WeightRow(r));
  return ForEachTile([this, rows](const KeyTile& tile) {
    operands_.LoadKeys(tile);
    for (int64_t r = 0; r < rows; r += kWideRows) {
      SetGroup(r, tile);
      args_.dropout = nullptr;
      if (problem_.wanted.weights_after_dropout) {
        masks_.SetDropout(batch_, GroupOf(r), tile, args_);
      }
      kernels_.wide_weights(args_);
      StoreTileWeights(r, tile);
    }
  });
}

void CarefulRows::FillWeights(int64_t row, float* to) const {
  const bool averaged = IsAveraged(row);
  const double weight = 1 / static_cast<double>(problem_.key_length);
  for (int64_t j = 0; j < problem_.key_length; ++j) {
    double result = averaged ? weight : 0;
    if (averaged && problem_.wanted.weights_after_dropout) {
      result *= DropoutFactor(row, j);
    }
    StoreFloat(static_cast<float>(result), to + j);
  }
}

void CarefulRows::StoreTileWeights(int64_t first, const KeyTile& tile) {
  for (int64_t n = 0; n < kWideRows; ++n) {
    if (begin_[n] >= end_[n] || sum_[first + n] == 0) continue;
    float* const to = WeightRow(first + n) + tile.first_key;
    const double* const from = scores_ + n * kWideStride;
    for (int64_t j = begin_[n]; j < end_[n]; ++j) {
      StoreFloat(static_cast<float>(from[j]), to + j);
    }
  }
}

}  // namespace attention::cpu
