#ifndef ATTENTION_SERVER_REQUEST_OPTION_VALUE_H_
#define ATTENTION_SERVER_REQUEST_OPTION_VALUE_H_

#include <cstdint>
#include <string>
#include <variant>

#include "absl/status/statusor.h"

/// The value that an option is given, in the form in which a wire or a file has
/// it, and its reading as the type that the option has. Every reading gives
/// INVALID_ARGUMENT, with what the value is and what was expected, where it is
/// of another type.
namespace attention::server {

/// std::monostate: a wire's value that says nothing.
using OptionValue =
    std::variant<std::monostate, bool, int64_t, uint64_t, double, std::string>;

/// What it is, for a message: "30", "'zero'", "no value".
std::string Describe(const OptionValue& value);

/// Numbers may come as double, as integer or as decimal string, because not
/// every client has every type.
absl::StatusOr<double> NumberOf(const OptionValue& value);
/// A whole number within 64 bits, in any of those forms.
absl::StatusOr<int64_t> IntegerOf(const OptionValue& value);
absl::StatusOr<uint64_t> UnsignedOf(const OptionValue& value);
/// A bool, 0 or 1, "true" or "false".
absl::StatusOr<bool> BoolOf(const OptionValue& value);
absl::StatusOr<std::string> TextOf(const OptionValue& value);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_REQUEST_OPTION_VALUE_H_
