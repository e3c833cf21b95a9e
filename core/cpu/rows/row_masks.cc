#include "core/cpu/rows/row_masks.h"

#include <algorithm>

#include "absl/types/span.h"
#include "core/cpu/row_source.h"

namespace attention::cpu {
RowMasks::RowMasks(const ValidatedProblem& problem, const Plan& plan,
                   const BlockRows& rows, Pass pass, Scratch& scratch)
    : problem_(problem),
      rows_(rows),
      all_keys_(pass == Pass::kUniform ||
                (pass == Pass::kScores &&
                 problem.wanted.scores != ScoreStage::kMasked)),
      dropout_(problem.dropout.p, problem.dropout.seed),
      ranges_(scratch.Take<KeyRange>(plan.row_block)),
      begin_(scratch.Take<int32_t>(plan.row_block)),
      end_(scratch.Take<int32_t>(plan.row_block)),
      alibi_slopes_(scratch.Take<float>(plan.row_block)),
      positions_(scratch.Take<double>(plan.row_block)),
      alibi_positions_(scratch.Take<float>(plan.row_block)),
      mask_rows_(scratch.Take<const unsigned char*>(plan.row_block)),
      bias_rows_(scratch.Take<const unsigned char*>(plan.row_block)) {}

void RowMasks::SetRows(TileArgs& args) {
  all_ = {problem_.key_length, 0};
  const bool same = all_keys_ || !HasRangeMask(problem_);
  rows_.ForEach([this, same](int64_t r, int64_t /*head*/, int64_t query) {
    ranges_[r] = same ? KeyRange{0, problem_.key_length}
                      : KeysInRange(problem_, rows_.batch(), query);
    Include(ranges_[r], all_);
  });
  if (problem_.alibi_slopes) SetAlibi();
  if (problem_.attend_mask) SetElements(*problem_.attend_mask, mask_rows_);
  if (problem_.bias) SetElements(*problem_.bias, bias_rows_);
  args.epilogue.begin = begin_;
  args.epilogue.end = end_;
  if (dropout_.active()) args.dropout = {.fill = FillDropout, .context = this};
}

void RowMasks::SetAlibi() {
  rows_.ForEach([this](int64_t r, int64_t head, int64_t query) {
    alibi_slopes_[r] = problem_.AlibiSlope(rows_.batch(), head);
    positions_[r] = RowPosition(problem_, rows_.batch(), query);
  });
}

void RowMasks::SetElements(const TensorView& view,
                           const unsigned char** rows) const {
  rows_.ForEach([&](int64_t r, int64_t head, int64_t query) {
    rows[r] = reinterpret_cast<const unsigned char*>(
        view.At(rows_.batch(), head, query, 0));
  });
}

void RowMasks::SetTile(const KeyTile& tile, TileArgs& args) {
  for (int64_t r = 0; r < rows_.count(); ++r) {
    const auto clamp = [&tile](int64_t key) {
      return static_cast<int32_t>(
          std::clamp<int64_t>(key - tile.first_key, 0, tile.count));
    };
    begin_[r] = clamp(ranges_[r].begin);
    end_[r] = clamp(ranges_[r].end);
  }
  Epilogue& epilogue = args.epilogue;
  epilogue.first_key = tile.first_key;
  epilogue.alibi_slopes = nullptr;
  epilogue.mask_rows = nullptr;
  epilogue.bias_rows = nullptr;
  if (all_keys_) return;
  if (problem_.alibi_slopes) {
    for (int64_t r = 0; r < rows_.count(); ++r) {
      alibi_positions_[r] = static_cast<float>(
          positions_[r] - static_cast<double>(tile.first_key));
    }
    epilogue.alibi_slopes = alibi_slopes_;
    epilogue.alibi_positions = alibi_positions_;
  }
  if (problem_.attend_mask) {
    epilogue.mask_rows = mask_rows_;
    epilogue.mask_stride = problem_.attend_mask->strides[3];
  }
  if (problem_.bias) {
    epilogue.bias_rows = bias_rows_;
    epilogue.bias_stride = problem_.bias->strides[3];
    epilogue.bias_type = ElementOf(problem_.bias->type);
  }
}

void RowMasks::FillDropout(const void* context, int64_t row, int64_t first_key,
                           int64_t count, float* factors) {
  const auto& masks = *static_cast<const RowMasks*>(context);
  const BlockRows& rows = masks.rows_;
  masks.dropout_.FillFactors(
      masks.problem_.packed_entry + rows.batch(), rows.HeadOf(row),
      rows.QueryOf(row), first_key,
      absl::MakeSpan(factors, static_cast<size_t>(count)));
}

}  // namespace attention::cpu
