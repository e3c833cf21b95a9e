#ifndef ATTENTION_SERVER_HTTP_PROTOCOL_INFER_JSON_H_
#define ATTENTION_SERVER_HTTP_PROTOCOL_INFER_JSON_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "inference/grpc_service.pb.h"
#include "server/memory/hold_bytes.h"

namespace attention::server {

/// The JSON of an inference request over HTTP.
struct InferJson {
  /// Where an input's elements are: one of these.
  struct Input {
    std::optional<absl::string_view> data;  // an array, in the text, not read
    std::optional<int64_t> binary_bytes;    // behind the JSON
    bool in_region = false;
  };

  /// Whether it could be read: the parameters are in `fields` then, whatever is
  /// wrong with the rest.
  bool read = false;
  /// Names, datatypes, shapes and parameters, and the model's name where the
  /// JSON repeats it. Its version is not in the JSON, and no elements are here.
  inference::ModelInferRequest fields;
  std::vector<Input> inputs;  // as many as fields has
};

/// Reads all but the elements, for which ReadJsonElements() is, into `json`,
/// which is empty. `hold` is asked as CutData() does.
///
/// INVALID_ARGUMENT, which names the key, where the text besides `data` is not
/// JSON, a key is unknown or comes twice, a value has the wrong type, an input
/// has its elements nowhere or in two places, there are more than 64 inputs or
/// outputs; and what CutData() refuses. So it takes a few hundred KiB at most.
absl::Status ReadInferJson(absl::string_view text, HoldBytes hold,
                           InferJson& json);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_HTTP_PROTOCOL_INFER_JSON_H_
