#include "core/cpu/rows/row_pass.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/cpu/rows/prefetch.h"
#include "core/cpu/rows/result_memory.h"
#include "core/softmax_state.h"

namespace attention::cpu {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
constexpr double kLn2 = 0.6931471805599453;

}  // namespace

void RowPass::TakeMemory(Scratch& scratch) {
  const int64_t rows = plan_.row_block;
  max_ = scratch.Take<float>(rows);
  sum_ = scratch.Take<double>(rows);
  inverse_ = scratch.Take<float>(rows);
  weight_rows_ = scratch.Take<float*>(rows);
  output_rows_ = scratch.Take<unsigned char*>(rows);
  output_ = scratch.Take<float>(OutputRows() * plan_.padded_value_width);
  args_.scores = scratch.Take<float>(kScoreRows * kScoreStride);
  args_.weights = scratch.Take<float>(kMaxMicroRows * kScoreStride);
}

void RowPass::Begin() {
  args_.rows = rows_.count();
  args_.value_width = plan_.padded_value_width;
  args_.max = max_;
  args_.sum = sum_;
  args_.output = output_;
  std::fill_n(max_, rows_.count(), kMinusInfinity);
  std::fill_n(sum_, rows_.count(), 0.0);
  std::fill_n(output_, OutputRows() * plan_.padded_value_width, 0.0F);
  if (plan_.keeps_weights) {
    args_.keep_context = this;
    args_.keep_weights = [](void* context, const TileWeights& weights) {
      static_cast<RowPass*>(context)->KeepWeights(weights);
    };
    args_.keep_after_dropout = problem_.wanted.weights_after_dropout;
  }
  masks_.SetRows(args_);
  if (masks_.all().begin < masks_.all().end) scoring_->SetQueries(rows_);
}

template <typename Visit>
bool RowPass::ForEachTile(const Visit& visit) {
  const int64_t first_key = std::max(masks_.all().begin, keys_.begin);
  const int64_t last_key = std::min(masks_.all().end, keys_.end);
  for (const ValidatedProblem::Block& block : problem_.key_value) {
    const int64_t begin = std::max<int64_t>(0, first_key - block.first_key);
    const int64_t end = std::min(block.key_count, last_key - block.first_key);
    for (int64_t first = begin; first < end; first += plan_.key_tile) {
      if (pass_ != Pass::kAttend) run_.ExpectTiles(1);
      if (!run_.BeginTile()) return false;
      visit(KeyTile{&block, first, std::min(plan_.key_tile, end - first),
                    block.first_key + first});
    }
  }
  return true;
}

void RowPass::SetKeys(const KeyTile& tile) {
  args_.keys = tile.count;
  scoring_->SetKeys(
      RowsOf(tile.block->key, rows_.batch(), rows_.kv_head(), tile.first),
      tile.count, args_);
  masks_.SetTile(tile, args_);
}

void RowPass::AttendTile(const KeyTile& tile) {
  SetKeys(tile);
  values_.SetPacked(rows_, tile, args_);
  if (plan_.keeps_weights) {
    kept_.BeginTile(tile);
    last_tile_ = tile.first_key + tile.count == masks_.all().end;
  }
  SetPrefetch(run_.job(), plan_, rows_, masks_.all(), tile, args_);
  (bf16_ ? kernels_.attend_bf16 : kernels_.attend_tile)(args_);
}

void RowPass::DecodeTile(const KeyTile& tile) {
  const RowSource keys =
      RowsOf(tile.block->key, rows_.batch(), rows_.kv_head(), tile.first);
  const RowSource values =
      RowsOf(tile.block->value, rows_.batch(), rows_.kv_head(), tile.first);
  const bool widen = !values_.IsReadable(keys, problem_.key_width) ||
                     !values_.IsReadable(values, problem_.value_width);
  args_.keys = tile.count;
  scoring_->SetKeyRows(keys, tile.count, widen, args_);
  values_.SetRows(values, tile.count, widen, args_);
  masks_.SetTile(tile, args_);
  kernels_.attend_rows(args_);
}

bool RowPass::Sweep() {
  return ForEachTile([this](const KeyTile& tile) {
    plan_.decode ? DecodeTile(tile) : AttendTile(tile);
  });
}

void RowPass::KeepWeights(const TileWeights& weights) {
  if (!last_tile_) return kept_.Keep(weights, max_);
  for (int64_t n = 0; n < weights.rows; ++n) {
    const int64_t row = weights.first_row + n;
    if (!IsStored(row)) continue;
    double sum = sum_[row];
    WithSink(row, sum);
    kept_.Store(row, weights, max_[row], sum, WeightRow(row));
  }
}

// Weights that were kept are stored by now, and good but for rows that are NaN,
// in which those of keys that take no part have to be told from the others, and
// for rows without a tile.
bool RowPass::StoreWeights() {
  if (!plan_.keeps_weights) return SweepWeights(/*of_nan_rows=*/false);
  KeptWeights::FlushStores();
  bool any_nan = false;
  for (int64_t r = 0; r < rows_.count(); ++r) {
    if (!IsStored(r)) continue;
    any_nan = any_nan || std::isnan(sum_[r]);
    if (!last_tile_) StoreZeros(WeightRow(r), problem_.key_length);
  }
  return !any_nan || SweepWeights(/*of_nan_rows=*/true);
}

bool RowPass::SweepWeights(bool of_nan_rows) {
  for (int64_t r = 0; r < rows_.count(); ++r) {
    weight_rows_[r] = nullptr;
    if (!IsStored(r) || (of_nan_rows && !std::isnan(sum_[r]))) continue;
    weight_rows_[r] = WeightRow(r);
    StoreZeros(weight_rows_[r], problem_.key_length);
    inverse_[r] = static_cast<float>(1 / sum_[r]);
  }
  std::vector<float*> of_tile(static_cast<size_t>(rows_.count()));
  return ForEachTile([&](const KeyTile& tile) {
    if (of_nan_rows) run_.ExpectTiles(1);
    SetKeys(tile);
    std::transform(weight_rows_, weight_rows_ + rows_.count(), of_tile.begin(),
                   [&tile](float* row) {
                     return row == nullptr ? nullptr : row + tile.first_key;
                   });
    (bf16_ ? kernels_.store_weights_bf16 : kernels_.store_weights)(
        args_, {.inverse_sum = inverse_,
                .weights = of_tile.data(),
                .after_dropout = problem_.wanted.weights_after_dropout});
  });
}

// A row's sink comes after its keys: its sum then counts it, still relative to
// the keys' maximum. A row without keys keeps its sum of 0.
RowPass::Softmax RowPass::WithSink(int64_t row, double& sum) const {
  Softmax state{max_[row], sum_[row]};
  if (!problem_.sinks) return state;
  const bool empty = state.empty();
  const auto factors = state.Add((SinkOf(row) - ShiftOf(row)) / kLn2);
  if (!empty) sum = state.sum / factors.mine;
  return state;
}

void RowPass::FinishSoftmax() {
  if (!problem_.sinks && !problem_.wanted.lse) return;
  for (int64_t r = 0; r < rows_.count(); ++r) {
    const Softmax state = WithSink(r, sum_[r]);
    if (!problem_.wanted.lse || !IsStored(r)) continue;
    const bool empty = state.empty() || pass_ == Pass::kUniform;
    StoreLogSumExp(r,
                   empty ? -std::numeric_limits<double>::infinity()
                         : state.max * kLn2 + std::log(state.sum) + ShiftOf(r));
  }
}

void RowPass::StoreLogSumExp(int64_t row, double lse) const {
  StoreFloat(
      static_cast<float>(lse),
      reinterpret_cast<float*>(run_.outputs().lse.data) + rows_.ResultOf(row));
}

void RowPass::StoreOutput() {
  const int64_t row_bytes =
      problem_.value_width * ByteSize(problem_.query.type);
  auto* output = reinterpret_cast<unsigned char*>(run_.outputs().output.data);
  for (int64_t r = 0; r < rows_.count(); ++r) {
    output_rows_[r] =
        IsStored(r) ? output + rows_.ResultOf(r) * row_bytes : nullptr;
  }
  kernels_.finish_rows({.rows = rows_.count(),
                        .width = problem_.value_width,
                        .output = output_,
                        .output_stride = plan_.padded_value_width,
                        .sum = sum_,
                        .type = ElementOf(problem_.query.type),
                        .to = output_rows_});
}

Pass RowPass::PassOf(int64_t row) const {
  if (sum_[row] == 0) {
    const bool uniform = problem_.empty_rows == EmptyRows::kUniform &&
                         problem_.key_length > 0 &&
                         SinkOf(row) == kMinusInfinity;
    return uniform ? Pass::kUniform : Pass::kAttend;
  }
  return scoring_->LostRow(row, sum_[row]) ? Pass::kDifferences : Pass::kAttend;
}

bool RowPass::Finish(Remaining& remaining) {
  values_.AddNonFinite(rows_, masks_, output_);
  FinishSoftmax();
  if (problem_.wanted.weights && !StoreWeights()) return false;
  StoreOutput();
  if (pass_ == Pass::kUniform) return true;
  for (int64_t r = 0; r < rows_.count(); ++r) {
    const Pass pass = PassOf(r);
    if (pass == Pass::kAttend) continue;
    remaining.resize(static_cast<size_t>(rows_.count()), Pass::kAttend);
    remaining[static_cast<size_t>(r)] = pass;
  }
  return true;
}

bool RowPass::Run(Remaining& remaining) {
  Begin();
  return Sweep() && Finish(remaining);
}

bool RowPass::RunSplit(int64_t split, float* partial) {
  keys_.begin = split * plan_.keys_per_split;
  keys_.end = std::min(problem_.key_length, keys_.begin + plan_.keys_per_split);
  Begin();
  if (!Sweep()) return false;
  if (values_.met_non_finite()) run_.SetMetNonFinite();
  const int64_t width = plan_.padded_value_width;
  for (int64_t r = 0; r < rows_.count(); ++r) {
    float* to = partial + r * plan_.partial_floats();
    to[0] = max_[r];
    to[1] = static_cast<float>(sum_[r]);
    std::copy_n(output_ + r * width, width, to + 2);
  }
  return true;
}

bool RowPass::RunMerge(const float* partials, Remaining& remaining) {
  Begin();
  if (run_.met_non_finite()) values_.SetMetNonFinite();
  const int64_t width = plan_.padded_value_width;
  for (int64_t r = 0; r < rows_.count(); ++r) {
    Softmax state;
    float* const output = output_ + r * width;
    for (int64_t split = 0; split < plan_.splits; ++split) {
      const float* from =
          partials + (split * rows_.count() + r) * plan_.partial_floats();
      const auto factors = state.Merge({from[0], from[1]});
      const auto mine = static_cast<float>(factors.mine);
      const auto other = static_cast<float>(factors.other);
      for (int64_t i = 0; i < width; ++i) {
        output[i] = output[i] * mine + from[2 + i] * other;
      }
    }
    max_[r] = static_cast<float>(state.max);
    sum_[r] = state.sum;
  }
  return Finish(remaining);
}

}  // namespace attention::cpu
