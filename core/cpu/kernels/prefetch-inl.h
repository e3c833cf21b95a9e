// What is brought closer while a tile is computed. Included once per
// instruction set.
#if defined(ATTENTION_CORE_CPU_KERNELS_PREFETCH_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef ATTENTION_CORE_CPU_KERNELS_PREFETCH_INL_H_
#undef ATTENTION_CORE_CPU_KERNELS_PREFETCH_INL_H_
#else
#define ATTENTION_CORE_CPU_KERNELS_PREFETCH_INL_H_
#endif

#include "core/cpu/kernels/tile_args.h"
#include "hwy/highway.h"

// Compiled once per instruction set, into a namespace of its own each time.
// NOLINTBEGIN(misc-definitions-in-headers)
HWY_BEFORE_NAMESPACE();
namespace attention::cpu::HWY_NAMESPACE {

// Asks the second-level cache for a line of the next tile, which has some time
// to come: the first-level cache has no room for two tiles.
HWY_INLINE void PrefetchAhead(const unsigned char* line) {
  __builtin_prefetch(line, /*rw=*/0, /*locality=*/2);
}

// What QK of a panel of `panel_keys` keys brings closer, of all that comes
// next: lines of 64 bytes, spread evenly over the tile's panels. Its `bytes`
// count lines.
HWY_INLINE PrefetchRange ShareOfPrefetch(const TileArgs& args,
                                         int64_t first_row, int64_t rows,
                                         int64_t panel, int64_t panel_keys) {
  const int64_t panels = (args.keys + panel_keys - 1) / panel_keys;
  const int64_t begin = (first_row * panels + panel * rows) *
                        args.prefetch.lines / (args.rows * panels);
  const int64_t end = (first_row * panels + (panel + 1) * rows) *
                      args.prefetch.lines / (args.rows * panels);
  const int64_t* const ends = args.prefetch.ends;
  const int64_t count = args.prefetch.count;
  int64_t n = 0;
  while (n + 8 <= count && ends[n + 7] <= begin) n += 8;
  while (n < count && ends[n] <= begin) ++n;
  if (n == count) return {nullptr, 0};
  const int64_t before = n == 0 ? 0 : ends[n - 1];
  return {args.prefetch.ranges[n].data + (begin - before) * kLine,
          HWY_MIN(end, ends[n]) - begin};
}

}  // namespace attention::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
// NOLINTEND(misc-definitions-in-headers)

#endif  // include guard
