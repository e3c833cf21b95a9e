#include "server/options/flag_errors.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "core/nearest_name.h"

namespace attention::server {

std::string Explain(const CLI::Error& error) {
  std::string text = error.what();
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) {
    // "--grpc-port: 1 required INT missing"
    return absl::StrCat(text.substr(0, text.find(": ")),
                        ": its value is missing");
  }
  if (dynamic_cast<const CLI::FileError*>(&error) != nullptr) {
    return absl::StrCat(
        "--config: ",
        absl::StrReplaceAll(text, {{"(missing?)", "(expected a file)"}}));
  }
  return text;
}

std::string ExplainUnknown(const std::string& argument,
                           const std::vector<std::string>& flags) {
  if (!absl::StartsWith(argument, "-")) {
    return absl::StrCat("'", argument,
                        "': not an option (expected options alone, which "
                        "begin with --)");
  }
  const std::string flag = argument.substr(0, argument.find('='));
  return absl::StrCat(flag, ": unknown option (the nearest is ",
                      NearestName(flag, flags), ")");
}

}  // namespace attention::server
