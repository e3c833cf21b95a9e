#include "server/flag_values.h"

#include <map>

#include "absl/strings/str_cat.h"

namespace attention::server {

CLI::Validator Expecting(const std::string& expected,
                         const CLI::Validator& validator) {
  const auto check = [expected, validator](std::string& input) {
    const std::string had = input;
    try {
      if (validator(input).empty()) return std::string();
    } catch (const CLI::ValidationError&) {
      // Some validators return their message, others throw it.
    }
    return absl::StrCat("'", had, "' (expected ", expected, ")");
  };
  return {check, ""};
}

CLI::Validator TrueOrFalse() {
  return Expecting(
      "true or false",
      CLI::IsMember({"true", "false", "on", "off", "yes", "no", "enable",
                     "disable", "t", "f", "y", "n", "1", "0"},
                    CLI::ignore_case));
}

CLI::Validator SizeInBytes() {
  return Expecting("a size such as 65536, 64MiB or 2GiB",
                   CLI::AsSizeValue(/*kb_is_1000=*/false));
}

CLI::Validator TimeInSeconds() {
  return Expecting("a time such as 500ms, 30s or 2min",
                   CLI::AsNumberWithUnit(std::map<std::string, double>{
                       {"ms", 0.001}, {"s", 1}, {"min", 60}, {"h", 3600}}));
}

}  // namespace attention::server
