#include "tests/unit/cpu/kernels/kernel_test.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>

namespace attention::cpu {
namespace {

// A format of 16 bits: the exponent of its smallest normal number, and the bits
// that its mantissa stores.
struct Format {
  int smallest;
  int bits;
};

Format FormatOf(Element type) {
  return type == Element::kFloat16 ? Format{-14, 10} : Format{-126, 7};
}

}  // namespace

float FloatFromBits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

uint32_t BitsFrom(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

std::vector<float> SpecialFloats() {
  std::vector<float> floats = {kInfinity, -kInfinity, kMaxFloat, -kMaxFloat,
                               0x1p-126F, -0x1p-126F, 0x1p-149F, -0x1p-149F,
                               0x1p-130F, 0.0F,       -0.0F,     1.0F,
                               -1.0F};
  std::transform(std::begin(kNanBits), std::end(kNanBits),
                 std::back_inserter(floats), FloatFromBits);
  return floats;
}

::testing::AssertionResult IsNear(double expected, double bound, float found) {
  const auto failure = [&] {
    return ::testing::AssertionFailure()
           << "expected " << expected << " within " << bound << ", found "
           << found << " (0x" << std::hex << BitsFrom(found) << ")";
  };
  if (std::isnan(expected)) {
    return std::isnan(found) ? ::testing::AssertionSuccess() : failure();
  }
  if (std::abs(expected) >= 0x1.ffffffp127) {
    return found == std::copysign(kInfinity, expected)
               ? ::testing::AssertionSuccess()
               : failure();
  }
  const double room = bound + 0x1p-126;
  return std::abs(found - expected) <= room ? ::testing::AssertionSuccess()
                                            : failure();
}

double Widened(Element type, uint16_t bits) {
  const Format format = FormatOf(type);
  const int mantissa = bits & ((1 << format.bits) - 1);
  const int exponent = (bits & 0x7FFF) >> format.bits;
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == 0x7FFF >> format.bits) {
    return sign * (mantissa == 0 ? HUGE_VAL : std::nan(""));
  }
  if (exponent == 0) {
    return sign * std::ldexp(mantissa, format.smallest - format.bits);
  }
  return sign * std::ldexp(mantissa + (1 << format.bits),
                           exponent - 1 + format.smallest - format.bits);
}

uint16_t Narrowed(Element type, double value) {
  const Format format = FormatOf(type);
  const int sign = std::signbit(value) ? 0x8000 : 0;
  const int infinity = 0x7FFF >> format.bits << format.bits;
  if (std::isnan(value)) return static_cast<uint16_t>(sign | 0x7FFF);
  if (std::isinf(value)) return static_cast<uint16_t>(sign | infinity);
  const int exponent = value == 0
                           ? format.smallest
                           : std::max(std::ilogb(value), format.smallest);
  // The hidden bit of a normal number raises the exponent by one.
  const double steps =
      std::nearbyint(std::ldexp(std::abs(value), format.bits - exponent));
  const double bits =
      steps + std::ldexp(exponent - format.smallest, format.bits);
  return static_cast<uint16_t>(
      sign | static_cast<int>(std::min<double>(bits, infinity)));
}

double WidenedByte(Element type, uint8_t bits) {
  if (type == Element::kInt8) return static_cast<int8_t>(bits);
  const int exponent = bits >> 3 & 15;
  const int fraction = bits & 7;
  if (exponent == 15 && fraction == 7) return std::nan("");
  const double magnitude = exponent == 0
                               ? std::ldexp(fraction, -9)
                               : std::ldexp(8 + fraction, exponent - 10);
  return (bits & 0x80) != 0 ? -magnitude : magnitude;
}

uint8_t NarrowedByte(Element type, double value) {
  int nearest = 0;
  for (int bits = 0; bits < 256; ++bits) {
    // False where it is NaN.
    if (std::abs(WidenedByte(type, static_cast<uint8_t>(bits)) - value) <
        std::abs(WidenedByte(type, static_cast<uint8_t>(nearest)) - value)) {
      nearest = bits;
    }
  }
  return static_cast<uint8_t>(nearest);
}

void StoreElement(Element type, double value, unsigned char* to) {
  if (SizeOf(type) == 1) {
    *to = NarrowedByte(type, value);
  } else if (type == Element::kFloat32) {
    const auto narrow = static_cast<float>(value);
    std::memcpy(to, &narrow, sizeof(narrow));
  } else {
    const uint16_t bits = Narrowed(type, value);
    std::memcpy(to, &bits, sizeof(bits));
  }
}

double LoadElement(Element type, const unsigned char* from) {
  if (SizeOf(type) == 1) return WidenedByte(type, *from);
  if (type == Element::kFloat32) {
    float value;
    std::memcpy(&value, from, sizeof(value));
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, from, sizeof(bits));
  return Widened(type, bits);
}

std::vector<int64_t> KernelTargets() {
  std::vector<int64_t> targets;
  for (const int64_t* t = AvailableTargets(); *t != 0; ++t) {
    targets.push_back(*t);
  }
  return targets;
}

Floats KernelTest::Normals(int64_t count, double deviation) {
  Floats floats(static_cast<size_t>(count));
  for (float& x : floats) x = static_cast<float>(deviation * random_.Normal());
  return floats;
}

Tile::Tile(int64_t rows, int64_t keys, int64_t width)
    : begin(static_cast<size_t>(rows), 0),
      end(static_cast<size_t>(rows), static_cast<int32_t>(keys)),
      sum(static_cast<size_t>(rows), 0),
      max(static_cast<size_t>(rows), -kInfinity),
      output(static_cast<size_t>(rows * width), 0),
      scores(static_cast<size_t>(kScoreRows * kScoreStride), 0) {
  args.rows = rows;
  args.keys = keys;
  args.epilogue.factor = 1;
  args.epilogue.begin = begin.data();
  args.epilogue.end = end.data();
  args.states = {.exponent = 1,
                 .max = max.data(),
                 .sum = sum.data(),
                 .output = output.data(),
                 .width = width};
  args.met_non_finite = &met_non_finite;
  args.scores = scores.data();
}

}  // namespace attention::cpu
