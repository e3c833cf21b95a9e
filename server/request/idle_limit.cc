#include "server/request/idle_limit.h"

#include <chrono>

#include "absl/strings/str_cat.h"
#include "server/request/request_builder.h"

namespace attention::server {
namespace {

using std::chrono::milliseconds;

// A hundred years: more could not be counted in nanoseconds.
constexpr int64_t kMostIdleMs = int64_t{100} * 365 * 24 * 3600 * 1000;

}  // namespace

absl::StatusOr<std::optional<store::Duration>> IdleLimitOf(
    std::optional<int64_t> ms) {
  if (!ms) return std::optional<store::Duration>();
  if (*ms <= 0 || *ms > kMostIdleMs) {
    return FieldError("idle_limit_ms",
                      absl::StrCat(*ms, " (expected 1 to ", kMostIdleMs, ")"));
  }
  return std::optional<store::Duration>(milliseconds(*ms));
}

int64_t ToMs(store::Duration duration) {
  return std::chrono::duration_cast<milliseconds>(duration).count();
}

}  // namespace attention::server
