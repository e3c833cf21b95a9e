#include "server/http/json_elements.h"

#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "core/shape.h"

namespace attention::server {
namespace {

// As many as the extents of a tensor can be.
constexpr size_t kDeepest = 8;

template <typename Visitor>
auto Visit(const JsonScalar& value, const Visitor& visitor) {
  return std::visit(visitor, value);
}

std::string TextOf(const JsonScalar& value) {
  return Visit(value, [](const auto& v) -> std::string {
    using V = std::decay_t<decltype(v)>;
    if constexpr (std::is_same_v<V, std::nullptr_t>) {
      return "null";
    } else if constexpr (std::is_same_v<V, bool>) {
      return v ? "true" : "false";
    } else if constexpr (std::is_same_v<V, JsonReal>) {
      return v.text.substr(0, 64);
    } else if constexpr (std::is_same_v<V, absl::string_view>) {
      return absl::StrCat("\"", v.substr(0, 64), "\"");
    } else {
      return absl::StrCat(v);
    }
  });
}

template <typename T>
std::optional<T> NamedReal(absl::string_view name) {
  using Limits = std::numeric_limits<T>;
  if (name == "NaN") return Limits::quiet_NaN();
  if (name == "Infinity") return Limits::infinity();
  if (name == "-Infinity") return -Limits::infinity();
  return std::nullopt;
}

// Rounded once, from what is written.
template <typename T>
std::optional<T> RealOf(const JsonReal& real) {
  T value{};
  const char* const end = real.text.data() + real.text.size();
  const auto result = std::from_chars(real.text.data(), end, value);
  if (result.ec == std::errc()) return value;
  // Beyond the type: too large is refused, too small is rounded.
  if (std::abs(real.value) > 1) return std::nullopt;
  return static_cast<T>(real.value);
}

}  // namespace

const char* KindOf(const JsonScalar& value) {
  static constexpr const char* kKinds[] = {"null",     "a boolean", "a number",
                                           "a number", "a number",  "a string"};
  return kKinds[value.index()];
}

absl::Status JsonElements::Misfit(const JsonScalar& value) const {
  return absl::InvalidArgumentError(
      absl::StrCat("element ", count_, " is ", TextOf(value), " (expected ",
                   type_ == DataType::kBool ? "true or false" : "numbers of ",
                   type_ == DataType::kBool ? "" : Name(type_), ")"));
}

absl::Status JsonElements::Reserve(int64_t count) {
  return bytes_.Grow(static_cast<size_t>(count * ByteSize(type_)));
}

absl::Status JsonElements::OpenArray() {
  if (open_.size() == kDeepest) {
    return absl::InvalidArgumentError(
        absl::StrCat("arrays are nested deeper than ", kDeepest));
  }
  if (!open_.empty()) ++open_.back();
  open_.push_back(0);
  if (extents_.size() < open_.size()) extents_.emplace_back();
  if (value_level_ != 0 && open_.size() > value_level_) {
    return absl::InvalidArgumentError("numbers and arrays are mixed");
  }
  return absl::OkStatus();
}

absl::Status JsonElements::CloseArray() {
  std::optional<int64_t>& extent = extents_[open_.size() - 1];
  if (extent.has_value() && *extent != open_.back()) {
    return absl::InvalidArgumentError(
        absl::StrCat("arrays of ", *extent, " and of ", open_.back(),
                     " values are beside each other"));
  }
  extent = open_.back();
  open_.pop_back();
  return absl::OkStatus();
}

template <typename T>
absl::Status JsonElements::Append(T value) {
  if (absl::Status memory = bytes_.Grow(sizeof(T)); !memory.ok()) return memory;
  std::memcpy(bytes_.end(), &value, sizeof(T));
  bytes_.Commit(sizeof(T));
  return absl::OkStatus();
}

template <typename T>
absl::Status JsonElements::AddInteger(const JsonScalar& value) {
  if (const auto* integer = std::get_if<int64_t>(&value)) {
    if (std::in_range<T>(*integer)) return Append(static_cast<T>(*integer));
  } else if (const auto* natural = std::get_if<uint64_t>(&value)) {
    if (std::in_range<T>(*natural)) return Append(static_cast<T>(*natural));
  }
  return Misfit(value);
}

template <typename T>
absl::Status JsonElements::AddReal(const JsonScalar& value) {
  if (const auto* real = std::get_if<JsonReal>(&value)) {
    const std::optional<T> rounded = RealOf<T>(*real);
    return rounded ? Append(*rounded) : Misfit(value);
  }
  if (const auto* integer = std::get_if<int64_t>(&value)) {
    return Append(static_cast<T>(*integer));
  }
  if (const auto* natural = std::get_if<uint64_t>(&value)) {
    return Append(static_cast<T>(*natural));
  }
  if (const auto* name = std::get_if<absl::string_view>(&value)) {
    if (const std::optional<T> named = NamedReal<T>(*name)) {
      return Append(*named);
    }
  }
  return Misfit(value);
}

absl::Status JsonElements::Add(const JsonScalar& value) {
  if (value_level_ == 0) value_level_ = open_.size();
  if (value_level_ != open_.size()) {
    return absl::InvalidArgumentError("numbers and arrays are mixed");
  }
  ++open_.back();
  absl::Status status;
  switch (type_) {
    case DataType::kBool: {
      const bool* const truth = std::get_if<bool>(&value);
      status =
          truth == nullptr ? Misfit(value) : Append<uint8_t>(*truth ? 1 : 0);
      break;
    }
    case DataType::kUint8:
      status = AddInteger<uint8_t>(value);
      break;
    case DataType::kUint16:
      status = AddInteger<uint16_t>(value);
      break;
    case DataType::kUint32:
      status = AddInteger<uint32_t>(value);
      break;
    case DataType::kUint64:
      status = AddInteger<uint64_t>(value);
      break;
    case DataType::kInt8:
      status = AddInteger<int8_t>(value);
      break;
    case DataType::kInt16:
      status = AddInteger<int16_t>(value);
      break;
    case DataType::kInt32:
      status = AddInteger<int32_t>(value);
      break;
    case DataType::kInt64:
      status = AddInteger<int64_t>(value);
      break;
    case DataType::kFloat32:
      status = AddReal<float>(value);
      break;
    case DataType::kFloat64:
      status = AddReal<double>(value);
      break;
    case DataType::kFloat16:
    case DataType::kBFloat16:
      status = absl::InvalidArgumentError(
          absl::StrCat(Name(type_),
                       " has no form in JSON (expected binary_data_size, and "
                       "the elements behind the JSON)"));
      break;
  }
  if (status.ok()) ++count_;
  return status;
}

absl::Status JsonElements::CheckShape(absl::Span<const int64_t> shape) const {
  const absl::StatusOr<int64_t> count = ElementCount(shape, ByteSize(type_));
  if (!count.ok()) return count.status();
  if (count_ != *count) {
    return absl::InvalidArgumentError(
        absl::StrCat(count_, " elements (expected ", *count, " for shape ",
                     ShapeToString(shape), ")"));
  }
  if (extents_.size() <= 1) return absl::OkStatus();
  // Levels that have no arrays, below an extent of 0, are as they should be.
  for (size_t i = 0; i < extents_.size(); ++i) {
    if (extents_.size() > shape.size() || extents_[i] != shape[i] ||
        (value_level_ != 0 && value_level_ != shape.size())) {
      return absl::InvalidArgumentError(
          absl::StrCat("arrays are not nested as shape ", ShapeToString(shape),
                       " is (expected that, or one flat array)"));
    }
  }
  return absl::OkStatus();
}

}  // namespace attention::server
