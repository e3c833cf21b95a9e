#ifndef ATTENTION_CORE_STORE_SEQUENCE_FORM_H_
#define ATTENTION_CORE_STORE_SEQUENCE_FORM_H_

#include <cstdint>

#include "absl/status/status.h"
#include "core/datatype.h"

namespace attention::store {

/// What all keys and values of a sequence have in common. It is said when the
/// sequence is made and never changes.
struct SequenceForm {
  int64_t heads = 1;        // Hkv; 1 to kMostHeads
  int64_t key_width = 1;    // Dk, elements; 1 to kMostWidth
  int64_t value_width = 1;  // Dv, elements; 0 to kMostWidth
  /// FP32, FP16 or BF16; or INT8 or FP8, each of whose rows has a scale.
  DataType type = DataType::kFloat32;
  /// Layers of a model under one name. Each has keys and values of its own, and
  /// a length. 1 to kMostLayers.
  int64_t layers = 1;

  static constexpr int64_t kMostHeads = int64_t{1} << 16;
  static constexpr int64_t kMostWidth = int64_t{1} << 20;
  static constexpr int64_t kMostLayers = int64_t{1} << 12;

  bool operator==(const SequenceForm&) const = default;
};

/// INVALID_ARGUMENT, beginning with the field's name (heads, key_width,
/// value_width, datatype, layers), where one is out of its range.
absl::Status CheckForm(const SequenceForm& form);

}  // namespace attention::store

#endif  // ATTENTION_CORE_STORE_SEQUENCE_FORM_H_
