#ifndef ATTENTION_CORE_CPU_KERNELS_SIZES_H_
#define ATTENTION_CORE_CPU_KERNELS_SIZES_H_

#include <cstdint>

/// Sizes that the kernels and those who call them agree on, and rows as they
/// lie in the caller's memory.
namespace attention::cpu {

/// Keys of a tile, at most; also what a row of scores has room for.
inline constexpr int64_t kMaxTileKeys = 512;
/// Floats from one row of scores to the next. Not a power of two, so that the
/// rows of a micro-tile do not fall into the same cache sets.
inline constexpr int64_t kScoreStride = kMaxTileKeys + 16;
/// Rows whose sums are in registers at once, at most, on any instruction set.
inline constexpr int64_t kMaxMicroRows = 32;
/// Lanes of a vector of floats, at most.
inline constexpr int64_t kMaxLanes = 16;
/// Bytes of a line of the caches.
inline constexpr int64_t kLine = 64;

enum class Element : uint8_t {
  kFloat32,
  kFloat16,
  kBFloat16,
  kInt8,
  kFloat8,  // E4M3, as DataType::kFloat8
};

/// Bytes of an element.
constexpr int64_t SizeOf(Element type) {
  switch (type) {
    case Element::kFloat32:
      return 4;
    case Element::kFloat16:
    case Element::kBFloat16:
      return 2;
    case Element::kInt8:
    case Element::kFloat8:
      return 1;
  }
  return 0;
}

/// Rows of one head of a tensor: `data` is the first row's first element.
/// Strides in bytes, any sign; no alignment promised.
struct RowSource {
  const unsigned char* data;
  int64_t row_stride;
  int64_t column_stride;
  Element type;
  /// Of the first row's scale, a float by which its elements are multiplied;
  /// null where rows have none.
  const unsigned char* scales = nullptr;
  int64_t scale_stride = 0;
};

}  // namespace attention::cpu

#endif  // ATTENTION_CORE_CPU_KERNELS_SIZES_H_
