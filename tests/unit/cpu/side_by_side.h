#ifndef ATTENTION_TESTS_UNIT_CPU_SIDE_BY_SIDE_H_
#define ATTENTION_TESTS_UNIT_CPU_SIDE_BY_SIDE_H_

#include <cstdint>
#include <utility>

#include "core/tensor_view.h"

namespace attention::cpu {

/// Keys [1, heads, keys, width] without memory, a token's heads side by side.
inline TensorView HeadsSideBySide(DataType type, int64_t keys, int64_t heads,
                                  int64_t width) {
  TensorView view = ContiguousView(type, {1, keys, heads, width}, nullptr);
  std::swap(view.shape[1], view.shape[2]);
  std::swap(view.strides[1], view.strides[2]);
  return view;
}

}  // namespace attention::cpu

#endif  // ATTENTION_TESTS_UNIT_CPU_SIDE_BY_SIDE_H_
