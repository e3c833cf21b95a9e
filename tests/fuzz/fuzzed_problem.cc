#include "tests/fuzz/fuzzed_problem.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/fuzz/choice_reader.h"
#include "tests/fuzz/more_options.h"
#include "tests/support/factors.h"
#include "tests/support/packed_problem.h"
#include "tests/support/random_problem.h"
#include "tests/support/special_numbers.h"

namespace attention::test {
namespace {

constexpr int kMostReplacements = 8;
constexpr int64_t kMostNarrow = 150;

// Known, and not to be found again: FP32 sums over hundreds of blocks lose more
// than the tolerances have.
constexpr int64_t kMostBlocks = 64;

constexpr int64_t kMostEntries = 7;

constexpr double kScales[] = {0, 0.25, -1.5, 40, 1e-20, 1e10, -1e-40, 2e38};
constexpr double kSigmas[] = {1, 0.1, 12, 1e-3, 1e6, 1e-19, 1e30};
constexpr double kSlopes[] = {0, 1, 1e-30, -0.125, 1e6, 1e30, 3e38};
constexpr double kSinks[] = {0, 100, -100, 1e10, 3e38, -3e38, 1e-40};
// A scale that may count as 0 is one of which all products may.
constexpr double kQuantizers[] = {0, 1, 1e-30, 1e-41, 1e6, 1e9};
constexpr double kSoftcaps[] = {1, 0.01, 1e-30, 1e6, 1e30, 3e38};

// Multiplications, a quarter of those of projections (they are quick) and a few
// for each tanh.
int64_t WorkOf(const ProblemSpec& spec) {
  // Of no queries, and no batch, there still are parameters.
  const int64_t heads = std::max<int64_t>(1, spec.batch) * spec.query_heads;
  const int64_t queries = heads * std::max<int64_t>(1, spec.query_length);
  const int64_t keys = heads * spec.key_length;
  int64_t score = spec.width;
  int64_t projections = 0;
  if (spec.scoring == ScoringKind::kAdditive) {
    score = 8 * spec.hidden_width;
    projections = (queries + keys) * spec.width * spec.hidden_width;
  } else if (spec.scoring == ScoringKind::kBilinear) {
    projections = queries * spec.width * spec.width;
  }
  return queries * spec.key_length * (score + spec.value_width) +
         projections / 4;
}

// Until the problem is small enough, its largest extent is halved; lengths
// first where a width is a large one, which would not be seen otherwise.
void Shrink(ProblemSpec& spec, int64_t most_work) {
  const auto larger = [](const int64_t* a, const int64_t* b) {
    return *a < *b;
  };
  const bool wide =
      std::max({spec.width, spec.value_width, spec.hidden_width}) > kMostNarrow;
  while (WorkOf(spec) > most_work) {
    if (spec.batch > 1) {
      --spec.batch;
      continue;
    }
    int64_t* const length =
        std::max(&spec.query_length, &spec.key_length, larger);
    int64_t* const width =
        std::max({&spec.width, &spec.value_width, &spec.hidden_width}, larger);
    const bool shorten = wide ? *length > 3 : *length > *width;
    *(shorten ? length : width) /= 2;
  }
  spec.width = std::max<int64_t>(1, spec.width);
  spec.hidden_width = std::max<int64_t>(1, spec.hidden_width);
}

// A packed batch of entries that `spec` is the longest of.
void SetPacked(ChoiceReader& reader, const ProblemSpec& spec, int64_t entries,
               uint64_t seed, FuzzedProblem& made) {
  std::vector<EntryLengths> lengths;
  absl::StrAppend(&made.description, "\n  packed entries, Lq x Lk:");
  for (int64_t n = 0; n < entries; ++n) {
    const int64_t queries = reader.Byte() * spec.query_length / 255;
    const int64_t keys = reader.Byte() * spec.key_length / 255;
    lengths.push_back({.queries = queries, .keys = keys});
    absl::StrAppend(&made.description, " ", queries, "x", keys);
  }
  PackedProblem all = MakePackedProblem(spec, lengths, seed);
  made.owned = std::move(all.packed);
  made.parts = std::move(all.entries);
}

// What may be put in place of an element. Bounds keep products of three within
// FP32's range: beyond it the contract leaves results to FP32.
double Replacement(int64_t choice, DataType type, bool is_value) {
  if (type == DataType::kInt8) {
    constexpr double kBytes[] = {-128, 127, -127, 0, 1, -1, 100};
    return kBytes[choice % static_cast<int64_t>(std::size(kBytes))];
  }
  if (type == DataType::kFloat8) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const double numbers[] = {nan, 448, -448, 0, -0.0, 0x1p-9, 1};
    return numbers[choice % static_cast<int64_t>(std::size(numbers))];
  }
  const bool half = type == DataType::kFloat16;
  const double large = half ? 60000 : 1e12;
  const double largest = half                          ? 65504
                         : type == DataType::kBFloat16 ? 0x1.FEp127
                                                       : 0x1.FFFFFEp127;
  const double most = is_value ? largest : large;
  const double list[] = {std::numeric_limits<double>::quiet_NaN(),
                         kInfinity,
                         -kInfinity,
                         most,
                         -most,
                         0,
                         -0.0,
                         half ? 0x1p-24 : 0x1p-133,
                         1000};
  return list[choice % static_cast<int64_t>(std::size(list))];
}

// The tensors whose elements may be anything.
std::vector<std::pair<const char*, TensorView>> Replaceable(
    const AttentionProblem& problem) {
  std::vector<std::pair<const char*, TensorView>> tensors = {
      {"query", problem.query}};
  for (const KeyValueBlock& block : problem.key_value) {
    tensors.emplace_back("key", block.key);
    tensors.emplace_back("value", block.value);
  }
  if (const auto* additive = std::get_if<Additive>(&problem.scoring)) {
    tensors.emplace_back("w_q", additive->w_q);
    tensors.emplace_back("w_k", additive->w_k);
    tensors.emplace_back("w_v", additive->w_v);
  } else if (const auto* bilinear = std::get_if<Bilinear>(&problem.scoring)) {
    tensors.emplace_back("m", bilinear->m);
  }
  if (problem.masks.bias) tensors.emplace_back("bias", *problem.masks.bias);
  return tensors;
}

// The first row's scales, the first head's slope and sink and the first batch
// entry's offset, where there are any, become one of the list's.
void SetExtremes(ChoiceReader& reader, FuzzedProblem& made) {
  const AttentionProblem& problem = made.owned.problem;
  const auto set = [&](const char* name, const std::optional<TensorView>& view,
                       double value) {
    if (!view || value == kInfinity) return;
    if (ElementCount(view->shape).value_or(0) == 0) return;
    SetElement(*view, Shape(view->shape.size(), 0), value);
    absl::StrAppend(&made.description, "\n  first of ", name, ": ", value);
  };
  if (!problem.key_value.empty()) {
    const KeyValueBlock& block = problem.key_value.front();
    if (block.key_scale) {
      set("key_scale", block.key_scale, reader.Pick(kQuantizers, kInfinity));
      set("value_scale", block.value_scale,
          reader.Pick(kQuantizers, kInfinity));
    }
  }
  set("alibi_slopes", problem.alibi_slopes, reader.Pick(kSlopes, kInfinity));
  set("sinks", problem.sinks, reader.Pick(kSinks, kInfinity));
  const double offset = reader.Pick(kOffsets, kInfinity);
  const auto& offsets = problem.masks.query_offsets;
  if (offsets && offsets->type == DataType::kInt64) {
    set("query_offsets", offsets, offset);
  }
}

void Replace(ChoiceReader& reader, FuzzedProblem& made) {
  const auto tensors = Replaceable(made.owned.problem);
  for (int n = 0; n < kMostReplacements && !reader.empty(); ++n) {
    const auto& [name, view] =
        tensors[static_cast<size_t>(reader.Byte()) % tensors.size()];
    int64_t where = reader.Word();
    const int64_t choice = reader.Byte();
    int64_t count = 1;
    for (const int64_t extent : view.shape) count *= extent;
    if (count == 0) continue;
    where %= count;
    Shape index = view.shape;
    for (int extent = view.rank() - 1; extent >= 0; --extent) {
      index[extent] = where % view.shape[extent];
      where /= view.shape[extent];
    }
    const double value =
        Replacement(choice, view.type, absl::string_view(name) == "value");
    // The contract speaks of what is not finite in query, key and value alone.
    const bool other =
        absl::string_view("wmb").find(name[0]) != absl::string_view::npos;
    if (other && !std::isfinite(value)) continue;
    SetElement(view, index, value);
    absl::StrAppend(&made.description, "\n  ", name, " ",
                    ShapeToString(view.shape), " at ", ShapeToString(index),
                    ": ", value);
  }
}

}  // namespace

FuzzedProblem ProblemOf(absl::Span<const uint8_t> bytes, int64_t most_work) {
  ChoiceReader reader(bytes);
  std::vector<int> row;
  for (const Factor& factor : Factors()) {
    row.push_back(static_cast<int>(reader.Byte() %
                                   static_cast<int64_t>(factor.levels.size())));
  }
  ProblemSpec spec = SpecOf(row);
  FuzzedProblem made;
  made.variant = static_cast<uint8_t>(reader.Byte());
  const int64_t seed = reader.Word();
  reader.Override(reader.Byte(), 300, spec.query_length);
  reader.Override(reader.Word(), 1500, spec.key_length);
  reader.OverrideWidth(kMostNarrow, spec.width);
  spec.width = std::max<int64_t>(1, spec.width);
  reader.OverrideWidth(kMostNarrow, spec.value_width);
  reader.Override(reader.Byte(), 255, spec.keys_per_block);
  reader.OverrideWidth(80, spec.hidden_width);
  spec.hidden_width = std::max<int64_t>(1, spec.hidden_width);
  if (const double scale = reader.Pick(kScales, kInfinity);
      scale != kInfinity) {
    spec.scale = scale;
  }
  spec.sigma = reader.Pick(kSigmas, spec.sigma);
  if (const double softcap = reader.Pick(kSoftcaps, 0); softcap != 0) {
    spec.softcap = softcap;
  }
  if (spec.scoring != ScoringKind::kAdditive) spec.hidden_width = 1;
  const MoreOptions more = ReadMoreOptions(reader, spec);
  const int64_t entries = reader.Byte() % (kMostEntries + 1);
  int64_t keys_per_block = spec.keys_per_block;
  if (entries > 0) MakePackable(spec);
  Shrink(spec, most_work / std::max<int64_t>(1, entries));
  if (keys_per_block > 0) {
    keys_per_block =
        std::max(keys_per_block, spec.key_length / kMostBlocks + 1);
  }
  if (entries > 0) {
    made.own_page = keys_per_block;
    SetPacked(reader, spec, entries, static_cast<uint64_t>(seed), made);
  } else {
    spec.keys_per_block = keys_per_block;
    made.owned = MakeProblem(spec, static_cast<uint64_t>(seed));
  }
  made.description = absl::StrCat(
      Describe(row), made.description, "\n  with batch: ", spec.batch,
      ", Lq: ", spec.query_length, ", Lk: ", spec.key_length,
      ", Dq: ", spec.width, ", Dv: ", spec.value_width,
      ", keys per block: ", keys_per_block, ", h: ", spec.hidden_width,
      ", scale: ", spec.scale ? absl::StrCat(*spec.scale) : "default",
      ", sigma: ", spec.sigma,
      ", softcap: ", spec.softcap ? absl::StrCat(*spec.softcap) : "none",
      ", seed: ", seed, DescribeMore(spec, more));
  SetExtremes(reader, made);
  Replace(reader, made);
  SetMoreOptions(more, made.owned.problem);
  made.own_keys = HasOwnKeys(more, made.owned.problem);
  return made;
}

}  // namespace attention::test
