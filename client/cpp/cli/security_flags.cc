#include "client/cpp/cli/security_flags.h"

#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "client/cpp/src/security.h"

namespace attention::cli {
namespace {

std::string VariableOf(const std::string& flag) {
  return absl::StrCat(
      "ATTENTION_CLIENT_",
      absl::AsciiStrToUpper(absl::StrReplaceAll(flag.substr(2), {{"-", "_"}})));
}

void AddFile(CLI::App& app, const std::string& flag, std::string& value,
             const std::string& help, const char* type = "FILE") {
  app.add_option(flag, value, help)->envname(VariableOf(flag))->type_name(type);
}

}  // namespace

void AddSecurityFlags(CLI::App& app, SecurityFlags& flags) {
  app.add_flag("--tls", flags.tls,
               "Encrypt, and check the server's certificate; the next four "
               "imply it")
      ->envname(VariableOf("--tls"));
  AddFile(app, "--tls-ca", flags.files.ca_file,
          "Who signs the server's certificate, in PEM, instead of those that "
          "this machine trusts");
  AddFile(app, "--tls-certificate", flags.files.certificate_file,
          "This caller's certificate, in PEM");
  AddFile(app, "--tls-key", flags.files.key_file, "Its private key, in PEM");
  AddFile(app, "--tls-server-name", flags.files.server_name,
          "The name in the server's certificate, instead of the host in "
          "--server",
          "NAME");
  AddFile(app, "--token-file", flags.token_file,
          "The token that tells the server who calls");
}

absl::Status ApplySecurityFlags(const SecurityFlags& flags,
                                client::ClientOptions& options) {
  const client::TlsOptions& files = flags.files;
  if (flags.tls || !files.ca_file.empty() || !files.certificate_file.empty() ||
      !files.key_file.empty() || !files.server_name.empty()) {
    options.tls = files;
  }
  if (flags.token_file.empty()) return absl::OkStatus();
  options.token = client::ReadFile(flags.token_file);
  absl::StripAsciiWhitespace(&options.token);
  if (!options.token.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--token-file: '", flags.token_file, "' cannot be read, or is empty"));
}

}  // namespace attention::cli
