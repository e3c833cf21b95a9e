#include "server/http/port/inference_route.h"

#include <iterator>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace attention::server {
namespace {

constexpr char kGet[] = "GET, HEAD";
constexpr char kPost[] = "POST";
constexpr char kBoth[] = "GET, HEAD, POST";

// A part of a path: {NAME} and {VERSION} stand for any.
struct Pattern {
  const char* path;
  InferenceMethod method;
  const char* http_methods;
};

// "stats" is found before the model of that name.
constexpr Pattern kPatterns[] = {
    {"v2", InferenceMethod::kServerMetadata, kGet},
    {"v2/models/stats", InferenceMethod::kModelStatistics, kGet},
    {"v2/models/{NAME}", InferenceMethod::kModelMetadata, kGet},
    {"v2/models/{NAME}/ready", InferenceMethod::kModelReady, kGet},
    {"v2/models/{NAME}/config", InferenceMethod::kModelConfig, kGet},
    {"v2/models/{NAME}/stats", InferenceMethod::kModelStatistics, kGet},
    {"v2/models/{NAME}/infer", InferenceMethod::kModelInfer, kPost},
    {"v2/models/{NAME}/trace/setting", InferenceMethod::kTraceSetting, kBoth},
    {"v2/models/{NAME}/versions/{VERSION}", InferenceMethod::kModelMetadata,
     kGet},
    {"v2/models/{NAME}/versions/{VERSION}/ready", InferenceMethod::kModelReady,
     kGet},
    {"v2/models/{NAME}/versions/{VERSION}/config",
     InferenceMethod::kModelConfig, kGet},
    {"v2/models/{NAME}/versions/{VERSION}/stats",
     InferenceMethod::kModelStatistics, kGet},
    {"v2/models/{NAME}/versions/{VERSION}/infer", InferenceMethod::kModelInfer,
     kPost},
    {"v2/repository/index", InferenceMethod::kRepositoryIndex, kPost},
    {"v2/repository/models/{NAME}/load", InferenceMethod::kRepositoryModelLoad,
     kPost},
    {"v2/repository/models/{NAME}/unload",
     InferenceMethod::kRepositoryModelUnload, kPost},
    {"v2/systemsharedmemory/status", InferenceMethod::kSystemSharedMemoryStatus,
     kGet},
    {"v2/systemsharedmemory/region/{NAME}/status",
     InferenceMethod::kSystemSharedMemoryStatus, kGet},
    {"v2/systemsharedmemory/region/{NAME}/register",
     InferenceMethod::kSystemSharedMemoryRegister, kPost},
    {"v2/systemsharedmemory/unregister",
     InferenceMethod::kSystemSharedMemoryUnregister, kPost},
    {"v2/systemsharedmemory/region/{NAME}/unregister",
     InferenceMethod::kSystemSharedMemoryUnregister, kPost},
    {"v2/cudasharedmemory/status", InferenceMethod::kCudaSharedMemoryStatus,
     kGet},
    {"v2/cudasharedmemory/region/{NAME}/status",
     InferenceMethod::kCudaSharedMemoryStatus, kGet},
    {"v2/cudasharedmemory/region/{NAME}/register",
     InferenceMethod::kCudaSharedMemoryRegister, kPost},
    {"v2/cudasharedmemory/unregister",
     InferenceMethod::kCudaSharedMemoryUnregister, kPost},
    {"v2/cudasharedmemory/region/{NAME}/unregister",
     InferenceMethod::kCudaSharedMemoryUnregister, kPost},
    {"v2/trace/setting", InferenceMethod::kTraceSetting, kBoth},
    {"v2/logging", InferenceMethod::kLogSettings, kBoth},
};

// As it stands where a percent sign is not followed by two digits.
std::string Decode(absl::string_view text) {
  std::string decoded;
  while (!text.empty()) {
    if (text.size() > 2 && text[0] == '%' && absl::ascii_isxdigit(text[1]) &&
        absl::ascii_isxdigit(text[2])) {
      decoded += absl::HexStringToBytes(text.substr(1, 2));
      text.remove_prefix(3);
    } else {
      decoded += text[0];
      text.remove_prefix(1);
    }
  }
  return decoded;
}

using Parts = std::vector<absl::string_view>;

// Each pattern's path in its parts, cut once for all requests.
const std::vector<Parts>& PatternParts() {
  static const auto& all = *new std::vector<Parts>([] {
    std::vector<Parts> parts;
    for (const Pattern& pattern : kPatterns) {
      parts.push_back(absl::StrSplit(pattern.path, '/'));
    }
    return parts;
  }());
  return all;
}

bool Match(const Parts& parts, const Parts& wanted, InferenceRoute& route) {
  if (parts.size() != wanted.size()) return false;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (wanted[i][0] != '{') {
      if (parts[i] != wanted[i]) return false;
      continue;
    }
    // An empty name would mean all of them, or the latest version.
    if (parts[i].empty()) return false;
    (wanted[i] == "{NAME}" ? route.name : route.version) = Decode(parts[i]);
  }
  return true;
}

}  // namespace

std::optional<InferenceRoute> FindInferenceRoute(absl::string_view path) {
  if (!absl::ConsumePrefix(&path, "/")) return std::nullopt;
  absl::ConsumeSuffix(&path, "/");
  const Parts parts = absl::StrSplit(path, '/');
  for (size_t i = 0; i < std::size(kPatterns); ++i) {
    InferenceRoute route;
    if (!Match(parts, PatternParts()[i], route)) continue;
    route.method = kPatterns[i].method;
    route.http_methods = kPatterns[i].http_methods;
    return route;
  }
  return std::nullopt;
}

bool Takes(const InferenceRoute& route, absl::string_view http_method) {
  for (const absl::string_view method :
       absl::StrSplit(route.http_methods, ", ")) {
    if (method == http_method) return true;
  }
  return false;
}

}  // namespace attention::server
