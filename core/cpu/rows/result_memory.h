#ifndef ATTENTION_CORE_CPU_ROWS_RESULT_MEMORY_H_
#define ATTENTION_CORE_CPU_ROWS_RESULT_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

/// Stores to the caller's memory, which promises no alignment.
namespace attention::cpu {

inline void StoreFloat(float value, std::byte* to) {
  std::memcpy(to, &value, sizeof(value));
}

/// The same number `count` times.
inline void StoreFloats(float value, int64_t count, float* to) {
  auto* const bytes = reinterpret_cast<std::byte*>(to);
  for (int64_t n = 0; n < count; ++n) {
    StoreFloat(value, bytes + n * static_cast<int64_t>(sizeof(value)));
  }
}

/// `to` may be null where there is nothing to store.
inline void StoreZeros(float* to, int64_t count) {
  if (count == 0) return;
  std::memset(to, 0, static_cast<size_t>(count) * sizeof(float));
}

}  // namespace attention::cpu

#endif  // ATTENTION_CORE_CPU_ROWS_RESULT_MEMORY_H_
