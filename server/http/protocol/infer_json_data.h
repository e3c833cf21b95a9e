#ifndef ATTENTION_SERVER_HTTP_PROTOCOL_INFER_JSON_DATA_H_
#define ATTENTION_SERVER_HTTP_PROTOCOL_INFER_JSON_DATA_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/memory/hold_bytes.h"

namespace attention::server {

/// The JSON of an inference request in its two parts: what is small and has any
/// form, and the arrays of elements, which are neither.
struct InferJsonParts {
  /// An array that is the `data` of an input.
  struct Data {
    size_t input;            // its index in `inputs`
    absl::string_view text;  // in the whole text, from '[' to ']'
    size_t end;              // in `head`, behind the "[]" in its place
  };

  /// Where a byte of `head` is in the whole text.
  size_t PositionOf(size_t byte) const;

  std::string head;  // the text with "[]" for each of `data`; not checked
  std::vector<Data> data;
};

/// Cuts them apart, in whichever order keys come; looks for strings and
/// brackets alone, 1 GB/s, and copies no elements. The text may be anything.
/// `hold` is asked for nothing with each MiB, and its failure returned.
///
/// INVALID_ARGUMENT where the head has more than 64 KiB, or something is nested
/// deeper than 32 levels, within `data` 8.
absl::StatusOr<InferJsonParts> CutData(absl::string_view text, HoldBytes hold);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_HTTP_PROTOCOL_INFER_JSON_DATA_H_
