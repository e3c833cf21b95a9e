#ifndef ATTENTION_TESTS_UNIT_SERVER_PARSED_FLAGS_H_
#define ATTENTION_TESTS_UNIT_SERVER_PARSED_FLAGS_H_

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/options/flags.h"
#include "tests/support/temporary_folder.h"

namespace attention::server {

using Variables = std::map<std::string, std::string>;

inline ParsedFlags Parse(const std::vector<std::string>& arguments,
                         const Variables& variables = {}) {
  return ParseFlags(arguments,
                    [&](const std::string& name) -> std::optional<std::string> {
                      const auto found = variables.find(name);
                      if (found == variables.end()) return std::nullopt;
                      return found->second;
                    });
}

/// The message that the arguments are refused with; empty where they are not.
inline std::string FlagsRefusal(const std::vector<std::string>& arguments,
                                const Variables& variables = {}) {
  const ParsedFlags parsed = Parse(arguments, variables);
  if (!parsed.exit) return "";
  EXPECT_EQ(parsed.exit->code, 2);
  return parsed.exit->text;
}

/// A config file with this text, until the program's end.
inline std::string ConfigFile(const std::string& text) {
  static const test::TemporaryFolder folder;
  static int files = 0;
  std::string path = absl::StrCat(folder.path(), "/", ++files, ".toml");
  std::ofstream(path) << text;
  return path;
}

}  // namespace attention::server

#endif  // ATTENTION_TESTS_UNIT_SERVER_PARSED_FLAGS_H_
