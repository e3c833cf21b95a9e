// with_server PROGRAM ARGUMENT...: runs the program while a server listens on a
// free loopback port, whose HOST:PORT replaces the argument {address}. Ends
// with the program's exit code.
#include <iostream>
#include <string>
#include <vector>

#include "server/server.h"
#include "tests/client/run_program.h"

int main(int argc, char** argv) {
  if (argc < 2) {
    std::cerr << "usage: with_server PROGRAM ARGUMENT...\n";
    return 2;
  }
  attention::server::ServerOptions options;
  options.grpc_port = 0;
  options.http = false;
  auto server = attention::server::Server::Start(options);
  if (!server.ok()) {
    std::cerr << server.status().ToString() << "\n";
    return 1;
  }
  std::vector<std::string> arguments(argv + 1, argv + argc);
  for (std::string& argument : arguments) {
    if (argument == "{address}") argument = (*server)->address();
  }
  const attention::ProgramResult result = attention::RunProgram(arguments);
  std::cout << result.output;
  std::cerr << result.errors;
  return result.exit_code < 0 ? 1 : result.exit_code;
}
