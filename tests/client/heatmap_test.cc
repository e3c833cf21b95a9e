#include "client/cpp/cli/heatmap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <string>

#include "absl/strings/str_split.h"
#include "client/cpp/cli/label.h"
#include "client/cpp/cli/weights_view.h"

namespace attention::cli {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

Heatmap Matrix(int64_t rows, int64_t columns, std::vector<float> values) {
  Heatmap heatmap;
  heatmap.rows = rows;
  heatmap.columns = columns;
  heatmap.values = std::move(values);
  return heatmap;
}

int WidestLine(const std::string& text) {
  int widest = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    widest = std::max(widest, DisplayWidth(line));
  }
  return widest;
}

TEST(HeatmapTest, FewColumnsShowTheirNumbers) {
  Heatmap heatmap = Matrix(2, 3, {0.5, 0.5, 0, 0.25, 0.75, 0});
  heatmap.row_labels = {"first", "second"};
  EXPECT_EQ(DrawHeatmap(heatmap, {}), R"(  queries ↓  keys →
            0     1     2
    first █0.50 █0.50   ·
   second ▒0.25 █0.75   ·

  weight ▕        ░░░░░░░░▒▒▒▒▒▒▒▒▓▓▓▓▓▓▓▓████████▏
          0       0.03    0.12    0.27    0.48    0.75
  · exactly 0
)");
}

TEST(HeatmapTest, LongLabelsAreWrittenDownTheColumns) {
  Heatmap heatmap = Matrix(1, 11, std::vector<float>(11, 0.01F));
  heatmap.values[10] = 1;
  heatmap.column_labels = {"a", "cat", "s",   "a", "t",    "o",
                           "n", "a",   "mat", ".", "[END]"};
  EXPECT_EQ(DrawHeatmap(heatmap, {}), R"(  queries ↓  keys →
                                         [
                                         E
              c                    m     N
              a                    a     D
           a  t  s  a  t  o  n  a  t  .  ]
        0                               ███

  weight ▕        ░░░░░░░░▒▒▒▒▒▒▒▒▓▓▓▓▓▓▓▓████████▏
          0       0.04    0.16    0.36    0.64    1
)");
}

TEST(HeatmapTest, NotANumberIsMarked) {
  const std::string text = DrawHeatmap(
      Matrix(1, 2, {std::numeric_limits<float>::quiet_NaN(), 1}), {});
  EXPECT_THAT(text, AllOf(HasSubstr("?"), HasSubstr("? not a number")));
}

TEST(HeatmapTest, OnlyZerosAreDrawn) {
  EXPECT_THAT(DrawHeatmap(Matrix(1, 2, {0, 0}), {}), HasSubstr("·"));
}

TEST(HeatmapTest, NoKeysAreSaidToBeNone) {
  EXPECT_THAT(DrawHeatmap(Matrix(2, 0, {}), {}), HasSubstr("empty"));
}

TEST(HeatmapTest, ColoursAreOneCodePerCellAndDepth) {
  const Heatmap heatmap = Matrix(1, 1, {1});
  EXPECT_THAT(DrawHeatmap(heatmap, {.depth = ColorDepth::k24Bit}),
              HasSubstr("\x1b[38;5;16;48;2;253;231;37m 1.00 \x1b[0m"));
  EXPECT_THAT(DrawHeatmap(heatmap, {.depth = ColorDepth::k256}),
              HasSubstr("\x1b[38;5;16;48;5;226m 1.00 \x1b[0m"));
}

TEST(HeatmapTest, TwentyEightTokensFitIntoEightyColumns) {
  Heatmap heatmap = Matrix(28, 28, std::vector<float>(784, 0.1F));
  heatmap.row_labels.assign(28, "attention");
  heatmap.column_labels = heatmap.row_labels;
  EXPECT_LE(WidestLine(DrawHeatmap(heatmap, {.max_width = 80})), 80);
  EXPECT_LE(WidestLine(DrawHeatmap(heatmap, {.max_width = 100})), 100);
}

TEST(HeatmapTest, ALargeMatrixIsPooledAndSaysSo) {
  Heatmap heatmap = Matrix(200, 1000, std::vector<float>(200'000, 0.001F));
  heatmap.values[150 * 1000 + 999] = 1;
  const std::string text = DrawHeatmap(heatmap, {.max_width = 80});
  EXPECT_LE(WidestLine(text), 80);
  EXPECT_THAT(text, AllOf(HasSubstr("largest weight of 4 x "),
                          HasSubstr("148-151"), HasSubstr("█\n")));
}

TEST(HeatmapTest, LabelsCannotCommandTheTerminal) {
  Heatmap heatmap = Matrix(1, 1, {1});
  heatmap.row_labels = {"\x1b[31m\n\xff!"};
  heatmap.column_labels = {"\x1b]0;title\a"};
  const std::string text = DrawHeatmap(heatmap, {});
  EXPECT_THAT(text, AllOf(HasSubstr("?[31m?"
                                    "?!"),
                          Not(HasSubstr("\x1b"))));
}

TEST(LabelTest, WideAndJoinedCharactersKeepTheirWidth) {
  EXPECT_EQ(DisplayWidth("注意"), 4);
  EXPECT_EQ(DisplayWidth("e\u0301"), 1);
  EXPECT_EQ(AlignRight("注意力", 5), "注意…");
  EXPECT_EQ(Center("é", 3), " é ");
}

TEST(PaletteTest, ColourIsForTerminalsThatWantIt) {
  std::map<std::string, const char*> variables = {{"TERM", "xterm-256color"}};
  const auto environment = [&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second;
  };
  const auto depth = [&](ColorMode mode, bool is_terminal) {
    return ChooseDepth(mode, is_terminal, environment);
  };
  EXPECT_EQ(depth(ColorMode::kAuto, true), ColorDepth::k256);
  EXPECT_EQ(depth(ColorMode::kAuto, false), ColorDepth::kNone);
  EXPECT_EQ(depth(ColorMode::kAlways, false), ColorDepth::k256);
  variables["COLORTERM"] = "truecolor";
  EXPECT_EQ(depth(ColorMode::kAuto, true), ColorDepth::k24Bit);
  EXPECT_EQ(depth(ColorMode::kNever, true), ColorDepth::kNone);
  variables["NO_COLOR"] = "1";
  EXPECT_EQ(depth(ColorMode::kAuto, true), ColorDepth::kNone);
  EXPECT_EQ(depth(ColorMode::kAlways, true), ColorDepth::k24Bit);
  variables["NO_COLOR"] = "";
  variables["TERM"] = "dumb";
  EXPECT_EQ(depth(ColorMode::kAuto, true), ColorDepth::kNone);
}

TEST(WeightsViewTest, TokensLabelWhatIsValidAlone) {
  const Tensor weights = Tensor::FromFloats(
      {2, 1, 3, 3},
      {0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13, 14, 15, 16, 17, 18});
  const Heatmap view =
      ViewOfWeights(weights, {1, 0}, Tensor::FromInts({2}, {3, 2}),
                    {"a", "b", "c", "d", "e", "f"});
  EXPECT_EQ(view.rows, 2);
  EXPECT_EQ(view.columns, 2);
  EXPECT_THAT(view.values, ElementsAre(10, 11, 13, 14));
  EXPECT_THAT(view.row_labels, ElementsAre("d", "e"));
  EXPECT_THAT(view.column_labels, ElementsAre("d", "e"));
}

TEST(WeightsViewTest, WithoutTokensEveryQueryIsDrawn) {
  const Tensor weights = Tensor::FromFloats({2, 3}, {1, 2, 3, 4, 5, 6});
  const Heatmap view = ViewOfWeights(weights, {0, 0}, std::nullopt, {"odd"});
  EXPECT_THAT(view.values, ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(view.row_labels, IsEmpty());
}

TEST(WeightsViewTest, WeightsHaveTheQuerysRows) {
  EXPECT_TRUE(CheckWeights({2, 4, 3, 5}, {2, 4, 3, 8}).ok());
  EXPECT_TRUE(CheckWeights({3, 0}, {3, 8}).ok());
  EXPECT_EQ(CheckWeights({1, 4, 3, 5}, {2, 4, 3, 8}),
            absl::InternalError("reply: weights [1, 4, 3, 5] to query "
                                "[2, 4, 3, 8] (expected its extents before the "
                                "last one)"));
  for (const Shape& wrong : {Shape{2, 1, 3, 5}, Shape{2, 4, 2, 5}, Shape{3, 5},
                             Shape{120}, Shape{}}) {
    EXPECT_FALSE(CheckWeights(wrong, {2, 4, 3, 8}).ok());
  }
  EXPECT_FALSE(CheckWeights({5}, {8}).ok());
}

TEST(WeightsViewTest, AHeadIsTwoNumbersWithinTheShape) {
  const Shape shape = {4, 12, 28, 32};
  const auto index = ParseHeadIndex("3,11", shape);
  ASSERT_TRUE(index.ok());
  EXPECT_EQ(index->batch, 3);
  EXPECT_EQ(index->head, 11);
  for (const char* bad : {"4,0", "0,12", "-1,0", "0", "0,1,2", "a,b", ""}) {
    EXPECT_FALSE(ParseHeadIndex(bad, shape).ok()) << bad;
  }
  EXPECT_TRUE(ParseHeadIndex("0,0", {5, 2}).ok());
  EXPECT_FALSE(ParseHeadIndex("0,1", {3, 5, 2}).ok());
}

}  // namespace
}  // namespace attention::cli
