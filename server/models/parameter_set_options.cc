#include "server/models/parameter_set_options.h"

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "server/models/problem_options.h"

namespace attention::server {
namespace {

using Json = nlohmann::json;

class JsonValue final : public OptionValue {
 public:
  explicit JsonValue(const Json& value) : value_(value) {}

  absl::StatusOr<double> Number() const override {
    if (!value_.is_number()) return Expected("a number");
    return value_.get<double>();
  }
  absl::StatusOr<int64_t> Integer() const override {
    if (!value_.is_number_integer() ||
        (value_.is_number_unsigned() &&
         value_.get<uint64_t>() > std::numeric_limits<int64_t>::max())) {
      return Expected("a whole number of 63 bits");
    }
    return value_.get<int64_t>();
  }
  absl::StatusOr<uint64_t> Unsigned() const override {
    if (!value_.is_number_unsigned()) {
      return Expected("a whole number of 64 bits, 0 or more");
    }
    return value_.get<uint64_t>();
  }
  absl::StatusOr<bool> Bool() const override {
    if (!value_.is_boolean()) return Expected("true or false");
    return value_.get<bool>();
  }
  absl::StatusOr<std::string> Text() const override {
    if (!value_.is_string()) return Expected("a string");
    return value_.get<std::string>();
  }
  std::string Describe() const override { return value_.dump(); }

 private:
  absl::Status Expected(absl::string_view expected) const {
    return absl::InvalidArgumentError(
        absl::StrCat(value_.dump(), " (expected ", expected, ")"));
  }

  const Json& value_;
};

}  // namespace

absl::Status ReadParameterSetOptions(const Json& options,
                                     AttentionProblem& defaults) {
  for (const auto& [name, value] : options.items()) {
    if (!IsProblemOption(name)) {
      return absl::InvalidArgumentError(
          absl::StrCat("options.", absl::CHexEscape(name),
                       ": unknown key (expected ", ProblemOptionNames(), ")"));
    }
    const absl::Status status =
        SetProblemOption(name, JsonValue(value), defaults);
    if (!status.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("options.", name, ": ", status.message()));
    }
  }
  return absl::OkStatus();
}

}  // namespace attention::server
