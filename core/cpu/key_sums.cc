#include "core/cpu/key_sums.h"

#include <algorithm>

#include "core/cpu/rows/result_memory.h"

namespace attention::cpu {

int64_t KeySums::Bytes() const {
  return problem_.wanted.key_weights ? plan_.chunks() * problem_.key_length *
                                           static_cast<int64_t>(sizeof(double))
                                     : 0;
}

void KeySums::Allocate() {
  const auto sums = static_cast<size_t>(Bytes()) / sizeof(double);
  if (sums > 0) sums_.reset(new double[sums]);
}

int64_t KeySums::heads() const {
  // Without keys no byte bounds their number: queries may have none either.
  const bool any = problem_.wanted.key_weights && problem_.key_length > 0;
  return any ? problem_.batch * problem_.query_heads : 0;
}

void KeySums::Clear(int64_t chunk) {
  if (sums_) std::fill_n(OfChunk(chunk), problem_.key_length, 0.0);
}

double* KeySums::OfBlock(int64_t block) const {
  return sums_ ? OfChunk(plan_.ChunkOf(block)) : nullptr;
}

// A plan that sums has groups of one head.
void KeySums::Store(int64_t index, const ResultPlaces& places) const {
  std::byte* const to = places.KeyWeights(index / problem_.query_heads,
                                          index % problem_.query_heads);
  for (int64_t key = 0; key < problem_.key_length; ++key) {
    double sum = 0;
    for (int64_t n = 0; n < plan_.chunks_per_group; ++n) {
      sum += OfChunk(index * plan_.chunks_per_group + n)[key];
    }
    StoreFloat(static_cast<float>(sum),
               to + key * static_cast<int64_t>(sizeof(float)));
  }
}

}  // namespace attention::cpu
