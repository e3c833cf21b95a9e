#ifndef ATTENTION_TESTS_UNIT_CPU_KERNELS_KERNEL_PARTS_H_
#define ATTENTION_TESTS_UNIT_CPU_KERNELS_KERNEL_PARTS_H_

#include <cstdint>

#include "core/cpu/kernels/sizes.h"
#include "core/cpu/kernels/tile_args.h"

/// What core's kernels are made of, for tests of each part by itself: what
/// `Kernels` (core/cpu/kernels/kernels.h) does not show already.
namespace attention::cpu {

/// Columns, as they are for all instruction sets.
struct TileColumns {
  int64_t first;  // of whole vectors
  int64_t last;
  int64_t begin;  // of keys
  int64_t end;
};

/// The parts of one instruction set. Everything is a plain struct of numbers
/// and pointers, as the kernels' own arguments are.
struct KernelParts {
  /// A multiply-add is rounded once.
  bool fuses;

  /// to[i] = f(from[i]); count is a multiple of four vectors. 2^x, clamped
  /// before, one vector at a time and four; tanh x.
  void (*exp2)(const float* from, int64_t count, float* to);
  void (*exp2_four)(const float* from, int64_t count, float* to);
  void (*tanh)(const float* from, int64_t count, float* to);
  /// to[i] = m[i] * 2^n[i], likewise.
  void (*scale_by_power)(const float* m, const float* n, int64_t count,
                         float* to);

  /// The first `count` elements from `index` on, less than a vector; zeros up
  /// to a whole one.
  void (*load_part)(Element type, const unsigned char* row, int64_t index,
                    int64_t count, float* to);

  /// Columns of rows 0 ... rows - 1.
  TileColumns (*columns_of_rows)(const Epilogue& epilogue, int64_t rows,
                                 int64_t panel, int64_t vector);
  /// QK before the epilogue, micro-tile by micro-tile: a row of args.rows is
  /// kScoreStride floats of `to`.
  void (*score_packed)(const TileArgs& args, const TileColumns& columns,
                       float* to);
  void (*score_in_place)(const TileArgs& args, const TileColumns& columns,
                         float* to);

  /// From what QK gave to final scores of rows 0 ... args.rows - 1, at most
  /// kMaxMicroRows, in args.scores.
  void (*finish_scores)(const TileArgs& args, const TileColumns& columns);

  /// The softmax of such rows, from the scores in args.scores: weights as
  /// floats, rows of kScoreStride; or in pairs into args.bf16.weights, and as
  /// floats, too, where `weights` is not null.
  void (*softmax)(const TileArgs& args, const TileColumns& columns,
                  float* weights, float* factors);
  void (*softmax_paired)(const TileArgs& args, const TileColumns& columns,
                         float* weights, float* factors);

  /// PV of args.rows rows, with a row of kScoreStride weights and a factor for
  /// each.
  void (*add_packed_values)(const TileArgs& args, const TileColumns& columns,
                            const float* weights, const float* factors);
  /// May change the weights.
  void (*add_values_in_place)(const TileArgs& args, const TileColumns& columns,
                              float* weights, const float* factors);
};

/// Those of one of AvailableTargets().
const KernelParts& KernelPartsOf(int64_t target);

}  // namespace attention::cpu

#endif  // ATTENTION_TESTS_UNIT_CPU_KERNELS_KERNEL_PARTS_H_
