#ifndef ATTENTION_CORE_CPU_KEY_SUMS_H_
#define ATTENTION_CORE_CPU_KEY_SUMS_H_

#include <cstdint>
#include <memory>

#include "core/cpu/plan.h"
#include "core/result_places.h"
#include "core/validate.h"

namespace attention::cpu {

/// The sums of the weights that each key receives from a head's rows
/// (WantedOutputs::key_weights). A chunk of row blocks (Plan) sums its rows in
/// their order, then the chunks of a head are added in theirs: bits do not
/// depend on threads, nor memory on how many rows there are. In FP64, as equal
/// weights in FP32 round the same way row after row.
class KeySums {
 public:
  /// No memory yet. Empty unless the problem asks for them.
  KeySums(const ValidatedProblem& problem, const Plan& plan)
      : problem_(problem), plan_(plan) {}

  /// Bytes of memory that Allocate() takes, which may throw std::bad_alloc.
  int64_t Bytes() const;
  void Allocate();

  /// Heads that Store() is called for: all, or none.
  int64_t heads() const;

  /// Before a chunk's first block. Chunks may be computed at once.
  void Clear(int64_t chunk);
  /// What a block of rows adds its weights to: Lk sums, those of its chunk.
  double* OfBlock(int64_t block) const;
  /// When all chunks are computed: stores the sums of a head of a batch entry,
  /// 0 <= index < heads().
  void Store(int64_t index, const ResultPlaces& places) const;

 private:
  double* OfChunk(int64_t chunk) const {
    return &sums_[static_cast<size_t>(chunk * problem_.key_length)];
  }

  const ValidatedProblem& problem_;
  const Plan& plan_;
  std::unique_ptr<double[]> sums_;  // [chunk][key]
};

}  // namespace attention::cpu

#endif  // ATTENTION_CORE_CPU_KEY_SUMS_H_
