#include "server/wire/data_types.h"

#include "absl/strings/str_cat.h"
#include "server/request/request_builder.h"

namespace attention::server {

std::optional<DataType> FromWire(v1::DataType type) {
  switch (type) {
    case v1::DATA_TYPE_FP32:
      return DataType::kFloat32;
    case v1::DATA_TYPE_FP16:
      return DataType::kFloat16;
    case v1::DATA_TYPE_BF16:
      return DataType::kBFloat16;
    case v1::DATA_TYPE_INT32:
      return DataType::kInt32;
    case v1::DATA_TYPE_INT64:
      return DataType::kInt64;
    case v1::DATA_TYPE_BOOL:
      return DataType::kBool;
    case v1::DATA_TYPE_UINT8:
      return DataType::kUint8;
    case v1::DATA_TYPE_INT8:
      return DataType::kInt8;
    case v1::DATA_TYPE_FP8:
      return DataType::kFloat8;
    default:
      return std::nullopt;
  }
}

v1::DataType ToWire(DataType type) {
  switch (type) {
    case DataType::kFloat32:
      return v1::DATA_TYPE_FP32;
    case DataType::kFloat16:
      return v1::DATA_TYPE_FP16;
    case DataType::kBFloat16:
      return v1::DATA_TYPE_BF16;
    case DataType::kInt32:
      return v1::DATA_TYPE_INT32;
    case DataType::kInt64:
      return v1::DATA_TYPE_INT64;
    case DataType::kBool:
      return v1::DATA_TYPE_BOOL;
    case DataType::kUint8:
      return v1::DATA_TYPE_UINT8;
    case DataType::kInt8:
      return v1::DATA_TYPE_INT8;
    case DataType::kFloat8:
      return v1::DATA_TYPE_FP8;
    default:
      return v1::DATA_TYPE_UNSPECIFIED;
  }
}

absl::StatusOr<DataType> DataTypeOf(absl::string_view field,
                                    const v1::Tensor& tensor,
                                    absl::string_view expected) {
  const std::optional<DataType> type = FromWire(tensor.datatype());
  if (type) return *type;
  const int number = tensor.datatype();
  return FieldError(
      field, absl::StrCat("datatype ", number,
                          number == 0 ? " is unspecified" : " is unknown",
                          " (expected ", expected, ")"));
}

}  // namespace attention::server
