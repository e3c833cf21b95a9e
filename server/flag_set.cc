#include "server/flag_set.h"

#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/str_replace.h"

namespace attention::server {

std::string EnvironmentName(const std::string& flag) {
  return absl::StrCat("ATTENTION_", absl::AsciiStrToUpper(absl::StrReplaceAll(
                                        flag, {{"--", ""}, {"-", "_"}})));
}

absl::Status FlagSet::ConvertTimes() const {
  for (const Time& time : times_) {
    // Compared as doubles first: the conversion of what does not fit is
    // undefined.
    const double milliseconds = std::round(time.seconds * 1000);
    if (!(std::abs(milliseconds) < 1e15)) {
      return absl::InvalidArgumentError(
          absl::StrCat(time.flag, ": ", time.seconds, "s (expected 0 to 24h)"));
    }
    *time.value = std::chrono::milliseconds(static_cast<int64_t>(milliseconds));
  }
  return absl::OkStatus();
}

}  // namespace attention::server
