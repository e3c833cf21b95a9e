#ifndef ATTENTION_CORE_CPU_ROWS_OFFER_TILE_H_
#define ATTENTION_CORE_CPU_ROWS_OFFER_TILE_H_

#include <cstdint>

#include "core/cpu/kernels/tile_args.h"
#include "core/top_k.h"

namespace attention::cpu {

/// Offers a row's weights of a tile, whose first key is `first_key` among all,
/// to the largest so far: those alone that may be among them.
void OfferTile(const RowWeights& weights, int64_t first_key, TopK& top_k);

}  // namespace attention::cpu

#endif  // ATTENTION_CORE_CPU_ROWS_OFFER_TILE_H_
