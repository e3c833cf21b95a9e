#include "tests/support/kernel_tables.h"

#include <algorithm>
#include <cstdlib>
#include <iostream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace attention::test {
namespace {

using S = ProblemSpec;

[[noreturn]] void EndFor(const std::string& mistake) {
  std::cerr << "kernel_tables.cc: " << mistake << "\n";
  std::abort();
}

// Levels of options by their names; an option that is not named has all.
using Supported = std::map<std::string, std::vector<std::string>>;

const std::vector<std::string> kDotProducts = {
    "dot product", "dot product, scale 0.3", "dot product, scale -0.7",
    "dot product, scale 0"};

// The one place that says what a kernel does not support.
const Supported& SupportedBy(const std::string& table) {
  static const auto& supported = *new std::map<std::string, Supported>{
      {"fp32_tiles", {}},
      {"bf16",
       {{"type", {"BF16"}},
        {"key type", {"the query's", "BF16"}},
        {"scoring", kDotProducts}}},
      {"fp16",
       {{"type", {"FP16"}},
        {"key type", {"the query's", "FP16"}},
        {"scoring", kDotProducts}}},
      {"fp32_decode",
       {{"scoring",
         {"dot product", "dot product, scale 0.3", "dot product, scale -0.7",
          "dot product, scale 0", "bilinear",
          "bilinear, per head, query's type, scale 0.5"}},
        {"results", {"output", "lse"}},
        {"more results", {"none"}}}},
      {"bf16_decode",
       {{"rank", {"four, grouped query", "four, multi query"}},
        {"type", {"BF16"}},
        {"key type", {"the query's", "BF16", "INT8", "FP8"}},
        {"scoring", kDotProducts},
        {"results", {"output", "lse"}},
        {"more results", {"none"}}}},
      {"int8_decode",
       {{"type", {"BF16", "FP16"}},
        {"key type", {"INT8"}},
        {"scoring", kDotProducts},
        {"results", {"output", "lse"}},
        {"more results", {"none"}}}},
      // For rows all of whose keys are nearer than the centre of the keys that
      // others have: many rows of huge numbers, if they have one key.
      {"fp32_tiles_and_differences",
       {{"scoring", {"Gaussian", "Gaussian, sigma 0.3"}},
        {"window", {"left 0, right 0"}},
        {"numbers", {"huge"}}}},
      {"fp32_small",
       {{"type", {"FP32"}},
        {"key type", {"the query's", "FP32"}},
        {"scoring", kDotProducts},
        {"softcap", {"off"}},
        {"valid_lens", {"none"}},
        {"attend_mask", {"none"}},
        {"bias", {"none"}},
        {"position",
         {"not causal", "not causal, offsets 3 and -2",
          "not causal, query_offsets INT32"}},
        {"window", {"none"}},
        {"alibi_slopes", {"none"}},
        {"sinks", {"none"}},
        {"dropout", {"none", "not training"}},
        {"results", {"output"}},
        {"more results", {"none"}},
        {"layout", {"row-major", "length first"}}}}};
  return supported.at(table);
}

std::vector<Factor> OptionsOf(const std::string& table) {
  std::vector<Factor> factors = OptionFactors();
  for (const auto& option : SupportedBy(table)) {
    const std::string& name = option.first;
    const std::vector<std::string>& levels = option.second;
    const auto factor =
        std::find_if(factors.begin(), factors.end(),
                     [&](const Factor& one) { return one.name == name; });
    if (factor == factors.end()) EndFor("no option is called " + name);
    std::erase_if(factor->levels, [&](const Level& level) {
      return std::count(levels.begin(), levels.end(), level.name) == 0;
    });
    if (factor->levels.size() != levels.size()) {
      EndFor("not every level that is named is one of " + name);
    }
  }
  return factors;
}

// Pairs do not suffice: in nearly all of their rows several options are there,
// and none may hang on another's being there.
std::vector<std::vector<int>> SingleLevelRows(
    const std::vector<Factor>& factors) {
  std::vector<std::vector<int>> rows = {std::vector<int>(factors.size(), 0)};
  for (size_t f = 0; f < factors.size(); ++f) {
    for (size_t level = 1; level < factors[f].levels.size(); ++level) {
      rows.push_back(rows.front());
      rows.back()[f] = static_cast<int>(level);
    }
  }
  return rows;
}

KernelTable MakeTable(const std::string& name,
                      const std::vector<std::string>& kernels,
                      const std::vector<Factor>& sizes) {
  std::vector<Factor> factors = OptionsOf(name);
  factors.insert(factors.end(), sizes.begin(), sizes.end());
  std::vector<std::vector<int>> rows = SingleLevelRows(factors);
  for (std::vector<int>& row : PairwiseRows(factors)) {
    rows.push_back(std::move(row));
  }
  return {name, kernels, std::move(factors), std::move(rows)};
}

// Full tiles of keys and blocks of rows, and a little more.
std::vector<Factor> TileSizes() {
  return {Extents<&S::query_length, 5, 37, 130>("Lq"),
          Extents<&S::key_length, 512, 513, 1024, 1100>("Lk"),
          Extents<&S::width, 16, 33, 64>("Dq"),
          Extents<&S::value_width, 16, 33, 64>("Dv"),
          Extents<&S::keys_per_block, 0, 600>("keys per block")};
}

// At least 64 rows to a kv group.
std::vector<Factor> Fp16Sizes() {
  std::vector<Factor> sizes = TileSizes();
  sizes[0] = Extents<&S::query_length, 64, 130>("Lq");
  return sizes;
}

// Few rows are differences in the first place.
std::vector<Factor> DifferencesSizes() {
  std::vector<Factor> sizes = TileSizes();
  sizes[0] = Extents<&S::query_length, 37, 130>("Lq");
  return sizes;
}

// Splits of 1,024 keys.
std::vector<Factor> DecodeSizes() {
  return {Extents<&S::query_length, 1, 4>("Lq"),
          Extents<&S::key_length, 512, 1100, 2100>("Lk"),
          Extents<&S::width, 16, 33, 64>("Dq"),
          Extents<&S::value_width, 16, 33, 64>("Dv"),
          Extents<&S::keys_per_block, 0, 600>("keys per block")};
}

// At least 8 rows to a kv group.
std::vector<Factor> Bf16DecodeSizes() {
  std::vector<Factor> sizes = DecodeSizes();
  sizes[0] = Extents<&S::query_length, 3, 4>("Lq");
  return sizes;
}

// At most 8 rows to a kv group.
std::vector<Factor> Int8DecodeSizes() {
  std::vector<Factor> sizes = DecodeSizes();
  sizes[0] = Extents<&S::query_length, 1, 2>("Lq");
  return sizes;
}

std::vector<Factor> SmallSizes() {
  return {Extents<&S::query_length, 1, 3, 8>("Lq"),
          Extents<&S::key_length, 1, 9, 16>("Lk"),
          Extents<&S::width, 1, 16, 33>("Dq"),
          Extents<&S::value_width, 1, 16, 33>("Dv")};
}

bool IsOption(const Factor& factor) {
  static const auto& options = *new std::vector<Factor>(OptionFactors());
  return std::any_of(options.begin(), options.end(), [&](const Factor& option) {
    return option.name == factor.name;
  });
}

std::string NameOf(const Factor& factor, const Level& level) {
  return absl::StrCat(factor.name, " ", level.name);
}

std::set<std::string> LevelsOf(const KernelTable& table, size_t row) {
  std::set<std::string> levels;
  for (size_t f = 0; f < table.factors.size(); ++f) {
    const Factor& factor = table.factors[f];
    levels.insert(
        NameOf(factor, factor.levels[static_cast<size_t>(table.rows[row][f])]));
  }
  return levels;
}

const KernelTable& TableOf(const std::string& kernel) {
  for (const KernelTable& table : KernelTables()) {
    const auto& kernels = table.kernels;
    if (std::count(kernels.begin(), kernels.end(), kernel) > 0) return table;
  }
  EndFor(kernel + " has no table");
}

}  // namespace

const std::vector<KernelTable>& KernelTables() {
  static const auto& tables = *new std::vector<KernelTable>{
      MakeTable("fp32_tiles", {"fp32_tiles"}, TileSizes()),
      MakeTable("bf16", {"bf16_amx", "bf16_avx512"}, TileSizes()),
      MakeTable("fp16", {"fp16_amx"}, Fp16Sizes()),
      MakeTable("fp32_decode", {"fp32_decode"}, DecodeSizes()),
      MakeTable("bf16_decode", {"bf16_amx_decode"}, Bf16DecodeSizes()),
      MakeTable("int8_decode", {"int8_amx_decode"}, Int8DecodeSizes()),
      MakeTable("fp32_tiles_and_differences", {"fp32_tiles_and_differences"},
                DifferencesSizes()),
      MakeTable("fp32_small", {"fp32_small"}, SmallSizes())};
  return tables;
}

std::vector<std::pair<size_t, size_t>> KernelTableRows() {
  std::vector<std::pair<size_t, size_t>> rows;
  for (size_t table = 0; table < KernelTables().size(); ++table) {
    for (size_t row = 0; row < KernelTables()[table].rows.size(); ++row) {
      rows.emplace_back(table, row);
    }
  }
  return rows;
}

std::vector<std::string> KernelsOfCpu(const std::string& instruction_set) {
  std::vector<std::string> kernels = {
      "fp32_tiles", "fp32_decode", "fp32_tiles_and_differences", "fp32_small"};
  // Or, in the tests, "_AMX_EMULATED" and so on.
  if (absl::StrContains(instruction_set, "_AMX")) {
    kernels.push_back("bf16_amx");
    kernels.push_back("bf16_amx_decode");
    kernels.push_back("int8_amx_decode");
    kernels.push_back("fp16_amx");
  }
  if (absl::StrContains(instruction_set, "_BF16")) {
    kernels.push_back("bf16_avx512");
  }
  return kernels;
}

KernelCoverage::KernelCoverage(const std::vector<std::string>& kernels) {
  for (const std::string& kernel : kernels) answered_[kernel];
}

bool KernelCoverage::Needs(const KernelTable& table, size_t row) const {
  const std::set<std::string> levels = LevelsOf(table, row);
  return std::any_of(table.kernels.begin(), table.kernels.end(),
                     [&](const std::string& kernel) {
                       const auto answered = answered_.find(kernel);
                       return answered != answered_.end() &&
                              !std::includes(answered->second.begin(),
                                             answered->second.end(),
                                             levels.begin(), levels.end());
                     });
}

void KernelCoverage::Add(const std::string& kernel, const KernelTable& table,
                         size_t row) {
  answered_[kernel].merge(LevelsOf(table, row));
}

std::vector<std::string> KernelCoverage::Missing() const {
  std::vector<std::string> missing;
  for (const auto& [kernel, answered] : answered_) {
    if (answered.empty()) {
      missing.push_back(kernel);
      continue;
    }
    for (const Factor& factor : TableOf(kernel).factors) {
      for (const Level& level : factor.levels) {
        const std::string name = NameOf(factor, level);
        if (IsOption(factor) && answered.count(name) == 0) {
          missing.push_back(absl::StrCat(kernel, ": ", name));
        }
      }
    }
  }
  return missing;
}

}  // namespace attention::test
