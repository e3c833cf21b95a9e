#ifndef ATTENTION_CORE_PHILOX_H_
#define ATTENTION_CORE_PHILOX_H_

#include <array>
#include <cstdint>

#include "absl/types/span.h"

namespace attention {

/// Philox4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel Random Numbers: As Easy
/// as 1, 2, 3", SC 2011): four random words that depend on nothing but counter
/// and key.
std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter,
                                   std::array<uint32_t, 2> key);

/// Decides which weights dropout takes away. Element (b, h, i, j) is dropped
/// when word j mod 4 of Philox with key (low, high half of seed) and counter (j
/// / 4, i, h, b) is below floor(p * 2^32): the same on every backend, with any
/// number of threads and in any batch that holds the element at the same b.
/// Indices enter by their low 32 bits.
class DropoutPattern {
 public:
  /// 0 <= p < 1. With p = 0 nothing is dropped.
  DropoutPattern(double p, uint64_t seed);

  bool active() const { return p_ > 0; }
  /// What the weights that stay are multiplied by: 1 / (1 - p).
  double scale() const { return 1 / (1 - p_); }

  /// Sets factors[n] to what dropout multiplies the weight of key first_key + n
  /// by: 0 where it is dropped, scale() elsewhere. Philox runs once for the
  /// four keys that share a counter.
  void FillFactors(int64_t batch, int64_t head, int64_t row, int64_t first_key,
                   absl::Span<float> factors) const;
  void FillFactors(int64_t batch, int64_t head, int64_t row, int64_t first_key,
                   absl::Span<double> factors) const;

 private:
  template <typename Float>
  void Fill(int64_t batch, int64_t head, int64_t row, int64_t first_key,
            absl::Span<Float> factors) const;
  // The words of keys 4 * block ... 4 * block + 3.
  std::array<uint32_t, 4> Words(int64_t batch, int64_t head, int64_t row,
                                int64_t block) const;

  double p_;
  uint64_t threshold_;
  std::array<uint32_t, 2> key_;
};

}  // namespace attention

#endif  // ATTENTION_CORE_PHILOX_H_
