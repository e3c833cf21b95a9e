#ifndef ATTENTION_CORE_CPU_SCORING_PACKED_SCORING_H_
#define ATTENTION_CORE_CPU_SCORING_PACKED_SCORING_H_

#include <algorithm>
#include <cstdint>

#include "core/cpu/kernels/kernels.h"
#include "core/cpu/plan.h"
#include "core/cpu/row_source.h"
#include "core/cpu/scoring/scoring.h"
#include "core/cpu/scratch.h"
#include "core/validate.h"

namespace attention::cpu {

/// Scoring that packs queries once and keys tile by tile. Where a score sums
/// over more than plan.score_part elements, one part after the other is packed
/// and scored, so that any width is served with the same memory and at the same
/// rate.
class PackedScoring : public Scoring {
 public:
  void SetKeys(const TileRows& keys, TileArgs& args) final;

 protected:
  /// A packed element takes `numbers` floats.
  PackedScoring(const ValidatedProblem& problem, const Plan& plan,
                const Kernels& kernels, int64_t numbers, Scratch& scratch);

  /// Part first ... first + width - 1 of what a score sums over.
  struct Part {
    int64_t first;
    int64_t width;
    bool last;
  };
  /// Ends after the first part where the job was stopped: a tile of very wide
  /// keys takes seconds.
  template <typename Visit>
  void ForEachPart(const Visit& visit) const {
    for (int64_t first = 0; first < plan_.score_width;
         first += plan_.score_part) {
      if (first > 0 && !Pause()) return;
      const int64_t left = plan_.score_width - first;
      visit(Part{first, left < plan_.score_part ? left : plan_.score_part,
                 left <= plan_.score_part});
    }
  }

  /// Packs a part of a tile's keys one panel after the other: what
  /// read(first, rows) makes of a panel's rows, `first` in the tile and those
  /// behind it, stays in the first-level cache until it is packed.
  template <typename Read>
  void PackPanels(int64_t count, const Part& part, float* packed,
                  const Read& read) const {
    const int64_t panel = 2 * kernels_.lanes;
    for (int64_t first = 0; first < count; first += panel) {
      const int64_t rows = std::min(panel, count - first);
      const FloatRows from = read(first, rows);
      kernels_.pack_keys(from.data, from.stride, rows, part.width,
                         packed + first * part.width);
    }
  }

  /// Packs a part of a tile's keys and fills in which score it is and what
  /// belongs to it; the epilogue is that of FillEpilogue(problem_, 1) until
  /// then.
  virtual void PackKeys(const TileRows& keys, const Part& part, float* packed,
                        TileArgs& args) = 0;

  /// Where the packed queries of a part are.
  float* PackedQueries(const Part& part) const {
    return packed_queries_ + part.first * numbers_ * rows_;
  }

  const ValidatedProblem& problem_;
  const Plan& plan_;
  const Kernels& kernels_;
  int64_t rows_ = 0;  // of the block; set with its queries

 private:
  int64_t numbers_;
  float* packed_queries_ = nullptr;
  float* packed_keys_ = nullptr;
  float* partial_ = nullptr;
};

}  // namespace attention::cpu

#endif  // ATTENTION_CORE_CPU_SCORING_PACKED_SCORING_H_
