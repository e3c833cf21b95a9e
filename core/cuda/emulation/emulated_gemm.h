#ifndef ATTENTION_CORE_CUDA_EMULATION_EMULATED_GEMM_H_
#define ATTENTION_CORE_CUDA_EMULATION_EMULATED_GEMM_H_

#include "core/cuda/device.h"

namespace attention::cuda {

/// What stands for cuBLAS: the product, and its workspace spoilt.
void EmulateGemm(const Gemm& product);

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_EMULATION_EMULATED_GEMM_H_
