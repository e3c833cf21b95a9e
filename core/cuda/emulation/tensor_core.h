#ifndef ATTENTION_CORE_CUDA_EMULATION_TENSOR_CORE_H_
#define ATTENTION_CORE_CUDA_EMULATION_TENSOR_CORE_H_

namespace attention::cuda {

/// Products that a tensor core adds at once. This is A100's way; Hopper has
/// blocks of 16 and keeps a bit more.
inline constexpr int kTensorCoreBlock = 8;

/// c + a[0] b[0] + ... of such a block, as tensor cores have it: products are
/// exact, and nothing is rounded; numbers are aligned to the largest one and
/// cut off a bit after FP32's last, and so is the sum (Fasi, Higham, Mikaitis
/// and Pranesh, "Numerical behavior of NVIDIA tensor cores", 2021).
float AddProducts(float c, const float* a, const float* b);

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_EMULATION_TENSOR_CORE_H_
