#ifndef ATTENTION_TESTS_SERVICE_RUNNING_SERVER_H_
#define ATTENTION_TESTS_SERVICE_RUNNING_SERVER_H_

#include <memory>
#include <string>
#include <vector>

#include "tests/support/child_process.h"

namespace attention::test {

/// The server's binary, listening on a free port, and where.
struct RunningServer {
  std::unique_ptr<ChildProcess> process;
  std::string line;     // the one that it prints when it is ready
  std::string address;  // empty where it did not start
};

/// Starts it with these arguments and waits until it is ready.
inline RunningServer Launch(std::vector<std::string> arguments = {}) {
  arguments.insert(arguments.end(), {"--grpc-port", "0"});
  RunningServer server;
  server.process =
      std::make_unique<ChildProcess>(ATTENTION_SERVER_BINARY, arguments);
  const std::string before = "listening on ";
  server.line = server.process->ReadLineWith(before);
  const size_t begin = server.line.find(before);
  if (begin != std::string::npos) {
    const std::string rest = server.line.substr(begin + before.size());
    server.address = rest.substr(0, rest.find_first_of(", "));
  }
  return server;
}

}  // namespace attention::test

#endif  // ATTENTION_TESTS_SERVICE_RUNNING_SERVER_H_
