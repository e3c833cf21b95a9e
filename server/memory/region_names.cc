#include "server/memory/region_names.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "server/base/utf8.h"

namespace attention::server {
namespace {

constexpr size_t kMostRegionNameBytes = 256;
constexpr size_t kMostKeyBytes = 255;  // of a file name
constexpr absl::string_view kSpecial = "._-:+=@";
constexpr absl::string_view kReservedPrefix =
    "triton_python_backend_shm_region_";

bool HasOnly(absl::string_view text, absl::string_view special) {
  for (const char c : text) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) &&
        !absl::StrContains(special, c)) {
      return false;
    }
  }
  return true;
}

}  // namespace

absl::Status CheckSharedMemoryName(const std::string& name) {
  if (!name.empty() && name.size() <= kMostRegionNameBytes &&
      HasOnly(name, absl::StrCat(kSpecial, "/"))) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "name: ", Shown(name), " (expected 1 to ", kMostRegionNameBytes,
      " letters, digits and ", kSpecial, "/)"));
}

absl::Status CheckSharedMemoryKey(const std::string& key) {
  const absl::string_view object = absl::StripPrefix(key, "/");
  if (absl::StartsWith(object, kReservedPrefix)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "key: ", Shown(key), " begins with the reserved ", kReservedPrefix));
  }
  if (!object.empty() && object.size() <= kMostKeyBytes &&
      HasOnly(object, kSpecial) && object != "." &&
      !absl::StrContains(object, "..")) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "key: ", Shown(key), " (expected '/' or nothing, then 1 to ",
      kMostKeyBytes, " letters, digits and ", kSpecial, ", without '..')"));
}

std::string RegionPlace(const std::string& name) {
  return absl::StrCat("shared memory region '", name, "'");
}

absl::Status SharedMemoryIsOff() {
  return absl::UnavailableError(
      "shared memory is switched off (the server's --allow-shared-memory)");
}

}  // namespace attention::server
