#include "core/datatype.h"

#include <array>

namespace attention {
namespace {

struct TypeInfo {
  const char* name;
  int64_t byte_size;
};

// In the order of the enumeration.
constexpr std::array<TypeInfo, 14> kTypes = {{{"BOOL", 1},
                                              {"UINT8", 1},
                                              {"UINT16", 2},
                                              {"UINT32", 4},
                                              {"UINT64", 8},
                                              {"INT8", 1},
                                              {"INT16", 2},
                                              {"INT32", 4},
                                              {"INT64", 8},
                                              {"FP8", 1},
                                              {"FP16", 2},
                                              {"BF16", 2},
                                              {"FP32", 4},
                                              {"FP64", 8}}};
static_assert(kTypes.size() == static_cast<size_t>(DataType::kFloat64) + 1);

}  // namespace

int64_t ByteSize(DataType type) {
  return kTypes[static_cast<size_t>(type)].byte_size;
}

absl::string_view Name(DataType type) {
  return kTypes[static_cast<size_t>(type)].name;
}

std::optional<DataType> DataTypeFromName(absl::string_view name) {
  for (size_t i = 0; i < kTypes.size(); ++i) {
    if (name == kTypes[i].name) return static_cast<DataType>(i);
  }
  return std::nullopt;
}

bool IsAttentionType(DataType type) {
  return type == DataType::kFloat32 || type == DataType::kFloat16 ||
         type == DataType::kBFloat16;
}

bool IsScaledType(DataType type) {
  return type == DataType::kInt8 || type == DataType::kFloat8;
}

}  // namespace attention
