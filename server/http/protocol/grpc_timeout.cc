#include "server/http/protocol/grpc_timeout.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "server/request/request_builder.h"

namespace attention::server {
namespace {

using std::chrono::nanoseconds;
using std::chrono::system_clock;

constexpr size_t kMostDigits = 8;
// Longer ones are for ever: the clock ends in the year 2262.
constexpr std::chrono::hours kLongest{24 * 365};

nanoseconds UnitOf(char unit) {
  switch (unit) {
    case 'H':
      return std::chrono::hours(1);
    case 'M':
      return std::chrono::minutes(1);
    case 'S':
      return std::chrono::seconds(1);
    case 'm':
      return std::chrono::milliseconds(1);
    case 'u':
      return std::chrono::microseconds(1);
    case 'n':
      return nanoseconds(1);
    default:
      return nanoseconds(0);
  }
}

}  // namespace

absl::StatusOr<system_clock::time_point> DeadlineOf(
    absl::string_view value, system_clock::time_point begin) {
  if (value.empty()) return system_clock::time_point::max();
  const nanoseconds unit = UnitOf(value.back());
  const absl::string_view digits = value.substr(0, value.size() - 1);
  int64_t count = 0;
  if (unit.count() == 0 || digits.empty() || digits.size() > kMostDigits ||
      !std::all_of(digits.begin(), digits.end(), absl::ascii_isdigit) ||
      !absl::SimpleAtoi(digits, &count)) {
    return FieldError(kGrpcTimeout,
                      absl::StrCat("'", value.substr(0, 64),
                                   "' (expected at most 8 digits and one of "
                                   "H, M, S, m, u, n: '500m')"));
  }
  if (count > nanoseconds(kLongest) / unit) {
    return system_clock::time_point::max();
  }
  return begin +
         std::chrono::duration_cast<system_clock::duration>(count * unit);
}

}  // namespace attention::server
