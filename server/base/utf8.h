#ifndef ATTENTION_SERVER_BASE_UTF8_H_
#define ATTENTION_SERVER_BASE_UTF8_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace attention::server {

/// True where `text` is UTF-8 as RFC 3629 has it: no overlong forms, no
/// surrogates, nothing beyond U+10FFFF.
bool IsUtf8(absl::string_view text);

/// `text` with "?" for each byte that is of no character: half of one, where a
/// text was cut.
std::string ToUtf8(absl::string_view text);

/// `text`, or where it is longer than `limit` bytes its longest beginning that
/// fits with "..." behind it and does not cut a character. limit >= 3.
std::string TruncateUtf8(absl::string_view text, size_t limit);

/// What a caller chose, as messages and logs show it: 'like this', escaped, and
/// of what is long the first 128 bytes with "..." behind them.
std::string Shown(absl::string_view text);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_BASE_UTF8_H_
