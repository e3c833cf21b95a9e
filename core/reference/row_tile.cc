#include "core/reference/row_tile.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/element.h"

namespace attention::reference {
namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

// Scores beyond FP32's range follow FP32 arithmetic: they are infinite. What
// rounds to the largest FP32 number is not beyond it.
double LimitToFloatRange(double score) {
  constexpr double kRoundsToInfinity = 0x1.ffffffp127;
  if (score >= kRoundsToInfinity) return -kMinusInfinity;
  if (score <= -kRoundsToInfinity) return kMinusInfinity;
  return score;
}

}  // namespace

RowTile::RowTile(const ValidatedProblem& problem, TileSizes sizes,
                 int64_t batch, int64_t head, int64_t first_row, int64_t rows)
    : problem_(problem),
      sizes_(sizes),
      batch_(batch),
      head_(head),
      first_row_(first_row),
      rows_(rows),
      slope_(problem.AlibiSlope(batch, head)),
      dropout_(problem.dropout.p, problem.dropout.seed),
      scorer_(MakeScorer(problem, head)),
      all_{problem.key_length, 0},
      states_(static_cast<size_t>(rows)),
      output_(Matrix::Zero(rows, problem.value_width)) {
  for (int64_t r = 0; r < rows; ++r) {
    const KeyRange range = KeysInRange(problem, batch, first_row + r);
    ranges_.push_back(range);
    if (range.begin == range.end) continue;
    all_.begin = std::min(all_.begin, range.begin);
    all_.end = std::max(all_.end, range.end);
  }
  Matrix queries;
  LoadRows(problem.query, batch, head, first_row, rows, queries);
  scorer_->SetQueries(queries);
}

bool RowTile::ForEachKeyTile(
    bool with_values, const std::function<bool()>& next_tile,
    absl::FunctionRef<void(int64_t, const Matrix&, const Matrix&)> visit) {
  const int64_t kv_head = problem_.KvHead(head_);
  Matrix keys;
  Matrix values;
  for (const ValidatedProblem::Block& block : problem_.key_value) {
    const int64_t begin = std::max<int64_t>(0, all_.begin - block.first_key);
    const int64_t end = std::min(block.key_count, all_.end - block.first_key);
    for (int64_t first = begin; first < end; first += sizes_.keys) {
      if (!next_tile()) return false;
      const int64_t count = std::min(sizes_.keys, end - first);
      LoadRows(block.key, batch_, kv_head, first, count, keys);
      if (block.key_scale) {
        ScaleRows(*block.key_scale, batch_, kv_head, first, keys);
      }
      if (with_values) {
        LoadRows(block.value, batch_, kv_head, first, count, values);
        if (block.value_scale) {
          ScaleRows(*block.value_scale, batch_, kv_head, first, values);
        }
      }
      visit(block.first_key + first, keys, values);
    }
  }
  return true;
}

bool RowTile::Run(const ResultPlaces& places, std::vector<double>& key_sums,
                  const std::function<bool()>& next_tile) {
  const bool finished = ForEachKeyTile(
      /*with_values=*/true, next_tile,
      [this](int64_t first_key, const Matrix& keys, const Matrix& values) {
        ScoreTile(first_key, keys);
        Accumulate(first_key, values);
      });
  if (!finished) return false;
  AddSinks();
  if (problem_.empty_rows == EmptyRows::kUniform &&
      !AverageEmptyRows(next_tile)) {
    return false;
  }
  StoreOutput(places);
  if (problem_.wanted.AnyOfWeights() && !Weigh(places, key_sums, next_tile)) {
    return false;
  }
  return !problem_.wanted.scores || StoreScores(places, next_tile);
}

void RowTile::ScoreTile(int64_t first_key, const Matrix& keys) {
  scorer_->Score(keys, scores_);
  for (int64_t r = 0; r < rows_; ++r) MaskRow(r, first_key, keys.rows());
}

double RowTile::Capped(double score) const {
  score = LimitToFloatRange(score);
  if (!problem_.softcap) return score;
  return *problem_.softcap * std::tanh(score / *problem_.softcap);
}

void RowTile::MaskRow(int64_t row, int64_t first_key, int64_t count) {
  const int64_t query = first_row_ + row;
  const KeyRange range = ranges_[static_cast<size_t>(row)];
  const double position = RowPosition(problem_, batch_, query);
  for (int64_t j = 0; j < count; ++j) {
    const int64_t key = first_key + j;
    double& score = scores_(row, j);
    const bool attended =
        key >= range.begin && key < range.end &&
        (!problem_.attend_mask ||
         *problem_.attend_mask->At(batch_, head_, query, key) != std::byte{0});
    if (!attended) {
      score = kMinusInfinity;
      continue;
    }
    score = Capped(score);
    if (problem_.alibi_slopes) {
      const double distance = std::abs(position - static_cast<double>(key));
      score = LimitToFloatRange(score - LimitToFloatRange(slope_ * distance));
    }
    if (problem_.bias) {
      const double bias = LoadElement(
          problem_.bias->type, problem_.bias->At(batch_, head_, query, key));
      // Assigned, not added: a masked NaN must not survive as -inf + NaN.
      score = bias == kMinusInfinity ? bias : LimitToFloatRange(score + bias);
    }
  }
}

void RowTile::Accumulate(int64_t first_key, const Matrix& values) {
  for (int64_t r = 0; r < rows_; ++r) {
    const absl::Span<const double> kept =
        DropoutFactors(r, first_key, values.rows());
    for (Eigen::Index j = 0; j < values.rows(); ++j) {
      // A key that takes no part is left out, not multiplied by 0: its value
      // may be NaN.
      if (scores_(r, j) == kMinusInfinity) continue;
      const auto factors = states_[static_cast<size_t>(r)].Add(scores_(r, j));
      if (factors.mine != 1) output_.row(r) *= factors.mine;
      if (kept[j] == 0) continue;
      output_.row(r) += factors.other * kept[j] * values.row(j);
    }
  }
}

void RowTile::AddSinks() {
  const double sink = problem_.Sink(batch_, head_);
  for (int64_t r = 0; r < rows_; ++r) {
    output_.row(r) *= states_[static_cast<size_t>(r)].Add(sink).mine;
  }
}

absl::Span<const double> RowTile::DropoutFactors(int64_t row, int64_t first_key,
                                                 int64_t count) {
  dropout_factors_.assign(static_cast<size_t>(count), 1);
  if (dropout_.active()) {
    dropout_.FillFactors(problem_.packed_entry + batch_, head_,
                         first_row_ + row, first_key,
                         absl::MakeSpan(dropout_factors_));
  }
  return dropout_factors_;
}

bool RowTile::AverageEmptyRows(const std::function<bool()>& next_tile) {
  const double weight = 1 / static_cast<double>(problem_.key_length);
  const auto is_empty = [](const auto& state) { return state.empty(); };
  if (std::none_of(states_.begin(), states_.end(), is_empty)) return true;
  all_ = {0, problem_.key_length};  // masked keys count here
  return ForEachKeyTile(
      /*with_values=*/true, next_tile,
      [&](int64_t first_key, const Matrix&, const Matrix& values) {
        for (int64_t r = 0; r < rows_; ++r) {
          if (!states_[static_cast<size_t>(r)].empty()) continue;
          const absl::Span<const double> kept =
              DropoutFactors(r, first_key, values.rows());
          for (Eigen::Index j = 0; j < values.rows(); ++j) {
            if (kept[j] == 0) continue;
            output_.row(r) += weight * kept[j] * values.row(j);
          }
        }
      });
}

}  // namespace attention::reference
