#ifndef ATTENTION_CORE_RESULT_PLACES_H_
#define ATTENTION_CORE_RESULT_PLACES_H_

#include <cstddef>
#include <cstdint>

#include "core/problem.h"
#include "core/validate.h"

namespace attention {

/// Where the results of each row go. Addresses of what is not wanted are not to
/// be used.
class ResultPlaces {
 public:
  ResultPlaces(const ValidatedProblem& problem, const AttentionOutputs& outputs)
      : output_(PlacesOf(problem, outputs.output,
                         problem.value_width * ByteSize(problem.query.type),
                         /*rank=*/4)),
        weights_(PlacesOf(problem, outputs.weights,
                          problem.key_length * kFloatBytes, /*rank=*/0)),
        lse_(PlacesOf(problem, outputs.lse, kFloatBytes, /*rank=*/3)),
        top_k_indices_(PlacesOf(
            problem, outputs.top_k_indices,
            problem.wanted.top_k.value_or(0) * ByteSize(DataType::kInt64),
            /*rank=*/4)),
        top_k_weights_(PlacesOf(problem, outputs.top_k_weights,
                                problem.wanted.top_k.value_or(0) * kFloatBytes,
                                /*rank=*/4)),
        key_weights_(PlacesOf(problem, outputs.key_weights,
                              problem.key_length * kFloatBytes, /*rank=*/3,
                              /*rows=*/1)),
        scores_(PlacesOf(problem, outputs.scores,
                         problem.key_length * kFloatBytes, /*rank=*/0)) {}

  /// Of a row's first number: of `Dv` of the query's type, of `Lk` floats, of
  /// one float, of k integers of 64 bits, of k floats, and of `Lk` floats.
  std::byte* Output(int64_t batch, int64_t head, int64_t row) const {
    return output_.At(batch, head, row);
  }
  std::byte* Weights(int64_t batch, int64_t head, int64_t row) const {
    return weights_.At(batch, head, row);
  }
  std::byte* Lse(int64_t batch, int64_t head, int64_t row) const {
    return lse_.At(batch, head, row);
  }
  std::byte* TopKIndices(int64_t batch, int64_t head, int64_t row) const {
    return top_k_indices_.At(batch, head, row);
  }
  std::byte* TopKWeights(int64_t batch, int64_t head, int64_t row) const {
    return top_k_weights_.At(batch, head, row);
  }
  std::byte* Scores(int64_t batch, int64_t head, int64_t row) const {
    return scores_.At(batch, head, row);
  }
  /// Of a head's `Lk` floats.
  std::byte* KeyWeights(int64_t batch, int64_t head) const {
    return key_weights_.At(batch, head, 0);
  }
  /// Bytes from one row's output to the next one's.
  int64_t output_row_stride() const { return output_.row; }

 private:
  static constexpr int64_t kFloatBytes = sizeof(float);

  struct Places {
    std::byte* data = nullptr;
    int64_t batch = 0;  // strides, in bytes
    int64_t head = 0;
    int64_t row = 0;
    std::byte* At(int64_t b, int64_t h, int64_t i) const {
      return data + b * batch + h * head + i * row;
    }
  };

  // By the view's own strides where it has `rank` extents, else row-major.
  static Places PlacesOf(const ValidatedProblem& problem,
                         const MutableTensorView& view, int64_t row_bytes,
                         int rank) {
    return PlacesOf(problem, view, row_bytes, rank, problem.query_length);
  }
  static Places PlacesOf(const ValidatedProblem& problem,
                         const MutableTensorView& view, int64_t row_bytes,
                         int rank, int64_t rows) {
    // Where there is nothing to store: nothing may be added to a null pointer.
    if (view.data == nullptr) return {};
    if (view.rank() == rank && rank > 0) {
      return {view.data, view.strides[0], view.strides[1], view.strides[2]};
    }
    const int64_t head_bytes = rows * row_bytes;
    return {view.data, problem.query_heads * head_bytes, head_bytes, row_bytes};
  }

  Places output_;
  Places weights_;
  Places lse_;
  Places top_k_indices_;
  Places top_k_weights_;
  Places key_weights_;
  Places scores_;
};

}  // namespace attention

#endif  // ATTENTION_CORE_RESULT_PLACES_H_
