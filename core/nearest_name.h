#ifndef ATTENTION_CORE_NEAREST_NAME_H_
#define ATTENTION_CORE_NEAREST_NAME_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

/// For messages about names that are misspelt.
namespace attention {

/// How many characters must be inserted, deleted or replaced to make `b` of
/// `a` (Levenshtein).
size_t EditDistance(absl::string_view a, absl::string_view b);

/// The one of `known` with the smallest edit distance to `name`, the first of
/// several; empty where there is none known. One that has all words of `name`,
/// which - and _ part, is nearer than one that has not: "--grpc-port" is
/// nearer to "--port" than "--peers" is.
std::string NearestName(absl::string_view name,
                        const std::vector<std::string>& known);

}  // namespace attention

#endif  // ATTENTION_CORE_NEAREST_NAME_H_
