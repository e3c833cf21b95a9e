#ifndef ATTENTION_CORE_STORE_SEQUENCE_FILE_NAMES_H_
#define ATTENTION_CORE_STORE_SEQUENCE_FILE_NAMES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/problem.h"
#include "core/store/sequence_form.h"

/// The words of sequence_file.h, for its writer and its reader.
namespace attention::store {

inline constexpr absl::string_view kSequenceFormat = "attention-sequence";
inline constexpr absl::string_view kSequenceVersion = "1";

/// One tensor of a file.
struct SequencePart {
  std::string name;
  int64_t layer;
  DataType type;
  Shape shape;  // (Hkv, n, width), or (Hkv, n) of scales; n is 0 here
  /// It of a block; of scales, where the block has them.
  const TensorView* (*of)(const KeyValueBlock& block);
};

/// What KeyValueBlock has one of, as the file calls it: the layer's number
/// stands behind.
inline constexpr absl::string_view kKeys = "key.";
inline constexpr absl::string_view kValues = "value.";
inline constexpr absl::string_view kKeyScales = "key_scale.";
inline constexpr absl::string_view kValueScales = "value_scale.";

/// In the order in which they lie: scales first, whose elements are the larger
/// ones, so that each is aligned to its elements' size.
inline std::vector<SequencePart> PartsOf(const SequenceForm& form) {
  std::vector<SequencePart> parts;
  const auto add = [&](absl::string_view name, DataType type,
                       const Shape& shape,
                       const TensorView* (*of)(const KeyValueBlock&)) {
    for (int64_t layer = 0; layer < form.layers; ++layer) {
      parts.push_back({absl::StrCat(name, layer), layer, type, shape, of});
    }
  };
  if (IsScaledType(form.type)) {
    add(kKeyScales, DataType::kFloat32, {form.heads, 0},
        [](const KeyValueBlock& block) { return &*block.key_scale; });
    add(kValueScales, DataType::kFloat32, {form.heads, 0},
        [](const KeyValueBlock& block) { return &*block.value_scale; });
  }
  add(kKeys, form.type, {form.heads, 0, form.key_width},
      [](const KeyValueBlock& block) { return &block.key; });
  add(kValues, form.type, {form.heads, 0, form.value_width},
      [](const KeyValueBlock& block) { return &block.value; });
  return parts;
}

}  // namespace attention::store

#endif  // ATTENTION_CORE_STORE_SEQUENCE_FILE_NAMES_H_
