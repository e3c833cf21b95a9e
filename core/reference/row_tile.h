#ifndef ATTENTION_CORE_REFERENCE_ROW_TILE_H_
#define ATTENTION_CORE_REFERENCE_ROW_TILE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "core/philox.h"
#include "core/problem.h"
#include "core/reference/scorer.h"
#include "core/reference/tile.h"
#include "core/result_places.h"
#include "core/softmax_state.h"
#include "core/top_k.h"
#include "core/validate.h"

namespace attention::reference {

/// Computes the results of a few consecutive rows of one query head: first a
/// sweep over the keys for the output and the log-sum-exp, then, where weights
/// or something that is made of them are wanted, a second one for them, and one
/// more for scores.
class RowTile {
 public:
  /// Rows first_row ... first_row + rows - 1 of (batch, head). The problem must
  /// outlive this.
  RowTile(const ValidatedProblem& problem, TileSizes sizes, int64_t batch,
          int64_t head, int64_t first_row, int64_t rows);

  /// Computes and stores everything; where key_weights are wanted, adds the
  /// rows' weights to the Lk numbers `key_sums`. `next_tile` is called before
  /// each tile of keys; once it answers false, nothing more is computed and Run
  /// answers false.
  bool Run(const ResultPlaces& places, std::vector<double>& key_sums,
           const std::function<bool()>& next_tile);

 private:
  // Calls visit(first key of the tile, keys, values) for every tile of keys in
  // which some row's range lies, in order.
  bool ForEachKeyTile(
      bool with_values, const std::function<bool()>& next_tile,
      absl::FunctionRef<void(int64_t first_key, const Matrix& keys,
                             const Matrix& values)>
          visit);
  // Fills scores_ with final scores: softcap, bias and masks applied; -inf
  // where a key takes no part.
  void ScoreTile(int64_t first_key, const Matrix& keys);
  void MaskRow(int64_t row, int64_t first_key, int64_t count);
  // A score within FP32's range, and what the softcap makes of it.
  double Capped(double score) const;
  void Accumulate(int64_t first_key, const Matrix& values);
  // After all keys: a sink is one more score, without a value.
  void AddSinks();
  bool AverageEmptyRows(const std::function<bool()>& next_tile);
  // What dropout multiplies the weights of `count` keys of a row by, each 1, 0
  // or 1 / (1 - p); until the next call.
  absl::Span<const double> DropoutFactors(int64_t row, int64_t first_key,
                                          int64_t count);
  // The same of the weights that are returned, which may be those before
  // dropout.
  absl::Span<const double> ReturnedFactors(int64_t row, int64_t first_key,
                                           int64_t count);
  void StoreOutput(const ResultPlaces& places) const;
  // The second sweep.
  bool Weigh(const ResultPlaces& places, std::vector<double>& key_sums,
             const std::function<bool()>& next_tile);
  // Takes the weights of a tile's keys; also those of rows without keys, where
  // they are averaged.
  void TakeWeights(int64_t first_key, const ResultPlaces& places,
                   std::vector<double>& key_sums);
  bool IsAveraged(int64_t row) const;
  void StoreWeight(const ResultPlaces& places, int64_t row, int64_t key,
                   double weight) const;
  bool StoreScores(const ResultPlaces& places,
                   const std::function<bool()>& next_tile);

  const ValidatedProblem& problem_;
  TileSizes sizes_;
  int64_t batch_;
  int64_t head_;
  int64_t first_row_;
  int64_t rows_;
  double slope_;  // of ALiBi
  DropoutPattern dropout_;
  std::vector<double> dropout_factors_;
  std::unique_ptr<Scorer> scorer_;
  std::vector<KeyRange> ranges_;              // of each row
  KeyRange all_;                              // spans all of ranges_
  std::vector<SoftmaxState<double>> states_;  // of each row
  Matrix output_;            // (rows, Dv), before normalisation
  Matrix scores_;            // (rows, keys of the tile)
  std::vector<TopK> top_k_;  // of each row, where they are wanted
};

}  // namespace attention::reference

#endif  // ATTENTION_CORE_REFERENCE_ROW_TILE_H_
