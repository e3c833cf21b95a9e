#include "tests/unit/cpu/kernels/scored_tile.h"

#include <cstdlib>
#include <cstring>

#include "core/cpu/kernels/bf16/products.h"
#include "tests/support/emulated_products.h"

namespace attention::cpu {
namespace {

// Floats of a row of queries and keys: the pairs of one step of BF16.
constexpr int64_t kQueryFloats = kBf16Depth;

// Two numbers of BF16 in the place of a float.
float PairOf(float low, float high) {
  return FloatFromBits(Narrowed(Element::kBFloat16, low) |
                       static_cast<uint32_t>(Narrowed(Element::kBFloat16, high))
                           << 16);
}

// The first term of a number, or what that leaves of it.
float TermOf(float value, int64_t term) {
  const auto first = static_cast<float>(
      Widened(Element::kBFloat16, Narrowed(Element::kBFloat16, value)));
  return term == 0 ? first : value - first;
}

int64_t RoundUp(int64_t count, int64_t to) {
  return (count + to - 1) / to * to;
}

}  // namespace

ScoredTile::ScoredTile(TestedOperands operands, int64_t rows,
                       const std::vector<float>& of_keys, int64_t width,
                       const Kernels& kernels, test::Random& random)
    : Tile(rows, static_cast<int64_t>(of_keys.size()), width),
      key_scores(of_keys),
      values(static_cast<size_t>(args.keys * width)),
      unnormalised_(kMaxMicroRows * kScoreStride) {
  const Element type =
      operands.terms == 2 ? Element::kFloat16 : Element::kBFloat16;
  for (float& x : values) {
    x = static_cast<float>(Widened(type, Narrowed(type, random.Normal())));
  }
  args.unnormalised = unnormalised_.data();
  args.operands = operands.operands;
  switch (args.operands) {
    case Operands::kPacked:
      SetPacked(kernels);
      break;
    case Operands::kInPlace:
      SetInPlace(kernels.lanes);
      break;
    case Operands::kBf16:
      SetBf16(operands.terms);
      break;
    case Operands::kBf16InPlace:
      SetBf16InPlace();
      break;
    case Operands::kInt8InPlace:
      // INT8 has no scores of any value: see int8_in_place_test.cc, and
      // tests/parity for what stands between its products.
      std::abort();
  }
}

void ScoredTile::SetPacked(const Kernels& kernels) {
  for (int64_t r = 0; r < args.rows; ++r) queries_.push_back(row_factor(r));
  keys_.resize(key_scores.size() + static_cast<size_t>(2 * kernels.lanes));
  kernels.pack_keys(key_scores.data(), 1, args.keys, 1, keys_.data());
  for (int64_t j = 0; j < args.keys; ++j) {
    value_rows_.push_back(values.data() + j * args.states.width);
  }
  args.packed.score = Score::kDot;
  args.packed.width = 1;
  args.packed.queries = queries_.data();
  args.packed.keys = keys_.data();
  args.packed.values = value_rows_.data();
}

void ScoredTile::SetInPlace(int64_t lanes) {
  queries_.resize(static_cast<size_t>(args.rows * lanes));
  for (int64_t r = 0; r < args.rows; ++r) {
    queries_[static_cast<size_t>(r * lanes)] = row_factor(r);
  }
  for (int64_t j = 0; j < 2 * args.keys; ++j) {
    const int64_t key = j % args.keys;
    key_places_.push_back(
        reinterpret_cast<const unsigned char*>(key_scores.data() + key));
    value_places_.push_back(reinterpret_cast<const unsigned char*>(
        values.data() + key * args.states.width));
  }
  args.in_place = {.queries = queries_.data(),
                   .query_stride = lanes,
                   .keys = key_places_.data(),
                   .key_width = 1,
                   .values = value_places_.data(),
                   .value_width = args.states.width,
                   .ahead = args.keys,
                   .type = Element::kFloat32,
                   .key_scales = nullptr,
                   .value_scales = nullptr};
}

void ScoredTile::SetBf16InPlace() {
  const int64_t width = args.states.width;
  const int64_t rows = RoundUp(args.rows, kBf16Panel);
  queries_.resize(static_cast<size_t>(rows * kQueryFloats));
  for (int64_t r = 0; r < args.rows; ++r) {
    const int64_t panel = r / kBf16Panel * kBf16Panel;
    queries_[static_cast<size_t>(panel * kQueryFloats + r - panel)] =
        PairOf(row_factor(r), 0);
  }
  for (const float score : key_scores) {
    elements_.push_back(Narrowed(Element::kBFloat16, score));
  }
  for (const float value : values) {
    elements_.push_back(Narrowed(Element::kBFloat16, value));
  }
  for (int64_t j = 0; j < 2 * args.keys; ++j) {
    const int64_t key = j % args.keys;
    key_places_.push_back(
        reinterpret_cast<const unsigned char*>(elements_.data() + key));
    value_places_.push_back(reinterpret_cast<const unsigned char*>(
        elements_.data() + args.keys + key * width));
  }
  args.in_place = {.queries = nullptr,
                   .query_stride = 0,
                   .keys = key_places_.data(),
                   .key_width = 1,
                   .values = value_places_.data(),
                   .value_width = width,
                   .ahead = args.keys,
                   .type = Element::kBFloat16,
                   .key_scales = nullptr,
                   .value_scales = nullptr};
  const int64_t sums = RoundUp(width, kBf16InPlaceColumns);
  keys_.resize(kBf16Panel * kQueryFloats);
  packed_values_.resize(static_cast<size_t>(kMaxMicroRows * sums));
  paired_weights_.resize(kBf16WeightTerm);
  args.bf16 = {.terms = 1,
               .width = kQueryFloats,
               .queries = nullptr,
               .keys = nullptr,
               .packed_queries = queries_.data(),
               .key_table = nullptr,
               .value_table = nullptr,
               .key_room = keys_.data(),
               .sums = packed_values_.data(),
               .sums_stride = sums,
               .value_panels = 0,
               .values = nullptr,
               .weights = paired_weights_.data(),
               .products = &test::EmulatedAmx()};
}

void ScoredTile::SetBf16(int64_t terms) {
  const int64_t rows = RoundUp(args.rows, kMaxMicroRows);
  const int64_t keys = RoundUp(args.keys, kBf16Panel);
  const int64_t width = args.states.width;
  queries_.resize(static_cast<size_t>(rows * terms * kQueryFloats));
  keys_.resize(static_cast<size_t>(keys * terms * kQueryFloats));
  packed_values_.resize(static_cast<size_t>(keys / 2 * terms * width));
  for (int64_t term = 0; term < terms; ++term) {
    for (int64_t r = 0; r < args.rows; ++r) {
      queries_[static_cast<size_t>((r * terms + term) * kQueryFloats)] =
          PairOf(TermOf(row_factor(r), term), 0);
    }
    for (int64_t j = 0; j < args.keys; ++j) {
      const int64_t panel = j / kBf16Panel * kBf16Panel;
      keys_[static_cast<size_t>(
          (panel * terms + term * kBf16Panel) * kQueryFloats + j - panel)] =
          PairOf(TermOf(key_scores[static_cast<size_t>(j)], term), 0);
      if (j - panel >= kBf16Depth) continue;
      const int64_t pairs = (panel / 2 * terms + term * kBf16Depth) * width;
      for (int64_t c = 0; c < width; ++c) {
        const int64_t of_columns = c / kBf16Panel * kBf16Depth * kBf16Panel;
        const int64_t high = j + kBf16Depth;
        packed_values_[static_cast<size_t>(
            pairs + of_columns + (j - panel) * kBf16Panel + c % kBf16Panel)] =
            PairOf(TermOf(values[static_cast<size_t>(j * width + c)], term),
                   high < args.keys
                       ? TermOf(values[static_cast<size_t>(high * width + c)],
                                term)
                       : 0);
      }
    }
  }
  // Rows of a micro-tile that the block does not have are computed, too.
  output.resize(static_cast<size_t>(rows * width));
  args.states.output = output.data();
  paired_weights_.resize(static_cast<size_t>(terms * kBf16WeightTerm));
  args.bf16 = {.terms = terms,
               .width = kQueryFloats,
               .queries = queries_.data(),
               .keys = keys_.data(),
               .packed_queries = nullptr,
               .key_table = nullptr,
               .value_table = nullptr,
               .key_room = nullptr,
               .sums = nullptr,
               .sums_stride = 0,
               .value_panels = terms * width / kBf16Panel,
               .values = packed_values_.data(),
               .weights = paired_weights_.data(),
               .products = &test::EmulatedAmx()};
}

}  // namespace attention::cpu
