#ifndef ATTENTION_CORE_CPU_JOB_RUN_H_
#define ATTENTION_CORE_CPU_JOB_RUN_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/backend.h"
#include "core/cpu/kernels/kernels.h"
#include "core/cpu/plan.h"

namespace attention::cpu {

/// What the pieces of work of one job share while they are computed.
class JobRun {
 public:
  JobRun(AttentionJob& job, const RunContext& context, const Kernels& kernels);

  /// Computes the job and writes what became of it.
  void Run();

  const AttentionJob& job() const { return job_; }
  const ValidatedProblem& problem() const { return problem_; }
  const AttentionOutputs& outputs() const { return job_.outputs; }
  const Kernels& kernels() const { return kernels_; }
  const Plan& plan() const { return plan_; }
  /// The kernel that has answered, once Run() is through.
  const char* KernelName() const;
  /// Of one block of rows.
  size_t scratch_bytes() const { return scratch_bytes_; }
  /// Bytes that Run() takes at one time, at most, where a thread's first
  /// `of_thread` do not count. Reads no tensor.
  int64_t WorkingBytes(int64_t of_thread);

  /// Spans the keys from among which a block's scoring may take a centre: those
  /// that some row of its batch entry may attend, or, with a window, some row
  /// of its own, which are `attended`. Once Run() has begun.
  KeyRange KeysForCentre(int64_t batch, const KeyRange& attended) const;

  /// Called before each tile. False once the job was stopped.
  bool BeginTile();

  /// Adds to the tiles that the job is expected to have: rows that are computed
  /// in another pass visit theirs a second time.
  void ExpectTiles(int64_t count) { expected_ += count; }

  /// Some rows have lost their scores and are computed by differences.
  void SetLostRows() { lost_rows_ = true; }

  /// A split has met values that are not finite.
  void SetMetNonFinite() { met_non_finite_ = true; }
  bool met_non_finite() const { return met_non_finite_; }

  void SetOutOfMemory() { out_of_memory_ = true; }

 private:
  void Compute();
  int64_t KeyTiles() const;
  // Of a block's rows, in one split: their unfinished states.
  int64_t SplitFloats() const {
    return plan_.row_block * plan_.partial_floats();
  }
  void FindKeysOfEntries();
  void ComputeBlock(int64_t index);
  void ComputeBySplits();

  AttentionJob& job_;
  const ValidatedProblem& problem_;
  const RunContext& context_;
  const Kernels& kernels_;
  const Plan plan_;
  size_t scratch_bytes_ = 0;
  // Per batch entry, for a scoring function that takes a centre from among
  // them.
  std::vector<KeyRange> keys_of_entries_;
  std::atomic<int64_t> expected_ = 0;
  std::atomic<int64_t> computed_ = 0;
  std::atomic<bool> stopped_ = false;
  std::atomic<bool> out_of_memory_ = false;
  std::atomic<bool> lost_rows_ = false;
  std::atomic<bool> met_non_finite_ = false;
};

}  // namespace attention::cpu

#endif  // ATTENTION_CORE_CPU_JOB_RUN_H_
