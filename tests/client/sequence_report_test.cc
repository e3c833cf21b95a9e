#include "client/cpp/cli/sequence_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace attention::cli {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::Not;

client::SequenceDescription Example() {
  client::SequenceDescription sequence;
  sequence.name = "mine";
  sequence.label = "chat";
  sequence.form = {.heads = 8,
                   .key_width = 128,
                   .value_width = 64,
                   .datatype = DataType::kBFloat16,
                   .layers = 4};
  sequence.lengths = {100, 100, 96, 96};
  sequence.bytes = 3 << 19;
  sequence.idle_limit = hours(1);
  sequence.idle = seconds(200);
  return sequence;
}

TEST(SequenceReportTest, ATableHasAColumnForEachFigureWithItsUnit) {
  client::SequenceDescription other;
  other.name = "the-longest-name";
  other.lengths = {7};
  EXPECT_EQ(SequenceTable({Example(), other}),
            "NAME                   KEYS  LAYERS    MEMORY        IDLE  LABEL\n"
            "mine              96 to 100       4  1.50 MiB  3 min 20 s  chat\n"
            "the-longest-name          7       1   0 bytes        0 ms\n"
            "2 sequences\n");
}

TEST(SequenceReportTest, ATableWithoutSequencesSaysSo) {
  EXPECT_EQ(SequenceTable({}), "no sequences\n");
}

// What a server says commands no terminal.
TEST(SequenceReportTest, ControlCharactersOfALabelAreReplaced) {
  client::SequenceDescription sequence = Example();
  sequence.label = "a\x1b[31m";
  EXPECT_THAT(SequenceTable({sequence}), Not(HasSubstr("\x1b")));
  EXPECT_THAT(SequenceLines(sequence), Not(HasSubstr("\x1b")));
}

TEST(SequenceReportTest, LinesHaveTheFormAndTheKeysOfEachLayer) {
  EXPECT_EQ(SequenceLines(Example()),
            "name         mine\n"
            "label        chat\n"
            "form         8 heads, keys of width 128, values of width 64, "
            "BF16\n"
            "keys         100 in layers 0 to 1\n"
            "             96 in layers 2 to 3\n"
            "memory       1.50 MiB, with what it shares with forks\n"
            "idle         3 min 20 s, and goes after 1 h\n");
}

TEST(SequenceReportTest, LinesOfOneLengthAreOneLine) {
  client::SequenceDescription sequence = Example();
  sequence.lengths = {5, 5};
  EXPECT_THAT(SequenceLines(sequence), HasSubstr("5 in each of 2 layers\n"));
  sequence.lengths = {5};
  sequence.label = "";
  sequence.idle_limit.reset();
  const std::string lines = SequenceLines(sequence);
  EXPECT_THAT(lines, HasSubstr("keys         5\n"));
  EXPECT_THAT(lines, HasSubstr("label        none\n"));
  EXPECT_THAT(lines, HasSubstr("and may be for ever\n"));
}

TEST(SequenceReportTest, JsonHasPlainNumbersAndTheIncarnationAsText) {
  client::SequenceDescription sequence = Example();
  sequence.incarnation = 18'446'744'073'709'551'615U;
  const nlohmann::ordered_json json = SequenceJson(sequence);
  EXPECT_EQ(json["bytes"], 3 << 19);
  EXPECT_EQ(json["idle_ms"], 200'000);
  EXPECT_EQ(json["idle_limit_ms"], 3'600'000);
  EXPECT_EQ(json["datatype"], "BF16");
  EXPECT_EQ(json["incarnation"], "18446744073709551615");
  sequence.idle_limit.reset();
  EXPECT_TRUE(SequenceJson(sequence)["idle_limit_ms"].is_null());
}

TEST(SequenceReportTest, AnAgeHasTwoUnits) {
  EXPECT_EQ(FormatAge(milliseconds(0)), "0 ms");
  EXPECT_EQ(FormatAge(milliseconds(999)), "999 ms");
  EXPECT_EQ(FormatAge(milliseconds(1999)), "1 s");
  EXPECT_EQ(FormatAge(seconds(60)), "1 min");
  EXPECT_EQ(FormatAge(seconds(3601)), "1 h");
  EXPECT_EQ(FormatAge(seconds(7500)), "2 h 5 min");
  EXPECT_EQ(FormatAge(hours(24 * 4 + 3)), "4 d 3 h");
}

}  // namespace
}  // namespace attention::cli
