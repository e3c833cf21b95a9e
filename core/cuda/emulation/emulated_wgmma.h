#ifndef ATTENTION_CORE_CUDA_EMULATION_EMULATED_WGMMA_H_
#define ATTENTION_CORE_CUDA_EMULATION_EMULATED_WGMMA_H_

#include "core/cuda/kernels/kernel_table.h"

namespace attention::cuda {

/// KernelTable::attend_wgmma, of builds with CUTLASS: our part of it.
int LaunchEmulatedWgmma(const AttentionArgs& args, const LaunchShape& shape);

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_EMULATION_EMULATED_WGMMA_H_
