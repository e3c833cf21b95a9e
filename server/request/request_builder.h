#ifndef ATTENTION_SERVER_REQUEST_REQUEST_BUILDER_H_
#define ATTENTION_SERVER_REQUEST_REQUEST_BUILDER_H_

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/datatype.h"
#include "server/memory/hold_bytes.h"
#include "server/request/attention_request.h"
#include "server/request/option_fields.h"
#include "server/request/option_value.h"
#include "server/request/tensor_fields.h"

namespace attention::server {

/// Puts a request together from fields, by the tables of tensors and options;
/// what only a wire can get wrong is refused here, everything else is
/// Validate()'s. Errors are INVALID_ARGUMENT and begin with the field's name,
/// unless they say something else.
class RequestBuilder {
 public:
  /// What the request begins with: the scoring function; or what a set has, and
  /// `owner`, what the views in it lie in.
  explicit RequestBuilder(const Scoring& scoring);
  explicit RequestBuilder(const AttentionProblem& defaults,
                          std::shared_ptr<const void> owner = nullptr);

  /// Refuses a scoring function that has no such option and a value of another
  /// type. `name` is the field's in a message, the option's own where empty.
  absl::Status SetOption(const OptionField& option, const OptionValue& value,
                         absl::string_view name = "");

  /// The tensor of that name that this request may carry; null where there is
  /// none. AcceptedNames() lists those that there are.
  const TensorField* Accepted(absl::string_view name);
  std::string AcceptedNames() { return AcceptedTensors(request_.problem); }

  /// The tensor's elements are `bytes`, whose owner outlives the request.
  /// Refuses a tensor that comes twice, and bytes that are not what the shape
  /// needs. The tensor is one that is accepted.
  absl::Status SetTensor(const TensorField& tensor, DataType type,
                         absl::Span<const int64_t> shape,
                         absl::Span<const std::byte> bytes);
  /// The same of elements that lie as `view` says, by any strides: their owner
  /// outlives the request, and changes none of them meanwhile.
  absl::Status SetTensor(const TensorField& tensor, TensorView view);
  /// The same, kept by the request.
  absl::Status SetTensor(const TensorField& tensor, DataType type,
                         absl::Span<const int64_t> shape, AlignedBuffer buffer);
  /// The same in a region, used where it is, or copied to the host's memory
  /// where the field's values are looked at first or a device could not read
  /// it: their owner could change them once they were checked. `hold` is asked
  /// for the copy's bytes once they are known to be what the shape needs.
  absl::Status SetTensor(const TensorField& tensor, DataType type,
                         absl::Span<const int64_t> shape, RegionBytes place,
                         HoldBytes hold);

  /// Keys and values come from these, at least one, and are then no need: those
  /// that are given are appended.
  absl::Status SetSequences(std::vector<SequenceLayer> sequences,
                            SequenceLife life = {});
  /// What has been set so far; a query that is not given has no extents.
  const AttentionProblem& problem() const { return request_.problem; }

  /// Refuses a result that comes twice.
  absl::Status AddResult(const WantedResult& result);

  /// The request, once. Refuses where a tensor is missing that it needs, or an
  /// option that a result needs. The output alone is wanted where no result was
  /// added.
  absl::StatusOr<AttentionRequest> Build() &&;

 private:
  bool IsGiven(const TensorField& tensor) const {
    return given_[IndexOf(tensor)];
  }
  // The field's view, with a first look at it.
  absl::StatusOr<TensorView*> Set(const TensorField& tensor, DataType type,
                                  absl::Span<const int64_t> shape,
                                  absl::Span<const std::byte> bytes);
  absl::StatusOr<TensorView*> Set(const TensorField& tensor,
                                  absl::StatusOr<TensorView> view);

  absl::Status CheckTensors();
  absl::Status CheckResults();

  AttentionRequest request_;
  std::bitset<kMostTensorFields> given_;
};

/// INVALID_ARGUMENT: "FIELD: PROBLEM".
absl::Status FieldError(absl::string_view field, absl::string_view problem);

/// The same status with "FIELD: " before its message.
absl::Status Named(absl::string_view field, const absl::Status& status);

/// The same status with `text` behind its message.
absl::Status Followed(const absl::Status& status, absl::string_view text);

/// INVALID_ARGUMENT for an id of more than kMostIdBytes bytes.
inline constexpr size_t kMostIdBytes = 256;
absl::Status CheckId(absl::string_view id);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_REQUEST_REQUEST_BUILDER_H_
