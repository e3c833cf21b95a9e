// Products of BF16 with Intel's AMX: tiles of 16 rows of 64 bytes, described in
// the Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1,
// chapter 18, and volume 2 (LDTILECFG, TILELOADD, TDPBF16PS).

#include "core/cpu/kernels/bf16/products.h"

#if defined(__x86_64__) && defined(__linux__)

#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ATTENTION_AMX __attribute__((target("amx-tile,amx-bf16")))
#define ATTENTION_AMX_INLINE ATTENTION_AMX __attribute__((always_inline)) inline

namespace attention::cpu {
namespace {

// Bytes of a row of a tile, and from one row of a panel to the next.
constexpr int64_t kPanelBytes = kBf16Panel * sizeof(float);
constexpr int64_t kScoreBytes = kScoreStride * sizeof(float);
constexpr int64_t kWeightBytes = kBf16WeightStride * sizeof(float);
// Floats of kBf16Depth rows of a panel.
constexpr int64_t kPanelFloats = kBf16Depth * kBf16Panel;

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

ATTENTION_AMX void Begin() { _tile_loadconfig(&kConfig); }
ATTENTION_AMX void End() { _tile_release(); }

// Tiles 0 to 3 are sums (rows 0-15 and 16-31, two times 16 columns), 4 and 5
// take rows, 6 and 7 columns. Numbers of tiles are part of the instructions.
template <bool kTwoRows, bool kTwoColumns>
ATTENTION_AMX_INLINE void Clear() {
  _tile_zero(0);
  if constexpr (kTwoColumns) _tile_zero(1);
  if constexpr (kTwoRows) _tile_zero(2);
  if constexpr (kTwoRows && kTwoColumns) _tile_zero(3);
}

template <bool kTwoRows, bool kTwoColumns>
ATTENTION_AMX_INLINE void Load(const float* from, int64_t stride,
                               int64_t bytes) {
  _tile_loadd(0, from, bytes);
  if constexpr (kTwoColumns) _tile_loadd(1, from + 16, bytes);
  if constexpr (kTwoRows) _tile_loadd(2, from + 16 * stride, bytes);
  if constexpr (kTwoRows && kTwoColumns) {
    _tile_loadd(3, from + 16 * stride + 16, bytes);
  }
}

template <bool kTwoRows, bool kTwoColumns>
ATTENTION_AMX_INLINE void Store(float* to, int64_t stride, int64_t bytes) {
  _tile_stored(0, to, bytes);
  if constexpr (kTwoColumns) _tile_stored(1, to + 16, bytes);
  if constexpr (kTwoRows) _tile_stored(2, to + 16 * stride, bytes);
  if constexpr (kTwoRows && kTwoColumns) {
    _tile_stored(3, to + 16 * stride + 16, bytes);
  }
}

// One step: 16 pairs of each row and of each column.
template <bool kTwoRows, bool kTwoColumns>
ATTENTION_AMX_INLINE void Step(const float* rows, int64_t stride, int64_t bytes,
                               const float* columns) {
  _tile_loadd(4, rows, bytes);
  _tile_loadd(6, columns, kPanelBytes);
  _tile_dpbf16ps(0, 4, 6);
  if constexpr (kTwoColumns) {
    _tile_loadd(7, columns + 16, kPanelBytes);
    _tile_dpbf16ps(1, 4, 7);
  }
  if constexpr (kTwoRows) {
    _tile_loadd(5, rows + 16 * stride, bytes);
    _tile_dpbf16ps(2, 5, 6);
    if constexpr (kTwoColumns) _tile_dpbf16ps(3, 5, 7);
  }
}

template <bool kTwoRows>
ATTENTION_AMX void Scores(const float* queries, const float* keys,
                          int64_t width, int64_t panels, float* scores) {
  const int64_t bytes = width * static_cast<int64_t>(sizeof(float));
  for (int64_t p = 0; p < panels; ++p) {
    Clear<kTwoRows, true>();
    for (int64_t i = 0; i < width; i += kBf16Depth) {
      Step<kTwoRows, true>(queries + i, width, bytes, keys);
      keys += kPanelFloats;
    }
    Store<kTwoRows, true>(scores + p * kBf16Panel, kScoreStride, kScoreBytes);
  }
}

void ScoresOfRows(const float* queries, const float* keys, int64_t width,
                  int64_t rows, int64_t panels, float* scores) {
  if (rows > kBf16RowTile) {
    Scores<true>(queries, keys, width, panels, scores);
  } else {
    Scores<false>(queries, keys, width, panels, scores);
  }
}

template <bool kTwoRows, bool kTwoColumns>
ATTENTION_AMX void AddPanel(const float* weights, const float* values,
                            int64_t value_stride, int64_t panels, float* output,
                            int64_t width) {
  const int64_t bytes = width * static_cast<int64_t>(sizeof(float));
  Load<kTwoRows, kTwoColumns>(output, width, bytes);
  for (int64_t p = 0; p < panels; ++p) {
    Step<kTwoRows, kTwoColumns>(weights, kBf16WeightStride, kWeightBytes,
                                values);
    weights += kBf16Depth;
    values += value_stride;
  }
  Store<kTwoRows, kTwoColumns>(output, width, bytes);
}

template <bool kTwoRows>
void AddValues(const float* weights, const float* values, int64_t value_panels,
               int64_t panels, float* output, int64_t width) {
  const int64_t stride = value_panels * kPanelFloats;
  for (int64_t c = 0; c < width; c += kBf16Panel) {
    if (width - c > 16) {
      AddPanel<kTwoRows, true>(weights, values, stride, panels, output + c,
                               width);
    } else {
      AddPanel<kTwoRows, false>(weights, values, stride, panels, output + c,
                                width);
    }
    values += kPanelFloats;
  }
}

void AddValuesOfRows(const float* weights, const float* values,
                     int64_t value_panels, int64_t rows, int64_t panels,
                     float* output, int64_t output_width) {
  if (rows > kBf16RowTile) {
    AddValues<true>(weights, values, value_panels, panels, output,
                    output_width);
  } else {
    AddValues<false>(weights, values, value_panels, panels, output,
                     output_width);
  }
}

__attribute__((target("xsave"))) uint64_t EnabledStates() { return _xgetbv(0); }

bool ProcessorHasAmx() {
  constexpr unsigned kOsxsave = 1U << 27;                 // leaf 1, ECX
  constexpr unsigned kBf16AndTile = 1U << 22 | 1U << 24;  // leaf 7, EDX
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & kOsxsave) == 0) return false;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 &&
         (d & kBf16AndTile) == kBf16AndTile;
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
  static constexpr Bf16Products kProducts = {.name = "bf16_amx",
                                             .suffix = "_AMX",
                                             .begin = Begin,
                                             .end = End,
                                             .scores = ScoresOfRows,
                                             .add_values = AddValuesOfRows};
  return kAvailable ? &kProducts : nullptr;
}

}  // namespace attention::cpu

#else

namespace attention::cpu {

const Bf16Products* AmxProducts() { return nullptr; }

}  // namespace attention::cpu

#endif
