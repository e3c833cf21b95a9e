#ifndef ATTENTION_TESTS_UNIT_CPU_KERNELS_KERNEL_TEST_H_
#define ATTENTION_TESTS_UNIT_CPU_KERNELS_KERNEL_TEST_H_

#include <cstdint>
#include <limits>
#include <new>
#include <vector>

#include "core/cpu/flush_subnormals.h"
#include "core/cpu/kernels/kernels.h"
#include "gtest/gtest.h"
#include "tests/support/random.h"
#include "tests/unit/cpu/kernels/kernel_parts.h"

namespace attention::cpu {

/// Gives memory at addresses that suit vectors.
template <typename T>
struct LineAllocator {
  using value_type = T;
  static constexpr std::align_val_t kAlignment{kLine};

  LineAllocator() = default;
  template <typename U>
  explicit LineAllocator(const LineAllocator<U>& /*other*/) {}

  T* allocate(size_t count) {
    return static_cast<T*>(::operator new(count * sizeof(T), kAlignment));
  }
  void deallocate(T* memory, size_t /*count*/) {
    ::operator delete(memory, kAlignment);
  }
  bool operator==(const LineAllocator& /*other*/) const { return true; }
};

using Floats = std::vector<float, LineAllocator<float>>;

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
/// What tests put where a kernel may not write.
inline constexpr float kUntouched = -12345;
inline constexpr float kMaxFloat = std::numeric_limits<float>::max();
/// Half the distance from 1 to the next float: what one rounding adds to a
/// number, relative to it. Bounds in these tests are counts of roundings.
inline constexpr double kEps = 0x1p-24;

/// NaN of both signs, quiet and not, with and without a payload.
inline constexpr uint32_t kNanBits[] = {0x7FC00000, 0x7FC00001, 0xFFC00000,
                                        0xFFFFFFFF, 0x7F800001, 0xFF800001};

/// A score, and how far from it a kernel's may be.
struct ExpectedScore {
  double score = 0;
  double bound = 0;
};

float FloatFromBits(uint32_t bits);
uint32_t BitsFrom(float value);

/// Numbers that kernels are most likely to get wrong: those, infinities, the
/// largest and the smallest, subnormals, zeros of both signs.
std::vector<float> SpecialFloats();

/// NaN for NaN, infinite from where FP32 is, else within `bound`, with room for
/// a subnormal number that counted as 0.
::testing::AssertionResult IsNear(double expected, double bound, float found);

/// A number of 16 bits, and the number of 16 bits that is nearest, of two such
/// the even one. Written with whole numbers and powers of two, unlike the
/// kernels.
double Widened(Element type, uint16_t bits);
uint16_t Narrowed(Element type, double value);

/// A number of INT8 or FP8, and the finite one that is nearest.
double WidenedByte(Element type, uint8_t bits);
uint8_t NarrowedByte(Element type, double value);

/// Stores `value` as an element, at any address.
void StoreElement(Element type, double value, unsigned char* to);
/// What it is then.
double LoadElement(Element type, const unsigned char* from);

inline constexpr Element kElements[] = {Element::kFloat32, Element::kFloat16,
                                        Element::kBFloat16};

/// AvailableTargets().
std::vector<int64_t> KernelTargets();

/// A test of kernels; the parameter is one of AvailableTargets(). As in the
/// backend, subnormal numbers are flushed.
class KernelTest : public ::testing::TestWithParam<int64_t> {
 protected:
  /// Around the vector, and up to the longest rows.
  std::vector<int64_t> Lengths() const {
    return {1, lanes_ - 1, lanes_, lanes_ + 1, 16, 32, 48, 160, 512};
  }
  /// Normally distributed.
  Floats Normals(int64_t count, double deviation = 1);

  const Kernels& kernels_ = KernelsOf(GetParam());
  const KernelParts& parts_ = KernelPartsOf(GetParam());
  const int64_t lanes_ = kernels_.lanes;
  test::Random random_{test::TestSeed()};

 private:
  FlushSubnormals flush_;
};

/// A block of rows against a tile of keys, which all rows attend, and the
/// memory that it needs.
struct Tile {
  /// `width`: of the values, a multiple of the lanes.
  Tile(int64_t rows, int64_t keys, int64_t width);
  Tile(const Tile&) = delete;
  Tile& operator=(const Tile&) = delete;

  float* score_row(int64_t row) { return scores.data() + row * kScoreStride; }

  std::vector<int32_t> begin;
  std::vector<int32_t> end;
  std::vector<double> sum;
  Floats max;
  Floats output;
  Floats scores;
  bool met_non_finite = false;
  TileArgs args = {};
};

}  // namespace attention::cpu

/// Runs the tests of a suite on every instruction set of this processor.
#define INSTANTIATE_FOR_KERNELS(suite)                      \
  INSTANTIATE_TEST_SUITE_P(                                 \
      Targets, suite, ::testing::ValuesIn(KernelTargets()), \
      [](const auto& test) { return KernelsOf(test.param).name; })

#endif  // ATTENTION_TESTS_UNIT_CPU_KERNELS_KERNEL_TEST_H_
