#ifndef ATTENTION_SERVER_HTTP_INFER_JSON_H_
#define ATTENTION_SERVER_HTTP_INFER_JSON_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "inference/grpc_service.pb.h"
#include "server/http/counted_bytes.h"

namespace attention::server {

/// The JSON of an inference request over HTTP.
struct InferJson {
  /// Where an input's elements are; in no two of them at once.
  struct Input {
    std::optional<CountedBytes> elements;  // from `data`
    std::optional<int64_t> binary_bytes;   // behind the JSON
    bool in_region = false;
  };

  /// Names, datatypes, shapes and parameters. The model's name and version are
  /// not in the JSON, and no elements are here.
  inference::ModelInferRequest fields;
  std::vector<Input> inputs;  // as many as fields has
};

/// Reads it. `none` is what memory for elements is taken like: bytes that are
/// empty. Keys that are unknown are passed over, as the protocol's other
/// servers do.
///
/// INVALID_ARGUMENT, which names the key, where the text is not JSON, a value
/// has the wrong type, a key that matters comes twice, an input has its
/// elements nowhere or in two places, or `data` is not what its datatype and
/// shape say; where there are more than 64 inputs or outputs, or all besides
/// `data` takes more than 64 KiB. RESOURCE_EXHAUSTED where memory is used up.
///
/// Beside the elements and that, it takes no memory that grows with the text.
absl::StatusOr<InferJson> ReadInferJson(
    absl::string_view text, const std::function<CountedBytes()>& none);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_HTTP_INFER_JSON_H_
