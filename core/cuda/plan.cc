#include "core/cuda/plan.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/cuda/plan_memory.h"
#include "core/cuda/scoring.h"

namespace attention::cuda {
namespace {

// Fewer keys than this are not worth a block of their own. One sequence with 8
// key/value heads and 2,048 keys then has 128 blocks, about as many as large
// devices have multiprocessors; what reads decides, not what merges.
constexpr int64_t kLeastSplit = kSplitUnit;

// `what` begins with the request's field, where it is one.
absl::Status LeftToCpu(absl::string_view what) {
  return absl::UnimplementedError(
      absl::StrCat(what,
                   " (the cuda backend does not compute this; --backend auto "
                   "leaves it to cpu, with tensors in host memory)"));
}

bool SomethingIsComputed(const ValidatedProblem& problem) {
  const WantedOutputs& wanted = problem.wanted;
  return problem.batch > 0 && problem.query_length > 0 &&
         problem.key_length > 0 &&
         (problem.value_width > 0 || wanted.weights || wanted.lse);
}

Method ChooseMethod(const ValidatedProblem& problem, const AttentionArgs& args,
                    const DeviceProperties& device,
                    const PlanOptions& options) {
  // Not where one of them was projected, which makes it FP32, nor in sums so
  // long that tensor cores, which cut them off, lose too much.
  const bool is_product = args.score == Score::kDot &&
                          args.query.type == args.key.type &&
                          (args.query.type == Element::kFloat32 ||
                           args.key.width <= kMmaLargestWidth);
  if (options.gemm && is_product && problem.wanted.weights &&
      problem.value_width > 0 &&
      Product({args.query_length, args.key_length}) >=
          options.least_gemm_elements) {
    return Method::kGemm;
  }
  // Weights are computed from the very scores whose maximum and sum are known.
  if (!ServesMma(args) || problem.wanted.weights ||
      kMmaLeastShared > device.shared_memory_per_block) {
    return Method::kTiles;
  }
  const bool plain = !problem.attend_mask && !problem.bias &&
                     !problem.alibi_slopes && problem.dropout.p == 0;
  return device.wgmma && options.wgmma && plain && ServesWgmma(args)
             ? Method::kWgmma
             : Method::kMma;
}

absl::string_view KernelName(const Plan& plan) {
  const bool split = plan.args.splits > 1;
  switch (plan.method) {
    case Method::kTiles:
      return split ? "fp32_tiles_split" : "fp32_tiles";
    case Method::kMma:
      if (plan.args.query.type == Element::kBFloat16) {
        return split ? "bf16_mma_split" : "bf16_mma";
      }
      return split ? "fp16_mma_split" : "fp16_mma";
    case Method::kWgmma:
      return plan.args.query.type == Element::kBFloat16 ? "bf16_wgmma"
                                                        : "fp16_wgmma";
    case Method::kGemm:
      return "cublas_gemm";
    case Method::kNothing:
      break;
  }
  return "none";
}

// Few rows: those of all heads that read the same keys share tiles, and blocks
// of their own read splits of the keys.
void ChooseGroupsAndSplits(const DeviceProperties& device,
                           const PlanOptions& options, AttentionArgs& args) {
  if (args.query_length >= options.few_rows) return;
  if (args.term_weight_stride == 0) {
    args.heads_per_group =
        args.query_heads / std::max(args.key.heads, args.value.heads);
  }
  // Tiles of one batch entry, not of all: the splits decide the bits.
  const int side = AttendSide(args);
  const int64_t tiles = args.query_heads / args.heads_per_group *
                        CeilDivide(RowsPerGroup(args), side * kAttendRows);
  const int64_t wanted =
      CeilDivide(int64_t{AttendBlocks(side)} * device.multiprocessors, tiles);
  const int64_t most = CeilDivide(args.key_length, kLeastSplit);
  const int64_t splits = std::clamp<int64_t>(wanted, 1, most);
  args.keys_per_split =
      CeilDivide(CeilDivide(args.key_length, splits), kSplitUnit) * kSplitUnit;
  args.splits = CeilDivide(args.key_length, args.keys_per_split);
}

}  // namespace

absl::Status CheckSupport(const ValidatedProblem& problem,
                          const DeviceProperties& device) {
  if (problem.key_type != problem.query.type) {
    return LeftToCpu(absl::StrCat("key: ", Name(problem.key_type),
                                  " under a query of ",
                                  Name(problem.query.type)));
  }
  const WantedOutputs& wanted = problem.wanted;
  if (wanted.top_k) return LeftToCpu(absl::StrCat("top_k: ", *wanted.top_k));
  if (wanted.key_weights) return LeftToCpu("key_weights");
  if (wanted.scores) return LeftToCpu("scores");
  const std::array<int64_t, 4> widths = {problem.query_width, problem.key_width,
                                         problem.value_width,
                                         problem.hidden_width};
  const int64_t widest = *std::max_element(widths.begin(), widths.end());
  if (widest > kMostWidth) {
    return LeftToCpu(absl::StrCat("rows of ", widest, " elements"));
  }
  // Every head has a block of its own, at least.
  if (Product({problem.batch, problem.query_heads,
               CeilDivide(problem.query_length, kMmaSharedRows)}) >
      kMostGridBlocks) {
    return LeftToCpu(absl::StrCat(problem.batch, " batch entries of ",
                                  problem.query_heads,
                                  " heads: more blocks than a grid has"));
  }
  // Where tensor cores' kernel needs more, it is not taken.
  const int64_t most_shared =
      std::max(AttendSharedBytes(), ProjectSharedBytes());
  if (most_shared > device.shared_memory_per_block) {
    return absl::UnimplementedError(absl::StrCat(
        "the cuda backend's kernels need ", most_shared,
        " bytes of shared memory per block, ", device.name, " has ",
        device.shared_memory_per_block, " (--backend auto computes on cpu)"));
  }
  return absl::OkStatus();
}

Plan MakePlan(const ValidatedProblem& problem, const DeviceProperties& device,
              const PlanOptions& options, const InPlace& in_place) {
  if (!SomethingIsComputed(problem)) return {};
  Plan plan = PlanOfInputs(problem, in_place);
  SetScoring(problem, plan);
  SetMasks(problem, plan);
  plan.args.most_shared_bytes = device.shared_memory_per_block;
  plan.method = ChooseMethod(problem, plan.args, device, options);
  if (plan.method == Method::kTiles || plan.method == Method::kMma) {
    ChooseGroupsAndSplits(device, options, plan.args);
  }
  plan.scratch_at = plan.bytes;
  PlaceScratch(problem, options, plan);
  plan.results_at = plan.bytes;
  PlaceResults(problem, plan);
  plan.kernel = KernelName(plan);
  return plan;
}

}  // namespace attention::cuda
