#ifndef ATTENTION_BENCHMARKS_STEADINESS_REPORT_H_
#define ATTENTION_BENCHMARKS_STEADINESS_REPORT_H_

#include <string>
#include <vector>

#include "benchmarks/attention_steady/sweeps.h"
#include "benchmarks/attention_steady/values.h"

namespace attention::bench {

/// Tables for a person: a line per kind of values, with the ratio of each place
/// and the worst, in bold where it is more than wanted; and a line per sweep.
std::string ToMarkdown(const std::vector<ValuesRatio>& values,
                       const std::vector<Sweep>& sweeps);

/// Every figure, for a program: {"values": [...], "shapes": [...]}.
std::string ToJson(const std::vector<ValuesRatio>& values,
                   const std::vector<Sweep>& sweeps);

}  // namespace attention::bench

#endif  // ATTENTION_BENCHMARKS_STEADINESS_REPORT_H_
