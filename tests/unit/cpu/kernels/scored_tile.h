#ifndef ATTENTION_TESTS_UNIT_CPU_KERNELS_SCORED_TILE_H_
#define ATTENTION_TESTS_UNIT_CPU_KERNELS_SCORED_TILE_H_

#include <cstdint>
#include <vector>

#include "tests/unit/cpu/kernels/kernel_test.h"

namespace attention::cpu {

/// What QK and PV multiply; of products of BF16, in how many terms.
struct TestedOperands {
  Operands operands;
  int64_t terms = 1;
};

/// A tile of one class of operands, in which the score of row r and key j is
/// row_factor(r) * key_scores[j]: products of one element, exact where they
/// have as many bits as BF16. Values are normally distributed numbers of BF16,
/// or of FP16 where they are in two terms.
struct ScoredTile : Tile {
  /// `width`: of the values, a multiple of 32.
  ScoredTile(TestedOperands operands, int64_t rows,
             const std::vector<float>& of_keys, int64_t width,
             const Kernels& kernels, test::Random& random);

  static float row_factor(int64_t row) {
    return static_cast<float>(1 << (row % 3));
  }

  std::vector<float> key_scores;
  Floats values;  // rows of `width`

 private:
  void SetPacked(const Kernels& kernels);
  void SetInPlace(int64_t lanes);
  void SetBf16(int64_t terms);
  void SetBf16InPlace();

  Floats unnormalised_;
  Floats queries_;
  Floats keys_;
  Floats packed_values_;
  Floats paired_weights_;
  std::vector<uint16_t> elements_;  // of keys, then of values
  std::vector<const float*> value_rows_;
  std::vector<const unsigned char*> key_places_;
  std::vector<const unsigned char*> value_places_;
};

/// What dropout makes of a key's weight in these tests: of every fifth,
/// nothing.
inline float DropFactor(int64_t row, int64_t key) {
  return (3 * key + row) % 5 == 0 ? 0.0F : 1.25F;
}
/// Has a tile, whose keys begin at 1,000, drop weights by DropFactor().
inline void SetDropout(Tile& tile) {
  tile.args.epilogue.first_key = 1000;
  tile.args.dropout.fill = [](const void* /*context*/, int64_t row,
                              int64_t first_key, int64_t count,
                              float* factors) {
    for (int64_t j = 0; j < count; ++j) {
      factors[j] = DropFactor(row, first_key + j);
    }
  };
}

inline constexpr TestedOperands kOperands[] = {{Operands::kPacked},
                                               {Operands::kInPlace},
                                               {Operands::kBf16},
                                               {Operands::kBf16, 2},
                                               {Operands::kBf16InPlace}};

}  // namespace attention::cpu

#endif  // ATTENTION_TESTS_UNIT_CPU_KERNELS_SCORED_TILE_H_
