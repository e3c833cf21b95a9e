#include "server/scheduling/open_calls.h"

#include "absl/strings/str_cat.h"
#include "server/scheduling/retry_after.h"

namespace attention::server {

absl::Status OpenCallLimits::CheckRoom(const Ledger& ledger,
                                       const std::string& address) const {
  const int64_t most = per_address - per_address / 4;
  const int64_t open = ledger.Of(Kept::kCalls, address).amount;
  if (open < most) return absl::OkStatus();
  return RetryAfter(absl::ResourceExhaustedError(
                        absl::StrCat("the caller's address has ", open,
                                     " open calls (a stream begins below ",
                                     most, ", by the server's memory_limit)")),
                    kTryAgain);
}

}  // namespace attention::server
