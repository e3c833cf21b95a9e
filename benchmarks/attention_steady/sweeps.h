#ifndef ATTENTION_BENCHMARKS_STEADINESS_SWEEPS_H_
#define ATTENTION_BENCHMARKS_STEADINESS_SWEEPS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "benchmarks/attention_steady/turns.h"
#include "benchmarks/shape.h"

namespace attention::bench {

/// One extent, step by step; all others stay.
struct Sweep {
  struct Point {
    int64_t extent = 0;
    double seconds = 0;
    double work = 0;
    double SecondsPerWork() const { return seconds / work; }
  };
  std::string scoring;
  std::string name;  // "D, FP32", ...
  std::vector<Point> points;

  /// The index of the first of the two neighbours that differ most in time per
  /// work, and by how much.
  size_t WorstPlace() const;
  double WorstRatio() const;
};

/// What no two neighbours are to differ by.
inline constexpr double kWantedOfNeighbours = 1.5;

/// All extents of one scoring function. Reports progress on standard error.
absl::StatusOr<std::vector<Sweep>> MeasureSweeps(const std::string& scoring,
                                                 const Case& case_of_backend,
                                                 const Effort& effort);

/// What a case has to do, in multiply-adds: a call, the elements of query, key,
/// value and output once, projections, and for each pair of a query and a key
/// its softmax, its score and its share of the output. How much each of them
/// counts is in the source: rough, and the same for every point.
double Work(const Case& shape);

}  // namespace attention::bench

#endif  // ATTENTION_BENCHMARKS_STEADINESS_SWEEPS_H_
