#ifndef ATTENTION_CORE_CUDA_KERNELS_PROJECT_INL_H_
#define ATTENTION_CORE_CUDA_KERNELS_PROJECT_INL_H_

// Rows times a matrix.

#include "core/cuda/kernels/rows-inl.h"

namespace attention::cuda {

inline constexpr int kProjectSide = kProjectTile;
inline constexpr int kProjectPitch = kProjectSide + 1;
/// Rows of the tile that a thread has, 8 apart; one column.
inline constexpr int kProjectStep = kProjectThreads / kProjectSide;
inline constexpr int kProjectRows = kProjectSide / kProjectStep;

struct ProjectPlace {
  int64_t from;    // element of the first row
  int64_t to;      // likewise
  int64_t matrix;  // element of the head's matrix
  int64_t first_row;
  int64_t first_column;
};

ATTENTION_KERNEL_CODE ProjectPlace MakeProjectPlace(const ProjectArgs& args,
                                                    int64_t index) {
  const int64_t row_tiles = CeilDivide(args.from.length, kProjectTile);
  const int64_t column_tiles = CeilDivide(args.to_width, kProjectTile);
  ProjectPlace place;
  place.first_column = index % column_tiles * kProjectTile;
  index /= column_tiles;
  place.first_row = index % row_tiles * kProjectTile;
  index /= row_tiles;
  const int64_t head = index % args.to_heads;
  const int64_t batch = index / args.to_heads;
  const int64_t from_head = head / (args.to_heads / args.from.heads);
  place.from = (batch * args.from.heads + from_head) * args.from.length *
               int64_t{args.from.width};
  place.to = index * args.from.length * int64_t{args.to_width};
  place.matrix = head * args.matrix_stride;
  return place;
}

ATTENTION_KERNEL_CODE void LoadProjectTiles(const ProjectArgs& args,
                                            const ProjectPlace& place,
                                            int64_t depth, float* rows,
                                            float* matrix) {
  const int column = ThreadIndex() % kProjectSide;
  const int64_t width = args.from.width;
  for (int n = 0; n < kProjectRows; ++n) {
    const int r = ThreadIndex() / kProjectSide + n * kProjectStep;
    const int64_t row = place.first_row + r;
    const int64_t inner = depth + column;
    rows[r * kProjectPitch + column] =
        row < args.from.length && inner < width
            ? LoadFloat(args.from.data, args.from.type,
                        place.from + row * width + inner)
            : 0.0F;
    const int64_t to = place.first_column + column;
    matrix[r * kProjectPitch + column] =
        depth + r < width && to < args.to_width
            ? LoadFloat(args.matrix, args.matrix_type,
                        place.matrix + (depth + r) * args.to_width + to)
            : 0.0F;
  }
}

ATTENTION_KERNEL_CODE void Project(const ProjectArgs& args, int64_t block) {
  auto* const rows = reinterpret_cast<float*>(SharedMemory());
  float* const matrix = rows + kProjectTile * kProjectPitch;
  const ProjectPlace place = MakeProjectPlace(args, block);
  const int column = ThreadIndex() % kProjectSide;
  const int first = ThreadIndex() / kProjectSide;
  float sums[kProjectRows] = {};
  for (int64_t depth = 0; depth < args.from.width; depth += kProjectTile) {
    SyncBlock();
    LoadProjectTiles(args, place, depth, rows, matrix);
    SyncBlock();
    // Not beyond the width: 0 times an infinity of the other factor is NaN.
    const auto count =
        static_cast<int>(Least(kProjectTile, args.from.width - depth));
    for (int i = 0; i < count; ++i) {
      const float factor = matrix[i * kProjectPitch + column];
      for (int n = 0; n < kProjectRows; ++n) {
        sums[n] = Fma(rows[(first + n * kProjectStep) * kProjectPitch + i],
                      factor, sums[n]);
      }
    }
  }
  for (int n = 0; n < kProjectRows; ++n) {
    const int r = first + n * kProjectStep;
    const int64_t row = place.first_row + r;
    const int64_t to = place.first_column + column;
    if (row < args.from.length && to < args.to_width) {
      args.to[place.to + row * args.to_width + to] = sums[n];
    }
  }
}

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_KERNELS_PROJECT_INL_H_
