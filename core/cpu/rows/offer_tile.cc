#include "core/cpu/rows/offer_tile.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace attention::cpu {
namespace {

// Weights that are looked at together, which the compiler does with vectors.
constexpr int64_t kTogether = 16;

// Weights are not negative: their bits have their order, as integers.
int32_t BitsOf(float weight) {
  int32_t bits = 0;
  std::memcpy(&bits, &weight, sizeof(bits));
  return bits;
}

float WeightOf(int32_t bits) {
  float weight = 0;
  std::memcpy(&weight, &bits, sizeof(weight));
  return weight;
}

int64_t CountAbove(const RowWeights& weights, int32_t bits) {
  int32_t count = 0;
  for (int64_t j = weights.begin; j < weights.end; ++j) {
    count += BitsOf(weights.weights[j]) > bits ? 1 : 0;
  }
  return count;
}

// A bound that k weights of the tile pass, if not many more do: else taking one
// after the other would take long where each is larger than those before it.
float BoundOfTile(const RowWeights& weights, const TopK& top_k) {
  const int64_t enough = 2 * top_k.k() + kTogether;
  int32_t low = top_k.bound() < 0 ? -1 : BitsOf(top_k.bound());
  if (weights.end - weights.begin <= enough ||
      CountAbove(weights, low) <= enough) {
    return top_k.bound();
  }
  int32_t high = BitsOf(std::numeric_limits<float>::infinity());
  while (high - low > 1) {
    const int32_t middle = low + (high - low) / 2;
    const int64_t count = CountAbove(weights, middle);
    if (count >= top_k.k() && count <= enough) return WeightOf(middle);
    (count > enough ? low : high) = middle;
  }
  return low < 0 ? top_k.bound() : WeightOf(low);
}

}  // namespace

void OfferTile(const RowWeights& weights, int64_t first_key, TopK& top_k) {
  constexpr float kAbsent = -std::numeric_limits<float>::infinity();
  const float of_tile = BoundOfTile(weights, top_k);
  for (int64_t first = weights.begin; first < weights.end; first += kTogether) {
    const int64_t last = std::min(first + kTogether, weights.end);
    const float bound = std::max(of_tile, top_k.bound());
    int passing = 0;
    for (int64_t j = first; j < last; ++j) {
      passing += weights.weights[j] <= bound ? 0 : 1;  // NaN passes
    }
    for (int64_t j = first; passing > 0 && j < last; ++j) {
      if (weights.weights[j] <= std::max(of_tile, top_k.bound())) continue;
      if (weights.scores[j] == kAbsent) continue;
      top_k.Offer(weights.weights[j], first_key + j);
    }
  }
}

}  // namespace attention::cpu
