#ifndef ATTENTION_CORE_CPU_SCORING_SCORING_H_
#define ATTENTION_CORE_CPU_SCORING_SCORING_H_

#include <cstdint>
#include <memory>

#include "core/cpu/kernels/kernels.h"
#include "core/cpu/plan.h"
#include "core/cpu/row_source.h"
#include "core/cpu/rows/block_rows.h"
#include "core/cpu/scratch.h"
#include "core/validate.h"

namespace attention::cpu {

/// How one block of rows scores keys: brings queries and keys into the form
/// that a function of qk-inl.h reads. A scoring function has one such class, in
/// a file of its own; scoring.cc is where they are chosen.
class Scoring {
 public:
  virtual ~Scoring() = default;

  /// Brings the block's queries; before anything else.
  virtual void SetQueries(const BlockRows& rows) = 0;

  /// Brings a tile of keys and fills in what QK and the epilogue read of
  /// queries and keys. args.rows, keys and scores are filled in already.
  virtual void SetKeys(const RowSource& keys, int64_t count,
                       TileArgs& args) = 0;

  /// In place of SetKeys where a plan decodes: keys as they lie in memory, or,
  /// with `widen`, as floats in scratch. Only for those of which
  /// ScoresKeysInPlace() holds.
  virtual void SetKeyRows(const RowSource& /*keys*/, int64_t /*count*/,
                          bool /*widen*/, TileArgs& /*args*/) {}

  /// What is added to a row's log-sum-exp, natural.
  virtual double LogSumExpShift(int64_t /*row*/) const { return 0; }

  /// Once all keys were scored: whether a row's scores have lost more than the
  /// tolerance has room for, so that Pass::kDifferences must compute it. `sum`
  /// is the row's sum of weights.
  virtual bool LostRow(int64_t /*row*/, double /*sum*/) const { return false; }
};

/// What a block's rows are computed for. The last two are for some rows of a
/// block that the first one has found, and store those alone.
enum class Pass : uint8_t {
  kAttend,
  kDifferences,  // Gaussian rows of which LostRow() holds
  kUniform,      // rows in which no key takes part: all keys, alike
};

/// Takes its memory from `scratch`; the others outlive it.
std::unique_ptr<Scoring> MakeScoring(const ValidatedProblem& problem,
                                     const Plan& plan, const Kernels& kernels,
                                     Pass pass, Scratch& scratch);

/// Elements that a score sums over: widths, or hidden units.
int64_t ScoreWidth(const ValidatedProblem& problem);
/// Whether query heads that read the same keys may share packed ones; a
/// parameter of each head's own makes other keys, or another block, of them.
bool HeadsShareParameters(const ValidatedProblem& problem);
/// Whether a score is a dot product with the key as it is.
bool ScoresKeysInPlace(const ValidatedProblem& problem);
/// Whether some rows may need Pass::kDifferences.
bool MayLoseRows(const ValidatedProblem& problem);

/// What QK counts scores in: logarithms to base 2, or natural ones where a
/// softcap comes after it.
double ScoreUnit(const ValidatedProblem& problem);
/// A factor of scores in FP32, at most its largest number.
float FactorOf(double factor);
/// The epilogue of scores that need nothing but `factor` and the problem's
/// softcap.
void FillEpilogue(const ValidatedProblem& problem, double factor,
                  Epilogue& epilogue);

}  // namespace attention::cpu

#endif  // ATTENTION_CORE_CPU_SCORING_SCORING_H_
