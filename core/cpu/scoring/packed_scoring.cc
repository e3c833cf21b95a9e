#include "core/cpu/scoring/packed_scoring.h"

#include "core/cpu/scoring/score_unit.h"

namespace attention::cpu {

PackedScoring::PackedScoring(const ValidatedProblem& problem, const Plan& plan,
                             const Kernels& kernels, int64_t numbers,
                             Scratch& scratch)
    : problem_(problem), plan_(plan), kernels_(kernels), numbers_(numbers) {
  if (plan.decode) return;
  const int64_t keys = RoundUp(plan.key_tile, 2 * kernels.lanes);
  packed_queries_ =
      scratch.Take<float>(plan.row_block * plan.score_width * numbers);
  packed_keys_ = scratch.Take<float>(keys * plan.score_part * numbers);
  if (plan.score_part < plan.score_width) {
    partial_ = scratch.Take<float>(plan.row_block * kScoreStride);
  }
}

void PackedScoring::SetKeys(const TileRows& keys, TileArgs& args) {
  FillEpilogue(problem_, 1, args.epilogue);
  args.operands = Operands::kPacked;
  args.packed.key_addend = nullptr;
  args.packed.keys = packed_keys_;
  args.packed.partial = partial_;
  ForEachPart([&](const Part& part) {
    args.packed.width = part.width;
    args.packed.queries = PackedQueries(part);
    PackKeys(keys, part, packed_keys_, args);
    if (!part.last) kernels_.add_partial_scores(args, part.first == 0);
  });
}

}  // namespace attention::cpu
