#include <cmath>

#include "core/cuda/emulation/race_check.h"
#include "core/cuda/emulation/tensor_core.h"
#include "core/cuda/portable/portable.h"

namespace attention::cuda {
namespace {

// What lane `lane` of the warp shows in an exchange that has been met for.
template <typename T>
T Shown(const emulation::Exchange& exchange, int lane) {
  T value;
  std::memcpy(static_cast<void*>(&value), exchange.Lane(lane), sizeof(value));
  return value;
}

template <typename T>
emulation::Exchange Show(const T& value) {
  static_assert(sizeof(T) <= emulation::kExchangeBytes);
  const emulation::Exchange exchange = emulation::NextExchange();
  std::memcpy(exchange.Lane(ThreadIndex() % kWarp),
              static_cast<const void*>(&value), sizeof(value));
  emulation::SyncWarp();
  return exchange;
}

// A row of eight numbers that ldmatrix takes.
const void* MatrixRow(const void* row) {
  if (reinterpret_cast<uintptr_t>(row) % 16 != 0) {
    emulation::Forbid("a matrix's row is not aligned");
  }
  return row;
}

template <typename T>
T NumbersAt(const void* row, int element) {
  T bits;
  const auto* const from = static_cast<const uint16_t*>(row) + element;
  emulation::NoteAccess(from, sizeof(bits), false);
  std::memcpy(&bits, from, sizeof(bits));
  return bits;
}

// The two numbers that a register holds.
template <typename T>
void Unpack(uint32_t pair, float* to) {
  to[0] = Widen(T{static_cast<uint16_t>(pair)});
  to[1] = Widen(T{static_cast<uint16_t>(pair >> 16)});
}

struct Operands {
  uint32_t a[4];
  uint32_t b[2];
};

// Rows g and g + 8 of A, which lanes 4 g ... 4 g + 3 hold, and columns 2 t and
// 2 t + 1 of B, which lanes t, t + 4 ... of those of each column do.
template <typename T>
void MultiplyAddLanes(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                      uint32_t b1) {
  const emulation::Exchange exchange =
      Show(Operands{{a[0], a[1], a[2], a[3]}, {b0, b1}});
  const int lane = ThreadIndex() % kWarp;
  const int group = lane / 4;
  float rows[2][16];
  float columns[2][16];
  for (int t = 0; t < 4; ++t) {
    const int at = 2 * t;
    const auto row = Shown<Operands>(exchange, group * 4 + t);
    for (int half = 0; half < 2; ++half) {
      Unpack<T>(row.a[half], rows[half] + at);
      Unpack<T>(row.a[2 + half], rows[half] + 8 + at);
      const auto column =
          Shown<Operands>(exchange, (lane % 4 * 2 + half) * 4 + t);
      Unpack<T>(column.b[0], columns[half] + at);
      Unpack<T>(column.b[1], columns[half] + 8 + at);
    }
  }
  for (int n = 0; n < 4; ++n) {
    for (int first = 0; first < 16; first += kTensorCoreBlock) {
      c[n] = AddProducts(c[n], rows[n / 2] + first, columns[n % 2] + first);
    }
  }
}

}  // namespace

float Widen(Half value) {
  const uint32_t sign = static_cast<uint32_t>(value.bits & 0x8000U) << 16;
  const uint32_t exponent = value.bits >> 10 & 31U;
  const uint32_t fraction = value.bits & 1023U;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(fraction) * 0x1p-24F;
    return sign != 0 ? -magnitude : magnitude;
  }
  const uint32_t wide = exponent == 31 ? 255 : exponent + 112;
  return BitsToFloat(sign | wide << 23 | fraction << 13);
}

template <>
Half Round<Half>(float value) {
  const uint32_t bits = FloatToBits(value);
  const uint32_t sign = bits >> 16 & 0x8000U;
  const uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) return {static_cast<uint16_t>(sign | 0x7FFFU)};
  if (magnitude >= 0x477FF000U) return {static_cast<uint16_t>(sign | 0x7C00U)};
  if (magnitude < 0x38800000U) {
    // Subnormal: adding 1/2 leaves 2^-24 as the last digit.
    const float shifted = BitsToFloat(magnitude) + 0.5F;
    return {static_cast<uint16_t>(sign | (FloatToBits(shifted) - 0x3F000000U))};
  }
  const uint32_t odd = magnitude >> 13 & 1U;
  const uint32_t rounded = magnitude - (112U << 23) + 0xFFFU + odd;
  return {static_cast<uint16_t>(sign | rounded >> 13)};
}

template <>
Brain Round<Brain>(float value) {
  const uint32_t bits = FloatToBits(value);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return {0x7FFF};
  const uint32_t odd = bits >> 16 & 1U;
  return {static_cast<uint16_t>((bits + 0x7FFFU + odd) >> 16)};
}

void LoadMatrices(uint32_t (&r)[4], SharedPlace row) {
  const emulation::Exchange exchange = Show(MatrixRow(AddressOf(row)));
  const int lane = ThreadIndex() % kWarp;
  for (int m = 0; m < 4; ++m) {
    const void* from = Shown<const void*>(exchange, 8 * m + lane / 4);
    r[m] = NumbersAt<uint32_t>(from, lane % 4 * 2);
  }
}

void LoadMatricesTransposed(uint32_t (&r)[4], SharedPlace row) {
  const emulation::Exchange exchange = Show(MatrixRow(AddressOf(row)));
  const int lane = ThreadIndex() % kWarp;
  for (int m = 0; m < 4; ++m) {
    const int first = 8 * m + lane % 4 * 2;
    const void* low = Shown<const void*>(exchange, first);
    const void* high = Shown<const void*>(exchange, first + 1);
    r[m] = NumbersAt<uint16_t>(low, lane / 4) |
           static_cast<uint32_t>(NumbersAt<uint16_t>(high, lane / 4)) << 16;
  }
}

template <>
void MultiplyAdd<Half>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                       uint32_t b1) {
  MultiplyAddLanes<Half>(c, a, b0, b1);
}
template <>
void MultiplyAdd<Brain>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                        uint32_t b1) {
  MultiplyAddLanes<Brain>(c, a, b0, b1);
}

}  // namespace attention::cuda
