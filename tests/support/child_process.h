#ifndef ATTENTION_TESTS_SUPPORT_CHILD_PROCESS_H_
#define ATTENTION_TESTS_SUPPORT_CHILD_PROCESS_H_

#include <sys/types.h>

#include <string>
#include <vector>

namespace attention::test {

/// A program that was started, whose standard output and error are read here as
/// one text. It is killed when this ends.
class ChildProcess {
 public:
  /// `arguments` without the program's name.
  ChildProcess(const std::string& program,
               const std::vector<std::string>& arguments);
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  /// Reads up to the first line that holds `text`, and returns that line; an
  /// empty one where the output ends before.
  std::string ReadLineWith(const std::string& text);
  /// Reads to the end and returns everything that was written.
  const std::string& ReadAll();

  /// Its number, until it has been waited for.
  int pid() const { return pid_; }
  void Signal(int number);

  /// The exit code, or -SIGNAL where a signal ended it.
  int Wait();

 private:
  bool ReadMore();

  pid_t pid_ = -1;
  int output_ = -1;
  std::string text_;
  size_t lines_read_ = 0;  // bytes of text_ that ReadLineWith() has passed
};

}  // namespace attention::test

#endif  // ATTENTION_TESTS_SUPPORT_CHILD_PROCESS_H_
