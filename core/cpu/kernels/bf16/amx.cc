// Products of BF16 with Intel's AMX: tiles of 16 rows of 64 bytes, described in
// the Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1,
// chapter 18, and volume 2 (LDTILECFG, TILELOADD, TDPBF16PS).

#include "core/cpu/kernels/bf16/products.h"

#if defined(__x86_64__) && defined(__linux__)

#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/cpu/kernels/bf16/avx512_digits-inl.h"
#include "core/cpu/kernels/bf16/avx512_pairs-inl.h"

#define ATTENTION_TILES __attribute__((target("amx-tile,amx-bf16,amx-int8")))
#define ATTENTION_TILES_INLINE \
  ATTENTION_TILES __attribute__((always_inline)) inline
#define TileZero(tile) _tile_zero(tile)
// GCC 12's does not say that it reads memory.
#define TileLoad(tile, from, bytes)    \
  do {                                 \
    __asm__ volatile("" ::: "memory"); \
    _tile_loadd(tile, from, bytes);    \
  } while (false)
#define TileStore(tile, to, bytes) _tile_stored(tile, to, bytes)
#define TileMultiplyAdd(sums, rows, columns) _tile_dpbf16ps(sums, rows, columns)
#define TileMultiplyAddBytes(sums, rows, columns) \
  _tile_dpbssd(sums, rows, columns)
#include "core/cpu/kernels/bf16/tile_products-inl.h"
// And after it
#include "core/cpu/kernels/bf16/in_place_products-inl.h"
// And after that
#include "core/cpu/kernels/bf16/int8_products-inl.h"

namespace attention::cpu {
namespace {

// What LDTILECFG reads: 8 tiles of 16 rows of 64 bytes, of palette 1.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfig) == 64);

constexpr TileConfig kConfig;

ATTENTION_TILES void Begin() { _tile_loadconfig(&kConfig); }
ATTENTION_TILES void End() { _tile_release(); }

__attribute__((target("xsave"))) uint64_t EnabledStates() { return _xgetbv(0); }

bool ProcessorHasAmx() {
  constexpr unsigned kOsxsave = 1U << 27;  // leaf 1, ECX
  // BF16, tiles and INT8: leaf 7, EDX.
  constexpr unsigned kAmx = 1U << 22 | 1U << 24 | 1U << 25;
  constexpr unsigned kVbmi = 1U << 1;  // leaf 7, ECX
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & kOsxsave) == 0) return false;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & kAmx) == kAmx &&
         (c & kVbmi) != 0;
}

// Linux keeps the tiles' registers from a process until it asks for them, once
// for all of its threads (Documentation/arch/x86/xstate.rst).
bool SystemGrantsTiles() {
  constexpr uint64_t kTileStates = uint64_t{3}
                                   << 17;     // XCR0: TILECFG, TILEDATA
  constexpr int kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr int kTileData = 18;
  return (EnabledStates() & kTileStates) == kTileStates &&
         syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace

const Bf16Products* AmxProducts() {
  static const bool kAvailable = ProcessorHasAmx() && SystemGrantsTiles();
  static constexpr Int8Products kInt8 = {.decode_name = "int8_amx_decode",
                                         .split_queries = SplitQueries,
                                         .scores = ScoresOfBytes,
                                         .sums = SumsOfBytes};
  static constexpr Bf16Products kProducts = {
      .name = "bf16_amx",
      .decode_name = "bf16_amx_decode",
      .fp16_name = "fp16_amx",
      .suffix = "_AMX",
      .begin = Begin,
      .end = End,
      .scores = ScoresOfRows<1>,
      .add_values = AddValuesOfRows<1>,
      .scores_in_place = ScoresInPlace,
      .sums_in_place = SumsInPlace,
      .scores_of_two = ScoresOfRows<2>,
      .add_values_of_two = AddValuesOfRows<2>,
      .int8 = &kInt8};
  return kAvailable ? &kProducts : nullptr;
}

}  // namespace attention::cpu

#else

namespace attention::cpu {

const Bf16Products* AmxProducts() { return nullptr; }

}  // namespace attention::cpu

#endif
