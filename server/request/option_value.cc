#include "server/request/option_value.h"

#include <cmath>
#include <limits>
#include <type_traits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace attention::server {
namespace {

constexpr size_t kMostShown = 64;  // bytes of a caller's text in a message

absl::Status WrongType(const OptionValue& value, absl::string_view expected) {
  return absl::InvalidArgumentError(
      absl::StrCat(Describe(value), " (expected ", expected, ")"));
}

// One overload of WholeNumber for each form: whether it is a whole number of
// Integer's range, and which.
template <typename Integer>
bool WholeNumber(std::monostate, Integer&) {
  return false;
}
template <typename Integer>
bool WholeNumber(bool, Integer&) {
  return false;
}
template <typename Integer>
bool WholeNumber(int64_t from, Integer& to) {
  to = static_cast<Integer>(from);
  return std::is_signed_v<Integer> || from >= 0;
}
template <typename Integer>
bool WholeNumber(uint64_t from, Integer& to) {
  to = static_cast<Integer>(from);
  return from <= static_cast<uint64_t>(std::numeric_limits<Integer>::max());
}
template <typename Integer>
bool WholeNumber(double from, Integer& to) {
  // 2^63 and 2^64 are doubles, the largest integers below them are not.
  const double limit = std::ldexp(1.0, std::numeric_limits<Integer>::digits);
  const double least = std::is_signed_v<Integer> ? -limit : 0.0;
  if (!(from >= least && from < limit) || from != std::trunc(from)) {
    return false;
  }
  to = static_cast<Integer>(from);
  return true;
}
template <typename Integer>
bool WholeNumber(const std::string& from, Integer& to) {
  return absl::SimpleAtoi(from, &to);
}

template <typename Integer>
absl::StatusOr<Integer> WholeNumberOf(const OptionValue& value,
                                      absl::string_view expected) {
  Integer integer = 0;
  const bool fits = std::visit(
      [&](const auto& from) { return WholeNumber(from, integer); }, value);
  if (!fits) return WrongType(value, expected);
  return integer;
}

}  // namespace

std::string Describe(const OptionValue& value) {
  struct Visitor {
    std::string operator()(std::monostate) { return "no value"; }
    std::string operator()(bool is) { return is ? "true" : "false"; }
    std::string operator()(int64_t number) { return absl::StrCat(number); }
    std::string operator()(uint64_t number) { return absl::StrCat(number); }
    std::string operator()(double number) { return absl::StrCat(number); }
    std::string operator()(const std::string& text) {
      return absl::StrCat("'", text.substr(0, kMostShown), "'");
    }
  };
  return std::visit(Visitor(), value);
}

absl::StatusOr<double> NumberOf(const OptionValue& value) {
  if (const auto* number = std::get_if<double>(&value)) return *number;
  if (const auto* number = std::get_if<int64_t>(&value)) {
    return static_cast<double>(*number);
  }
  if (const auto* number = std::get_if<uint64_t>(&value)) {
    return static_cast<double>(*number);
  }
  double parsed = 0;
  if (const auto* text = std::get_if<std::string>(&value);
      text != nullptr && absl::SimpleAtod(*text, &parsed)) {
    return parsed;
  }
  return WrongType(value, "a number");
}

absl::StatusOr<int64_t> IntegerOf(const OptionValue& value) {
  return WholeNumberOf<int64_t>(value, "a whole number of 64 bits");
}

absl::StatusOr<uint64_t> UnsignedOf(const OptionValue& value) {
  return WholeNumberOf<uint64_t>(value, "a whole number from 0 to 2^64 - 1");
}

absl::StatusOr<bool> BoolOf(const OptionValue& value) {
  if (const auto* is = std::get_if<bool>(&value)) return *is;
  bool parsed = false;
  if (const auto* text = std::get_if<std::string>(&value)) {
    if (absl::SimpleAtob(*text, &parsed)) return parsed;
  } else if (const auto number = IntegerOf(value);
             number.ok() && (*number == 0 || *number == 1)) {
    return *number == 1;
  }
  return WrongType(value, "true or false");
}

absl::StatusOr<std::string> TextOf(const OptionValue& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  return WrongType(value, "a string");
}

}  // namespace attention::server
