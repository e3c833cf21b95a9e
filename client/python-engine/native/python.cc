#include "client/python-engine/native/python.h"

#include <unistd.h>

#include <cstdint>

#include "absl/strings/string_view.h"

namespace attention::python {
namespace {

namespace nb = nanobind;

Python* Import() {
  const nb::module_ numpy = nb::module_::import_("numpy");
  const nb::module_ ours =
      nb::module_::import_("attention_engine._conversions");
  const auto type = [&](nb::handle scalar) {
    return numpy.attr("dtype")(scalar);
  };
  // Never deleted: at the end of the process there is no interpreter to ask.
  return new Python{
      .array_type = numpy.attr("ndarray"),
      .bool_type = numpy.attr("bool_"),
      .empty = numpy.attr("empty"),
      .float16 = type(numpy.attr("float16")),
      .bfloat16 = ours.attr("BFLOAT16"),
      .float8 = ours.attr("FLOAT8"),
      .float32 = type(numpy.attr("float32")),
      .int64 = type(numpy.attr("int64")),
      .to_array = ours.attr("to_array"),
      .to_writable = ours.attr("to_writable"),
      .like = ours.attr("like"),
      .share_memory = ours.attr("share_memory"),
      .scoring_fields = ours.attr("scoring_fields"),
      .window_sides = ours.attr("window_sides"),
      .is_wanted = ours.attr("is_wanted"),
      .option = ours.attr("option"),
      .seconds = ours.attr("seconds"),
      .refuse_option = ours.attr("refuse_option"),
      .result_type = ours.attr("Result"),
      .new_error = ours.attr("from_number"),
      .main_thread = nb::module_::import_("threading").attr("main_thread"),
  };
}

}  // namespace

const Python& GetPython() {
  // Not a static's initialiser: another thread could wait for it with the lock
  // of the interpreter that the import needs.
  static const Python* python = nullptr;
  if (python == nullptr) python = Import();
  return *python;
}

absl::Status OutOfMemory() {
  return absl::ResourceExhaustedError("the process is out of memory");
}

void Check(const absl::Status& status) {
  if (status.ok()) return;
  // A caller's text may be cut off within a character.
  const absl::string_view text = status.message();
  const nb::object message = nb::steal(PyUnicode_DecodeUTF8(
      text.data(), static_cast<Py_ssize_t>(text.size()), "replace"));
  if (!message.is_valid()) throw nb::python_error();
  const nb::object error =
      GetPython().new_error(nb::int_(static_cast<int>(status.code())), message);
  PyErr_SetObject(error.type().ptr(), error.ptr());
  throw nb::python_error();
}

bool WithoutInterpreter::IsInterrupted() {
  PyEval_RestoreThread(thread_);
  const bool raised = PyErr_CheckSignals() != 0;
  thread_ = PyEval_SaveThread();
  return raised;
}

bool IsMainThread() {
  const nb::object ident = GetPython().main_thread().attr("ident");
  return nb::cast<uint64_t>(ident) == PyThread_get_thread_ident();
}

WithoutInterpreter::~WithoutInterpreter() {
  try {
    PyEval_RestoreThread(thread_);
  } catch (...) {  // the C library's end of a thread, which must not be left
    while (true) pause();
  }
}

}  // namespace attention::python
