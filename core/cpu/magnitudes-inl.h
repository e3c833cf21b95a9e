// Whether numbers are too large, or too small. Included once per instruction
// set.
#if defined(ATTENTION_CORE_CPU_MAGNITUDES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTENTION_CORE_CPU_MAGNITUDES_INL_H_
#undef ATTENTION_CORE_CPU_MAGNITUDES_INL_H_
#else
#define ATTENTION_CORE_CPU_MAGNITUDES_INL_H_
#endif

#include "core/cpu/convert-inl.h"
#include "core/cpu/math-inl.h"
#include "hwy/highway.h"

// Compiled once per instruction set, into a namespace of its own each time.
// NOLINTBEGIN(misc-definitions-in-headers)
HWY_BEFORE_NAMESPACE();
namespace attention::cpu::HWY_NAMESPACE {

bool AllWithin(const float* values, int64_t count, float limit) {
  const F d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const VF most = hn::Set(d, limit);
  auto within = hn::Eq(most, most);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    within = hn::And(within, hn::Le(hn::Abs(hn::LoadU(d, values + i)), most));
  }
  bool all = hn::AllTrue(d, within);
  for (; i < count; ++i) all = all && values[i] <= limit && values[i] >= -limit;
  return all;
}

// Bits of magnitudes, which tell a subnormal number from 0 where arithmetic
// does not.
struct MagnitudeBounds {
  int32_t least;
  int32_t most;

  HWY_INLINE bool IsBeyond(uint32_t bits) const {
    const auto magnitude = static_cast<int32_t>(bits & 0x7FFFFFFFU);
    return (magnitude != 0 && magnitude < least) || magnitude > most;
  }
};

// The same for whole vectors of a dense row; `done` takes how many elements
// they hold.
template <typename Load>
HWY_INLINE bool AnyVectorBeyond(const MagnitudeBounds& bounds, int64_t count,
                                const Load& load, int64_t& done) {
  const F d;
  const hn::RebindToSigned<F> di;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto zero = hn::Zero(di);
  const auto least = hn::Set(di, bounds.least);
  const auto most = hn::Set(di, bounds.most);
  auto beyond = zero;
  for (done = 0; done + lanes <= count; done += lanes) {
    const auto magnitude =
        hn::And(hn::BitCast(di, load(done)), hn::Set(di, 0x7FFFFFFF));
    const auto small =
        hn::And(hn::Gt(least, magnitude), hn::Gt(magnitude, zero));
    const auto either = hn::Or(small, hn::Gt(magnitude, most));
    beyond = hn::Or(beyond, hn::VecFromMask(di, either));
  }
  return !hn::AllTrue(di, hn::Eq(beyond, zero));
}

bool AnyBeyond(const RowSource& row, int64_t count, float least, float most) {
  const MagnitudeBounds bounds = {static_cast<int32_t>(BitsOfFloat(least)),
                                  static_cast<int32_t>(BitsOfFloat(most))};
  const bool wide = row.type == Element::kFloat32;
  const int64_t size = wide ? 4 : 2;
  int64_t done = 0;
  if (row.column_stride == size && IsAligned(row.data, size)) {
    const auto* const floats = reinterpret_cast<const float*>(row.data);
    const auto* const brains = reinterpret_cast<const uint16_t*>(row.data);
    const auto wide_at = [floats](int64_t i)
                             HWY_ATTR { return hn::LoadU(F(), floats + i); };
    const auto brain_at = [brains](int64_t i)
                              HWY_ATTR { return WidenBrain(brains + i); };
    const bool any = wide ? AnyVectorBeyond(bounds, count, wide_at, done)
                          : AnyVectorBeyond(bounds, count, brain_at, done);
    if (any) return true;
  }
  for (; done < count; ++done) {
    const unsigned char* const from = row.data + done * row.column_stride;
    uint32_t bits = 0;
    if (wide) {
      memcpy(&bits, from, sizeof(bits));
    } else {
      uint16_t half = 0;
      memcpy(&half, from, sizeof(half));
      bits = static_cast<uint32_t>(half) << 16;
    }
    if (bounds.IsBeyond(bits)) return true;
  }
  return false;
}

}  // namespace attention::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
// NOLINTEND(misc-definitions-in-headers)

#endif  // include guard
