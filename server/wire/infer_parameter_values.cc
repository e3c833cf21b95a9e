#include <cmath>
#include <limits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "server/wire/infer_parameters.h"

namespace attention::server {
namespace {

using inference::InferParameter;

absl::Status WrongType(const InferParameter& value,
                       absl::string_view expected) {
  return absl::InvalidArgumentError(
      absl::StrCat(DescribeValue(value), " (expected ", expected, ")"));
}

// A double that is exactly a whole number of Integer's range.
template <typename Integer>
bool ToInteger(double value, Integer& integer) {
  // 2^63 and 2^64 are doubles, the largest integers below them are not.
  const double limit = std::ldexp(1.0, std::numeric_limits<Integer>::digits);
  const double least = std::is_signed_v<Integer> ? -limit : 0.0;
  if (!(value >= least && value < limit) || value != std::trunc(value)) {
    return false;
  }
  integer = static_cast<Integer>(value);
  return true;
}

template <typename Integer>
absl::StatusOr<Integer> WholeNumberOf(const InferParameter& value,
                                      absl::string_view expected) {
  Integer integer = 0;
  bool fits = false;
  switch (value.parameter_choice_case()) {
    case InferParameter::kInt64Param:
      integer = static_cast<Integer>(value.int64_param());
      fits = std::is_signed_v<Integer> || value.int64_param() >= 0;
      break;
    case InferParameter::kUint64Param:
      integer = static_cast<Integer>(value.uint64_param());
      fits = value.uint64_param() <=
             static_cast<uint64_t>(std::numeric_limits<Integer>::max());
      break;
    case InferParameter::kDoubleParam:
      fits = ToInteger(value.double_param(), integer);
      break;
    case InferParameter::kStringParam:
      fits = absl::SimpleAtoi(value.string_param(), &integer);
      break;
    default:
      break;
  }
  if (!fits) return WrongType(value, expected);
  return integer;
}

}  // namespace

std::string DescribeValue(const InferParameter& value) {
  switch (value.parameter_choice_case()) {
    case InferParameter::kBoolParam:
      return value.bool_param() ? "true" : "false";
    case InferParameter::kInt64Param:
      return absl::StrCat(value.int64_param());
    case InferParameter::kUint64Param:
      return absl::StrCat(value.uint64_param());
    case InferParameter::kDoubleParam:
      return absl::StrCat(value.double_param());
    case InferParameter::kStringParam:
      return absl::StrCat("'", value.string_param().substr(0, 64), "'");
    case InferParameter::PARAMETER_CHOICE_NOT_SET:
      break;
  }
  return "no value";
}

absl::StatusOr<double> NumberOf(const InferParameter& value) {
  double number = 0;
  switch (value.parameter_choice_case()) {
    case InferParameter::kDoubleParam:
      return value.double_param();
    case InferParameter::kInt64Param:
      return static_cast<double>(value.int64_param());
    case InferParameter::kUint64Param:
      return static_cast<double>(value.uint64_param());
    case InferParameter::kStringParam:
      if (absl::SimpleAtod(value.string_param(), &number)) return number;
      break;
    default:
      break;
  }
  return WrongType(value, "a number");
}

absl::StatusOr<int64_t> IntegerOf(const InferParameter& value) {
  return WholeNumberOf<int64_t>(value, "a whole number of 64 bits");
}

absl::StatusOr<uint64_t> UnsignedOf(const InferParameter& value) {
  return WholeNumberOf<uint64_t>(value, "a whole number from 0 to 2^64 - 1");
}

absl::StatusOr<bool> BoolOf(const InferParameter& value) {
  if (value.parameter_choice_case() == InferParameter::kBoolParam) {
    return value.bool_param();
  }
  bool result = false;
  if (value.parameter_choice_case() == InferParameter::kStringParam) {
    if (absl::SimpleAtob(value.string_param(), &result)) return result;
  } else if (const auto number = IntegerOf(value);
             number.ok() && (*number == 0 || *number == 1)) {
    return *number == 1;
  }
  return WrongType(value, "true or false");
}

absl::StatusOr<std::string> TextOf(const InferParameter& value) {
  if (value.parameter_choice_case() != InferParameter::kStringParam) {
    return WrongType(value, "a string");
  }
  return value.string_param();
}

}  // namespace attention::server
