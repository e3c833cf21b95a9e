#include "tests/support/child_process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>

namespace attention::test {

ChildProcess::ChildProcess(const std::string& program,
                           const std::vector<std::string>& arguments) {
  std::array<int, 2> ends = {};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) std::abort();
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);

  std::vector<std::string> words = {program};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  if (posix_spawn(&pid_, program.c_str(), &actions, nullptr, argv.data(),
                  environ) != 0) {
    std::abort();  // the program that the build names is not there
  }
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  output_ = ends[0];
}

ChildProcess::~ChildProcess() {
  Signal(SIGKILL);
  Wait();
  close(output_);
}

bool ChildProcess::ReadMore() {
  std::array<char, 4096> buffer;
  ssize_t count = 0;
  do {
    count = read(output_, buffer.data(), buffer.size());
  } while (count < 0 && errno == EINTR);
  if (count <= 0) return false;
  text_.append(buffer.data(), static_cast<size_t>(count));
  return true;
}

std::string ChildProcess::ReadLineWith(const std::string& text) {
  do {
    for (size_t end = text_.find('\n', lines_read_); end != std::string::npos;
         end = text_.find('\n', lines_read_)) {
      std::string line = text_.substr(lines_read_, end - lines_read_);
      lines_read_ = end + 1;
      if (line.find(text) != std::string::npos) return line;
    }
  } while (ReadMore());
  return "";
}

const std::string& ChildProcess::ReadAll() {
  while (ReadMore()) {
  }
  return text_;
}

void ChildProcess::Signal(int number) {
  if (pid_ > 0) kill(pid_, number);
}

int ChildProcess::Wait() {
  if (pid_ <= 0) return 0;
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

}  // namespace attention::test
