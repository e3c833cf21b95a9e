#ifndef ATTENTION_SERVER_HTTP_PROTOCOL_JSON_TEXT_H_
#define ATTENTION_SERVER_HTTP_PROTOCOL_JSON_TEXT_H_

#include <grpcpp/support/slice.h>

#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/datatype.h"

namespace attention::server {

/// Of one element as text, with its comma, at most, for each of its bytes:
/// "-0.00012207031" of two.
inline constexpr int kMostTextPerByte = 8;

/// JSON as it is written, in pieces: a long one is not copied as it grows.
class JsonText {
 public:
  /// As it stands.
  void Add(absl::string_view text) { open_.append(text.data(), text.size()); }
  /// In quotes, with escapes.
  void AddString(absl::string_view text);
  /// The elements, with commas between them: row-major bytes of `type`, read as
  /// they lie. Floating-point numbers of 32 bits have the fewest digits that
  /// give the same number back; what JSON has no number for is "NaN",
  /// "Infinity" and "-Infinity".
  void AddElements(DataType type, absl::Span<const std::byte> elements);

  size_t size() const { return done_bytes_ + open_.size(); }
  std::vector<grpc::Slice> Take() &&;

 private:
  // Room for a number more in open_.
  void MakeRoom();

  std::vector<grpc::Slice> done_;
  size_t done_bytes_ = 0;
  std::string open_;
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_HTTP_PROTOCOL_JSON_TEXT_H_
