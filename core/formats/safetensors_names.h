#ifndef ATTENTION_CORE_FORMATS_SAFETENSORS_NAMES_H_
#define ATTENTION_CORE_FORMATS_SAFETENSORS_NAMES_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "core/datatype.h"

namespace attention {

/// The format's name of an element type: "F32", "BF16", "BOOL".
absl::string_view SafetensorsName(DataType type);

/// The inverse; nothing for a name that no element type here has.
std::optional<DataType> SafetensorsTypeFromName(absl::string_view name);

/// Text from a file as an error message can hold it: shortened and escaped.
std::string SafetensorsPrintable(absl::string_view text);

/// `tensor "name": `, as errors begin.
std::string SafetensorsErrorPrefix(absl::string_view tensor_name);

}  // namespace attention

#endif  // ATTENTION_CORE_FORMATS_SAFETENSORS_NAMES_H_
