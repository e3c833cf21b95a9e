#ifndef ATTENTION_CORE_CPU_SCORING_SCORING_H_
#define ATTENTION_CORE_CPU_SCORING_SCORING_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "core/cpu/block_rows.h"
#include "core/cpu/kernels/kernels.h"
#include "core/cpu/plan.h"
#include "core/cpu/scratch.h"
#include "core/cpu/tile_rows.h"
#include "core/validate.h"

namespace attention::cpu {

/// How one block of rows scores keys: brings queries and keys into the form
/// that a function of qk-inl.h reads. A scoring function has one such class, in
/// a file of its own; scoring.cc is where they are chosen.
class Scoring {
 public:
  virtual ~Scoring() = default;

  /// Called within SetQueries and SetKeys where they take long. Once it says
  /// false, they may end early: nobody reads what comes of them.
  void SetPause(std::function<bool()> pause) { pause_ = std::move(pause); }

  /// Brings the block's queries; before anything else. A centre, where there is
  /// one, is taken from the keys `attended` (JobRun::KeysForCentre): it does
  /// not follow from how many rows a block has, unless window_left is set.
  virtual void SetQueries(const BlockRows& rows, const KeyRange& attended) = 0;

  /// Brings a tile of keys and fills in the operands of QK, which ones they
  /// are, and what the epilogue and far_rows read of queries and keys.
  /// args.rows and keys are filled in already.
  virtual void SetKeys(const TileRows& keys, TileArgs& args) = 0;

  /// In place of SetKeys where a plan decodes; keys and values themselves are
  /// filled in by another (rows/in_place_rows.h). Only for those that score
  /// keys in place (ScoringTraits).
  virtual void SetInPlace(TileArgs& /*args*/) {}

  /// What is added to a row's log-sum-exp, natural.
  virtual double LogSumExpShift(int64_t /*row*/) const { return 0; }

  /// Once all keys were scored: whether Pass::kDifferences must compute a row.
  /// `sum` is the row's sum of weights.
  virtual bool LostRow(int64_t /*row*/, double /*sum*/) const { return false; }

 protected:
  /// False where the rest need not be done.
  bool Pause() const { return !pause_ || pause_(); }

 private:
  std::function<bool()> pause_;
};

/// What a block's rows are computed for. kDifferences and kUniform are for some
/// rows of a block that the first one has found, and store those alone.
enum class Pass : uint8_t {
  kAttend,
  kDifferences,  // Gaussian rows of which LostRow() holds (lost_rows.h)
  kUniform,      // rows in which no key takes part: all keys, alike
  kScores,       // for scores alone, in FP32 and of which nothing cancels
};

/// Takes its memory from `scratch`; the others outlive it.
std::unique_ptr<Scoring> MakeScoring(const ValidatedProblem& problem,
                                     const Plan& plan, const Kernels& kernels,
                                     Pass pass, Scratch& scratch);

}  // namespace attention::cpu

#endif  // ATTENTION_CORE_CPU_SCORING_SCORING_H_
