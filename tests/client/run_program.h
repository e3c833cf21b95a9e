#ifndef ATTENTION_TESTS_CLIENT_RUN_PROGRAM_H_
#define ATTENTION_TESTS_CLIENT_RUN_PROGRAM_H_

#include <map>
#include <string>
#include <vector>

namespace attention {

/// What a program left behind.
struct ProgramResult {
  int exit_code = -1;  // -1: it could not be started, or a signal ended it
  std::string output;  // what it wrote to stdout
  std::string errors;  // and to stderr
};

/// Runs a program and waits for its end. `arguments` begins with its path;
/// `environment` is added to this process's own.
ProgramResult RunProgram(
    const std::vector<std::string>& arguments,
    const std::map<std::string, std::string>& environment = {});

}  // namespace attention

#endif  // ATTENTION_TESTS_CLIENT_RUN_PROGRAM_H_
