#include "client/cpp/cli/heatmap.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/cpp/cli/label.h"

namespace attention::cli {
namespace {

constexpr int kLongestRowLabel = 16;
constexpr int kLongestColumnLabel = 12;  // written downwards
constexpr int kNumberCell = 6;           // " 0.25 "
constexpr int64_t kMostNumberColumns = 10;
constexpr int kShadeCount = 5;
constexpr int kScaleStep = 8;  // columns of the scale bar per shade
constexpr int kMargin = 2;     // left of everything

// How a matrix is laid out in the width and height that there is.
struct Layout {
  int label_width = 0;
  int cell_width = 1;
  int64_t row_block = 1;     // rows of the matrix per line
  int64_t column_block = 1;  // columns of the matrix per cell
};

std::string Repeat(absl::string_view text, int count) {
  std::string repeated;
  for (int i = 0; i < count; ++i) absl::StrAppend(&repeated, text);
  return repeated;
}

int64_t BlocksOf(int64_t count, int64_t block) {
  return (count + block - 1) / block;
}

// What a line or a cell is called: its label, or the indices that it stands
// for.
std::string LabelOf(const std::vector<std::string>& labels, int64_t count,
                    int64_t block, int64_t index) {
  const int64_t first = index * block;
  if (block == 1) {
    return labels.empty() ? absl::StrCat(first)
                          : labels[static_cast<size_t>(first)];
  }
  return absl::StrCat(first, "-", std::min(first + block, count) - 1);
}

// The largest value of each block; NaN where one of them is.
Heatmap Pool(const Heatmap& heatmap, const Layout& layout) {
  Heatmap pooled;
  pooled.rows = BlocksOf(heatmap.rows, layout.row_block);
  pooled.columns = BlocksOf(heatmap.columns, layout.column_block);
  pooled.values.assign(static_cast<size_t>(pooled.rows * pooled.columns), 0);
  for (int64_t i = 0; i < heatmap.rows; ++i) {
    for (int64_t j = 0; j < heatmap.columns; ++j) {
      const float value =
          heatmap.values[static_cast<size_t>(i * heatmap.columns + j)];
      float& largest = pooled.values[static_cast<size_t>(
          i / layout.row_block * pooled.columns + j / layout.column_block)];
      if (std::isnan(value) || value > largest) largest = value;
    }
  }
  for (int64_t i = 0; i < pooled.rows; ++i) {
    pooled.row_labels.push_back(
        LabelOf(heatmap.row_labels, heatmap.rows, layout.row_block, i));
  }
  for (int64_t j = 0; j < pooled.columns; ++j) {
    pooled.column_labels.push_back(LabelOf(
        heatmap.column_labels, heatmap.columns, layout.column_block, j));
  }
  return pooled;
}

Layout LayOut(const Heatmap& heatmap, const HeatmapStyle& style) {
  Layout layout;
  layout.row_block = BlocksOf(heatmap.rows, style.max_height);
  layout.label_width = DisplayWidth(heatmap.row_title);
  for (int64_t i = 0; i < BlocksOf(heatmap.rows, layout.row_block); ++i) {
    const std::string label =
        LabelOf(heatmap.row_labels, heatmap.rows, layout.row_block, i);
    layout.label_width = std::max(layout.label_width, DisplayWidth(label));
  }
  layout.label_width = std::min(layout.label_width, kLongestRowLabel);
  const int64_t room =
      std::max(style.max_width - kMargin - layout.label_width - 1, 16);
  const int64_t widest =
      heatmap.columns <= kMostNumberColumns ? kNumberCell : 3;
  layout.cell_width =
      static_cast<int>(std::clamp(room / heatmap.columns, int64_t{1}, widest));
  layout.column_block = BlocksOf(heatmap.columns * layout.cell_width, room);
  return layout;
}

// Weights are many small ones and a few large: the scale follows their square
// root, so that both show. Places on it are within [0, 1].
double PlaceOf(double fraction) { return std::sqrt(fraction); }
double ValueAt(double place) { return place * place; }

std::string Shade(double place, int width) {
  constexpr const char* kShades[kShadeCount] = {" ", "░", "▒", "▓", "█"};
  const int level =
      std::clamp(static_cast<int>(place * kShadeCount), 0, kShadeCount - 1);
  return Repeat(kShades[level], width);
}

// One cell; `top` is the value of the brightest colour.
std::string Cell(float value, float top, const Layout& layout,
                 ColorDepth depth) {
  const int width = layout.cell_width;
  if (std::isnan(value)) return Center("?", width);
  if (value == 0) return Center("·", width);
  const double place = PlaceOf(static_cast<double>(value) / top);
  const bool numbers = width == kNumberCell;
  if (depth == ColorDepth::kNone) {
    return numbers
               ? absl::StrCat(Shade(place, 1), absl::StrFormat("%-5.2f", value))
               : Shade(place, width);
  }
  return Paint(depth, place,
               numbers ? absl::StrFormat(" %.2f ", value) : Repeat(" ", width));
}

// Lines end without spaces, whatever was laid out.
void AppendLine(std::string& text, absl::string_view line) {
  absl::StrAppend(&text, absl::StripTrailingAsciiWhitespace(line), "\n");
}

// The labels of the columns: on one line where they fit into the cells, else
// letter by letter downwards, ending above their column.
std::string ColumnLabels(const std::vector<std::string>& labels,
                         const Layout& layout, absl::string_view indent) {
  std::vector<std::vector<Glyph>> glyphs;
  size_t height = 0;
  bool fits = true;
  for (const std::string& label : labels) {
    fits = fits && DisplayWidth(label) < std::max(layout.cell_width, 2);
    std::vector<Glyph> letters = SplitGlyphs(label);
    if (letters.size() > kLongestColumnLabel) {
      letters.resize(kLongestColumnLabel);
      letters.back() = {"…", 1};
    }
    height = std::max(height, letters.size());
    glyphs.push_back(std::move(letters));
  }
  std::string text;
  if (fits) {
    std::string line(indent);
    for (const std::string& label : labels) {
      line += Center(label, layout.cell_width);
    }
    AppendLine(text, line);
    return text;
  }
  for (size_t row = 0; row < height; ++row) {
    std::string line(indent);
    for (const std::vector<Glyph>& letters : glyphs) {
      const size_t above = height - letters.size();
      line += Center(row < above ? " " : letters[row - above].text,
                     layout.cell_width);
    }
    AppendLine(text, line);
  }
  return text;
}

// Numbers alone are easy to continue: where cells are narrow, every fifth will
// do.
void ThinOut(std::vector<std::string>& labels, int cell_width) {
  if (cell_width > 2 || labels.size() <= 10) return;
  for (size_t i = 0; i < labels.size(); ++i) {
    if (i % 5 != 0) labels[i].clear();
  }
}

// The bar, and below it the values where its fifths begin and end.
std::string Scale(float top, ColorDepth depth) {
  std::string bar;
  for (int i = 0; i < kScaleStep * kShadeCount; ++i) {
    const double place = (i + 0.5) / (kScaleStep * kShadeCount);
    bar +=
        depth == ColorDepth::kNone ? Shade(place, 1) : Paint(depth, place, " ");
  }
  std::string numbers;
  for (int i = 0; i <= kShadeCount; ++i) {
    const double place = static_cast<double>(i) / kShadeCount;
    numbers += absl::StrFormat("%-*.2g", kScaleStep, ValueAt(place) * top);
  }
  const std::string margin = Repeat(" ", kMargin);
  std::string text;
  AppendLine(text, absl::StrCat(margin, "weight ▕", bar, "▏"));
  AppendLine(text, absl::StrCat(margin, "        ", numbers));
  return text;
}

// What the marks in the cells mean, as far as there are any.
std::string Legend(const Heatmap& pooled, const Layout& layout) {
  std::vector<std::string> parts;
  const auto any = [&](auto predicate) {
    return std::any_of(pooled.values.begin(), pooled.values.end(), predicate);
  };
  if (any([](float value) { return value == 0; })) {
    parts.emplace_back("· exactly 0");
  }
  if (any([](float value) { return std::isnan(value); })) {
    parts.emplace_back("? not a number");
  }
  if (layout.row_block > 1 || layout.column_block > 1) {
    parts.push_back(absl::StrCat("each cell is the largest weight of ",
                                 layout.row_block, " x ", layout.column_block));
  }
  if (parts.empty()) return "";
  return absl::StrCat(Repeat(" ", kMargin), absl::StrJoin(parts, ", "), "\n");
}

float Top(const Heatmap& heatmap) {
  float top = 0;
  for (const float value : heatmap.values) {
    if (std::isfinite(value)) top = std::max(top, value);
  }
  return top > 0 ? top : 1;
}

}  // namespace

std::string DrawHeatmap(const Heatmap& heatmap, const HeatmapStyle& style) {
  if (heatmap.rows == 0 || heatmap.columns == 0) {
    return absl::StrCat("  (empty: ", heatmap.rows, " ", heatmap.row_title,
                        ", ", heatmap.columns, " ", heatmap.column_title,
                        ")\n");
  }
  const Layout layout = LayOut(heatmap, style);
  Heatmap pooled = Pool(heatmap, layout);
  const float top = Top(pooled);
  if (heatmap.column_labels.empty()) {
    ThinOut(pooled.column_labels, layout.cell_width);
  }

  const std::string margin = Repeat(" ", kMargin);
  const std::string indent = Repeat(" ", kMargin + layout.label_width + 1);
  std::string text;
  AppendLine(
      text,
      absl::StrCat(margin, AlignRight(heatmap.row_title, layout.label_width),
                   " ↓  ", heatmap.column_title, " →"));
  text += ColumnLabels(pooled.column_labels, layout, indent);
  for (int64_t i = 0; i < pooled.rows; ++i) {
    std::string line =
        absl::StrCat(margin,
                     AlignRight(pooled.row_labels[static_cast<size_t>(i)],
                                layout.label_width),
                     " ");
    for (int64_t j = 0; j < pooled.columns; ++j) {
      line += Cell(pooled.values[static_cast<size_t>(i * pooled.columns + j)],
                   top, layout, style.depth);
    }
    AppendLine(text, line);
  }
  return absl::StrCat(text, "\n", Scale(top, style.depth),
                      Legend(pooled, layout));
}

}  // namespace attention::cli
