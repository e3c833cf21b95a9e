#ifndef ATTENTION_CLIENT_CLI_NUMBERS_H_
#define ATTENTION_CLIENT_CLI_NUMBERS_H_

#include <CLI/CLI.hpp>
#include <limits>
#include <optional>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

/// Flags with numbers, as CLI11 does not read them.
namespace attention::cli {

/// For check(): a number from `least` to `most`. CLI::Range lets NaN pass.
inline CLI::Validator InRange(double least, double most) {
  return {
      [least, most](const std::string& text) -> std::string {
        double value = 0;
        if (absl::SimpleAtod(text, &value) && value >= least && value <= most) {
          return "";
        }
        return absl::StrCat(text, ", expected ", least, " to ", most);
      },
      /*validator_desc=*/""};
}

/// Adds a flag of a whole number in decimal, as the wires have them. To CLI11
/// 010 is 8, and -1 the largest number without a sign.
template <typename Integer>
CLI::Option* AddInteger(CLI::App& app, const std::string& flag,
                        std::optional<Integer>& value,
                        const std::string& help) {
  const auto read = [flag, &value](const std::string& text) {
    using Limits = std::numeric_limits<Integer>;
    if (absl::SimpleAtoi(text, &value.emplace())) return;
    throw CLI::ValidationError(
        flag, absl::StrCat(text, ", expected a whole number from ",
                           Limits::min(), " to ", Limits::max()));
  };
  return app.add_option_function<std::string>(flag, read, help)
      ->type_name(std::numeric_limits<Integer>::is_signed ? "INT" : "UINT");
}

}  // namespace attention::cli

#endif  // ATTENTION_CLIENT_CLI_NUMBERS_H_
