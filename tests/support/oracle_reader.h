#ifndef ATTENTION_TESTS_SUPPORT_ORACLE_READER_H_
#define ATTENTION_TESTS_SUPPORT_ORACLE_READER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/numeric/int128.h"
#include "core/problem.h"

namespace attention::test {

/// One element, widened to FP64: FP32, FP16, BF16, FP8, INT8, INT32, INT64,
/// BOOL, UINT8.
double ReadElement(DataType type, const std::byte* address);

/// A problem's tensors by (b, h, i) and (b, h, j), whatever rank and blocks it
/// has, for the oracle.
class ProblemReader {
 public:
  explicit ProblemReader(const AttentionProblem& problem);

  int64_t batch() const { return rank_ == 2 ? 1 : problem_.query.shape[0]; }
  int64_t query_heads() const { return HeadsOf(problem_.query); }
  int64_t query_length() const { return problem_.query.shape[rank_ - 2]; }
  int64_t key_length() const { return static_cast<int64_t>(places_.size()); }
  int64_t value_width() const;

  std::vector<double> Query(int64_t b, int64_t h, int64_t i) const {
    return Row(problem_.query, b, h, i);
  }
  const std::vector<double>& Key(int64_t b, int64_t query_head,
                                 int64_t j) const {
    return keys_[PlaceOf(b, query_head, j)];
  }
  const std::vector<double>& Value(int64_t b, int64_t query_head,
                                   int64_t j) const {
    return values_[PlaceOf(b, query_head, j)];
  }
  /// 0 where there is none.
  double Bias(int64_t b, int64_t h, int64_t i, int64_t j) const;
  /// What ALiBi adds; 0 where there is none.
  double Alibi(int64_t b, int64_t h, int64_t i, int64_t j) const;
  /// Nothing where the head has none.
  std::optional<double> Sink(int64_t b, int64_t h) const;
  /// After all masks but the bias.
  bool TakesPart(int64_t b, int64_t h, int64_t i, int64_t j) const;

 private:
  struct Place {
    const KeyValueBlock* block;
    int64_t index;
  };

  int64_t HeadsOf(const TensorView& tensor) const {
    return rank_ == 4 ? tensor.shape[1] : 1;
  }
  int64_t KvHeads() const { return HeadsOf(places_[0].block->key); }
  void AppendHeads(const TensorView& tensor,
                   const std::optional<TensorView>& scales, int64_t b,
                   int64_t index, std::vector<std::vector<double>>& rows) const;
  double Scale(const TensorView& scales, int64_t b, int64_t h, int64_t j) const;
  // Of a key, and of a value, in keys_ and values_.
  size_t PlaceOf(int64_t b, int64_t query_head, int64_t j) const;
  std::vector<double> Row(const TensorView& tensor, int64_t b, int64_t h,
                          int64_t i) const;
  double ValidLength(int64_t b, int64_t i) const;
  // p of row i: wide enough for any offset and window.
  absl::int128 Position(int64_t b, int64_t i) const;
  static double OfHead(const TensorView& view, int64_t b, int64_t h);

  const AttentionProblem& problem_;
  int rank_;
  std::vector<Place> places_;
  // Read once, for every row reads them: (b, j, kv head).
  std::vector<std::vector<double>> keys_;
  std::vector<std::vector<double>> values_;
};

}  // namespace attention::test

#endif  // ATTENTION_TESTS_SUPPORT_ORACLE_READER_H_
