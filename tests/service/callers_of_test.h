#ifndef ATTENTION_TESTS_SERVICE_CALLERS_OF_TEST_H_
#define ATTENTION_TESTS_SERVICE_CALLERS_OF_TEST_H_

#include <string>

#include "absl/strings/str_cat.h"
#include "server/callers/callers_file.h"

namespace attention::test {

/// An entry of the callers file: a caller with this token, and with what `more`
/// says, which begins with a comma.
inline std::string CallerEntry(const std::string& name,
                               const std::string& token,
                               const std::string& more = "") {
  std::string digits;
  for (const unsigned char byte : server::HashOfToken(token)) {
    absl::StrAppend(&digits, absl::Hex(byte, absl::kZeroPad2));
  }
  return absl::StrCat(R"({"name": ")", name, R"(", "tokens_sha256": [")",
                      digits, R"("])", more, "}");
}

/// The file with these entries, separated by commas.
inline std::string CallersText(const std::string& entries) {
  return absl::StrCat(R"({"callers": [)", entries, "]}");
}

}  // namespace attention::test

#endif  // ATTENTION_TESTS_SERVICE_CALLERS_OF_TEST_H_
