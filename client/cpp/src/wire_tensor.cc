#include "client/cpp/src/wire_tensor.h"

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
    {DataType::kInt8, v1::DATA_TYPE_INT8},
    {DataType::kFloat8, v1::DATA_TYPE_FP8},
};

}  // namespace

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

bool HasWireType(DataType type) {
  return ToWire(type) != v1::DATA_TYPE_UNSPECIFIED;
}

void DescribeTensor(const Tensor& tensor, v1::Tensor& message) {
  message.set_datatype(ToWire(tensor.type()));
  message.mutable_shape()->Assign(tensor.shape().begin(), tensor.shape().end());
}

absl::StatusOr<Tensor> AsDescribed(absl::string_view field,
                                   const v1::Tensor& description,
                                   Tensor bytes) {
  const std::optional<DataType> type = FromWire(description.datatype());
  if (!type) {
    return absl::InternalError(
        absl::StrCat("reply: ", field, ": unknown datatype ",
                     static_cast<int>(description.datatype())));
  }
  const absl::StatusOr<TensorView> view =
      ViewOfBytes(absl::StrCat("reply: ", field), *type, description.shape(),
                  bytes.bytes());
  if (!view.ok()) return absl::InternalError(view.status().message());
  return std::move(bytes).As(*type, view->shape);
}

}  // namespace attention::client
