#include "core/cpu/subnormals.h"

#include <bit>
#include <cstring>
#include <limits>

namespace attention::cpu {

namespace {

// The bits of an element's magnitude as FP32; signed, because that is what SSE2
// compares.
template <typename Bits>
int32_t MagnitudeBits(const std::byte* address) {
  Bits bits;
  std::memcpy(&bits, address, sizeof bits);
  constexpr int kShift = 32 - 8 * static_cast<int>(sizeof bits);
  return static_cast<int32_t>(static_cast<uint32_t>(bits) << kShift &
                              0x7FFFFFFFU);
}

template <typename Bits>
bool AnyBeyond(const std::byte* elements, int64_t stride, int64_t count,
               int32_t least, int32_t most) {
  // Without a branch, and with strides known to the compiler: vectors.
  int32_t beyond = 0;
  const auto look = [&](const std::byte* address) {
    const int32_t magnitude = MagnitudeBits<Bits>(address);
    const int32_t small = magnitude < least ? magnitude : 0;
    beyond |= small | (magnitude > most ? 1 : 0);
  };
  if (stride == int64_t{sizeof(Bits)}) {
    for (int64_t i = 0; i < count; ++i) look(elements + i * sizeof(Bits));
  } else {
    for (int64_t i = 0; i < count; ++i) look(elements + i * stride);
  }
  return beyond != 0;
}

}  // namespace

bool HasMagnitudesBeyond(DataType type, const std::byte* elements,
                         int64_t stride, int64_t count, float least,
                         float most) {
  const auto low = std::bit_cast<int32_t>(least);
  const auto high = std::bit_cast<int32_t>(most);
  return type == DataType::kBFloat16
             ? AnyBeyond<uint16_t>(elements, stride, count, low, high)
             : AnyBeyond<uint32_t>(elements, stride, count, low, high);
}

bool TinyValues::In(int64_t batch, int64_t kv_head) {
  const std::pair<int64_t, int64_t> key = {batch, kv_head};
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = known_.find(key); found != known_.end()) {
      return found->second;
    }
  }
  const bool any = Search(batch, kv_head);
  const std::lock_guard lock(mutex_);
  return known_[key] = any;
}

bool TinyValues::Search(int64_t batch, int64_t kv_head) const {
  // The smallest FP16 number is larger.
  if (problem_.query.type == DataType::kFloat16) return false;
  for (const ValidatedProblem::Block& block : problem_.key_value) {
    for (int64_t k = 0; k < block.key_count; ++k) {
      if (problem_.value_width > 0 &&
          HasMagnitudesBeyond(
              block.value.type, block.value.At(batch, kv_head, k, 0),
              block.value.strides[3], problem_.value_width, kTinyValue,
              std::numeric_limits<float>::infinity())) {
        return true;
      }
    }
  }
  return false;
}

}  // namespace attention::cpu
