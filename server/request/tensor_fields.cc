#include "server/request/tensor_fields.h"

#include <iterator>

#include "absl/strings/str_cat.h"

namespace attention::server {
namespace {

constexpr absl::string_view kElements = "FP32, FP16 or BF16";
constexpr absl::string_view kKeyElements = "FP32, FP16, BF16, INT8 or FP8";
constexpr absl::string_view kElementsOrFp32 = "FP32 or the query's datatype";
constexpr absl::string_view kIntegers = "INT32 or INT64";
constexpr absl::string_view kFp32 = "FP32";
constexpr absl::string_view kPerHead = "(Hq) or (B, Hq)";

using Problem = AttentionProblem&;
constexpr ScoringSet kAdditive = ScoringsOf<Additive>();

constexpr TensorField kTensors[] = {
    {"query", kElements, "(B, Hq, Lq, Dq)", "queries; Hq is a multiple of Hkv",
     Need::kEveryRequest, kAnyScoring,
     [](Problem p) -> TensorView& { return p.query; },
     /*metadata_rank=*/4, /*read_first=*/false, /*may_lie_on_device=*/true},
    {"key", kKeyElements, "(B, Hkv, Lk, Dk)", "keys", Need::kEveryRequest,
     kAnyScoring,
     [](Problem p) -> TensorView& { return p.key_value.front().key; },
     /*metadata_rank=*/4, /*read_first=*/false, /*may_lie_on_device=*/true},
    {"value", kKeyElements, "(B, Hkv, Lk, Dv)", "values, of the key's datatype",
     Need::kEveryRequest, kAnyScoring,
     [](Problem p) -> TensorView& { return p.key_value.front().value; },
     /*metadata_rank=*/4, /*read_first=*/false, /*may_lie_on_device=*/true},
    {"w_q", kElementsOrFp32, "(Dq, h) or (Hq, Dq, h)", "projection of queries",
     Need::kScoring, kAdditive,
     [](Problem p) -> TensorView& { return std::get<Additive>(p.scoring).w_q; },
     /*metadata_rank=*/2, /*read_first=*/false, /*may_lie_on_device=*/false,
     /*in_parameter_sets=*/true},
    {"w_k", kElementsOrFp32, "(Dk, h) or (Hq, Dk, h)", "projection of keys",
     Need::kScoring, kAdditive,
     [](Problem p) -> TensorView& { return std::get<Additive>(p.scoring).w_k; },
     /*metadata_rank=*/2, /*read_first=*/false, /*may_lie_on_device=*/false,
     /*in_parameter_sets=*/true},
    {"w_v", kElementsOrFp32, "(h), (h, 1), (Hq, h) or (Hq, h, 1)",
     "weights of the hidden units", Need::kScoring, kAdditive,
     [](Problem p) -> TensorView& { return std::get<Additive>(p.scoring).w_v; },
     /*metadata_rank=*/1, /*read_first=*/false, /*may_lie_on_device=*/false,
     /*in_parameter_sets=*/true},
    {"m", kElementsOrFp32, "(Dq, Dk) or (Hq, Dq, Dk)",
     "the matrix between query and key", Need::kScoring, ScoringsOf<Bilinear>(),
     [](Problem p) -> TensorView& { return std::get<Bilinear>(p.scoring).m; },
     /*metadata_rank=*/2, /*read_first=*/false, /*may_lie_on_device=*/false,
     /*in_parameter_sets=*/true},
    {"valid_lens", kIntegers, "(B) or (B, Lq)",
     "keys at positions at or beyond the length take no part; 0 to Lk. Other "
     "names: key_padding_mask, sequence lengths",
     Need::kNobody, kAnyScoring,
     [](Problem p) -> TensorView& { return p.masks.valid_lens.emplace(); },
     /*metadata_rank=*/0, /*read_first=*/true},
    {"attend_mask", "BOOL or UINT8", "broadcasts to (B, Hq, Lq, Lk)",
     "1: the key takes part, 0: it does not", Need::kNobody, kAnyScoring,
     [](Problem p) -> TensorView& { return p.masks.attend_mask.emplace(); },
     /*metadata_rank=*/0, /*read_first=*/true},
    {"bias", kElementsOrFp32, "broadcasts to (B, Hq, Lq, Lk)",
     "added to the scores; -inf masks", Need::kNobody, kAnyScoring,
     [](Problem p) -> TensorView& { return p.masks.bias.emplace(); },
     /*metadata_rank=*/0, /*read_first=*/false, /*may_lie_on_device=*/true},
    {"alibi_slopes", kFp32, kPerHead,
     "adds -slope * distance to the scores (ALiBi)", Need::kNobody, kAnyScoring,
     [](Problem p) -> TensorView& { return p.alibi_slopes.emplace(); },
     /*metadata_rank=*/0, /*read_first=*/false, /*may_lie_on_device=*/false,
     /*in_parameter_sets=*/true},
    {"sinks", kFp32, kPerHead,
     "a logit of each head that takes part in the softmax and has no value "
     "(attention sinks)",
     Need::kNobody, kAnyScoring,
     [](Problem p) -> TensorView& { return p.sinks.emplace(); },
     /*metadata_rank=*/0, /*read_first=*/true, /*may_lie_on_device=*/false,
     /*in_parameter_sets=*/true},
    {"query_offsets", kIntegers, "(B)",
     "`query_offset` of each batch entry; not together with it", Need::kNobody,
     kAnyScoring,
     [](Problem p) -> TensorView& { return p.masks.query_offsets.emplace(); },
     /*metadata_rank=*/0, /*read_first=*/true},
    {"query_starts", kIntegers, "(B + 1)",
     "of a packed batch: where each entry's queries start, from 0 to T; query "
     "is "
     "(T, Hq, Dq) then. Other names: cu_seqlens_q, qo_indptr",
     Need::kNobody, kAnyScoring,
     [](Problem p) -> TensorView& { return p.query_starts.emplace(); },
     /*metadata_rank=*/0, /*read_first=*/true},
    {"key_starts", kIntegers, "(B + 1)",
     "likewise of keys, from 0 to S; key is (S, Hkv, Dk), value (S, Hkv, Dv)",
     Need::kNobody, kAnyScoring,
     [](Problem p) -> TensorView& { return p.key_starts.emplace(); },
     /*metadata_rank=*/0, /*read_first=*/true},
    {"key_scale", kFp32, "(B, Hkv, Lk)",
     "of keys of INT8 or FP8, required there: what each row's elements are "
     "multiplied by; finite, 0 or more; (S, Hkv) in a packed batch",
     Need::kNobody, kAnyScoring,
     [](Problem p) -> TensorView& {
       return p.key_value.front().key_scale.emplace();
     },
     /*metadata_rank=*/0, /*read_first=*/true},
    {"value_scale", kFp32, "(B, Hkv, Lk)", "likewise of values", Need::kNobody,
     kAnyScoring,
     [](Problem p) -> TensorView& {
       return p.key_value.front().value_scale.emplace();
     },
     /*metadata_rank=*/0, /*read_first=*/true},
};

static_assert(std::size(kTensors) <= kMostTensorFields);

}  // namespace

absl::Span<const TensorField> TensorFields() { return kTensors; }

const TensorField* FindTensor(absl::string_view name) {
  for (const TensorField& tensor : kTensors) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

bool Accepts(const TensorField& tensor, AttentionProblem& problem) {
  if (!Contains(tensor.scorings, problem.scoring)) return false;
  return tensor.need != Need::kScoring || tensor.place(problem).rank() == 0;
}

std::string AcceptedTensors(AttentionProblem& problem) {
  std::string names;
  for (const TensorField& tensor : kTensors) {
    if (!Accepts(tensor, problem)) continue;
    absl::StrAppend(&names, names.empty() ? "" : ", ", tensor.name);
  }
  return names;
}

}  // namespace attention::server
