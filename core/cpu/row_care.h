#ifndef ATTENTION_CORE_CPU_ROW_CARE_H_
#define ATTENTION_CORE_CPU_ROW_CARE_H_

#include <cstdint>

#include "core/cpu/block_rows.h"
#include "core/cpu/care.h"
#include "core/cpu/job_run.h"
#include "core/cpu/scratch.h"
#include "core/cpu/tile_operands.h"
#include "core/validate.h"

namespace attention::cpu {

/// Decides which rows of a block FP32 has not served, once their softmax is
/// known: those whose result has to come from FP64. What it says of a row
/// follows from that row and its keys, whatever else is in the block.
class RowCare {
 public:
  /// Takes its memory from `scratch`. The others outlive it.
  RowCare(JobRun& run, const BlockRows& rows, TileOperands& operands,
          Scratch& scratch);

  /// What the kernels made of a row.
  struct Result {
    int64_t row;  // in the block
    KeyRange range;
    float max;        // its largest score, in powers of 2
    double sum;       // of its exponentials, relative to it
    bool not_finite;  // some element of its output
    bool tiny;        // all of its output
  };
  bool Needs(const Result& result);

 private:
  bool QueryHasNan(int64_t row) const;
  bool LosesSubnormals(int64_t row) const;

  JobRun& run_;
  const ValidatedProblem& problem_;
  const BlockRows& rows_;
  TileOperands& operands_;
  CareDecision care_;
};

}  // namespace attention::cpu

#endif  // ATTENTION_CORE_CPU_ROW_CARE_H_
