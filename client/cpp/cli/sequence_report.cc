#include "client/cpp/cli/sequence_report.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "client/cpp/cli/format.h"
#include "client/cpp/cli/label.h"

namespace attention::cli {
namespace {

using client::SequenceDescription;

constexpr size_t kColumns = 6;
using Row = std::array<std::string, kColumns>;

// The others are numbers and stand on the right. The last one is the label,
// which may be long.
constexpr size_t kNameColumn = 0;
constexpr size_t kLabelColumn = kColumns - 1;

Row RowOf(const SequenceDescription& sequence) {
  return {Printable(sequence.name),           FormatLengths(sequence.lengths),
          absl::StrCat(sequence.form.layers), FormatBytes(sequence.bytes),
          FormatAge(sequence.idle),           Printable(sequence.label)};
}

std::string Spaces(int count) {
  return std::string(static_cast<size_t>(std::max(count, 0)), ' ');
}

std::string TextOf(const Row& row, const std::array<int, kColumns>& widths) {
  std::string line;
  for (size_t i = 0; i < kColumns; ++i) {
    const std::string fill = Spaces(widths[i] - DisplayWidth(row[i]));
    if (i > 0) absl::StrAppend(&line, "  ");
    if (i != kNameColumn && i != kLabelColumn) absl::StrAppend(&line, fill);
    absl::StrAppend(&line, row[i]);
    if (i == kNameColumn) absl::StrAppend(&line, fill);
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

// "100 in every layer", or a line for each run of layers of one length.
std::string LengthLines(const SequenceDescription& sequence) {
  const std::vector<int64_t>& lengths = sequence.lengths;
  if (lengths.size() <= 1) return Line("keys", FormatLengths(lengths));
  std::string text;
  for (size_t first = 0; first < lengths.size();) {
    size_t end = first;
    while (end < lengths.size() && lengths[end] == lengths[first]) ++end;
    absl::StrAppend(
        &text,
        Line(first == 0 ? "keys" : "",
             end - first == lengths.size()
                 ? absl::StrCat(lengths[first], " in each of ", end, " layers")
             : end - first == 1
                 ? absl::StrCat(lengths[first], " in layer ", first)
                 : absl::StrCat(lengths[first], " in layers ", first, " to ",
                                end - 1)));
    first = end;
  }
  return text;
}

std::string FormatForm(const client::SequenceForm& form) {
  return absl::StrCat(form.heads, form.heads == 1 ? " head" : " heads",
                      ", keys of width ", form.key_width, ", values of width ",
                      form.value_width, ", ", Name(form.datatype));
}

}  // namespace

std::string FormatLengths(const std::vector<int64_t>& lengths) {
  if (lengths.empty()) return "0";
  const auto [least, most] =
      std::minmax_element(lengths.begin(), lengths.end());
  if (*least == *most) return absl::StrCat(*most);
  return absl::StrCat(*least, " to ", *most);
}

std::string FormatAge(std::chrono::milliseconds age) {
  if (age.count() < 1000) return absl::StrCat(age.count(), " ms");
  struct Unit {
    const char* name;
    int64_t seconds;
  };
  constexpr Unit kUnits[] = {
      {"d", 86400}, {"h", 3600}, {"min", 60}, {"s", 1}, {"", 0}};
  const int64_t seconds = age.count() / 1000;
  const Unit* unit = kUnits;
  while (seconds < unit->seconds) ++unit;
  std::string text = absl::StrCat(seconds / unit->seconds, " ", unit->name);
  const int64_t rest = seconds % unit->seconds;
  const Unit& next = unit[1];
  if (next.seconds > 0 && rest / next.seconds > 0) {
    absl::StrAppend(&text, " ", rest / next.seconds, " ", next.name);
  }
  return text;
}

std::string SequenceTable(const std::vector<SequenceDescription>& sequences) {
  if (sequences.empty()) return "no sequences\n";
  std::vector<Row> rows = {
      {"NAME", "KEYS", "LAYERS", "MEMORY", "IDLE", "LABEL"}};
  for (const SequenceDescription& sequence : sequences) {
    rows.push_back(RowOf(sequence));
  }
  std::array<int, kColumns> widths{};
  for (const Row& row : rows) {
    for (size_t i = 0; i < kColumns; ++i) {
      widths[i] = std::max(widths[i], DisplayWidth(row[i]));
    }
  }
  std::string text;
  for (const Row& row : rows) absl::StrAppend(&text, TextOf(row, widths));
  absl::StrAppend(&text, sequences.size(),
                  sequences.size() == 1 ? " sequence\n" : " sequences\n");
  return text;
}

std::string SequenceLines(const SequenceDescription& sequence) {
  return absl::StrCat(
      Line("name", sequence.name),
      Line("label", sequence.label.empty() ? "none" : sequence.label),
      Line("form", FormatForm(sequence.form)), LengthLines(sequence),
      Line("memory", absl::StrCat(FormatBytes(sequence.bytes),
                                  ", with what it shares with forks")),
      Line("idle",
           absl::StrCat(FormatAge(sequence.idle),
                        sequence.idle_limit
                            ? absl::StrCat(", and goes after ",
                                           FormatAge(*sequence.idle_limit))
                            : ", and may be for ever")));
}

nlohmann::ordered_json SequenceJson(const SequenceDescription& sequence) {
  nlohmann::ordered_json limit;  // null: none
  if (sequence.idle_limit) limit = sequence.idle_limit->count();
  return {{"name", sequence.name},
          {"label", sequence.label},
          {"heads", sequence.form.heads},
          {"key_width", sequence.form.key_width},
          {"value_width", sequence.form.value_width},
          {"datatype", absl::StrCat(Name(sequence.form.datatype))},
          {"layers", sequence.form.layers},
          {"lengths", sequence.lengths},
          {"bytes", sequence.bytes},
          {"idle_ms", sequence.idle.count()},
          {"idle_limit_ms", limit},
          {"incarnation", absl::StrCat(sequence.incarnation)}};
}

}  // namespace attention::cli
