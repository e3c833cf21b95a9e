#ifndef ATTENTION_SERVER_HTTP_JSON_ELEMENTS_H_
#define ATTENTION_SERVER_HTTP_JSON_ELEMENTS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "core/datatype.h"
#include "server/http/counted_bytes.h"

namespace attention::server {

/// A number with a point or an exponent, as it is written.
struct JsonReal {
  double value;
  const std::string& text;
};

/// One value of JSON that is no array and no object.
using JsonScalar = std::variant<std::nullptr_t, bool, int64_t, uint64_t,
                                JsonReal, absl::string_view>;

/// "a number", "a string": for messages.
const char* KindOf(const JsonScalar& value);

/// The `data` of a tensor: values of an array, flat or nested as the tensor's
/// shape is, on their way to the bytes of a row-major tensor. Numbers are read
/// without a detour over other types. FP32 and FP64 take the strings "NaN",
/// "Infinity" and "-Infinity", as protobuf's JSON does.
class JsonElements {
 public:
  /// FP16 and BF16 have no form in JSON, here as in the protocol's other
  /// servers: INVALID_ARGUMENT at the first value. `bytes` is empty.
  JsonElements(DataType type, CountedBytes bytes)
      : type_(type), bytes_(std::move(bytes)) {}

  /// Memory for `count` elements at once; none is a promise of that many.
  absl::Status Reserve(int64_t count);

  /// The array itself opens and closes with these, too.
  absl::Status OpenArray();
  absl::Status CloseArray();
  absl::Status Add(const JsonScalar& value);

  /// INVALID_ARGUMENT where the values are not as many, or not nested, as
  /// `shape` says.
  absl::Status CheckShape(absl::Span<const int64_t> shape) const;

  CountedBytes Take() { return std::move(bytes_); }

 private:
  template <typename T>
  absl::Status Append(T value);
  template <typename T>
  absl::Status AddInteger(const JsonScalar& value);
  template <typename T>
  absl::Status AddReal(const JsonScalar& value);
  absl::Status Misfit(const JsonScalar& value) const;

  const DataType type_;
  CountedBytes bytes_;
  int64_t count_ = 0;
  // Of the array at each level; none where no array of the level has ended.
  std::vector<std::optional<int64_t>> extents_;
  std::vector<int64_t> open_;  // values so far in each open array
  size_t value_level_ = 0;     // that numbers are in; 0 before the first
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_HTTP_JSON_ELEMENTS_H_
