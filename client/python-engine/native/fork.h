#ifndef ATTENTION_CLIENT_PYTHON_ENGINE_NATIVE_FORK_H_
#define ATTENTION_CLIENT_PYTHON_ENGINE_NATIVE_FORK_H_

/// fork() copies a process with one of its threads. oneTBB would wait for ever
/// for those that are missing.
namespace attention::python {

/// To be called before an engine's threads start: children forked from now on
/// lack them, and end without the destructors of what they have loaded.
void NoteThreads();

/// True in such a child.
bool LacksThreads();

/// Throws FailedPreconditionError in such a child.
void CheckHasThreads();
/// Throws it where an engine is closed.
void CheckOpen(bool is_open);

}  // namespace attention::python

#endif  // ATTENTION_CLIENT_PYTHON_ENGINE_NATIVE_FORK_H_
