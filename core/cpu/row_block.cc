#include "core/cpu/row_block.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <new>
#include <vector>

#include "core/cpu/block_rows.h"
#include "core/cpu/careful_copies.h"
#include "core/cpu/kept_weights.h"
#include "core/cpu/key_tile.h"
#include "core/cpu/result_memory.h"
#include "core/cpu/row_care.h"
#include "core/cpu/scratch.h"
#include "core/cpu/subnormals.h"
#include "core/cpu/tile_operands.h"
#include "core/philox.h"

namespace attention::cpu {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
constexpr double kLn2 = 0.6931471805599453;

// The rows of one block on their way through the kernels.
class RowBlock {
 public:
  RowBlock(JobRun& run, int64_t index, Scratch& scratch)
      : run_(run),
        problem_(run.problem()),
        plan_(run.plan()),
        kernels_(run.kernels()),
        rows_(run.problem(), run.plan(), index),
        operands_(run, rows_, scratch),
        care_(run, rows_, operands_, scratch),
        kept_(run.problem(), run.plan(), run.kernels(), rows_.count(), scratch),
        dropout_(run.problem().dropout.p, run.problem().dropout.seed),
        keys_{0, run.problem().key_length} {
    TakeMemory(scratch);
  }

  /// Everything, from the queries to the stored results. Rows that FP32 does
  /// not serve are added to `careful`.
  bool Run(std::vector<RowId>& careful);
  /// One piece of the keys alone; `partial` takes the rows' states.
  bool RunSplit(int64_t split, float* partial);
  /// The rest, given the states of all pieces, in order.
  bool RunMerge(const float* partials, std::vector<RowId>& careful);

  int64_t batch() const { return rows_.batch(); }

 private:
  void TakeMemory(Scratch& scratch);
  int64_t OutputFloats() const {
    return TileOperands::PaddedRows(plan_) * plan_.padded_value_width;
  }
  void Begin();
  void SetRows();
  template <typename Visit>
  bool ForEachTile(const Visit& visit);
  void SetState(const KeyTile& tile);
  bool Sweep();
  bool StoreWeights();
  float* WeightRow(int64_t row) const {
    return reinterpret_cast<float*>(run_.outputs().weights.data) +
           rows_.ResultOf(row) * problem_.key_length;
  }
  void Finish(std::vector<RowId>& careful);
  void StoreLogSumExp(int64_t row) const;

  static void FillDropout(const void* context, int64_t row, int64_t first_key,
                          int64_t count, float* factors);

  JobRun& run_;
  const ValidatedProblem& problem_;
  const Plan& plan_;
  const Kernels& kernels_;
  const BlockRows rows_;
  TileOperands operands_;
  RowCare care_;
  KeptWeights kept_;
  DropoutPattern dropout_;

  KeyRange keys_;  // that are looked at
  KeyRange all_;   // spans the ranges of all rows

  // Of each row.
  KeyRange* ranges_ = nullptr;
  int32_t* begin_ = nullptr;  // of its range, within the tile
  int32_t* end_ = nullptr;
  float* max_ = nullptr;
  double* sum_ = nullptr;
  float* inverse_ = nullptr;
  float* output_ = nullptr;
  float** weight_rows_ = nullptr;
  unsigned char** output_rows_ = nullptr;
  uint8_t* not_finite_ = nullptr;
  uint8_t* tiny_ = nullptr;

  float* scores_ = nullptr;
};

void RowBlock::TakeMemory(Scratch& scratch) {
  const int64_t rows = plan_.row_block;
  ranges_ = scratch.Take<KeyRange>(rows);
  begin_ = scratch.Take<int32_t>(rows);
  end_ = scratch.Take<int32_t>(rows);
  max_ = scratch.Take<float>(rows);
  sum_ = scratch.Take<double>(rows);
  inverse_ = scratch.Take<float>(rows);
  weight_rows_ = scratch.Take<float*>(rows);
  output_rows_ = scratch.Take<unsigned char*>(rows);
  not_finite_ = scratch.Take<uint8_t>(rows);
  tiny_ = scratch.Take<uint8_t>(rows);
  output_ = scratch.Take<float>(OutputFloats());
  scores_ = scratch.Take<float>((kMaxGroupRows + 2) * kScoreStride);
}

void RowBlock::SetRows() {
  all_ = {problem_.key_length, 0};
  const bool same = !problem_.valid_lens && problem_.causal == Causal::kNone &&
                    !problem_.window.left && !problem_.window.right;
  for (int64_t r = 0; r < rows_.count(); ++r) {
    const KeyRange range =
        same ? KeyRange{0, problem_.key_length}
             : KeysInRange(problem_, rows_.batch(), rows_.QueryOf(r));
    ranges_[r] = range;
    max_[r] = kMinusInfinity;
    sum_[r] = 0;
    if (range.begin == range.end) continue;
    all_.begin = std::min(all_.begin, range.begin);
    all_.end = std::max(all_.end, range.end);
  }
  std::fill_n(output_, OutputFloats(), 0.0F);
}

template <typename Visit>
bool RowBlock::ForEachTile(const Visit& visit) {
  for (const ValidatedProblem::Block& block : problem_.key_value) {
    const int64_t first_key = std::max(all_.begin, keys_.begin);
    const int64_t last_key = std::min(all_.end, keys_.end);
    const int64_t begin = std::max<int64_t>(0, first_key - block.first_key);
    const int64_t end = std::min(block.key_count, last_key - block.first_key);
    for (int64_t first = begin; first < end; first += plan_.key_tile) {
      if (!run_.BeginTile()) return false;
      visit(KeyTile{&block, first, std::min(plan_.key_tile, end - first),
                    block.first_key + first});
    }
  }
  return true;
}

void RowBlock::SetState(const KeyTile& tile) {
  for (int64_t r = 0; r < rows_.count(); ++r) {
    const auto clamp = [&tile](int64_t key) {
      return static_cast<int32_t>(
          std::clamp<int64_t>(key - tile.first_key, 0, tile.count));
    };
    begin_[r] = clamp(ranges_[r].begin);
    end_[r] = clamp(ranges_[r].end);
  }
  TileArgs& args = operands_.args();
  args.rows = rows_.count();
  args.keys = tile.count;
  args.value_width = plan_.padded_value_width;
  args.begin = begin_;
  args.end = end_;
  args.epilogue.first_key = tile.first_key;
  args.dropout_first_key = tile.first_key;
  args.max = max_;
  args.sum = sum_;
  args.output = output_;
  args.scores = scores_;
}

void RowBlock::FillDropout(const void* context, int64_t row, int64_t first_key,
                           int64_t count, float* factors) {
  const auto& block = *static_cast<const RowBlock*>(context);
  const auto kept = static_cast<float>(block.dropout_.scale());
  const int64_t head = block.rows_.HeadOf(row);
  const int64_t query = block.rows_.QueryOf(row);
  for (int64_t j = 0; j < count; ++j) {
    factors[j] =
        block.dropout_.Drops(block.rows_.batch(), head, query, first_key + j)
            ? 0
            : kept;
  }
}

bool RowBlock::Sweep() {
  return ForEachTile([this](const KeyTile& tile) {
    TileArgs& args = operands_.args();
    if (plan_.decode) {
      operands_.FillRowTile(tile);
      SetState(tile);
      kernels_.attend_rows(args);
      return;
    }
    const bool bf16 = operands_.FillPackedTile(tile, /*with_values=*/true);
    SetState(tile);
    if (plan_.keeps_weights) kept_.Keep(tile, args);
    (bf16 ? kernels_.attend_bf16 : kernels_.attend_tile)(args);
  });
}

bool RowBlock::StoreWeights() {
  if (plan_.keeps_weights) {
    for (int64_t r = 0; r < rows_.count(); ++r) {
      kept_.Store(r, max_[r], sum_[r], WeightRow(r));
    }
    KeptWeights::FlushStores();
    return true;
  }
  for (int64_t r = 0; r < rows_.count(); ++r) {
    StoreZeros(WeightRow(r), problem_.key_length);
    inverse_[r] = static_cast<float>(1 / sum_[r]);
  }
  return ForEachTile([this](const KeyTile& tile) {
    const bool bf16 = operands_.FillPackedTile(tile, /*with_values=*/false);
    SetState(tile);
    for (int64_t r = 0; r < rows_.count(); ++r) {
      weight_rows_[r] = WeightRow(r) + tile.first_key;
    }
    (bf16 ? kernels_.store_weights_bf16 : kernels_.store_weights)(
        operands_.args(),
        {.inverse_sum = inverse_,
         .weights = weight_rows_,
         .after_dropout = problem_.wanted.weights_after_dropout});
  });
}

void RowBlock::StoreLogSumExp(int64_t row) const {
  const double natural = max_[row] * kLn2 + std::log(sum_[row]) +
                         operands_.prepare().LogSumExpShift(row);
  StoreFloat(
      sum_[row] == 0 ? kMinusInfinity : static_cast<float>(natural),
      reinterpret_cast<float*>(run_.outputs().lse.data) + rows_.ResultOf(row));
}

void RowBlock::Finish(std::vector<RowId>& careful) {
  const int64_t row_bytes =
      problem_.value_width * ByteSize(problem_.query.type);
  auto* output = reinterpret_cast<unsigned char*>(run_.outputs().output.data);
  for (int64_t r = 0; r < rows_.count(); ++r) {
    output_rows_[r] = output + rows_.ResultOf(r) * row_bytes;
    if (problem_.wanted.lse) StoreLogSumExp(r);
  }
  kernels_.finish_rows({.rows = rows_.count(),
                        .width = problem_.value_width,
                        .output = output_,
                        .output_stride = plan_.padded_value_width,
                        .sum = sum_,
                        .type = ElementOf(problem_.query.type),
                        .to = output_rows_,
                        .not_finite = not_finite_,
                        .tiny = tiny_});
  for (int64_t r = 0; r < rows_.count(); ++r) {
    const RowCare::Result result{.row = r,
                                 .range = ranges_[r],
                                 .max = max_[r],
                                 .sum = sum_[r],
                                 .not_finite = not_finite_[r] != 0,
                                 .tiny = tiny_[r] != 0};
    if (care_.Needs(result)) careful.push_back(rows_.IdOf(r));
  }
}

void RowBlock::Begin() {
  SetRows();
  if (all_.begin >= all_.end) return;
  operands_.SetRows(all_);
  if (dropout_.active()) {
    operands_.args().dropout = FillDropout;
    operands_.args().dropout_context = this;
  }
}

bool RowBlock::Run(std::vector<RowId>& careful) {
  Begin();
  if (!Sweep()) return false;
  if (problem_.wanted.weights && !StoreWeights()) return false;
  Finish(careful);
  return true;
}

bool RowBlock::RunSplit(int64_t split, float* partial) {
  keys_.begin = split * plan_.keys_per_split;
  keys_.end = std::min(problem_.key_length, keys_.begin + plan_.keys_per_split);
  Begin();
  if (!Sweep()) return false;
  const int64_t width = plan_.padded_value_width;
  for (int64_t r = 0; r < rows_.count(); ++r) {
    float* to = partial + r * plan_.partial_floats();
    to[0] = max_[r];
    to[1] = static_cast<float>(sum_[r]);
    std::copy_n(output_ + r * width, width, to + 2);
  }
  return true;
}

bool RowBlock::RunMerge(const float* partials, std::vector<RowId>& careful) {
  Begin();
  const int64_t width = plan_.padded_value_width;
  for (int64_t r = 0; r < rows_.count(); ++r) {
    float* const output = output_ + r * width;
    for (int64_t split = 0; split < plan_.splits; ++split) {
      const float* from =
          partials + (split * rows_.count() + r) * plan_.partial_floats();
      if (from[1] == 0) continue;
      const float top = std::max(max_[r], from[0]);
      const auto factor = [top](float max) {
        return max == top ? 1.0F : std::exp2(max - top);
      };
      const float mine = factor(max_[r]);
      const float other = factor(from[0]);
      sum_[r] = sum_[r] * mine + from[1] * other;
      max_[r] = top;
      for (int64_t i = 0; i < width; ++i) {
        output[i] = output[i] * mine + from[2 + i] * other;
      }
    }
  }
  if (problem_.wanted.weights && !StoreWeights()) return false;
  Finish(careful);
  return true;
}

}  // namespace

namespace {

// Calls work(block, rows that need care) on a block that has its memory, then
// computes those rows; by then the block's memory is theirs.
template <typename Work>
bool WithMemory(JobRun& run, int64_t index, const Work& work) {
  std::byte* const memory = ThreadMemory(run.scratch_bytes());
  if (memory == nullptr) {
    run.SetOutOfMemory();
    return false;
  }
  try {
    std::vector<RowId> careful;
    int64_t batch = 0;
    {
      const SubnormalsAreZero fast;
      Scratch scratch(memory);
      RowBlock block(run, index, scratch);
      batch = block.batch();
      if (!work(block, careful)) return false;
    }
    return ComputeCarefulRows(run, batch, careful);
  } catch (const std::bad_alloc&) {
    run.SetOutOfMemory();
    return false;
  }
}

}  // namespace

size_t RowBlockBytes(JobRun& run) {
  Scratch count;
  const RowBlock block(run, 0, count);
  return count.used();
}

bool ComputeRowBlock(JobRun& run, int64_t index) {
  return WithMemory(run, index,
                    [](RowBlock& block, std::vector<RowId>& careful) {
                      return block.Run(careful);
                    });
}

bool ComputeSplit(JobRun& run, int64_t index, int64_t split, float* partial) {
  return WithMemory(run, index,
                    [split, partial](RowBlock& block, std::vector<RowId>&) {
                      return block.RunSplit(split, partial);
                    });
}

bool MergeSplits(JobRun& run, int64_t index, const float* partials) {
  return WithMemory(run, index,
                    [partials](RowBlock& block, std::vector<RowId>& careful) {
                      return block.RunMerge(partials, careful);
                    });
}

}  // namespace attention::cpu
