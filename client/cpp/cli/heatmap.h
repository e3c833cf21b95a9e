#ifndef ATTENTION_CLIENT_CLI_HEATMAP_H_
#define ATTENTION_CLIENT_CLI_HEATMAP_H_

#include <cstdint>
#include <string>
#include <vector>

#include "client/cpp/cli/palette.h"

namespace attention::cli {

/// A matrix of weights, each 0 or more, to be drawn in a terminal.
struct Heatmap {
  int64_t rows = 0;
  int64_t columns = 0;
  std::vector<float> values;               // rows * columns, row by row
  std::vector<std::string> row_labels;     // one each, or none: 0, 1, 2, ...
  std::vector<std::string> column_labels;  // the same
  std::string row_title = "queries";
  std::string column_title = "keys";
};

struct HeatmapStyle {
  ColorDepth depth = ColorDepth::kNone;
  /// Columns of the terminal that may be used, 40 or more.
  int max_width = 100;
  /// Lines that the cells may take.
  int max_height = 64;
};

/// Draws the matrix: cells coloured by value, or in five Unicode shades where
/// there is no colour; labels written down the columns where they are wider
/// than these; below it a scale with its numbers. A value of exactly 0 (a key
/// that takes no part) is a dot, NaN a question mark. Up to ten columns show
/// their numbers in the cells. A matrix that is too large is drawn in blocks,
/// each as its largest value, which is said below it.
std::string DrawHeatmap(const Heatmap& heatmap, const HeatmapStyle& style);

}  // namespace attention::cli

#endif  // ATTENTION_CLIENT_CLI_HEATMAP_H_
