#ifndef ATTENTION_CLIENT_PYTHON_ENGINE_NATIVE_PYTHON_H_
#define ATTENTION_CLIENT_PYTHON_ENGINE_NATIVE_PYTHON_H_

#include <nanobind/nanobind.h>

#include "absl/status/status.h"

/// What the extension takes from Python, looked up once.
namespace attention::python {

struct Python {
  nanobind::object array_type;  // numpy.ndarray
  nanobind::object bool_type;   // numpy.bool_
  nanobind::object empty;       // numpy.empty
  // numpy.dtype objects, of which there is one each.
  nanobind::object float16;
  nanobind::object bfloat16;
  nanobind::object float8;
  nanobind::object float32;
  nanobind::object int64;
  // attention_engine._conversions, which says what they do.
  nanobind::object to_array;
  nanobind::object to_writable;
  nanobind::object like;
  nanobind::object share_memory;
  nanobind::object scoring_fields;
  nanobind::object window_sides;
  nanobind::object is_wanted;
  nanobind::object option;
  nanobind::object seconds;
  nanobind::object refuse_option;
  nanobind::object result_type;
  nanobind::object new_error;
  nanobind::object main_thread;  // threading.main_thread
};

/// All of them. The first call imports the modules, and throws what that does.
const Python& GetPython();

/// Lets other threads have the interpreter while it lives. A thread that wants
/// it back when Python ends waits for that end here, as it does in Python from
/// 3.14 on. Earlier ones end the thread, which unwinds into a destructor and so
/// would abort the process.
class WithoutInterpreter {
 public:
  WithoutInterpreter() : thread_(PyEval_SaveThread()) {}
  WithoutInterpreter(const WithoutInterpreter&) = delete;
  WithoutInterpreter& operator=(const WithoutInterpreter&) = delete;
  ~WithoutInterpreter();

  /// Has Python look for signals, on the thread that this was made on, which
  /// must be the main one. True where a handler has raised an exception: it is
  /// Python's current one once this has ended.
  bool IsInterrupted();

 private:
  PyThreadState* thread_;
};

/// Whether Python's handlers of signals run on this thread.
bool IsMainThread();

/// What std::bad_alloc is to a caller: RESOURCE_EXHAUSTED.
absl::Status OutOfMemory();

/// Throws the exception of attention_client.errors for a status that is not OK.
void Check(const absl::Status& status);

}  // namespace attention::python

#endif  // ATTENTION_CLIENT_PYTHON_ENGINE_NATIVE_PYTHON_H_
