#include "server/options/config_file.h"

#include <string>
#include <variant>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "core/nearest_name.h"
#include "server/options/option_table.h"

namespace attention::server {
namespace {

absl::string_view KeyOf(const OptionRow& row) {
  return absl::StripPrefix(row.flag, "--");
}

// Null where there is no such key.
const OptionRow* RowOf(absl::string_view key) {
  const auto row = absl::c_find_if(
      OptionTable(), [key](const OptionRow& one) { return KeyOf(one) == key; });
  return row == OptionTable().end() ? nullptr : &*row;
}

std::string NearestKey(absl::string_view key) {
  std::vector<std::string> keys;
  for (const OptionRow& row : OptionTable()) keys.emplace_back(KeyOf(row));
  return NearestName(key, keys);
}

bool IsQuote(char c) { return c == '"' || c == '\''; }

absl::string_view WithoutComment(absl::string_view line) {
  char quote = '\0';  // that is open
  char before = ' ';
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quote != '\0') {
      if (c == quote) quote = '\0';
    } else if (IsQuote(c)) {
      quote = c;
    } else if (c == '#' && absl::ascii_isspace(before)) {
      return line.substr(0, i);
    }
    before = c;
  }
  return line;
}

// One line, as far as it has been read.
struct ConfigLine {
  int number;
  absl::string_view key = "";

  CLI::ValidationError Wrong(absl::string_view problem) const {
    return CLI::ValidationError("--config",
                                absl::StrCat("line ", number, ": ", key,
                                             key.empty() ? "" : ": ", problem));
  }
  // One value, without its quotes.
  std::string Value(absl::string_view text) const {
    text = absl::StripAsciiWhitespace(text);
    const bool quoted = text.size() > 1 && IsQuote(text.front()) &&
                        text.find(text.front(), 1) == text.size() - 1;
    const absl::string_view value =
        quoted ? text.substr(1, text.size() - 2) : text;
    if (value.empty()) throw Wrong("its value is missing");
    if (!quoted && value.find_first_of(" \t\"'") != absl::string_view::npos) {
      throw Wrong(absl::StrCat("'", value,
                               "' (expected one value, in quotes where it has "
                               "spaces)"));
    }
    return static_cast<std::string>(value);
  }
  std::vector<std::string> Values(absl::string_view text) const {
    // An address of IPv6 has brackets as well, and a port behind them.
    if (absl::StartsWith(text, "[") && absl::EndsWith(text, "]")) {
      text = text.substr(1, text.size() - 2);
    }
    std::vector<std::string> values;
    for (const absl::string_view one : absl::StrSplit(text, ',')) {
      values.push_back(Value(one));
    }
    return values;
  }
};

}  // namespace

std::vector<CLI::ConfigItem> ConfigFile::from_config(
    std::istream& input) const {
  std::vector<CLI::ConfigItem> options;
  std::string text;
  for (ConfigLine line{.number = 1}; std::getline(input, text); ++line.number) {
    line.key = "";
    const absl::string_view all = absl::StripAsciiWhitespace(
        WithoutComment(absl::StripAsciiWhitespace(text)));
    if (all.empty() || all.front() == ';') continue;
    const size_t equals = all.find('=');
    if (equals == absl::string_view::npos) {
      throw line.Wrong(absl::StrCat("'", all, "' (expected KEY = VALUE)"));
    }
    line.key = absl::StripAsciiWhitespace(all.substr(0, equals));
    const absl::string_view value =
        absl::StripAsciiWhitespace(all.substr(equals + 1));
    const OptionRow* const row = RowOf(line.key);
    if (row == nullptr) {
      throw line.Wrong(absl::StrCat("unknown key (the nearest is ",
                                    NearestKey(line.key), ")"));
    }
    const bool list = std::holds_alternative<ListOption>(row->kind);
    const std::vector<std::string> values =
        list ? line.Values(value) : std::vector{line.Value(value)};
    auto option = absl::c_find_if(options, [&line](const CLI::ConfigItem& one) {
      return one.name == line.key;
    });
    if (option == options.end()) {
      options.push_back({.name = static_cast<std::string>(line.key)});
      option = options.end() - 1;
    } else if (!list) {
      throw line.Wrong("comes twice");
    }
    option->inputs.insert(option->inputs.end(), values.begin(), values.end());
  }
  return options;
}

}  // namespace attention::server
