#ifndef ATTENTION_SERVER_FLAG_VALUES_H_
#define ATTENTION_SERVER_FLAG_VALUES_H_

#include <CLI/CLI.hpp>
#include <string>

namespace attention::server {

/// `validator` with a message that says what was had and what was expected
/// instead of how the conversion failed.
CLI::Validator Expecting(const std::string& expected,
                         const CLI::Validator& validator);

/// A number that fits into Integer.
template <typename Integer>
CLI::Validator WholeNumber() {
  return Expecting("a whole number", CLI::TypeValidator<Integer>("INT"));
}

/// What a switch may be given: true, false and CLI11's other words for them.
CLI::Validator TrueOrFalse();

/// Turns "65536", "64MiB" or "2 GB" into bytes; every unit is a power of 1024.
CLI::Validator SizeInBytes();

/// Turns "500ms", "30s", "2min", "1h" or "30" into seconds.
CLI::Validator TimeInSeconds();

}  // namespace attention::server

#endif  // ATTENTION_SERVER_FLAG_VALUES_H_
