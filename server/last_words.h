#ifndef ATTENTION_SERVER_LAST_WORDS_H_
#define ATTENTION_SERVER_LAST_WORDS_H_

#include <string>

namespace attention::server {

/// Has the process say on stderr why it ends where nobody else does. No memory
/// or no thread to be had, with nothing left that could catch it: exit code 1.
/// An abort() of a library that gives no reason, as gRPC's where malloc()
/// fails, is told as want of memory, likewise; so is an address that is nearly
/// null. Any other exception is named, and ends it with SIGABRT. `log_format`
/// is ServerOptions'.
void SayLastWords(const std::string& log_format);

/// The server has started. Until now whatever a library ends the process for is
/// taken as something that cannot be had, with exit code 1; from now on as a
/// mistake, with its signal and a core dump, where the library says a reason.
void NoteStart();

}  // namespace attention::server

#endif  // ATTENTION_SERVER_LAST_WORDS_H_
