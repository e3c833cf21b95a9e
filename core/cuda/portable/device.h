#ifndef ATTENTION_CORE_CUDA_PORTABLE_DEVICE_H_
#define ATTENTION_CORE_CUDA_PORTABLE_DEVICE_H_

// portable.h for a device, from compute capability 8.0.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstddef>
#include <cstdint>

#define ATTENTION_KERNEL_CODE __device__ __forceinline__
#define ATTENTION_PRAGMA(text) _Pragma(#text)
#define ATTENTION_UNROLL(n) ATTENTION_PRAGMA(unroll n)
#define ATTENTION_UNROLL_ALL ATTENTION_PRAGMA(unroll)

namespace attention::cuda {

ATTENTION_KERNEL_CODE int ThreadIndex() {
  return static_cast<int>(threadIdx.x);
}
ATTENTION_KERNEL_CODE int64_t BlockIndex() { return blockIdx.x; }

ATTENTION_KERNEL_CODE std::byte* SharedMemory() {
  extern __shared__ __align__(128) std::byte shared_memory[];
  return shared_memory;
}

ATTENTION_KERNEL_CODE void SyncBlock() { __syncthreads(); }
ATTENTION_KERNEL_CODE bool SyncBlockOr(bool value) {
  return __syncthreads_or(value ? 1 : 0) != 0;
}
template <typename T>
ATTENTION_KERNEL_CODE T ShuffleXor(T value, int mask) {
  return __shfl_xor_sync(0xFFFFFFFFU, value, mask);
}

ATTENTION_KERNEL_CODE int Opaque(int value) {
  asm volatile("" : "+r"(value));
  return value;
}

ATTENTION_KERNEL_CODE float Fma(float a, float b, float c) {
  return __fmaf_rn(a, b, c);
}
ATTENTION_KERNEL_CODE float Multiply(float a, float b) {
  return __fmul_rn(a, b);
}
ATTENTION_KERNEL_CODE float Larger(float a, float b) { return fmaxf(a, b); }
ATTENTION_KERNEL_CODE float Reciprocal(float x) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}
ATTENTION_KERNEL_CODE float FastExp2(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

ATTENTION_KERNEL_CODE float Widen(float value) { return value; }
ATTENTION_KERNEL_CODE float Widen(Half value) {
  return __half2float(__ushort_as_half(value.bits));
}
ATTENTION_KERNEL_CODE float Widen(Brain value) {
  return __bfloat162float(__ushort_as_bfloat16(value.bits));
}

template <typename T>
ATTENTION_KERNEL_CODE T Round(float value);
template <>
ATTENTION_KERNEL_CODE float Round<float>(float value) {
  return value;
}
template <>
ATTENTION_KERNEL_CODE Half Round<Half>(float value) {
  return {__half_as_ushort(__float2half_rn(value))};
}
template <>
ATTENTION_KERNEL_CODE Brain Round<Brain>(float value) {
  return {__bfloat16_as_ushort(__float2bfloat16_rn(value))};
}

template <typename T>
ATTENTION_KERNEL_CODE uint32_t Pair(float low, float high);
template <>
ATTENTION_KERNEL_CODE uint32_t Pair<Half>(float low, float high) {
  uint32_t pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
template <>
ATTENTION_KERNEL_CODE uint32_t Pair<Brain>(float low, float high) {
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

using SharedPlace = uint32_t;
ATTENTION_KERNEL_CODE SharedPlace PlaceOf(const void* address) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(address));
}

template <int kBytes>
ATTENTION_KERNEL_CODE void CopyAsync(void* to, const void* from, bool valid) {
  const int bytes = valid ? kBytes : 0;  // what is not read becomes zeros
  if constexpr (kBytes == 16) {
    asm volatile(
        "cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(PlaceOf(to)),
        "l"(from), "r"(bytes)
        : "memory");
  } else {
    asm volatile(
        "cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(PlaceOf(to)),
        "l"(from), "n"(kBytes), "r"(bytes)
        : "memory");
  }
}
ATTENTION_KERNEL_CODE void CopyAsync16(SharedPlace to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from)
               : "memory");
}
ATTENTION_KERNEL_CODE void CommitCopies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int kNewest>
ATTENTION_KERNEL_CODE void WaitForCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kNewest) : "memory");
}

ATTENTION_KERNEL_CODE void LoadMatrices(uint32_t (&r)[4], SharedPlace row) {
  asm volatile(
      "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
      : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
      : "r"(row)
      : "memory");
}
ATTENTION_KERNEL_CODE void LoadMatricesTransposed(uint32_t (&r)[4],
                                                  SharedPlace row) {
  asm volatile(
      "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
      : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
      : "r"(row)
      : "memory");
}

template <typename T>
ATTENTION_KERNEL_CODE void MultiplyAdd(float (&c)[4], const uint32_t (&a)[4],
                                       uint32_t b0, uint32_t b1);
template <>
ATTENTION_KERNEL_CODE void MultiplyAdd<Half>(float (&c)[4],
                                             const uint32_t (&a)[4],
                                             uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <>
ATTENTION_KERNEL_CODE void MultiplyAdd<Brain>(float (&c)[4],
                                              const uint32_t (&a)[4],
                                              uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_PORTABLE_DEVICE_H_
