#include "server/options/environment.h"

#include <unistd.h>

#include "absl/algorithm/container.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/cpu/cpu_backend.h"
#include "core/nearest_name.h"

namespace attention::server {
namespace {

// What others than the server's options read: attention-client's --server, and
// the kernels. Its other options begin with kOfTheClient.
constexpr const char* kOfOthers[] = {"ATTENTION_SERVER", kCpuTargetVariable};

constexpr char kOfTheClient[] = "ATTENTION_CLIENT_";

// ATTENTION_SERVICE_HOST, ATTENTION_PORT=tcp://10.0.0.1:8001,
// ATTENTION_PORT_8001_TCP_ADDR and the like.
bool IsOfKubernetes(const std::string& name, const std::string& value) {
  return absl::StrContains(name, "_SERVICE_HOST") ||
         absl::StrContains(name, "_SERVICE_PORT") ||
         absl::StrContains(name, "_TCP") || absl::StartsWith(value, "tcp://");
}

}  // namespace

std::vector<std::string> UnknownVariables(
    const std::vector<std::string>& environment,
    const std::vector<std::string>& known) {
  std::vector<std::string> lines;
  for (const std::string& variable : environment) {
    const size_t end = variable.find('=');
    if (end == std::string::npos) continue;
    const std::string name = variable.substr(0, end);
    if (!absl::StartsWith(name, "ATTENTION_") ||
        absl::c_linear_search(known, name) ||
        absl::c_linear_search(kOfOthers, name) ||
        absl::StartsWith(name, kOfTheClient) ||
        IsOfKubernetes(name, variable.substr(end + 1))) {
      continue;
    }
    const std::string shown = absl::CHexEscape(name.substr(0, 128));
    lines.push_back(absl::StrCat("environment: ", shown,
                                 " is not an option and is ignored (nearest: ",
                                 NearestName(shown, known),
                                 "; attention-server --help lists them all)"));
  }
  return lines;
}

std::vector<std::string> ProcessVariables() {
  std::vector<std::string> variables;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    variables.emplace_back(*entry);
  }
  return variables;
}

}  // namespace attention::server
