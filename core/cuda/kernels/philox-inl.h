#ifndef ATTENTION_CORE_CUDA_KERNELS_PHILOX_INL_H_
#define ATTENTION_CORE_CUDA_KERNELS_PHILOX_INL_H_

#include <cstdint>

#include "core/cuda/kernels/arguments.h"
#include "core/cuda/portable/portable.h"

namespace attention::cuda {

/// Four random words of Philox4x32-10, as in core/philox.h.
struct PhiloxWords {
  uint32_t word[4];
};

ATTENTION_KERNEL_CODE PhiloxWords Philox(uint32_t c0, uint32_t c1, uint32_t c2,
                                         uint32_t c3, uint64_t seed) {
  auto key0 = static_cast<uint32_t>(seed);
  auto key1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53} * c0;
    const uint64_t product1 = uint64_t{0xCD9E8D57} * c2;
    c0 = static_cast<uint32_t>(product1 >> 32) ^ c1 ^ key0;
    c1 = static_cast<uint32_t>(product1);
    c2 = static_cast<uint32_t>(product0 >> 32) ^ c3 ^ key1;
    c3 = static_cast<uint32_t>(product0);
    key0 += 0x9E3779B9U;
    key1 += 0xBB67AE85U;
  }
  return {{c0, c1, c2, c3}};
}

/// The words that decide keys 4 (key / 4) ... 4 (key / 4) + 3 of a row: key is
/// dropped where word[key % 4] < threshold.
ATTENTION_KERNEL_CODE PhiloxWords DropoutWords(const DropoutArgs& dropout,
                                               int64_t batch, int64_t head,
                                               int64_t query, int64_t key) {
  return Philox(static_cast<uint32_t>(key / 4),
                static_cast<uint32_t>(dropout.first_row + query),
                static_cast<uint32_t>(dropout.first_head + head),
                static_cast<uint32_t>(dropout.first_entry + batch),
                dropout.seed);
}

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_KERNELS_PHILOX_INL_H_
