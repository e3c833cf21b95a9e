#ifndef ATTENTION_CORE_CUDA_KERNELS_WGMMA_KEYS_INL_H_
#define ATTENTION_CORE_CUDA_KERNELS_WGMMA_KEYS_INL_H_

// Which tiles of keys a block of attend_wgmma reads, and in which order.

#include "core/cuda/kernels/rows-inl.h"

namespace attention::cuda {

/// The tiles first ... first + count - 1 of the keys. They are read from
/// first + shift on, around the end: at first one in which a row may have to
/// leave out keys, then `inside` tiles in which none has to, then the others,
/// in which some may have to.
struct WgmmaTiles {
  int32_t first;
  int32_t count;  // 1 at least, if only of keys that no row reads
  int32_t shift;
  int32_t inside;
};

/// For rows that together read `any` of the keys, and each of which reads
/// `every`. `most` is the number of tiles of all keys, 1 at least.
ATTENTION_KERNEL_CODE WgmmaTiles TilesOfSpans(const KeySpan& any,
                                              const KeySpan& every,
                                              int64_t most) {
  constexpr int64_t kKeys = kWgmmaKeys;
  const int64_t first = Least(any.begin / kKeys, most - 1);
  const int64_t count = Most(CeilDivide(any.end, kKeys) - first, 1);
  const int64_t inside_begin = CeilDivide(every.begin, kKeys);
  const int64_t inside = Most(every.end / kKeys - inside_begin, 0);
  const int64_t before = inside == 0 ? 0 : inside_begin - first;
  return {static_cast<int32_t>(first), static_cast<int32_t>(count),
          static_cast<int32_t>(Most(before - 1, 0)),
          // The first one that is read counts as one where keys are left out.
          static_cast<int32_t>(before == 0 ? Most(inside - 1, 0) : inside)};
}

/// Of what is read, tile number `at`, counted from key 0.
ATTENTION_KERNEL_CODE int TileAt(const WgmmaTiles& tiles, int at) {
  const int shifted = at + tiles.shift;
  return tiles.first +
         (shifted < tiles.count ? shifted : shifted - tiles.count);
}

/// For queries first_query ... of a batch entry, as many as a block has. The
/// warp.
ATTENTION_KERNEL_CODE WgmmaTiles TilesOfRows(const AttentionArgs& args,
                                             int64_t batch,
                                             int64_t first_query) {
  const int64_t most = CeilDivide(args.key_length, kWgmmaKeys);
  const KeySpan all = {0, args.key_length};
  if (args.key_ranges == nullptr) return TilesOfSpans(all, all, most);
  KeySpans spans = {{args.key_length, 0}, all};
  const int64_t count = Least(kWgmmaRows, args.query_length - first_query);
  for (int64_t r = ThreadIndex() % kWarp; r < count; r += kWarp) {
    AddSpan(SpanOf(args, batch, first_query + r), spans);
  }
  spans = SpansOfWarp(spans);
  return TilesOfSpans(spans.any, spans.every, most);
}

/// What a block has: rows of one query head.
struct WgmmaPlace {
  int32_t rows;      // first_query / kWgmmaRows
  int32_t kv_group;  // among B * Hkv
  int32_t member;    // the query head, among the Hq / Hkv of a kv group
};

/// Blocks with the most keys, as a causal mask leaves them, come first.
ATTENTION_KERNEL_CODE WgmmaPlace WgmmaPlaceOf(const AttentionArgs& args,
                                              int64_t block) {
  const int64_t blocks = CeilDivide(args.query_length, kWgmmaRows);
  const int64_t members = args.query_heads / args.key.heads;
  const int64_t head = block / blocks;
  return {static_cast<int32_t>(blocks - 1 - block % blocks),
          static_cast<int32_t>(head / members),
          static_cast<int32_t>(head % members)};
}

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_KERNELS_WGMMA_KEYS_INL_H_
