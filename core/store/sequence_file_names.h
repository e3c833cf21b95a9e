#ifndef ATTENTION_CORE_STORE_SEQUENCE_FILE_NAMES_H_
#define ATTENTION_CORE_STORE_SEQUENCE_FILE_NAMES_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

/// The words of sequence_file.h, for its writer and its reader.
namespace attention::store {

inline constexpr absl::string_view kSequenceFormat = "attention-sequence";
inline constexpr absl::string_view kSequenceVersion = "1";

inline std::string KeyName(int64_t layer) {
  return absl::StrCat("key.", layer);
}
inline std::string ValueName(int64_t layer) {
  return absl::StrCat("value.", layer);
}

/// Which layer's tensor it is, and whether its values.
struct SequencePart {
  int64_t layer;
  bool is_value;
};

/// By tensor names. Tensors lie in this order: all have elements of one size,
/// so that each is aligned to it.
inline std::map<std::string, SequencePart> PartsOf(int64_t layers) {
  std::map<std::string, SequencePart> parts;
  for (int64_t layer = 0; layer < layers; ++layer) {
    parts[KeyName(layer)] = {layer, false};
    parts[ValueName(layer)] = {layer, true};
  }
  return parts;
}

}  // namespace attention::store

#endif  // ATTENTION_CORE_STORE_SEQUENCE_FILE_NAMES_H_
