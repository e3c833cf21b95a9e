#include "server/http/protocol/json_text.h"

#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>

#include "core/element.h"
#include "server/base/json.h"

namespace attention::server {
namespace {

constexpr size_t kPieceBytes = 256 << 10;
// Of one number, at most.
constexpr size_t kNumberBytes = 32;

grpc::Slice ToSlice(std::string text) {
  auto* const owner = new std::string(std::move(text));
  return {owner->data(), owner->size(),
          [](void* bytes) { delete static_cast<std::string*>(bytes); }, owner};
}

template <typename Number>
void Append(Number value, std::string& text) {
  char digits[kNumberBytes];
  const auto end = std::to_chars(digits, digits + sizeof(digits), value).ptr;
  text.append(digits, end);
}

template <typename Real>
void AppendReal(Real value, std::string& text) {
  if (std::isfinite(value)) return Append(value, text);
  if (std::isnan(value)) {
    text += "\"NaN\"";
  } else {
    text += value > 0 ? "\"Infinity\"" : "\"-Infinity\"";
  }
}

void AppendElement(DataType type, const std::byte* element, std::string& text) {
  switch (type) {
    case DataType::kFloat32: {
      float value = 0;
      std::memcpy(&value, element, sizeof(value));
      return AppendReal(value, text);
    }
    case DataType::kFloat8:
    case DataType::kFloat16:
    case DataType::kBFloat16:  // exactly
      return AppendReal(static_cast<float>(LoadElement(type, element)), text);
    case DataType::kFloat64:
      return AppendReal(LoadElement(type, element), text);
    case DataType::kBool:
      text += LoadInteger(DataType::kUint8, element) != 0 ? "true" : "false";
      return;
    default:
      return Append(LoadInteger(type, element), text);
  }
}

}  // namespace

void JsonText::MakeRoom() {
  if (open_.size() + kNumberBytes <= kPieceBytes) return;
  done_bytes_ += open_.size();
  done_.push_back(ToSlice(std::exchange(open_, {})));
  open_.reserve(kPieceBytes);
}

void JsonText::AddString(absl::string_view text) {
  Add(JsonLine(Json(static_cast<std::string>(text))));
}

void JsonText::AddElements(DataType type,
                           absl::Span<const std::byte> elements) {
  const auto size = static_cast<size_t>(ByteSize(type));
  for (size_t at = 0; at + size <= elements.size(); at += size) {
    MakeRoom();
    if (at > 0) open_ += ',';
    AppendElement(type, elements.data() + at, open_);
  }
}

std::vector<grpc::Slice> JsonText::Take() && {
  if (!open_.empty()) done_.push_back(ToSlice(std::move(open_)));
  return std::move(done_);
}

}  // namespace attention::server
