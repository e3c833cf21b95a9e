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
  std::string line;          // the one that it prints when it is ready
  std::string address;       // empty where it did not start
  std::string http_address;  // of its HTTP port; likewise
};

/// Starts it with these arguments, by a program that sets limits, where there
/// is one `before` it, and waits until it is ready.
inline RunningServer Launch(std::vector<std::string> arguments = {},
                            std::vector<std::string> before_it = {}) {
  before_it.emplace_back(ATTENTION_SERVER_BINARY);
  arguments.insert(arguments.begin(), before_it.begin() + 1, before_it.end());
  arguments.insert(arguments.end(), {"--grpc-port", "0", "--http-port", "0"});
  RunningServer server;
  server.process = std::make_unique<ChildProcess>(before_it.front(), arguments);
  const std::string before = "listening on ";
  server.line = server.process->ReadLineWith(before);
  const auto follows = [&line = server.line](const std::string& words) {
    const size_t begin = line.find(words);
    if (begin == std::string::npos) return std::string();
    const std::string rest = line.substr(begin + words.size());
    return rest.substr(0, rest.find_first_of(", "));
  };
  server.address = follows(before);
  server.http_address = follows("http://");
  return server;
}

}  // namespace attention::test

#endif  // ATTENTION_TESTS_SERVICE_RUNNING_SERVER_H_
