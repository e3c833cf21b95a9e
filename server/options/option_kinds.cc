#include "server/options/option_kinds.h"

#include <CLI/CLI.hpp>
#include <iterator>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"

namespace attention::server {
namespace {

constexpr int64_t kLongestMs = 24LL * 60 * 60 * 1000;

std::string WrongRange(int64_t value, int64_t least, int64_t most,
                       absl::string_view unit = "") {
  if (value >= least && value <= most) return "";
  return absl::StrCat(value, unit, " (expected ", least, " to ", most, unit,
                      ")");
}

}  // namespace

std::string TextOption::Wrong(const std::string& value) const {
  if (expected != nullptr && value.empty()) {
    return absl::StrCat("'' (expected ", expected, ")");
  }
  if (value.size() <= most_bytes) return "";
  return absl::StrCat("a path of ", value.size(), " bytes (expected at most ",
                      most_bytes, ")");
}

std::string ChoiceOption::Wrong(const std::string& value) const {
  if (absl::c_linear_search(known, value)) return "";
  return absl::StrCat("'", value, "' (expected ", absl::StrJoin(known, ", "),
                      ")");
}

bool ListOption::Parse(const std::string& text,
                       std::vector<std::string>& values) {
  for (const absl::string_view value :
       absl::StrSplit(text, ',', absl::SkipEmpty())) {
    values.emplace_back(value);
  }
  return true;
}

std::string ListOption::Text(const std::vector<std::string>& values) {
  return absl::StrJoin(values, ",");
}

std::string ListOption::Wrong(const std::vector<std::string>& values) const {
  const auto wrong = absl::c_find_if_not(values, is_right);
  if (wrong == values.end()) return "";
  return absl::StrCat("'", *wrong, "' (expected ", expected, ")");
}

template <typename Integer>
bool NumberOption<Integer>::Parse(const std::string& text, Integer& value) {
  return absl::SimpleAtoi(text, &value);
}

template <typename Integer>
std::string NumberOption<Integer>::Wrong(Integer value) const {
  return WrongRange(value, least, most);
}

template struct NumberOption<int>;
template struct NumberOption<int64_t>;

bool SizeOption::Parse(const std::string& text, int64_t& value) {
  std::string bytes = text;
  try {
    return CLI::AsSizeValue(/*kb_is_1000=*/false)(bytes).empty() &&
           absl::SimpleAtoi(bytes, &value);
  } catch (const CLI::ValidationError&) {
    return false;
  }
}

std::string SizeOption::Text(int64_t value) {
  const char* const units[] = {"", "KiB", "MiB", "GiB"};
  size_t unit = 0;
  for (; value > 0 && value % 1024 == 0 && unit + 1 < std::size(units);
       ++unit) {
    value /= 1024;
  }
  return absl::StrCat(value, units[unit]);
}

std::string SizeOption::Wrong(int64_t value) const {
  if (or_zero && value == 0) return "";
  return WrongRange(value, least, most, " bytes");
}

bool TimeOption::Parse(const std::string& text,
                       std::chrono::milliseconds& value) {
  // Abseil's words for it: "2m", and no number without a unit.
  std::string time = absl::StrReplaceAll(absl::AsciiStrToLower(text),
                                         {{"min", "m"}, {" ", ""}});
  if (!time.empty() && !absl::ascii_isalpha(time.back())) time += 's';
  absl::Duration duration;
  if (!absl::ParseDuration(time, &duration)) return false;
  value = absl::ToChronoMilliseconds(duration);
  // What is less than one must not become 0, which often means for ever.
  return value.count() != 0 || duration == absl::ZeroDuration();
}

std::string TimeOption::Text(std::chrono::milliseconds value) {
  const int64_t count = value.count();
  if (count % 1000 != 0) return absl::StrCat(count, "ms");
  if (count % 60'000 != 0 || count <= 60'000) {
    return absl::StrCat(count / 1000, "s");
  }
  return absl::StrCat(count / 60'000, "min");
}

std::string TimeOption::Wrong(std::chrono::milliseconds value) const {
  return WrongRange(value.count(), least.count(), kLongestMs, " ms");
}

bool SwitchOption::Parse(const std::string& text, bool& value) {
  const std::string word = absl::AsciiStrToLower(text);
  const bool on = word == "on" || word == "enable";
  if (!on && word != "off" && word != "disable") {
    return absl::SimpleAtob(word, &value);
  }
  value = on;
  return true;
}

}  // namespace attention::server
