#ifndef ATTENTION_CORE_CPU_JOB_RUN_H_
#define ATTENTION_CORE_CPU_JOB_RUN_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/backend.h"
#include "core/cpu/kernels/kernels.h"
#include "core/cpu/key_sums.h"
#include "core/cpu/plan.h"
#include "core/result_places.h"

namespace attention::cpu {

/// Blocks of a job's plan that follow one another. Several are of one batch
/// entry and take turns at each tile, up to Plan::groups_in_turn.
struct Blocks {
  int64_t first;
  int64_t count;
};

/// One job on its way, piece by piece, and what its pieces share: first all
/// pieces, then all merges, each on any thread and in any order.
class JobRun {
 public:
  JobRun(AttentionJob& job, const RunContext& context, const Kernels& kernels);

  /// How many pieces there are. Takes what memory they share. `all`: what jobs
  /// that are computed together attend, this one among them; the less it is,
  /// the smaller pieces are where threads are several.
  int64_t Begin(double all = 0);
  void ComputePiece(int64_t index);
  /// How many merges there are: of splits, or of heads whose weights are
  /// summed.
  int64_t merges() const;
  void ComputeMerge(int64_t index);
  /// Writes what became of the job.
  void End();

  const ValidatedProblem& problem() const { return problem_; }
  const ResultPlaces& places() const { return places_; }
  const Kernels& kernels() const { return kernels_; }
  const Plan& plan() const { return plan_; }
  const KeySums& key_sums() const { return key_sums_; }
  /// Multiplications, roughly: whether other threads are worth their waking.
  double Multiplications() const;
  /// Keys times rows that attend them, times their widths.
  double Attended() const;
  /// The kernel that has answered, once all is computed.
  const char* KernelName() const;
  /// Of one block of rows.
  size_t scratch_bytes() const { return scratch_bytes_; }
  /// Bytes that the pieces share, at most, and those that each takes beside
  /// them. Read no tensor.
  int64_t SharedBytes() const;
  int64_t PieceBytes();

  /// Spans the keys from among which a block's scoring may take a centre: those
  /// that some row of its batch entry may attend, or, with window_left, some
  /// row of its own, which are `attended`.
  KeyRange KeysForCentre(int64_t batch, const KeyRange& attended) const;

  /// Called before each tile. False once the job was stopped.
  bool BeginTile();
  /// Called between parts of what takes long: gives way as BeginTile() does.
  /// False once the job was stopped.
  bool Pause();

  /// Adds to the tiles that the job is expected to have: rows that are computed
  /// in another pass visit theirs a second time.
  void ExpectTiles(int64_t count) { expected_ += count; }

  /// Some rows have lost their scores and are computed by differences.
  void SetLostRows() { lost_rows_ = true; }

  void SetOutOfMemory() { out_of_memory_ = true; }

 private:
  // One range of the keys of blocks that take turns.
  struct Split {
    Blocks blocks;
    int64_t count;   // of a block's splits
    int64_t number;  // of this one among them
    int64_t state;   // the place of the first block's, if count > 1
    KeyRange keys;
  };

  int64_t KeyTiles() const;
  int64_t BlocksOfEntry() const { return plan_.blocks() / problem_.batch; }
  // Of a block's rows, in one split: their unfinished states.
  int64_t SplitFloats() const {
    return plan_.row_block * plan_.partial_floats();
  }
  void FindKeysOfEntries();
  KeyRange KeysOfEntry(int64_t batch) const;
  double AttendedBy(int64_t blocks, const KeyRange& keys) const;
  void FindSplits(double most);
  void GiveWay();
  void Compute(const Blocks& blocks);
  void ComputeChunk(int64_t index);
  void ComputeSmallEntry(int64_t batch);
  bool Ended() const {
    return stopped_ || out_of_memory_ || job_.stop.stop_requested();
  }
  float* PartialOf(int64_t state) const {
    return &partials_[static_cast<size_t>(state * SplitFloats())];
  }

  AttentionJob& job_;
  const ValidatedProblem& problem_;
  const RunContext& context_;
  const Kernels& kernels_;
  const Plan plan_;
  const ResultPlaces places_;
  KeySums key_sums_;
  // A piece is a batch entry, for the kernel of small problems.
  const bool small_;
  size_t scratch_bytes_ = 0;
  // Where keys are split, or blocks take turns: all pieces, entry after entry,
  // and the states of splits, each block's one after the other.
  std::vector<Split> splits_;
  std::unique_ptr<float[]> partials_;
  // Per batch entry, for a scoring function that takes a centre from among
  // them.
  std::vector<KeyRange> keys_of_entries_;
  std::atomic<int64_t> expected_ = 0;
  std::atomic<int64_t> computed_ = 0;
  std::atomic<bool> stopped_ = false;
  std::atomic<bool> out_of_memory_ = false;
  std::atomic<bool> lost_rows_ = false;
  std::atomic<bool> beyond_small_ = false;  // some entry had such results
};

}  // namespace attention::cpu

#endif  // ATTENTION_CORE_CPU_JOB_RUN_H_
