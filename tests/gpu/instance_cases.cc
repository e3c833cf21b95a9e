#include "tests/gpu/instance_cases.h"

#include <cstdint>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/cuda/kernels/dispatch-inl.h"

namespace attention::test {
namespace {

using cuda::Score;

const char* NameOf(Score score) {
  switch (score) {
    case Score::kDot:
      return "dot";
    case Score::kAdditive:
      return "additive";
    case Score::kGaussian:
      return "gaussian";
  }
  return "";  // not reached
}

const char* NameOf(cuda::Element type) {
  switch (type) {
    case cuda::Element::kFloat32:
      return "FP32";
    case cuda::Element::kFloat16:
      return "FP16";
    case cuda::Element::kBFloat16:
      return "BF16";
  }
  return "";  // not reached
}

std::string MmaName(absl::string_view type, int64_t width, int64_t rows,
                    bool options) {
  return absl::StrCat("attend_mma_", type, "_D", width, "_rows", rows,
                      options ? "_options" : "_plain");
}

// side: AttendSide().
std::string TilesName(absl::string_view kernel, Score score, int groups,
                      int side = 1) {
  return absl::StrCat(kernel, "_", NameOf(score), "_Dv", groups * 64,
                      side == 2 ? "_rows128" : "");
}

// Everything at once that a plain score has not.
void AddOptions(ProblemSpec& spec) {
  spec.bias = MaskExtents::kAll;
  spec.bias_masks = 0.2;
  spec.attend_mask = MaskExtents::kAll;
  spec.softcap = 20;
  spec.alibi_slopes = PerHeadShape::kPerHead;
  spec.dropout = {.training = true, .p = 0.3, .seed = 7};
}

// A problem with one option, or with all.
struct Option {
  absl::string_view name;
  void (*add)(ProblemSpec&);
};
constexpr Option kOptions[] = {
    {"all", AddOptions},
    {"mask", [](ProblemSpec& spec) { spec.attend_mask = MaskExtents::kAll; }},
    {"bias",
     [](ProblemSpec& spec) {
       spec.bias = MaskExtents::kAll;
       spec.bias_masks = 0.2;
     }},
    {"softcap", [](ProblemSpec& spec) { spec.softcap = 20; }},
    {"alibi",
     [](ProblemSpec& spec) { spec.alibi_slopes = PerHeadShape::kPerHead; }},
    {"dropout",
     [](ProblemSpec& spec) {
       spec.dropout = {.training = true, .p = 0.3, .seed = 7};
     }},
};

void AddWithOptions(const InstanceCase& plain,
                    std::vector<InstanceCase>& cases) {
  for (const Option& option : kOptions) {
    cases.push_back(plain);
    absl::StrAppend(&cases.back().name, "_", option.name);
    option.add(cases.back().spec);
  }
}

void AddMmaCases(DataType type, int64_t width, int64_t rows,
                 std::vector<InstanceCase>& cases) {
  for (const bool plain : {true, false}) {
    if (plain && rows < cuda::MmaMostRows(width)) continue;
    InstanceCase made;
    made.name = made.instance = MmaName(Name(type), width, rows, !plain);
    made.spec = {.batch = 1,
                 .query_heads = 2,
                 .kv_heads = 2,
                 .query_length = rows == 16   ? 5
                                 : rows == 64 ? 50
                                              : 150,
                 .key_length = rows == 128 ? 200 : 120,  // not to be split
                 .width = width,
                 // Else Hopper's own instructions would serve some of them.
                 .value_width = width - 8,
                 .type = type,
                 .causal = Causal::kBottomRight,
                 .sinks = PerHeadShape::kPerHead,
                 .wanted = kNoWeights};
    if (plain) {
      cases.push_back(made);
    } else {
      AddWithOptions(made, cases);
    }
    if (rows == 128) continue;
    // As a token is decoded, or some.
    made.name += "_split";
    made.spec.query_heads = 4;
    made.spec.kv_heads = 1;
    made.spec.query_length = rows == 16 ? 1 : 10;
    made.spec.key_length = 3000;
    if (!plain) AddOptions(made.spec);
    cases.push_back(made);
  }
}

std::string WgmmaName(absl::string_view type, int64_t width) {
  return absl::StrCat("attend_wgmma_", type, "_D", width);
}

// All that Hopper's own instructions serve, one thing at a time.
constexpr Option kWgmmaOptions[] = {
    {"plain", [](ProblemSpec&) {}},
    {"causal", [](ProblemSpec& spec) { spec.causal = Causal::kTopLeft; }},
    {"window",
     [](ProblemSpec& spec) {
       spec.causal = Causal::kBottomRight;
       spec.window.left = 300;
     }},
    {"softcap", [](ProblemSpec& spec) { spec.softcap = 20; }},
    {"sinks", [](ProblemSpec& spec) { spec.sinks = PerHeadShape::kPerHead; }},
    {"narrow",
     [](ProblemSpec& spec) { spec.width = spec.value_width = spec.width - 8; }},
    {"grouped", [](ProblemSpec& spec) { spec.kv_heads = 1; }},
    {"large_scores", [](ProblemSpec& spec) { spec.scale = 1e6; }},
};

void AddWgmmaCases(DataType type, int64_t width,
                   std::vector<InstanceCase>& cases) {
  InstanceCase made;
  made.instance = WgmmaName(Name(type), width);
  made.spec = {.batch = 1,
               .query_heads = 2,
               .kv_heads = 2,
               .query_length = 300,
               .key_length = 900,
               .width = width,
               .value_width = width,
               .type = type,
               .wanted = kNoWeights};
  for (const Option& option : kWgmmaOptions) {
    cases.push_back(made);
    cases.back().name = absl::StrCat(made.instance, "_", option.name);
    option.add(cases.back().spec);
  }
  made.name = absl::StrCat(made.instance, "_lengths_nan");
  made.nan_behind_lengths = true;
  cases.push_back(made);
}

ProblemSpec TilesSpec(Score score, int64_t value_width) {
  ProblemSpec spec = {.query_heads = 2,
                      .kv_heads = 1,
                      .query_length = 70,
                      .key_length = 130,
                      .width = 40,
                      .value_width = value_width,
                      .hidden_width = 33};
  if (score == Score::kAdditive) spec.scoring = ScoringKind::kAdditive;
  if (score == Score::kGaussian) {
    spec.scoring = ScoringKind::kGaussian;
    spec.sigma = 6;
  }
  return spec;
}

// attend's with tiles of 128 rows.
void AddLargeTilesCases(std::vector<InstanceCase>& cases) {
  for (const int groups : {1, 2}) {
    InstanceCase made;
    made.name = made.instance = TilesName("attend", Score::kDot, groups, 2);
    made.spec = TilesSpec(Score::kDot, int64_t{groups} * 50);
    made.spec.query_length = 150;
    made.spec.key_length = 300;
    made.spec.wanted = kNoWeights;
    cases.push_back(made);
    AddWithOptions(made, cases);
    made.name += "_split";
    made.spec.query_heads = 8;
    made.spec.query_length = 20;
    made.spec.key_length = 3000;
    cases.push_back(made);
  }
}

// attend's, weights' and recompute's.
void AddTilesCases(Score score, std::vector<InstanceCase>& cases) {
  for (const int groups : {1, 2}) {
    const std::string attend = TilesName("attend", score, groups);
    const int64_t value_width = int64_t{groups} * 50;
    ProblemSpec spec = TilesSpec(score, value_width);
    AddOptions(spec);
    if (groups == 1) {
      const std::string weights = absl::StrCat("weights_", NameOf(score));
      cases.push_back({weights, weights, spec});
    }
    spec.wanted = kNoWeights;
    cases.push_back({attend, attend, spec});
    ProblemSpec split = TilesSpec(score, value_width);
    split.query_length = 1;
    split.key_length = 3000;
    split.wanted = kNoWeights;
    cases.push_back({absl::StrCat(attend, "_split"), attend, split});
    const std::string recompute = TilesName("recompute", score, groups);
    cases.push_back(
        {recompute, recompute, TilesSpec(score, value_width), true});
  }
}

// A plan's pointers are null: those whose presence decides, as a job sets them.
cuda::AttentionArgs WithPointers(const cuda::Plan& plan) {
  static constexpr float kThere = 0;
  cuda::AttentionArgs args = plan.args;
  if (plan.bias.bytes > 0) args.bias.data = &kThere;
  if (plan.attend_mask.bytes > 0) args.attend_mask.data = &kThere;
  if (plan.alibi_slopes.bytes > 0) args.alibi_slopes = &kThere;
  return args;
}

}  // namespace

std::vector<InstanceCase> InstanceCases() {
  std::vector<InstanceCase> cases;
  for (const DataType type : {DataType::kBFloat16, DataType::kFloat16}) {
    for (const int64_t width : {128, 64, 256}) {
      AddMmaCases(type, width, 16, cases);
      AddMmaCases(type, width, 64, cases);
      if (width < 256) AddMmaCases(type, width, 128, cases);
      if (width < 256) AddWgmmaCases(type, width, cases);
    }
  }
  for (const Score score : {Score::kDot, Score::kAdditive, Score::kGaussian}) {
    AddTilesCases(score, cases);
  }
  AddLargeTilesCases(cases);
  for (const DataType type :
       {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16}) {
    const std::string name = absl::StrCat("softmax_rows_", Name(type));
    cases.push_back({name,
                     name,
                     {.batch = 1,
                      .query_length = 513,
                      .key_length = 520,
                      .width = 16,
                      .value_width = 16,
                      .type = type,
                      .causal = Causal::kTopLeft}});
  }
  cases.push_back({"project",
                   "project",
                   {.query_length = 70,
                    .key_length = 90,
                    .width = 40,
                    .scoring = ScoringKind::kBilinear,
                    .scale = 0.1,
                    .per_head_parameters = true}});
  return cases;
}

std::vector<std::string> InstancesOf(const cuda::Plan& plan) {
  const cuda::AttentionArgs args = WithPointers(plan);
  std::vector<std::string> all;
  if (plan.project_query || plan.project_key) all.emplace_back("project");
  const int groups = args.value.width <= 64 ? 1 : 2;
  switch (plan.method) {
    case cuda::Method::kTiles:
      all.push_back(
          TilesName("attend", args.score, groups, cuda::AttendSide(args)));
      if (plan.weights.bytes > 0) {
        all.push_back(absl::StrCat("weights_", NameOf(args.score)));
      }
      break;
    case cuda::Method::kMma:
      cuda::DispatchMma(args, [&]<typename Instance>() {
        const bool half = std::is_same_v<typename Instance::T, cuda::Half>;
        all.push_back(MmaName(half ? "FP16" : "BF16", Instance::kWidth,
                              Instance::kRows, Instance::kOptions));
        return 0;
      });
      break;
    case cuda::Method::kWgmma:
      all.push_back(
          WgmmaName(NameOf(args.query.type), args.key.width <= 64 ? 64 : 128));
      break;
    case cuda::Method::kGemm:
      all.push_back(absl::StrCat("softmax_rows_", NameOf(args.value.type)));
      break;
    case cuda::Method::kNothing:
      return all;
  }
  if (args.splits > 1) all.emplace_back("merge");
  all.push_back(TilesName("recompute", args.score, groups));
  return all;
}

}  // namespace attention::test
