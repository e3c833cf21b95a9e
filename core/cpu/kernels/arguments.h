#ifndef ATTENTION_CORE_CPU_KERNELS_ARGUMENTS_H_
#define ATTENTION_CORE_CPU_KERNELS_ARGUMENTS_H_

#include <cstdint>

#include "core/cpu/kernels/sizes.h"

/// What the vector kernels beside those of a tile (tile_args.h) are given.
namespace attention::cpu {

/// Normalises rows and stores them.
struct FinishArgs {
  int64_t rows;
  int64_t width;
  const float* output;  // output_stride floats apart
  int64_t output_stride;
  const double* sum;
  Element type;
  unsigned char* const* to;  // per row; null: leave it out
};

/// to (+)= from * m, in FP32.
struct ProjectArgs {
  const float* from;  // rows, from_stride floats apart
  int64_t from_stride;
  int64_t rows;
  int64_t depth;
  const float* m;  // depth rows, m_stride floats apart
  int64_t m_stride;
  int64_t columns;  // a multiple of the lanes
  float* to;        // rows, to_stride floats apart
  int64_t to_stride;
  bool add;  // to what `to` holds
};

/// Rows around a centre: to = from - centre, and what that adds to the rows'
/// squared norms.
struct CentreArgs {
  const float* from;  // rows, from_stride floats apart
  int64_t from_stride;
  int64_t rows;
  int64_t width;
  const float* centre;
  float* to;
  int64_t to_stride;
  double* squared_norms;  // per row
};

/// Keys, and elements of a row, of what attend_small takes, at most.
inline constexpr int64_t kSmallKeys = 16;
inline constexpr int64_t kSmallWidth = 64;

/// All rows of one head against all its keys, every one of which takes part.
/// Distances of rows in floats.
struct SmallArgs {
  int64_t rows;
  int64_t keys;  // 1 to kSmallKeys
  int64_t width;
  int64_t value_width;
  const float* query;
  int64_t query_stride;
  const float* key;
  int64_t key_stride;
  const float* value;
  int64_t value_stride;
  /// Makes the softmax one of powers of 2 of the scores.
  float factor;
  float* output;  // rows of value_width floats
  int64_t output_stride;
};

}  // namespace attention::cpu

#endif  // ATTENTION_CORE_CPU_KERNELS_ARGUMENTS_H_
