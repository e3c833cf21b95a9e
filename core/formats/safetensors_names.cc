#include "core/formats/safetensors_names.h"

#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace attention {
namespace {

constexpr std::pair<const char*, DataType> kNames[] = {
    {"BOOL", DataType::kBool},     {"U8", DataType::kUint8},
    {"U16", DataType::kUint16},    {"U32", DataType::kUint32},
    {"U64", DataType::kUint64},    {"I8", DataType::kInt8},
    {"I16", DataType::kInt16},     {"I32", DataType::kInt32},
    {"I64", DataType::kInt64},     {"F16", DataType::kFloat16},
    {"BF16", DataType::kBFloat16}, {"F32", DataType::kFloat32},
    {"F64", DataType::kFloat64},   {"F8_E4M3", DataType::kFloat8},
};

}  // namespace

std::optional<DataType> SafetensorsTypeFromName(absl::string_view name) {
  for (const auto& [known, type] : kNames) {
    if (name == known) return type;
  }
  return std::nullopt;
}

std::string SafetensorsPrintable(absl::string_view text) {
  constexpr size_t kLongest = 200;
  return text.size() <= kLongest
             ? absl::Utf8SafeCHexEscape(text)
             : absl::StrCat(absl::CHexEscape(text.substr(0, kLongest)), "...");
}

absl::string_view SafetensorsName(DataType type) {
  for (const auto& [name, known] : kNames) {
    if (type == known) return name;
  }
  return "";
}

std::string SafetensorsErrorPrefix(absl::string_view tensor_name) {
  return absl::StrCat("tensor \"", SafetensorsPrintable(tensor_name), "\": ");
}

}  // namespace attention
