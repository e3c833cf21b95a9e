#include "core/cpu/careful_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "core/cpu/prepare.h"
#include "core/cpu/result_memory.h"
#include "core/element.h"

namespace attention::cpu {
namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();
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

CarefulRows::CarefulRows(JobRun& run, Scratch& scratch)
    : run_(run),
      problem_(run.problem()),
      kernels_(run.kernels()),
      dropout_(run.problem().dropout.p, run.problem().dropout.seed) {
  const int64_t lanes = kernels_.lanes;
  const bool additive = std::holds_alternative<Additive>(problem_.scoring);
  const bool bilinear = std::holds_alternative<Bilinear>(problem_.scoring);
  query_stride_ = RoundUp(problem_.query_width, lanes);
  key_stride_ = RoundUp(problem_.key_width, lanes);
  value_stride_ = RoundUp(problem_.value_width, lanes);
  width_ = additive ? problem_.hidden_width : problem_.key_width;
  if (additive) projected_stride_ = RoundUp(width_, lanes);
  if (bilinear) projected_stride_ = key_stride_;
  const int64_t doubles = (additive ? 2 : 1) * width_ + value_stride_;
  most_rows_ =
      std::clamp(kRowDoubles / doubles / kWideRows * kWideRows, kWideRows,
                 std::min(kMostRows, RoundUp(run.plan().row_block, kWideRows)));
  tile_keys_ =
      std::clamp(kKeyDoubles / doubles / lanes * lanes, lanes, kWideKeys);
  // Not a power of two, so that the rows do not fall into the same cache sets.
  key_columns_ = tile_keys_ + lanes;

  ranges_ = scratch.Take<KeyRange>(most_rows_);
  begin_ = scratch.Take<int32_t>(kWideRows);
  end_ = scratch.Take<int32_t>(kWideRows);
  max_ = scratch.Take<double>(most_rows_);
  sum_ = scratch.Take<double>(most_rows_);
  queries_ = scratch.Take<double>(most_rows_ * width_);
  output_ = scratch.Take<double>(most_rows_ * value_stride_);
  keys_ = scratch.Take<double>(width_ * key_columns_);
  values_ = scratch.Take<double>(tile_keys_ * value_stride_);
  value_finite_ = scratch.Take<uint8_t>(kWideKeys);
  scores_ = scratch.Take<double>(kWideRows * kWideStride);
  addends_ = scratch.Take<double>(kWideRows * kWideStride);
  kept_ = scratch.Take<double>(kWideRows * kWideStride);
  const int64_t widest = std::max(query_stride_, key_stride_);
  narrow_ = scratch.Take<float>(
      std::max({kAtOnce * widest, value_stride_, kWideStride}));
  wide_ = scratch.Take<double>(kAtOnce * widest);
  projected_ = scratch.Take<double>(kAtOnce * projected_stride_);
  if (additive || bilinear) {
    w_q_ = scratch.Take<float>(problem_.query_width * projected_stride_);
  }
  if (additive) {
    w_k_ = scratch.Take<float>(problem_.key_width * projected_stride_);
    w_v_narrow_ = scratch.Take<float>(projected_stride_);
    w_v_ = scratch.Take<double>(projected_stride_);
    query_exponentials_ = scratch.Take<double>(most_rows_ * width_);
    key_exponentials_ = scratch.Take<double>(width_ * key_columns_);
    large_ = scratch.Take<uint8_t>(most_rows_);
    exact_ = scratch.Take<uint8_t>(kWideRows);
  }
}

bool CarefulRows::Compute(int64_t batch, absl::Span<const RowId> rows) {
  if (rows.empty()) return true;
  batch_ = batch;
  rows_ = rows;
  kv_head_ = problem_.KvHead(rows[0].head);
  SetHead();
  while (!rows.empty()) {
    const auto count = static_cast<size_t>(most_rows_);
    SetRows(rows.subspan(0, count));
    if (!ComputeGroups()) return false;
    rows.remove_prefix(std::min(rows.size(), count));
  }
  return true;
}

void CarefulRows::SetHead() {
  const int64_t head = rows_[0].head;
  const int64_t stride = projected_stride_;
  args_ = {};
  args_.width = width_;
  args_.score = Score::kDot;
  args_.factor = problem_.scale;
  args_.softcap = problem_.softcap.value_or(0);
  if (const auto* bilinear = std::get_if<Bilinear>(&problem_.scoring)) {
    kernels_.widen_rows(ParameterRows(bilinear->m, head), problem_.query_width,
                        problem_.key_width, w_q_, stride, stride);
  } else if (const auto* gaussian = std::get_if<Gaussian>(&problem_.scoring)) {
    args_.score = Score::kDifference;
    args_.factor = -0.5 / (gaussian->sigma * gaussian->sigma);
  } else if (const auto* additive = std::get_if<Additive>(&problem_.scoring)) {
    args_.score = Score::kTanhExact;
    args_.factor = 1;
    kernels_.widen_rows(ParameterRows(additive->w_q, head),
                        problem_.query_width, width_, w_q_, stride, stride);
    kernels_.widen_rows(ParameterRows(additive->w_k, head), problem_.key_width,
                        width_, w_k_, stride, stride);
    kernels_.widen_rows(ParameterVector(additive->w_v, head), 1, width_,
                        w_v_narrow_, stride, stride);
    kernels_.widen_to_double(w_v_narrow_, stride, w_v_);
    args_.tanh_weight_sum = std::accumulate(w_v_, w_v_ + width_, 0.0);
  }
}

void CarefulRows::SetRows(absl::Span<const RowId> rows) {
  rows_ = rows;
  all_ = {problem_.key_length, 0};
  const int64_t padded = RoundUp(static_cast<int64_t>(rows.size()), kWideRows);
  std::fill_n(queries_, padded * width_, 0.0);
  std::fill_n(output_, padded * value_stride_, 0.0);
  for (int64_t r = 0; r < padded; ++r) {
    max_[r] = kMinusInfinity;
    sum_[r] = 0;
    ranges_[r] = {0, 0};
    if (large_ != nullptr) large_[r] = 0;
    if (r >= static_cast<int64_t>(rows.size())) continue;
    ranges_[r] = KeysInRange(problem_, batch_, rows[r].query);
    SetQuery(r);
    if (ranges_[r].begin == ranges_[r].end) continue;
    all_.begin = std::min(all_.begin, ranges_[r].begin);
    all_.end = std::max(all_.end, ranges_[r].end);
  }
}

// Where a query's first element is among those of its group.
int64_t CarefulRows::PlaceOf(int64_t row) const {
  return row / kWideRows * kWideRows * width_ + row % kWideRows;
}

void CarefulRows::SetQuery(int64_t row) {
  kernels_.widen_rows(
      RowsOf(problem_.query, batch_, rows_[row].head, rows_[row].query), 1,
      problem_.query_width, narrow_, query_stride_, query_stride_);
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
void CarefulRows::SetExponentials(int64_t row) {
  double* const from = projected_ + projected_stride_;
  const bool good =
      kernels_.wide_exp_twice(projected_, projected_stride_, from);
  large_[row] = good ? 0 : 1;
  double* to = query_exponentials_ + PlaceOf(row);
  for (int64_t i = 0; i < width_; ++i) to[i * kWideRows] = from[i];
}

bool CarefulRows::ComputeGroups() {
  const auto rows = static_cast<int64_t>(rows_.size());
  const bool finished = ForEachTile([this, rows](const Tile& tile) {
    LoadKeys(tile);
    LoadValues(tile);
    for (int64_t r = 0; r < rows; r += kWideRows) {
      SetGroup(r, tile);
      SetDropout(r, tile);
      kernels_.wide_attend(args_);
    }
  });
  if (!finished || !AverageEmptyRows()) return false;
  for (int64_t r = 0; r < rows; ++r) StoreRow(r);
  return !problem_.wanted.weights || StoreWeights();
}

template <typename Visit>
bool CarefulRows::ForEachTile(const Visit& visit) {
  const auto for_each = [this](const auto& at) {
    for (const ValidatedProblem::Block& block : problem_.key_value) {
      const int64_t begin = std::max<int64_t>(0, all_.begin - block.first_key);
      const int64_t end = std::min(block.key_count, all_.end - block.first_key);
      // At multiples of the size, whatever the ranges of the rows.
      for (int64_t first = begin / tile_keys_ * tile_keys_; first < end;
           first += tile_keys_) {
        if (!at(Tile{&block, first,
                     std::min(tile_keys_, block.key_count - first),
                     block.first_key + first})) {
          return false;
        }
      }
    }
    return true;
  };
  int64_t tiles = 0;
  for_each([&tiles](const Tile&) { return ++tiles > 0; });
  run_.ExpectTiles(tiles);
  return for_each([this, &visit](const Tile& tile) {
    if (!run_.BeginTile()) return false;
    visit(tile);
    return true;
  });
}

void CarefulRows::LoadKeys(const Tile& tile) {
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
void CarefulRows::FinishKeys(int64_t count) {
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

void CarefulRows::LoadValues(const Tile& tile) {
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

void CarefulRows::SetGroup(int64_t first, const Tile& tile) {
  for (int64_t n = 0; n < kWideRows; ++n) {
    const auto clamp = [&tile](int64_t key) {
      return static_cast<int32_t>(
          std::clamp<int64_t>(key - tile.first_key, 0, tile.count));
    };
    begin_[n] = clamp(ranges_[first + n].begin);
    end_[n] = clamp(ranges_[first + n].end);
  }
  args_.queries = queries_ + first * width_;
  args_.keys = keys_;
  args_.key_stride = key_columns_;
  args_.begin = begin_;
  args_.end = end_;
  args_.values = values_;
  args_.value_width = value_stride_;
  args_.value_finite = values_finite_ ? nullptr : value_finite_;
  args_.max = max_ + first;
  args_.sum = sum_ + first;
  args_.output = output_ + first * value_stride_;
  args_.scores = scores_;
  SetAddends(first, tile);
  if (exact_ == nullptr) return;
  args_.tanh_weights = w_v_;
  args_.query_exponentials = query_exponentials_ + first * width_;
  args_.key_exponentials = key_exponentials_;
  args_.exact = exact_;
  // An infinite w_v cannot be taken apart into the sum of all and what is
  // subtracted from it.
  const bool exact = large_keys_ || !std::isfinite(args_.tanh_weight_sum);
  for (int64_t n = 0; n < kWideRows; ++n) {
    exact_[n] = exact || large_[first + n] != 0 ? 1 : 0;
  }
}

void CarefulRows::SetAddends(int64_t first, const Tile& tile) {
  args_.addends = nullptr;
  if (!problem_.bias && !problem_.attend_mask) return;
  args_.addends = addends_;
  std::fill_n(addends_, kWideRows * kWideStride, 0.0);
  for (int64_t n = 0; n < kWideRows; ++n) {
    if (begin_[n] >= end_[n]) continue;
    const RowId& row = rows_[first + n];
    double* const to = addends_ + n * kWideStride;
    if (problem_.bias) {
      const TensorView& bias = *problem_.bias;
      const auto* from = reinterpret_cast<const unsigned char*>(
          bias.At(batch_, row.head, row.query, tile.first_key));
      kernels_.widen_rows({from, 0, bias.strides[3], ElementOf(bias.type)}, 1,
                          tile.count, narrow_, kWideStride,
                          RoundUp(tile.count, kernels_.lanes));
      for (int64_t j = 0; j < tile.count; ++j) to[j] = narrow_[j];
    }
    if (problem_.attend_mask) {
      const TensorView& mask = *problem_.attend_mask;
      const std::byte* from =
          mask.At(batch_, row.head, row.query, tile.first_key);
      for (int64_t j = 0; j < tile.count; ++j) {
        if (from[j * mask.strides[3]] == std::byte{0}) to[j] = kMinusInfinity;
      }
    }
  }
}

double CarefulRows::DropoutFactor(int64_t row, int64_t key) const {
  if (!dropout_.active()) return 1;
  return dropout_.Drops(batch_, rows_[row].head, rows_[row].query, key)
             ? 0
             : dropout_.scale();
}

void CarefulRows::SetDropout(int64_t first, const Tile& tile) {
  args_.dropout = nullptr;
  if (!dropout_.active()) return;
  args_.dropout = kept_;
  std::fill_n(kept_, kWideRows * kWideStride, 1.0);
  for (int64_t n = 0; n < kWideRows; ++n) {
    for (int64_t j = begin_[n]; j < end_[n]; ++j) {
      kept_[n * kWideStride + j] = DropoutFactor(first + n, tile.first_key + j);
    }
  }
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
  const bool finished = ForEachTile([this, rows](const Tile& tile) {
    LoadValues(tile);
    for (int64_t r = 0; r < rows; r += kWideRows) {
      SetGroup(r, tile);
      SetUniformWeights(r, tile);
      kernels_.wide_average(args_);
    }
  });
  all_ = attended;
  return finished;
}

void CarefulRows::SetUniformWeights(int64_t first, const Tile& tile) {
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
  const double* from = output_ + row * value_stride_;
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
  return ForEachTile([this, rows](const Tile& tile) {
    LoadKeys(tile);
    for (int64_t r = 0; r < rows; r += kWideRows) {
      SetGroup(r, tile);
      args_.dropout = nullptr;
      if (problem_.wanted.weights_after_dropout) SetDropout(r, tile);
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

void CarefulRows::StoreTileWeights(int64_t first, const Tile& tile) {
  for (int64_t n = 0; n < kWideRows; ++n) {
    if (begin_[n] >= end_[n] || sum_[first + n] == 0) continue;
    float* const to = WeightRow(first + n) + tile.first_key;
    const double* const from = scores_ + n * kWideStride;
    for (int64_t j = begin_[n]; j < end_[n]; ++j) {
      StoreFloat(static_cast<float>(from[j]), to + j);
    }
  }
}

namespace {

// Copies results of rows of one batch entry.
class RowCopier {
 public:
  RowCopier(const JobRun& run, int64_t batch)
      : problem_(run.problem()), outputs_(run.outputs()), batch_(batch) {}

  void Copy(RowId from, RowId to) const {
    const int64_t element = ByteSize(problem_.query.type);
    CopyRow(outputs_.output.data, problem_.value_width * element, from, to);
    if (problem_.wanted.lse) {
      CopyRow(outputs_.lse.data, sizeof(float), from, to);
    }
    if (problem_.wanted.weights) {
      CopyRow(outputs_.weights.data,
              problem_.key_length * int64_t{sizeof(float)}, from, to);
    }
  }

 private:
  void CopyRow(std::byte* data, int64_t bytes, RowId from, RowId to) const {
    if (bytes == 0) return;
    std::memcpy(data + ResultRow(problem_, batch_, to) * bytes,
                data + ResultRow(problem_, batch_, from) * bytes,
                static_cast<size_t>(bytes));
  }

  const ValidatedProblem& problem_;
  const AttentionOutputs& outputs_;
  const int64_t batch_;
};

bool ComputeRows(JobRun& run, int64_t batch, absl::Span<const RowId> rows) {
  if (rows.empty()) return true;
  Scratch count;
  const CarefulRows counted(run, count);
  std::byte* const memory = ThreadMemory(count.used());
  if (memory == nullptr) {
    run.SetOutOfMemory();
    return false;
  }
  Scratch scratch(memory);
  return CarefulRows(run, scratch).Compute(batch, rows);
}

}  // namespace

bool ComputeCarefulRows(JobRun& run, int64_t batch,
                        absl::Span<const RowId> rows) {
  ZeroRows& zeros = run.zero_rows();
  std::vector<RowId> computed;
  std::map<ZeroRows::Keys, RowId> firsts;       // among those computed
  std::vector<std::pair<RowId, RowId>> copied;  // from, to
  ZeroRows::Keys last_keys;                     // mostly those of the next row
  std::optional<RowId> last;
  for (const RowId row : rows) {
    if (!zeros.Holds(batch, row)) {
      computed.push_back(row);
      continue;
    }
    const ZeroRows::Keys keys = zeros.KeysOf(batch, row);
    if (!last || keys != last_keys) {
      last_keys = keys;
      last = zeros.Find(keys);
    }
    if (!last) {
      const auto [first, is_first] = firsts.emplace(keys, row);
      last = first->second;
      if (is_first) {
        computed.push_back(row);
        continue;
      }
    }
    copied.emplace_back(*last, row);
  }
  if (!ComputeRows(run, batch, computed)) return false;
  for (const auto& [keys, row] : firsts) zeros.Add(keys, row);
  const RowCopier copier(run, batch);
  for (const auto& [from, to] : copied) copier.Copy(from, to);
  return true;
}

}  // namespace attention::cpu
