// What a tile of rows stores, once its softmax is known.

#include <algorithm>
#include <limits>

#include "core/element.h"
#include "core/reference/row_tile.h"

namespace attention::reference {
namespace {

constexpr double kTakesNoPart = -std::numeric_limits<double>::infinity();

}  // namespace

absl::Span<const double> RowTile::ReturnedFactors(int64_t row,
                                                  int64_t first_key,
                                                  int64_t count) {
  if (problem_.wanted.weights_after_dropout) {
    return DropoutFactors(row, first_key, count);
  }
  dropout_factors_.assign(static_cast<size_t>(count), 1);
  return dropout_factors_;
}

void RowTile::StoreOutput(const ResultPlaces& places) const {
  const DataType type = problem_.query.type;
  const int64_t width = problem_.value_width;
  for (int64_t r = 0; r < rows_; ++r) {
    const SoftmaxState<double>& state = states_[static_cast<size_t>(r)];
    const double normalizer = state.empty() ? 1 : state.Normalizer();
    for (int64_t d = 0; d < width; ++d) {
      StoreElement(
          type, output_(r, d) * normalizer,
          places.Output(batch_, head_, first_row_ + r) + d * ByteSize(type));
    }
    if (problem_.wanted.lse) {
      StoreElement(DataType::kFloat32, state.LogSumExp(),
                   places.Lse(batch_, head_, first_row_ + r));
    }
  }
}

void RowTile::StoreWeight(const ResultPlaces& places, int64_t row, int64_t key,
                          double weight) const {
  StoreElement(DataType::kFloat32, weight,
               places.Weights(batch_, head_, first_row_ + row) +
                   key * static_cast<int64_t>(sizeof(float)));
}

bool RowTile::IsAveraged(int64_t row) const {
  return problem_.empty_rows == EmptyRows::kUniform &&
         states_[static_cast<size_t>(row)].empty();
}

bool RowTile::Weigh(const ResultPlaces& places, std::vector<double>& key_sums,
                    const std::function<bool()>& next_tile) {
  for (int64_t r = 0; r < rows_; ++r) {
    const int64_t row = first_row_ + r;
    if (problem_.wanted.top_k) {
      top_k_.emplace_back(*problem_.wanted.top_k,
                          places.TopKIndices(batch_, head_, row),
                          places.TopKWeights(batch_, head_, row));
    }
    for (int64_t key = 0; problem_.wanted.weights && key < problem_.key_length;
         ++key) {
      StoreWeight(places, r, key, 0);
    }
  }
  const bool finished = ForEachKeyTile(
      /*with_values=*/false, next_tile,
      [&](int64_t first_key, const Matrix& keys, const Matrix&) {
        ScoreTile(first_key, keys);
        TakeWeights(first_key, places, key_sums);
      });
  for (TopK& top_k : top_k_) top_k.Finish();
  return finished;
}

void RowTile::TakeWeights(int64_t first_key, const ResultPlaces& places,
                          std::vector<double>& key_sums) {
  for (int64_t r = 0; r < rows_; ++r) {
    const auto row = static_cast<size_t>(r);
    const SoftmaxState<double>& state = states_[row];
    const bool averaged = IsAveraged(r);
    const absl::Span<const double> kept =
        ReturnedFactors(r, first_key, scores_.cols());
    for (Eigen::Index j = 0; j < scores_.cols(); ++j) {
      const bool absent = scores_(r, j) == kTakesNoPart;
      if (absent && !averaged) continue;
      const int64_t key = first_key + j;
      const double weight = averaged
                                ? 1 / static_cast<double>(problem_.key_length)
                                : state.Weight(scores_(r, j));
      if (problem_.wanted.top_k) {
        top_k_[row].Offer(static_cast<float>(weight), key);
      }
      if (problem_.wanted.key_weights) {
        key_sums[static_cast<size_t>(key)] += weight;
      }
      if (problem_.wanted.weights) {
        StoreWeight(places, r, key, weight * kept[j]);
      }
    }
  }
}

// Before masks, of every key; after them, of those in some row's range.
bool RowTile::StoreScores(const ResultPlaces& places,
                          const std::function<bool()>& next_tile) {
  const bool masked = problem_.wanted.scores == ScoreStage::kMasked;
  const bool scaled = problem_.wanted.scores == ScoreStage::kScaled;
  const auto store = [&](int64_t row, int64_t key, double score) {
    StoreElement(DataType::kFloat32, score,
                 places.Scores(batch_, head_, first_row_ + row) +
                     key * static_cast<int64_t>(sizeof(float)));
  };
  for (int64_t r = 0; masked && r < rows_; ++r) {
    for (int64_t key = 0; key < problem_.key_length; ++key) {
      store(r, key, kTakesNoPart);
    }
  }
  if (!masked) all_ = {0, problem_.key_length};
  return ForEachKeyTile(
      /*with_values=*/false, next_tile,
      [&](int64_t first_key, const Matrix& keys, const Matrix&) {
        scorer_->Score(keys, scores_);
        for (int64_t r = 0; r < rows_; ++r) {
          if (masked) MaskRow(r, first_key, keys.rows());
          for (Eigen::Index j = 0; j < keys.rows(); ++j) {
            const double score = scores_(r, j);
            store(r, first_key + j, masked || scaled ? score : Capped(score));
          }
        }
      });
}

}  // namespace attention::reference
