// Queries and keys in the order in which QK reads them. Included once per
// instruction set.
#if defined(ATTENTION_CORE_CPU_KERNELS_PACK_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef ATTENTION_CORE_CPU_KERNELS_PACK_INL_H_
#undef ATTENTION_CORE_CPU_KERNELS_PACK_INL_H_
#else
#define ATTENTION_CORE_CPU_KERNELS_PACK_INL_H_
#endif

#include "core/cpu/kernels/math-inl.h"
#include "hwy/highway.h"

// Compiled once per instruction set, into a namespace of its own each time.
// NOLINTBEGIN(misc-definitions-in-headers)
HWY_BEFORE_NAMESPACE();
namespace attention::cpu::HWY_NAMESPACE {

// Rows of a micro-tile: sums of 12 x 2 vectors where there are 32 registers, 6
// x 2 where there are 16.
#if (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3) || HWY_ARCH_ARM_A64
inline constexpr int kMicroRows = 12;
#else
inline constexpr int kMicroRows = 6;
#endif

// Calls visit.template Rows<count>(first row) for micro-tiles that cover `rows`
// rows, the largest first.
template <class Visit>
HWY_INLINE void ForEachMicroTile(int64_t rows, const Visit& visit) {
  int64_t r = 0;
  for (; rows - r >= kMicroRows; r += kMicroRows) {
    visit.template Rows<kMicroRows>(r);
  }
  if constexpr (kMicroRows > 8) {
    if (rows - r >= 8) {
      visit.template Rows<8>(r);
      r += 8;
    }
  }
  if (rows - r >= 4) {
    visit.template Rows<4>(r);
    r += 4;
  }
  if (rows - r >= 2) {
    visit.template Rows<2>(r);
    r += 2;
  }
  if (rows - r >= 1) visit.template Rows<1>(r);
}

// Four floats from each of rows 4 b, b = 0, 1, ...: block b of the result.
template <class D>
HWY_INLINE hn::Vec<D> LoadBlocks(D d, const float* from, int64_t stride) {
  if constexpr (hn::MaxLanes(D()) <= 4) {
    return hn::LoadU(d, from);
  } else {
    const hn::Half<D> half;
    const int64_t rows = static_cast<int64_t>(hn::MaxLanes(D())) / 2;
    return hn::Combine(d, LoadBlocks(half, from + rows * stride, stride),
                       LoadBlocks(half, from, stride));
  }
}

// Transposes the 4 x 4 floats within each block of four vectors.
HWY_INLINE void TransposeBlocks(VF& a, VF& b, VF& c, VF& e) {
  const F d;
  const hn::RepartitionToWide<F> dw;
  const auto wide = [](VF v) HWY_ATTR {
    return hn::BitCast(hn::RepartitionToWide<F>(), v);
  };
  const VF ab_low = hn::InterleaveLower(d, a, b);
  const VF ab_high = hn::InterleaveUpper(d, a, b);
  const VF ce_low = hn::InterleaveLower(d, c, e);
  const VF ce_high = hn::InterleaveUpper(d, c, e);
  a = hn::BitCast(d, hn::InterleaveLower(dw, wide(ab_low), wide(ce_low)));
  b = hn::BitCast(d, hn::InterleaveUpper(dw, wide(ab_low), wide(ce_low)));
  c = hn::BitCast(d, hn::InterleaveLower(dw, wide(ab_high), wide(ce_high)));
  e = hn::BitCast(d, hn::InterleaveUpper(dw, wide(ab_high), wide(ce_high)));
}

// Block b of four floats goes to to + b * stride.
template <class D>
HWY_INLINE void StoreBlocks(D d, hn::Vec<D> v, float* to, int64_t stride) {
  if constexpr (hn::MaxLanes(D()) <= 4) {
    hn::StoreU(v, d, to);
  } else {
    const hn::Half<D> half;
    const int64_t blocks = static_cast<int64_t>(hn::MaxLanes(D())) / 8;
    StoreBlocks(half, hn::LowerHalf(half, v), to, stride);
    StoreBlocks(half, hn::UpperHalf(half, v), to + blocks * stride, stride);
  }
}

struct PackQueryRows {
  const float* rows;
  int64_t stride;
  int64_t width;
  float factor;
  float* packed;

  template <int kRows>
  HWY_INLINE void Rows(int64_t first) const {
    float* const to = packed + first * width;
    const float* const from = rows + first * stride;
    int64_t i = 0;
    if constexpr (kRows % 4 == 0) {
      const int64_t lanes = static_cast<int64_t>(hn::Lanes(F()));
      for (; i + lanes <= width; i += lanes) {
        for (int r = 0; r < kRows; r += 4) {
          Transpose(from + r * stride + i, to + i * kRows + r, kRows);
        }
      }
    }
    for (; i < width; ++i) {
      for (int r = 0; r < kRows; ++r) {
        to[i * kRows + r] = from[r * stride + i] * factor;
      }
    }
  }

  // A vector of elements of four rows: to[i * to_stride + r] =
  // from[r * stride + i].
  HWY_INLINE void Transpose(const float* from, float* to,
                            int64_t to_stride) const {
    const F d;
    const VF scale = hn::Set(d, factor);
    VF piece[4];
    ATTENTION_UNROLL
    for (int r = 0; r < 4; ++r) {
      piece[r] = hn::Mul(hn::LoadU(d, from + r * stride), scale);
    }
    TransposeBlocks(piece[0], piece[1], piece[2], piece[3]);
    ATTENTION_UNROLL
    for (int r = 0; r < 4; ++r) {
      StoreBlocks(d, piece[r], to + r * to_stride, 4 * to_stride);
    }
  }
};

inline void PackQueries(const float* rows, int64_t stride, int64_t count,
                        int64_t width, float factor, float* packed) {
  ForEachMicroTile(count, PackQueryRows{rows, stride, width, factor, packed});
}

// One vector of keys of a panel.
HWY_INLINE void PackFullVector(const float* rows, int64_t stride, int64_t width,
                               float* packed, int64_t panel) {
  const F d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + 4 <= width; i += 4) {
    VF a = LoadBlocks(d, rows + i, stride);
    VF b = LoadBlocks(d, rows + i + stride, stride);
    VF c = LoadBlocks(d, rows + i + 2 * stride, stride);
    VF e = LoadBlocks(d, rows + i + 3 * stride, stride);
    TransposeBlocks(a, b, c, e);
    hn::Store(a, d, packed + (i + 0) * panel);
    hn::Store(b, d, packed + (i + 1) * panel);
    hn::Store(c, d, packed + (i + 2) * panel);
    hn::Store(e, d, packed + (i + 3) * panel);
  }
  for (; i < width; ++i) {
    for (int64_t k = 0; k < lanes; ++k) {
      packed[i * panel + k] = rows[k * stride + i];
    }
  }
}

// Rows of keys into panels of [width][panel], padded with zeros; `panel` is a
// multiple of the lanes.
HWY_INLINE void PackPanelsOf(int64_t panel, const float* rows, int64_t stride,
                             int64_t count, int64_t width, float* packed) {
  const F d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t padded = (count + panel - 1) / panel * panel;
  for (int64_t first = 0; first < padded; first += lanes) {
    float* to = packed + first / panel * panel * width + first % panel;
    const float* from = rows + first * stride;
    if (count - first >= lanes) {
      PackFullVector(from, stride, width, to, panel);
      continue;
    }
    for (int64_t i = 0; i < width; ++i) {
      hn::Store(hn::Zero(d), d, to + i * panel);
    }
    for (int64_t k = 0; k < count - first; ++k) {
      for (int64_t i = 0; i < width; ++i) {
        to[i * panel + k] = from[k * stride + i];
      }
    }
  }
}

inline void PackKeys(const float* rows, int64_t stride, int64_t count,
                     int64_t width, float* packed) {
  PackPanelsOf(2 * static_cast<int64_t>(hn::Lanes(F())), rows, stride, count,
               width, packed);
}

}  // namespace attention::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
// NOLINTEND(misc-definitions-in-headers)

#endif  // include guard
