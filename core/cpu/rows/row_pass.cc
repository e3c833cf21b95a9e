#include "core/cpu/rows/row_pass.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/cpu/rows/prefetch.h"
#include "core/cpu/rows/result_memory.h"
#include "core/cpu/scoring/bf16_dot_product.h"

namespace attention::cpu {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

bool IsBf16(const Plan& plan, Pass pass) {
  return plan.bf16_terms > 0 && pass == Pass::kAttend;
}

// Of a tile that is read where it lies: FP32 multiplies what was widened.
Operands OperandsInPlace(const Plan& plan, Pass pass, const TileArgs& args) {
  const Element type = args.in_place.type;
  if (IsBf16(plan, pass) && type != Element::kFloat32) {
    return Operands::kBf16InPlace;
  }
  const bool digits = plan.int8_digits && pass == Pass::kAttend;
  return digits && args.int8.exact && type == Element::kInt8
             ? Operands::kInt8InPlace
             : args.operands;
}

BlockStates MakeStates(const ValidatedProblem& problem, const Plan& plan,
                       Pass pass, Scratch& scratch) {
  return IsBf16(plan, pass)
             ? BlockStates(plan, PaddedBf16Rows(plan.row_block),
                           UnitOfBf16(problem), scratch)
             : BlockStates(plan, plan.row_block, UnitOf(problem), scratch);
}

}  // namespace

TileRoom::TileRoom(const JobRun& run, Scratch& scratch)
    : in_place(run.problem(), run.plan(), run.kernels(), scratch),
      scores(scratch.Take<float>(kScoreRows * kScoreStride)),
      unnormalised(scratch.Take<float>(kMaxMicroRows * kScoreStride)) {}

RowPass::RowPass(JobRun& run, const BlockRows& rows, Pass pass,
                 const Pass* remaining, TileRoom& room, Scratch& scratch)
    : run_(run),
      problem_(run.problem()),
      plan_(run.plan()),
      kernels_(run.kernels()),
      rows_(rows),
      stored_{pass, remaining},
      scoring_(MakeScoring(problem_, plan_, kernels_, pass, scratch)),
      values_(problem_, plan_, kernels_, pass, scratch),
      in_place_rows_(problem_, plan_, kernels_, rows_, room.in_place),
      masks_(problem_, plan_, rows_, pass, scratch),
      states_(MakeStates(problem_, plan_, pass, scratch)),
      weights_(problem_, plan_, kernels_, rows_, stored_, run.places(),
               run.key_sums().OfBlock(rows.index()), scratch),
      scores_(problem_, plan_, kernels_, rows_, run.places(), pass, scratch),
      keys_{0, problem_.key_length},
      output_rows_(scratch.Take<unsigned char*>(plan_.row_block)) {
  args_.scores = room.scores;
  args_.unnormalised = room.unnormalised;
}

void RowPass::Begin() {
  args_.rows = rows_.count();
  states_.Clear(rows_.count());
  args_.states = states_.ForKernels();
  args_.met_non_finite = values_.met_non_finite();
  if (plan_.keeps_weights) {
    args_.weights.context = this;
    args_.weights.keep = [](void* context, const TileWeights& weights) {
      auto* const self = static_cast<RowPass*>(context);
      self->weights_.Keep(weights, self->args_.states, [self](int64_t row) {
        double sum = self->states_.sum()[row];
        if (self->problem_.sinks) self->WithSink(row, sum);
        return sum;
      });
    };
    args_.weights.after_dropout = problem_.wanted.weights_after_dropout;
  }
  masks_.SetRows(args_);
  scoring_->SetPause([this] { return run_.Pause(); });
  if (masks_.all().begin < masks_.all().end) {
    scoring_->SetQueries(rows_,
                         run_.KeysForCentre(rows_.batch(), masks_.all()));
  }
}

template <typename Visit>
bool RowPass::ForEachTile(const Visit& visit) {
  const int64_t first_key = std::max(masks_.all().begin, keys_.begin);
  const int64_t last_key = std::min(masks_.all().end, keys_.end);
  for (int64_t first = first_key; first < last_key; first += plan_.key_tile) {
    if (stored_.pass != Pass::kAttend) run_.ExpectTiles(1);
    if (!run_.BeginTile()) return false;
    const KeyTile tile = {first, std::min(plan_.key_tile, last_key - first)};
    if (!visit(tile)) return false;
  }
  return true;
}

void RowPass::SetTile(const KeyTile& tile, const TileOfRows& next) {
  args_.keys = tile.count;
  if (plan_.decode) {
    scoring_->SetInPlace(args_);
    in_place_rows_.SetTile(tile, next, args_);
    args_.operands = OperandsInPlace(plan_, stored_.pass, args_);
  } else {
    scoring_->SetKeys(tile.Keys(problem_, rows_), args_);
    values_.SetPacked(rows_, tile, args_);
  }
  masks_.SetTile(tile, args_);
}

void RowPass::Attend(const KeyTile& tile, const TileOfRows& next) {
  SetTile(tile, next);
  if (plan_.keeps_weights) {
    weights_.BeginTile(tile, tile.first_key + tile.count == masks_.all().end);
  }
  if (!plan_.decode) {
    SetPrefetch(problem_, run_.places(), plan_, rows_, masks_.all(), tile,
                args_.prefetch);
  }
  kernels_.attend_tile(args_);
}

bool RowPass::Sweep(RowPasses& passes, const KeyRange& keys) {
  for (std::optional<RowPass>& pass : passes) {
    pass->keys_ = keys;
    pass->Begin();
  }
  RowPass& first = *passes.front();
  return first.ForEachTile([&](const KeyTile& tile) {
    const TileOfRows behind = {tile.Next(first.problem_), first.rows_};
    for (size_t n = 0; n < passes.size(); ++n) {
      if (n > 0 && !first.run_.BeginTile()) return false;
      const bool last = n + 1 == passes.size();
      passes[n]->Attend(tile,
                        last ? behind : TileOfRows{tile, passes[n + 1]->rows_});
    }
    return true;
  });
}

bool RowPass::StoreWeights(const Remaining& remaining) {
  const bool needs =
      weights_.NeedsSweep(states_.sum(), [&remaining](int64_t row) {
        return remaining.empty() ||
               remaining[static_cast<size_t>(row)] == Pass::kAttend;
      });
  const auto store = [this](const KeyTile& tile) {
    if (plan_.keeps_weights) run_.ExpectTiles(1);
    SetTile(tile);
    weights_.StoreTile(tile, args_);
    return true;
  };
  if (needs && !ForEachTile(store)) return false;
  weights_.Finish();
  return true;
}

// A row's sink comes after its keys: its sum then counts it, still relative to
// the keys' maximum. A row without keys keeps its sum of 0.
SoftmaxState<double> RowPass::WithSink(int64_t row, double& sum) const {
  SoftmaxState<double> state = states_.Natural(row);
  if (!problem_.sinks) return state;
  const bool empty = state.empty();
  const double shift = empty ? 0 : scoring_->LogSumExpShift(row);
  const auto factors = state.Add(SinkOf(row) - shift);
  if (!empty) sum = state.sum / factors.mine;
  return state;
}

void RowPass::FinishSoftmax() {
  if (!problem_.sinks && !problem_.wanted.lse) return;
  rows_.ForEach([this](int64_t r, int64_t head, int64_t query) {
    const bool keyless = states_.Natural(r).empty();
    const SoftmaxState<double> state = WithSink(r, states_.sum()[r]);
    if (!problem_.wanted.lse || !stored_.Has(r)) return;
    const double value =
        stored_.pass == Pass::kUniform
            ? -std::numeric_limits<double>::infinity()
            : state.LogSumExp() + (keyless ? 0 : scoring_->LogSumExpShift(r));
    StoreFloat(static_cast<float>(value),
               run_.places().Lse(rows_.batch(), head, query));
  });
}

void RowPass::StoreOutput() {
  rows_.ForEach([this](int64_t r, int64_t head, int64_t query) {
    output_rows_[r] =
        stored_.Has(r) ? reinterpret_cast<unsigned char*>(
                             run_.places().Output(rows_.batch(), head, query))
                       : nullptr;
  });
  kernels_.finish_rows({.rows = rows_.count(),
                        .width = problem_.value_width,
                        .output = states_.output(),
                        .output_stride = plan_.padded_value_width,
                        .sum = states_.sum(),
                        .type = ElementOf(problem_.query.type),
                        .to = output_rows_});
}

Pass RowPass::PassOf(int64_t row) const {
  const double sum = states_.sum()[row];
  if (sum == 0) {
    const bool uniform = problem_.empty_rows == EmptyRows::kUniform &&
                         problem_.key_length > 0 &&
                         SinkOf(row) == kMinusInfinity;
    return uniform ? Pass::kUniform : Pass::kAttend;
  }
  return scoring_->LostRow(row, sum) ? Pass::kDifferences : Pass::kAttend;
}

void RowPass::FindRemaining(Remaining& remaining) const {
  if (stored_.pass == Pass::kUniform) return;
  for (int64_t r = 0; r < rows_.count(); ++r) {
    const Pass pass = stored_.Has(r) ? PassOf(r) : Pass::kAttend;
    if (pass == Pass::kAttend) continue;
    remaining.resize(static_cast<size_t>(rows_.count()), Pass::kAttend);
    remaining[static_cast<size_t>(r)] = pass;
  }
}

bool RowPass::Finish(Remaining& remaining) {
  FinishSoftmax();
  FindRemaining(remaining);
  if (!StoreWeights(remaining)) return false;
  StoreOutput();
  return true;
}

bool RowPass::RunScores() {
  Begin();
  scores_.Begin(*scoring_);
  return ForEachTile([this](const KeyTile& tile) {
    SetTile(tile);
    scores_.StoreTile(tile, args_);
    return true;
  });
}

void RowPass::StoreSplit(float* partial) const {
  states_.StoreSplit(rows_.count(), partial);
}

bool RowPass::RunMerge(const float* partials, int64_t splits,
                       Remaining& remaining) {
  Begin();
  states_.MergeSplits(rows_.count(), splits, partials);
  return Finish(remaining);
}

}  // namespace attention::cpu
