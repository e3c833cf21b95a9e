#ifndef ATTENTION_SERVER_OPTIONS_CONFIG_FILE_H_
#define ATTENTION_SERVER_OPTIONS_CONFIG_FILE_H_

#include <CLI/CLI.hpp>
#include <istream>
#include <vector>

namespace attention::server {

/// The file that --config names: lines "KEY = VALUE". What follows a '#' behind
/// a space is a comment, and so is a line that begins with '#' or ';'. A value
/// is one word, or anything in quotes. An option that is a list has several,
/// with commas in between and in brackets or not, or several lines.
///
/// CLI11's own reader takes what is none of this for something else: a key
/// without a value for "true", and the last word of several for all of them.
class ConfigFile final : public CLI::ConfigBase {
 public:
  /// CLI::ValidationError, which names the line and its key, for any other
  /// line, a key that is no option's or comes twice, and a value that is empty.
  std::vector<CLI::ConfigItem> from_config(std::istream& input) const override;
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_OPTIONS_CONFIG_FILE_H_
