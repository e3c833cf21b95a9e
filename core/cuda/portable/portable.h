#ifndef ATTENTION_CORE_CUDA_PORTABLE_PORTABLE_H_
#define ATTENTION_CORE_CUDA_PORTABLE_PORTABLE_H_

#include <cstddef>
#include <cstdint>

/// The layer under kernels: what a kernel may use of the machine. Kernels are
/// written once, against these functions, and compiled twice: by nvcc for a
/// device, and by the host's compiler for the emulation (emulation.h), where a
/// block's threads are fibers. Every function that several threads take part in
/// says which; all of those must call it.
///
///   int ThreadIndex()              within the block
///   int64_t BlockIndex()           within the launch
///   std::byte* SharedMemory()      the block's; as many bytes as the launch
///                                  asked for, 128-byte aligned, not
///                                  initialised
///   void SyncBlock()               the block: waits for all its threads
///   bool SyncBlockOr(bool)         the block: whether any of them said true
///   T ShuffleXor(T, int mask)      the warp: the value of lane ^ mask; float,
///                                  uint32_t, int64_t
///
///   int Opaque(int)                the same, but the compiler does not know:
///                                  what is computed of it is not kept in
///                                  registers over a loop
///   float Fma(a, b, c)             a * b + c, rounded once
///   float Multiply(a, b)           a * b, rounded before it is added to others
///   float Larger(a, b)             of one that is NaN, the other
///   float Reciprocal(x)            within a few units in the last place; what
///                                  is subnormal may be 0
///   float FastExp2(x)              2^x within 2^-22; what is subnormal is 0
///
///   float Widen(T), T Round<T>(f)  T: float, Half, Brain
///   Pair<T>(low, high)             two rounded numbers in 32 bits
///
///   SharedPlace PlaceOf(address)   where something lies in shared memory: an
///                                  unsigned number of bytes
///   void CopyAsync<n>(to, from, valid)  starts a copy of 4, 8 or 16 aligned
///                                  bytes into shared memory; zeros where not
///                                  valid
///   void CopyAsync16(place, from)  the same of 16, all valid
///   void CommitCopies()            ends a group of this thread's copies
///   void WaitForCopies<n>()        until all but the newest n groups are there
///                                  (for this thread: SyncBlock() for others)
///   void LoadMatrices(r, row)      the warp: ldmatrix.x4; four matrices of 8
///                                  rows of 16 bytes, whose places come from
///                                  lanes 0-7, 8-15, 16-23, 24-31
///   void LoadMatricesTransposed(r, row)
///   void MultiplyAdd<T>(c, a, b)   the warp: mma.m16n8k16, c += a b, FP32 sums
///                                  of products of Half or Brain
///
/// Fragments lie in registers as the PTX manual says for ldmatrix and for
/// mma.m16n8k16.
namespace attention::cuda {

inline constexpr int kWarp = 32;

/// IEEE 754 binary16 and bfloat16, as they are stored.
struct Half {
  uint16_t bits;
};
struct Brain {
  uint16_t bits;
};

}  // namespace attention::cuda

// IWYU pragma: begin_exports
#ifdef __CUDACC__
#include "core/cuda/portable/device.h"
#else
#include "core/cuda/emulation/host.h"
#endif
// IWYU pragma: end_exports

namespace attention::cuda {

ATTENTION_KERNEL_CODE float BitsToFloat(uint32_t bits) {
  float value;
  __builtin_memcpy(&value, &bits, sizeof(value));
  return value;
}

ATTENTION_KERNEL_CODE uint32_t FloatToBits(float value) {
  uint32_t bits;
  __builtin_memcpy(&bits, &value, sizeof(bits));
  return bits;
}

/// 2^x within a unit in the last place and alike on every machine; x is limited
/// to 127 above, and what would be subnormal is 0. NaN stays.
ATTENTION_KERNEL_CODE float Exp2(float x) {
  x = x < -127.0F ? -127.0F : x > 127.0F ? 127.0F : x;
  // Adding 1.5 * 2^23 rounds to whole numbers, which are then its low bits.
  constexpr float kMagic = 12582912.0F;
  const float shifted = x + kMagic;
  const float f = x - (shifted - kMagic);
  // 2^f for |f| <= 1/2: (2^f - 1) / f interpolated at Chebyshev's points;
  // 2^-27.5 off at most, and 1.13 * 2^-24 with its roundings.
  float p = 0.000154531629F;
  p = Fma(p, f, 0.00133908634F);
  p = Fma(p, f, 0.00961808256F);
  p = Fma(p, f, 0.0555035711F);
  p = Fma(p, f, 0.240226508F);
  p = Fma(p, f, 0.693147188F);
  p = Fma(p, f, 1.0F);
  const uint32_t n = FloatToBits(shifted) - FloatToBits(kMagic);
  return p * BitsToFloat((n + 127U) << 23);
}

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_PORTABLE_PORTABLE_H_
