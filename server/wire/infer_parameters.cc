#include "server/wire/infer_parameters.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "server/models/problem_options.h"

namespace attention::server {
namespace {

using inference::InferParameter;

class ParameterValue final : public OptionValue {
 public:
  explicit ParameterValue(const InferParameter& value) : value_(value) {}

  absl::StatusOr<double> Number() const override { return NumberOf(value_); }
  absl::StatusOr<int64_t> Integer() const override { return IntegerOf(value_); }
  absl::StatusOr<uint64_t> Unsigned() const override {
    return UnsignedOf(value_);
  }
  absl::StatusOr<bool> Bool() const override { return BoolOf(value_); }
  absl::StatusOr<std::string> Text() const override { return TextOf(value_); }
  std::string Describe() const override { return DescribeValue(value_); }

 private:
  const InferParameter& value_;
};

// The same, with the name of what is at fault before it.
absl::Status Named(absl::string_view name, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(),
                      absl::StrCat(name, ": ", status.message()));
}

// Takes the value of the statement's StatusOr, or returns its status.
template <typename Value, typename Target>
absl::Status Take(absl::StatusOr<Value> value, Target& target) {
  if (!value.ok()) return value.status();
  target = *std::move(value);
  return absl::OkStatus();
}

// Keys that the protocol, its clients or its gateways use for themselves; none
// of them changes what is computed.
bool IsReserved(const std::string& key) {
  static constexpr absl::string_view kReserved[] = {
      "sequence_id",
      "sequence_start",
      "sequence_end",
      "priority",
      "timeout",
      "headers",
      "binary_data_output",
      "triton_enable_empty_final_response",
  };
  return absl::c_linear_search(kReserved, key);
}

}  // namespace

absl::Status ApplyParameters(const InferParameters& parameters,
                             AttentionProblem& problem) {
  for (const auto& [key, value] : parameters) {
    if (IsReserved(key)) continue;
    if (!IsProblemOption(key)) {
      return absl::InvalidArgumentError(
          absl::StrCat("parameter '", key.substr(0, 64),
                       "' is unknown (known are ", ProblemOptionNames(), ")"));
    }
    absl::Status status =
        Named(key, SetProblemOption(key, ParameterValue(value), problem));
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<RegionReference>> RegionOf(
    absl::string_view field, const InferParameters& parameters) {
  RegionReference reference;
  bool sized = false;
  for (const auto& [key, value] : parameters) {
    const std::string name = absl::StrCat(field, ".", key.substr(0, 64));
    absl::Status status;
    if (key == "shared_memory_region") {
      status = Take(TextOf(value), reference.region);
    } else if (key == "shared_memory_byte_size") {
      status = Take(UnsignedOf(value), reference.byte_size);
      sized = true;
    } else if (key == "shared_memory_offset") {
      status = Take(UnsignedOf(value), reference.offset);
      sized = true;
    } else if (key != "binary_data_size" && key != "binary_data") {
      status = absl::InvalidArgumentError(
          "unknown (known are shared_memory_region, shared_memory_byte_size, "
          "shared_memory_offset)");
    }
    if (!status.ok()) return Named(name, status);
  }
  if (!reference.region.empty()) return std::optional(std::move(reference));
  if (sized) {
    return absl::InvalidArgumentError(absl::StrCat(
        field, ".shared_memory_region: missing beside a size or an offset"));
  }
  return std::optional<RegionReference>();
}

}  // namespace attention::server
