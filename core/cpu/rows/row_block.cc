#include "core/cpu/rows/row_block.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <new>
#include <vector>

#include "core/cpu/bf16/bf16_dot_product.h"
#include "core/cpu/flush_subnormals.h"
#include "core/cpu/rows/block_rows.h"
#include "core/cpu/rows/kept_weights.h"
#include "core/cpu/rows/key_tile.h"
#include "core/cpu/rows/prefetch.h"
#include "core/cpu/rows/result_memory.h"
#include "core/cpu/rows/row_masks.h"
#include "core/cpu/rows/values.h"
#include "core/cpu/scoring/scoring.h"
#include "core/cpu/scratch.h"
#include "core/softmax_state.h"

namespace attention::cpu {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
constexpr double kLn2 = 0.6931471805599453;

/// Rows of a block, each with the pass that it is still to be computed in, or
/// kAttend.
using Remaining = std::vector<Pass>;

// Some rows on their way through the kernels.
class RowBlock {
 public:
  /// For a pass other than kAttend, `remaining` has rows.count() elements, and
  /// results are stored for those that it names. Takes its memory from
  /// `scratch`; the others outlive it.
  RowBlock(JobRun& run, const BlockRows& rows, Pass pass, const Pass* remaining,
           Scratch& scratch)
      : run_(run),
        problem_(run.problem()),
        plan_(run.plan()),
        kernels_(run.kernels()),
        rows_(rows),
        pass_(pass),
        remaining_(remaining),
        bf16_(plan_.bf16 && pass == Pass::kAttend),
        scoring_(MakeScoring(problem_, plan_, kernels_, pass, scratch)),
        values_(problem_, plan_, kernels_, pass, scratch),
        masks_(problem_, plan_, rows_, pass, scratch),
        kept_(problem_, plan_, kernels_, rows_.count(), scratch),
        keys_{0, problem_.key_length} {
    TakeMemory(scratch);
  }

  /// Everything, from the queries to the stored results. Rows that another pass
  /// is to compute are told in `remaining`, which is left empty without any.
  bool Run(Remaining& remaining);
  /// One range of the keys alone; `partial` takes the rows' states.
  bool RunSplit(int64_t split, float* partial);
  /// The rest, given the states of all splits, in order.
  bool RunMerge(const float* partials, Remaining& remaining);

 private:
  void TakeMemory(Scratch& scratch);
  void Begin();
  template <typename Visit>
  bool ForEachTile(const Visit& visit);
  void SetKeys(const KeyTile& tile);
  void AttendTile(const KeyTile& tile);
  void DecodeTile(const KeyTile& tile);
  bool Sweep();
  bool Finish(Remaining& remaining);
  bool StoreWeights();
  bool SweepWeights(bool of_nan_rows);
  void FinishSoftmax();
  void StoreOutput();
  void StoreLogSumExp(int64_t row, double lse) const;
  Pass PassOf(int64_t row) const;

  bool IsStored(int64_t row) const {
    return remaining_ == nullptr || remaining_[row] == pass_;
  }
  float SinkOf(int64_t row) const {
    return problem_.Sink(rows_.batch(), rows_.HeadOf(row));
  }
  float* WeightRow(int64_t row) const {
    return reinterpret_cast<float*>(run_.outputs().weights.data) +
           rows_.ResultOf(row) * problem_.key_length;
  }
  int64_t OutputRows() const {
    return bf16_ ? PaddedBf16Rows(plan_.row_block) : plan_.row_block;
  }

  JobRun& run_;
  const ValidatedProblem& problem_;
  const Plan& plan_;
  const Kernels& kernels_;
  const BlockRows rows_;
  const Pass pass_;
  const Pass* const remaining_;
  const bool bf16_;
  std::unique_ptr<Scoring> scoring_;
  Values values_;
  RowMasks masks_;
  KeptWeights kept_;
  KeyRange keys_;  // that are looked at

  // Of each row.
  float* max_ = nullptr;
  double* sum_ = nullptr;
  float* inverse_ = nullptr;
  float* output_ = nullptr;
  float** weight_rows_ = nullptr;
  unsigned char** output_rows_ = nullptr;

  TileArgs args_ = {};
};

void RowBlock::TakeMemory(Scratch& scratch) {
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

void RowBlock::Begin() {
  args_.rows = rows_.count();
  args_.value_width = plan_.padded_value_width;
  args_.max = max_;
  args_.sum = sum_;
  args_.output = output_;
  std::fill_n(max_, rows_.count(), kMinusInfinity);
  std::fill_n(sum_, rows_.count(), 0.0);
  std::fill_n(output_, OutputRows() * plan_.padded_value_width, 0.0F);
  masks_.SetRows(args_);
  if (masks_.all().begin < masks_.all().end) scoring_->SetQueries(rows_);
}

template <typename Visit>
bool RowBlock::ForEachTile(const Visit& visit) {
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

void RowBlock::SetKeys(const KeyTile& tile) {
  args_.keys = tile.count;
  scoring_->SetKeys(
      RowsOf(tile.block->key, rows_.batch(), rows_.kv_head(), tile.first),
      tile.count, args_);
  masks_.SetTile(tile, args_);
}

void RowBlock::AttendTile(const KeyTile& tile) {
  SetKeys(tile);
  values_.SetPacked(rows_, tile, args_);
  if (plan_.keeps_weights) kept_.Keep(tile, args_);
  SetPrefetch(run_.job(), plan_, rows_, masks_.all(), tile, args_);
  (bf16_ ? kernels_.attend_bf16 : kernels_.attend_tile)(args_);
}

void RowBlock::DecodeTile(const KeyTile& tile) {
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

bool RowBlock::Sweep() {
  return ForEachTile([this](const KeyTile& tile) {
    plan_.decode ? DecodeTile(tile) : AttendTile(tile);
  });
}

// Weights that were kept are good but for rows that are NaN, in which those of
// keys that take no part have to be told from the others.
bool RowBlock::StoreWeights() {
  if (!plan_.keeps_weights) return SweepWeights(/*of_nan_rows=*/false);
  bool any_nan = false;
  for (int64_t r = 0; r < rows_.count(); ++r) {
    if (!IsStored(r)) continue;
    any_nan = any_nan || std::isnan(sum_[r]);
    kept_.Store(r, max_[r], sum_[r], WeightRow(r));
  }
  KeptWeights::FlushStores();
  return !any_nan || SweepWeights(/*of_nan_rows=*/true);
}

bool RowBlock::SweepWeights(bool of_nan_rows) {
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
void RowBlock::FinishSoftmax() {
  if (!problem_.sinks && !problem_.wanted.lse) return;
  for (int64_t r = 0; r < rows_.count(); ++r) {
    SoftmaxState<double, PowersOfTwo> state{max_[r], sum_[r]};
    const double shift = state.empty() ? 0 : scoring_->LogSumExpShift(r);
    if (problem_.sinks) {
      const auto factors = state.Add((SinkOf(r) - shift) / kLn2);
      if (sum_[r] != 0) sum_[r] = state.sum / factors.mine;
    }
    if (!problem_.wanted.lse || !IsStored(r)) continue;
    const bool empty = state.empty() || pass_ == Pass::kUniform;
    StoreLogSumExp(r, empty ? -std::numeric_limits<double>::infinity()
                            : state.max * kLn2 + std::log(state.sum) + shift);
  }
}

void RowBlock::StoreLogSumExp(int64_t row, double lse) const {
  StoreFloat(
      static_cast<float>(lse),
      reinterpret_cast<float*>(run_.outputs().lse.data) + rows_.ResultOf(row));
}

void RowBlock::StoreOutput() {
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

Pass RowBlock::PassOf(int64_t row) const {
  if (sum_[row] == 0) {
    const bool uniform = problem_.empty_rows == EmptyRows::kUniform &&
                         problem_.key_length > 0 &&
                         SinkOf(row) == kMinusInfinity;
    return uniform ? Pass::kUniform : Pass::kAttend;
  }
  return scoring_->LostRow(row, sum_[row]) ? Pass::kDifferences : Pass::kAttend;
}

bool RowBlock::Finish(Remaining& remaining) {
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

bool RowBlock::Run(Remaining& remaining) {
  Begin();
  return Sweep() && Finish(remaining);
}

bool RowBlock::RunSplit(int64_t split, float* partial) {
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

bool RowBlock::RunMerge(const float* partials, Remaining& remaining) {
  Begin();
  if (run_.met_non_finite()) values_.SetMetNonFinite();
  const int64_t width = plan_.padded_value_width;
  for (int64_t r = 0; r < rows_.count(); ++r) {
    SoftmaxState<double, PowersOfTwo> state;
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

// Rows that a pass remains for, computed together with those between them.
bool RunPass(JobRun& run, const BlockRows& rows, Pass pass,
             const Remaining& remaining, std::byte* memory) {
  const auto first = std::find(remaining.begin(), remaining.end(), pass);
  if (first == remaining.end()) return true;
  const auto last =
      std::find(remaining.rbegin(), remaining.rend(), pass).base();
  if (pass == Pass::kDifferences) run.SetLostRows();
  const BlockRows some = rows.Some(first - remaining.begin(), last - first);
  Scratch scratch(memory);
  Remaining none;
  return RowBlock(run, some, pass, &*first, scratch).Run(none);
}

// Calls work(block, remaining) on a block that has its memory, then computes
// what remains; by then the block's memory is theirs.
template <typename Work>
bool WithMemory(JobRun& run, int64_t index, const Work& work) {
  const ThreadMemory lease(run.scratch_bytes());
  std::byte* const memory = lease.get();
  if (memory == nullptr) {
    run.SetOutOfMemory();
    return false;
  }
  try {
    const FlushSubnormals fast;
    const BlockRows rows(run.problem(), run.plan(), index);
    Remaining remaining;
    {
      Scratch scratch(memory);
      RowBlock block(run, rows, Pass::kAttend, nullptr, scratch);
      if (!work(block, remaining)) return false;
    }
    return RunPass(run, rows, Pass::kDifferences, remaining, memory) &&
           RunPass(run, rows, Pass::kUniform, remaining, memory);
  } catch (const std::bad_alloc&) {
    run.SetOutOfMemory();
    return false;
  }
}

}  // namespace

size_t RowBlockBytes(JobRun& run) {
  const BlockRows rows(run.problem(), run.plan(), 0);
  size_t bytes = 0;
  for (const Pass pass : {Pass::kAttend, Pass::kDifferences, Pass::kUniform}) {
    if (pass == Pass::kDifferences && !MayLoseRows(run.problem())) continue;
    Scratch count;
    const RowBlock block(run, rows, pass, nullptr, count);
    bytes = std::max(bytes, count.used());
  }
  return bytes;
}

bool ComputeRowBlock(JobRun& run, int64_t index) {
  return WithMemory(run, index, [](RowBlock& block, Remaining& remaining) {
    return block.Run(remaining);
  });
}

bool ComputeSplit(JobRun& run, int64_t index, int64_t split, float* partial) {
  return WithMemory(run, index, [split, partial](RowBlock& block, Remaining&) {
    return block.RunSplit(split, partial);
  });
}

bool MergeSplits(JobRun& run, int64_t index, const float* partials) {
  return WithMemory(run, index,
                    [partials](RowBlock& block, Remaining& remaining) {
                      return block.RunMerge(partials, remaining);
                    });
}

}  // namespace attention::cpu
