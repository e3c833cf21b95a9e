#include "server/base/utf8.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace attention::server {
namespace {

bool IsContinuation(char c) { return (static_cast<uint8_t>(c) & 0xC0) == 0x80; }

// Bytes of the character that begins `text` (not empty), 0 where there is none.
size_t CharacterLength(absl::string_view text) {
  const auto lead = static_cast<uint8_t>(text[0]);
  if (lead < 0x80) return 1;
  const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if (!IsContinuation(text[i])) return 0;
  }
  // The second byte's range is narrower after these: overlong forms, surrogates
  // and code points beyond U+10FFFF.
  const auto second = static_cast<uint8_t>(text[1]);
  if (lead == 0xE0 && second < 0xA0) return 0;
  if (lead == 0xED && second > 0x9F) return 0;
  if (lead == 0xF0 && second < 0x90) return 0;
  if (lead == 0xF4 && second > 0x8F) return 0;
  return length;
}

}  // namespace

bool IsUtf8(absl::string_view text) {
  while (!text.empty()) {
    const size_t length = CharacterLength(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string ToUtf8(absl::string_view text) {
  std::string whole;
  whole.reserve(text.size());
  while (!text.empty()) {
    const size_t length = CharacterLength(text);
    absl::StrAppend(&whole, length == 0 ? "?" : text.substr(0, length));
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return whole;
}

std::string TruncateUtf8(absl::string_view text, size_t limit) {
  constexpr absl::string_view kEllipsis = "...";
  if (text.size() <= limit) return static_cast<std::string>(text);
  size_t end = limit - kEllipsis.size();
  while (end > 0 && IsContinuation(text[end])) --end;
  return absl::StrCat(text.substr(0, end), kEllipsis);
}

std::string Shown(absl::string_view text) {
  constexpr size_t kMost = 128;
  return absl::StrCat("'", absl::CHexEscape(text.substr(0, kMost)),
                      text.size() > kMost ? "...'" : "'");
}

}  // namespace attention::server
