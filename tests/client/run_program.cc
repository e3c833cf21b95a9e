#include "tests/client/run_program.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>

#include "absl/strings/str_cat.h"

namespace attention {
namespace {

std::vector<char*> Pointers(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  pointers.reserve(strings.size() + 1);
  for (std::string& string : strings) pointers.push_back(string.data());
  pointers.push_back(nullptr);
  return pointers;
}

// This process's environment without what `added` sets anew, then `added`.
std::vector<std::string> Environment(
    const std::map<std::string, std::string>& added) {
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (added.count(text.substr(0, text.find('='))) == 0) {
      environment.push_back(text);
    }
  }
  for (const auto& [name, value] : added) {
    environment.push_back(absl::StrCat(name, "=", value));
  }
  return environment;
}

std::string ReadAll(std::FILE* file) {
  std::string text;
  std::fseek(file, 0, SEEK_SET);
  char buffer[4096];
  while (const size_t size = std::fread(buffer, 1, sizeof(buffer), file)) {
    text.append(buffer, size);
  }
  std::fclose(file);
  return text;
}

}  // namespace

ProgramResult RunProgram(
    const std::vector<std::string>& arguments,
    const std::map<std::string, std::string>& environment) {
  ProgramResult result;
  // Files, so that no pipe fills up and nobody has to read while it runs.
  std::FILE* output = std::tmpfile();
  std::FILE* errors = std::tmpfile();
  if (output == nullptr || errors == nullptr) return result;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, fileno(output), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, fileno(errors), STDERR_FILENO);

  std::vector<std::string> argument_strings = arguments;
  std::vector<std::string> environment_strings = Environment(environment);
  pid_t child = 0;
  const int spawned = posix_spawn(&child, arguments[0].c_str(), &actions,
                                  nullptr, Pointers(argument_strings).data(),
                                  Pointers(environment_strings).data());
  posix_spawn_file_actions_destroy(&actions);
  int status = 0;
  if (spawned == 0 && waitpid(child, &status, 0) == child &&
      WIFEXITED(status)) {
    result.exit_code = WEXITSTATUS(status);
  }
  result.output = ReadAll(output);
  result.errors = ReadAll(errors);
  return result;
}

}  // namespace attention
