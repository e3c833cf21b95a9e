#include "core/philox.h"

#include <cmath>

namespace attention {

std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter,
                                   std::array<uint32_t, 2> key) {
  // Multipliers and Weyl increments from table 2 of the paper.
  constexpr uint64_t kMultiply0 = 0xD2511F53;
  constexpr uint64_t kMultiply1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9;
  constexpr uint32_t kWeyl1 = 0xBB67AE85;
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = kMultiply0 * counter[0];
    const uint64_t product1 = kMultiply1 * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<uint32_t>(product0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

DropoutPattern::DropoutPattern(double p, uint64_t seed)
    : p_(p),
      threshold_(static_cast<uint64_t>(std::floor(std::ldexp(p, 32)))),
      key_({static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)}) {}

std::array<uint32_t, 4> DropoutPattern::Words(int64_t batch, int64_t head,
                                              int64_t row,
                                              int64_t block) const {
  return Philox4x32({static_cast<uint32_t>(block), static_cast<uint32_t>(row),
                     static_cast<uint32_t>(head), static_cast<uint32_t>(batch)},
                    key_);
}

template <typename Float>
void DropoutPattern::Fill(int64_t batch, int64_t head, int64_t row,
                          int64_t first_key, absl::Span<Float> factors) const {
  const auto stays = static_cast<Float>(scale());
  auto word = static_cast<size_t>(first_key % 4);
  int64_t block = first_key / 4;
  for (size_t n = 0; n < factors.size(); ++block, word = 0) {
    const std::array<uint32_t, 4> words = Words(batch, head, row, block);
    for (; word < words.size() && n < factors.size(); ++word, ++n) {
      factors[n] = words[word] < threshold_ ? 0 : stays;
    }
  }
}

void DropoutPattern::FillFactors(int64_t batch, int64_t head, int64_t row,
                                 int64_t first_key,
                                 absl::Span<float> factors) const {
  Fill(batch, head, row, first_key, factors);
}

void DropoutPattern::FillFactors(int64_t batch, int64_t head, int64_t row,
                                 int64_t first_key,
                                 absl::Span<double> factors) const {
  Fill(batch, head, row, first_key, factors);
}

}  // namespace attention
