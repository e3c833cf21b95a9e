// What a tile of rows stores, once its softmax is known.

#include <algorithm>

#include "core/element.h"
#include "core/reference/row_tile.h"

namespace attention::reference {

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

void RowTile::FillWeights(const ResultPlaces& places) {
  const int64_t keys = problem_.key_length;
  for (int64_t r = 0; r < rows_; ++r) {
    const bool averaged = problem_.empty_rows == EmptyRows::kUniform &&
                          states_[static_cast<size_t>(r)].empty();
    for (int64_t first = 0; first < keys; first += sizes_.keys) {
      const int64_t count = std::min(sizes_.keys, keys - first);
      absl::Span<const double> kept;
      if (averaged) kept = ReturnedFactors(r, first, count);
      for (int64_t j = 0; j < count; ++j) {
        StoreWeight(places, r, first + j,
                    averaged ? kept[j] / static_cast<double>(keys) : 0);
      }
    }
  }
}

void RowTile::StoreWeights(int64_t first_key, const ResultPlaces& places) {
  for (int64_t r = 0; r < rows_; ++r) {
    const SoftmaxState<double>& state = states_[static_cast<size_t>(r)];
    if (state.empty()) continue;
    const absl::Span<const double> kept =
        ReturnedFactors(r, first_key, scores_.cols());
    for (Eigen::Index j = 0; j < scores_.cols(); ++j) {
      StoreWeight(places, r, first_key + j,
                  state.Weight(scores_(r, j)) * kept[j]);
    }
  }
}

}  // namespace attention::reference
