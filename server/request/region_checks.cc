#include "server/request/region_checks.h"

#include "absl/strings/str_cat.h"

namespace attention::server {
namespace {

absl::Status CheckApart(absl::string_view result, const RegionBytes& place,
                        absl::string_view other, const RegionBytes& others) {
  if (others.region == nullptr || place.bytes.empty() || others.bytes.empty()) {
    return absl::OkStatus();
  }
  const MemoryRange a = place.region->RangeOf(place.bytes);
  const MemoryRange b = others.region->RangeOf(others.bytes);
  if (a.object != b.object || a.begin >= b.end || b.begin >= a.end) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      result, ": its shared memory overlaps that of ", other,
      " (expected memory of its own: results are written while tensors are "
      "still read)"));
}

}  // namespace

absl::Status CheckResultsApart(const AttentionRequest& request) {
  for (size_t n = 0; n < request.results.size(); ++n) {
    const WantedResult& result = request.results[n];
    if (result.place.region == nullptr) continue;
    absl::Status status;
    for (const auto& tensor : request.tensors_in_regions) {
      status.Update(CheckApart(Name(result.result), result.place, tensor.field,
                               tensor.place));
    }
    for (size_t m = 0; m < n; ++m) {
      const WantedResult& other = request.results[m];
      status.Update(CheckApart(Name(result.result), result.place,
                               Name(other.result), other.place));
    }
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status CheckIntact(const AttentionRequest& request) {
  absl::Status status;
  for (const auto& tensor : request.tensors_in_regions) {
    status.Update(tensor.place.region->CheckIntact());
  }
  for (const WantedResult& result : request.results) {
    if (result.place.region != nullptr) {
      status.Update(result.place.region->CheckIntact());
    }
  }
  return status;
}

}  // namespace attention::server
