#ifndef ATTENTION_SERVER_LAST_WORDS_H_
#define ATTENTION_SERVER_LAST_WORDS_H_

#include <string>

namespace attention::server {

/// Has the process say on stderr why it ends where nobody else does. No memory
/// or no thread to be had, with nothing left that could catch it: exit code 1.
/// An abort() of a library that gives no reason, as gRPC's where malloc()
/// fails, is told as want of memory, likewise. Any other exception is named,
/// and ends it with SIGABRT. `log_format` is ServerOptions'.
void SayLastWords(const std::string& log_format);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_LAST_WORDS_H_
