#ifndef ATTENTION_SERVER_TELEMETRY_LAST_WORDS_H_
#define ATTENTION_SERVER_TELEMETRY_LAST_WORDS_H_

#include <chrono>
#include <string>

namespace attention::server {

/// Has the process say on stderr why it ends where nobody else does. No memory
/// or no thread to be had, with nothing left that could catch it: exit code 1;
/// so for an abort() right after an allocation that failed and that nobody
/// handled, as gRPC's (who handles that of malloc() or mmap() sets errno to 0;
/// for `new`, this does). Any other abort(), of glibc where it finds the heap
/// corrupted for instance, is told as that, any other exception by its name,
/// and a null pointer that is used as such; each ends the process by its
/// signal, with a core dump where the system keeps them. `log_format` is
/// ServerOptions'.
void SayLastWords(const std::string& log_format);

/// The server has started. Until now whatever a library says that it ends the
/// process for is taken as something that cannot be had, with exit code 1; from
/// now on as a mistake, with its signal and a core dump.
void NoteStart();

/// Ends the process with exit code 1 once `time` is over, whatever it waits
/// for, and says so: who has asked it to end must not wait for ever. Once.
void EndAfter(std::chrono::milliseconds time);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_TELEMETRY_LAST_WORDS_H_
