#ifndef ATTENTION_CORE_CUDA_EMULATION_EMULATED_KERNELS_H_
#define ATTENTION_CORE_CUDA_EMULATION_EMULATED_KERNELS_H_

#include "core/cuda/kernels/kernel_table.h"

namespace attention::cuda {

/// The kernels' own sources on the calling thread, block after block.
const KernelTable& EmulatedKernels();

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_EMULATION_EMULATED_KERNELS_H_
