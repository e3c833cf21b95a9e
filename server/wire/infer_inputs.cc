#include "server/wire/infer_inputs.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "server/wire/infer_values.h"
#include "server/wire/typed_contents.h"

namespace attention::server {
namespace {

using inference::ModelInferRequest;
using InputTensor = ModelInferRequest::InferInputTensor;

absl::Status ReadInput(int index, const InputTensor& input,
                       const TensorField& field, InputElements& elements,
                       SharedMemoryAccess regions, HoldBytes hold,
                       RequestBuilder& builder) {
  const std::optional<DataType> type = DataTypeFromName(input.datatype());
  if (!type) {
    return FieldError(
        field.name, absl::StrCat("datatype '", input.datatype().substr(0, 64),
                                 "' is unknown (expected ", field.types, ")"));
  }
  absl::StatusOr<RegionBytes> region =
      ReadRegion(field.name, input.parameters(), regions);
  if (!region.ok()) return region.status();
  if (region->region == nullptr) {
    return elements.Set(index, field, *type, builder);
  }
  if (input.has_contents()) {
    return FieldError(field.name, "has contents and a shared_memory_region");
  }
  return builder.SetTensor(field, *type, input.shape(), *std::move(region),
                           hold);
}

}  // namespace

const SplitRules& InferRules() {
  static const auto* const rules = new SplitRules{
      *ModelInferRequest::descriptor(),
      {ModelInferRequest::descriptor()->FindFieldByName("raw_input_contents"),
       ModelInferRequest::InferInputTensor::descriptor()->FindFieldByName(
           "contents")}};
  return *rules;
}

absl::Status MessageInputs::Set(int index, const TensorField& field,
                                DataType type, RequestBuilder& builder) {
  const Input& input = message_.inputs(index);
  return input.has_contents() ? SetContents(input, field, type, builder)
                              : SetRaw(input, field, type, builder);
}

absl::Status MessageInputs::CheckAllSet() const {
  const int entries = message_.raw_input_contents_size();
  if (next_raw_ == entries) return absl::OkStatus();
  return FieldError(
      "raw_input_contents",
      absl::StrCat(entries, " entries (expected ", next_raw_,
                   ", one for each input that is not in shared memory)"));
}

absl::Status MessageInputs::SetRaw(const Input& input, const TensorField& field,
                                   DataType type, RequestBuilder& builder) {
  if (message_.raw_input_contents().empty() &&
      absl::c_linear_search(input.shape(), 0)) {
    // Typed contents of no elements are no field of a message.
    return builder.SetTensor(field, type, input.shape(),
                             absl::Span<const std::byte>());
  }
  if (next_raw_ == message_.raw_input_contents_size()) {
    return FieldError(
        field.name,
        absl::StrCat("unable to find data for input tensor (", next_raw_,
                     " entries in raw_input_contents, no contents, no "
                     "shared_memory_region)"));
  }
  TensorBytes* const raw =
      elements_.Find(message_.raw_input_contents(next_raw_++));
  if (raw == nullptr) {
    return builder.SetTensor(field, type, input.shape(),
                             absl::Span<const std::byte>());
  }
  if (field.read_first) raw->Gather();
  return builder.SetTensor(field, type, input.shape(), raw->bytes());
}

absl::Status MessageInputs::SetContents(const Input& input,
                                        const TensorField& field, DataType type,
                                        RequestBuilder& builder) {
  if (message_.raw_input_contents_size() > 0) {
    return FieldError(field.name,
                      "has contents beside raw_input_contents (a request has "
                      "its elements in one or the other)");
  }
  const absl::StatusOr<int64_t> count =
      ElementCount(input.shape(), ByteSize(type));
  if (!count.ok()) return Named(field.name, count.status());
  std::vector<TensorBytes*> pieces;
  for (const std::string& mark : input.contents().bytes_contents()) {
    if (TensorBytes* piece = elements_.Find(mark)) {
      piece->Gather();
      pieces.push_back(piece);
    }
  }
  absl::StatusOr<AlignedBuffer> buffer =
      ReadTypedContents(field.name, type, *count, pieces, hold_);
  if (!buffer.ok()) return buffer.status();
  return builder.SetTensor(field, type, input.shape(), *std::move(buffer));
}

absl::Status ReadInputs(const ModelInferRequest& message,
                        InputElements& elements, absl::string_view model_name,
                        SharedMemoryAccess regions, HoldBytes hold,
                        RequestBuilder& builder) {
  for (int i = 0; i < message.inputs_size(); ++i) {
    const InputTensor& input = message.inputs(i);
    const TensorField* const field = builder.Accepted(input.name());
    if (field == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(
          "input '", input.name().substr(0, 64), "' is unknown to ", model_name,
          " (known are ", builder.AcceptedNames(), ")"));
    }
    absl::Status status =
        ReadInput(i, input, *field, elements, regions, hold, builder);
    if (!status.ok()) return status;
  }
  return elements.CheckAllSet();
}

}  // namespace attention::server
