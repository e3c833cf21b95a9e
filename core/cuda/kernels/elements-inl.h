#ifndef ATTENTION_CORE_CUDA_KERNELS_ELEMENTS_INL_H_
#define ATTENTION_CORE_CUDA_KERNELS_ELEMENTS_INL_H_

// Numbers of every element type.

#include "core/cuda/kernels/arguments.h"
#include "core/cuda/portable/portable.h"

namespace attention::cuda {

/// visit(data as what it is: const float*, const Half* or const Brain*).
template <typename Visit>
ATTENTION_KERNEL_CODE auto WithElements(const void* data, Element type,
                                        const Visit& visit) {
  switch (type) {
    case Element::kFloat32:
      return visit(static_cast<const float*>(data));
    case Element::kFloat16:
      return visit(static_cast<const Half*>(data));
    case Element::kBFloat16:
      break;
  }
  return visit(static_cast<const Brain*>(data));
}

struct LoadFloatAt {
  int64_t index;
  template <typename T>
  ATTENTION_KERNEL_CODE float operator()(const T* data) const {
    return Widen(data[index]);
  }
};

ATTENTION_KERNEL_CODE float LoadFloat(const void* data, Element type,
                                      int64_t index) {
  return WithElements(data, type, LoadFloatAt{index});
}

ATTENTION_KERNEL_CODE void StoreFloat(void* data, Element type, int64_t index,
                                      float value) {
  switch (type) {
    case Element::kFloat32:
      static_cast<float*>(data)[index] = value;
      return;
    case Element::kFloat16:
      static_cast<Half*>(data)[index] = Round<Half>(value);
      return;
    case Element::kBFloat16:
      static_cast<Brain*>(data)[index] = Round<Brain>(value);
      return;
  }
}

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_KERNELS_ELEMENTS_INL_H_
