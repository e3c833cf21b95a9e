#include "client/cpp/src/wire_tensor.h"

#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace attention::client {
namespace {

struct TypePair {
  DataType type;
  v1::DataType wire;
};
constexpr TypePair kTypes[] = {
    {DataType::kFloat32, v1::DATA_TYPE_FP32},
    {DataType::kFloat16, v1::DATA_TYPE_FP16},
    {DataType::kBFloat16, v1::DATA_TYPE_BF16},
    {DataType::kInt32, v1::DATA_TYPE_INT32},
    {DataType::kInt64, v1::DATA_TYPE_INT64},
    {DataType::kBool, v1::DATA_TYPE_BOOL},
    {DataType::kUint8, v1::DATA_TYPE_UINT8},
};

std::optional<DataType> FromWire(v1::DataType wire) {
  for (const TypePair& pair : kTypes) {
    if (pair.wire == wire) return pair.type;
  }
  return std::nullopt;
}

v1::DataType ToWire(DataType type) {
  for (const TypePair& pair : kTypes) {
    if (pair.type == type) return pair.wire;
  }
  return v1::DATA_TYPE_UNSPECIFIED;
}

absl::Status BadReply(absl::string_view field, absl::string_view what) {
  return absl::InternalError(absl::StrCat("reply: ", field, ": ", what));
}

}  // namespace

bool HasWireType(DataType type) {
  return ToWire(type) != v1::DATA_TYPE_UNSPECIFIED;
}

void WriteTensor(const Tensor& tensor, v1::Tensor& message) {
  message.set_datatype(ToWire(tensor.type()));
  message.mutable_shape()->Assign(tensor.shape().begin(), tensor.shape().end());
  const absl::Span<const std::byte> bytes = tensor.bytes();
  message.set_data(bytes.data(), bytes.size());
}

absl::StatusOr<Tensor> ReadTensor(absl::string_view field, bool present,
                                  const v1::Tensor& message) {
  if (!present) return BadReply(field, "missing");
  const std::optional<DataType> type = FromWire(message.datatype());
  if (!type) {
    return BadReply(field, absl::StrCat("unknown datatype ",
                                        static_cast<int>(message.datatype())));
  }
  // The bytes are held against the shape before memory is taken for them.
  const std::string& data = message.data();
  const absl::Span<const std::byte> bytes(
      reinterpret_cast<const std::byte*>(data.data()), data.size());
  const absl::StatusOr<TensorView> view = ViewOfBytes(
      absl::StrCat("reply: ", field), *type, message.shape(), bytes);
  if (!view.ok()) return absl::InternalError(view.status().message());
  absl::StatusOr<Tensor> tensor = Tensor::Create(*type, view->shape);
  if (tensor.ok() && !bytes.empty()) {
    std::memcpy(tensor->data(), bytes.data(), bytes.size());
  }
  return tensor;
}

}  // namespace attention::client
