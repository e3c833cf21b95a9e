#ifndef ATTENTION_CORE_CUDA_EMULATION_HOST_H_
#define ATTENTION_CORE_CUDA_EMULATION_HOST_H_

// portable.h for the host: the emulation's threads, and what instructions of a
// device compute, lane by lane.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/cuda/emulation/emulation.h"

#define ATTENTION_KERNEL_CODE inline
#define ATTENTION_UNROLL(n)
#define ATTENTION_UNROLL_ALL

namespace attention::cuda {

using emulation::BlockIndex;
using emulation::SharedMemory;
using emulation::SyncBlock;
using emulation::SyncBlockOr;
using emulation::ThreadIndex;

template <typename T>
T ShuffleXor(T value, int mask) {
  const emulation::Exchange exchange = emulation::NextExchange();
  const int lane = ThreadIndex() % kWarp;
  std::memcpy(exchange.Lane(lane), &value, sizeof(value));
  emulation::SyncWarp();
  std::memcpy(&value, exchange.Lane(lane ^ mask), sizeof(value));
  return value;
}

/// The product is exact in FP64; a second rounding differs from one in so few
/// cases that no bound of a kernel's depends on it.
inline float Fma(float a, float b, float c) {
  return static_cast<float>(static_cast<double>(a) * b + c);
}
inline float Multiply(float a, float b) { return a * b; }
inline int Opaque(int value) { return value; }

/// A number next to the exact one, now above, now below: as good as an
/// approximation is that is a unit in the last place off. Powers of 2 stay.
inline float NextTo(float exact) {
  uint32_t bits;
  std::memcpy(&bits, &exact, sizeof(bits));
  const bool is_approximate = std::isfinite(exact) && (bits & 0x7FFFFFU) != 0;
  if (!is_approximate) return exact;
  bits += (bits * 0x9E3779B1U) >> 31 != 0 ? 1U : ~0U;
  std::memcpy(&exact, &bits, sizeof(bits));
  return exact;
}
inline float Larger(float a, float b) { return b > a || std::isnan(a) ? b : a; }
inline float Reciprocal(float x) {
  const float result = 1 / x;
  return std::abs(result) < 0x1p-126F ? 0 * result : NextTo(result);
}
inline float FastExp2(float x) {
  const float result = std::exp2(x);
  return result < 0x1p-126F ? 0 : NextTo(result);
}

inline float Widen(float value) { return value; }
float Widen(Half value);
inline float Widen(Brain value) {
  const uint32_t bits = static_cast<uint32_t>(value.bits) << 16;
  float result;
  std::memcpy(&result, &bits, sizeof(result));
  return result;
}

template <typename T>
T Round(float value);
template <>
inline float Round<float>(float value) {
  return value;
}
template <>
Half Round<Half>(float value);
template <>
Brain Round<Brain>(float value);

template <typename T>
uint32_t Pair(float low, float high) {
  return Round<T>(low).bits | static_cast<uint32_t>(Round<T>(high).bits) << 16;
}

using SharedPlace = uintptr_t;
inline SharedPlace PlaceOf(const void* address) {
  return reinterpret_cast<uintptr_t>(address);
}
// A device's place in shared memory is a number, too.
inline void* AddressOf(SharedPlace place) {
  return reinterpret_cast<void*>(place);  // NOLINT(performance-no-int-to-ptr)
}
template <int kBytes>
void CopyAsync(void* to, const void* from, bool valid) {
  emulation::CopyAsync(to, valid ? from : nullptr, kBytes);
}
inline void CopyAsync16(SharedPlace to, const void* from) {
  CopyAsync<16>(AddressOf(to), from, true);
}
using emulation::CommitCopies;
template <int kNewest>
void WaitForCopies() {
  emulation::WaitForCopies(kNewest);
}

void LoadMatrices(uint32_t (&r)[4], SharedPlace row);
void LoadMatricesTransposed(uint32_t (&r)[4], SharedPlace row);

template <typename T>
void MultiplyAdd(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                 uint32_t b1);
template <>
void MultiplyAdd<Half>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                       uint32_t b1);
template <>
void MultiplyAdd<Brain>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                        uint32_t b1);

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_EMULATION_HOST_H_
