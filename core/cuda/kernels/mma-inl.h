#ifndef ATTENTION_CORE_CUDA_KERNELS_MMA_INL_H_
#define ATTENTION_CORE_CUDA_KERNELS_MMA_INL_H_

#include "core/cuda/kernels/attend-inl.h"

namespace attention::cuda {
template <typename T, int kWidth, bool kPlain>
ATTENTION_KERNEL_CODE void AttendMma(const AttentionArgs&, int64_t) {}
}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_KERNELS_MMA_INL_H_
