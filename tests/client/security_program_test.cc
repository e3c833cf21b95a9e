// attention-client and servers that do not trust everybody.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "server/options/options.h"
#include "tests/client/held_server.h"
#include "tests/client/program_fixture.h"
#include "tests/service/callers_of_test.h"
#include "tests/service/tls_files.h"

namespace attention {
namespace {

using ::testing::HasSubstr;

TEST(ClientSecurity, FlagsAndEnvironmentLeadToAServerThatTrustsFew) {
  const test::TlsFiles files;
  files.Write("callers.json",
              test::CallersText(test::CallerEntry("person", "secret")));
  files.Write("token", "secret\n");
  server::ServerOptions options;
  files.Use(options);
  options.callers_file = files.Path("callers.json");
  const auto server = client::StartServer(nullptr, 0, options);
  const std::vector<std::string> with_ca = {
      "--server", server->address(), "--tls-ca", files.Path("authority.crt"),
      "info"};
  const ProgramResult nobody = RunClient(with_ca);
  EXPECT_EQ(nobody.exit_code, 1);
  EXPECT_THAT(nobody.errors, HasSubstr("UNAUTHENTICATED"));
  EXPECT_EQ(
      RunClient(with_ca, {{"ATTENTION_CLIENT_TOKEN_FILE", files.Path("token")}})
          .exit_code,
      0);
  const ProgramResult plain =
      RunClient({"--server", server->address(), "--deadline", "5", "info"});
  EXPECT_EQ(plain.exit_code, 1);
}

TEST(ClientSecurity, ATokenFileThatCannotBeReadIsNamed) {
  for (const std::string file : {"/absent", "/"}) {
    const ProgramResult result = RunClient({"--token-file", file, "info"});
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(result.errors, HasSubstr("--token-file: '" + file + "'"));
  }
}

TEST(ClientSecurity, ATokenThatMustNotBeSentIsThatOfTheFlag) {
  const test::TlsFiles files;
  files.Write("token", "secret");
  const ProgramResult result = RunClient(
      {"--server", "192.0.2.1:1", "info", "--token-file", files.Path("token")});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.errors, HasSubstr("--token-file: the token would be"));
}

// A mistake on the command line, for which `message` stands on stderr.
void ExpectMistake(std::vector<std::string> flags, const std::string& message) {
  flags.push_back("info");
  const ProgramResult result = RunClient(flags);
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.errors, "attention-client: " + message + "\n");
}

TEST(ClientSecurity, AFileWithoutACertificateIsNamed) {
  const test::TlsFiles files;
  const std::string key = files.Path("server.key");
  const std::string none =
      ": '" + key + "' holds no certificate (expected PEM)";
  ExpectMistake({"--tls-ca", key}, "--tls-ca" + none);
  ExpectMistake({"--tls-certificate", key, "--tls-key", key},
                "--tls-certificate" + none);
}

TEST(ClientSecurity, AFileWithoutTheCertificatesKeyIsNamed) {
  test::TlsFiles files;
  files.WriteCaller(files.authority(), "caller");
  const std::string certificate = files.Path("server.crt");
  const std::string other = files.Path("caller.key");
  ExpectMistake({"--tls-certificate", certificate, "--tls-key", other},
                "--tls-key: '" + other +
                    "' is not the key of the certificate in '" + certificate +
                    "'");
  ExpectMistake({"--tls-certificate", certificate, "--tls-key", certificate},
                "--tls-key: '" + certificate +
                    "' holds no private key (expected PEM, without a "
                    "passphrase)");
}

}  // namespace
}  // namespace attention
