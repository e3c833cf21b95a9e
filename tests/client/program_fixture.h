#ifndef ATTENTION_TESTS_CLIENT_PROGRAM_FIXTURE_H_
#define ATTENTION_TESTS_CLIENT_PROGRAM_FIXTURE_H_

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/backend.h"
#include "core/engine.h"
#include "core/formats/npy.h"
#include "core/tensor.h"
#include "server/server.h"
#include "tests/client/held_server.h"
#include "tests/client/run_program.h"
#include "tests/support/temporary_folder.h"

namespace attention {

/// Runs attention-client to its end.
inline ProgramResult RunClient(
    std::vector<std::string> arguments,
    const std::map<std::string, std::string>& environment = {}) {
  arguments.insert(arguments.begin(), ATTENTION_CLIENT_PROGRAM);
  return RunProgram(arguments, environment);
}

/// What a server answers with unless told otherwise.
inline std::string DefaultBackend() {
  const auto engine = Engine::Create({.threads = 1}).value();
  return static_cast<std::string>(engine->backends()[0]->name());
}

/// A server, and the program that calls it.
class ProgramFixture : public ::testing::Test {
 protected:
  /// With the server's address.
  ProgramResult RunHere(std::vector<std::string> arguments) {
    return RunClient(std::move(arguments),
                     {{"ATTENTION_SERVER", server_->address()}});
  }

  /// Returns the path of an .npy file.
  std::string WriteTensor(const std::string& name, const Tensor& tensor) {
    std::string path = folder_.path() + "/" + name + ".npy";
    EXPECT_TRUE(WriteNpy(path, tensor).ok());
    return path;
  }

  const test::TemporaryFolder folder_;
  std::unique_ptr<server::Server> server_ = client::StartServer();
};

}  // namespace attention

#endif  // ATTENTION_TESTS_CLIENT_PROGRAM_FIXTURE_H_
