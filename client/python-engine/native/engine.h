#ifndef ATTENTION_CLIENT_PYTHON_ENGINE_NATIVE_ENGINE_H_
#define ATTENTION_CLIENT_PYTHON_ENGINE_NATIVE_ENGINE_H_

#include <nanobind/nanobind.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/python-engine/native/arguments.h"
#include "client/python-engine/native/store.h"
#include "client/python-engine/native/turns.h"
#include "core/engine.h"

namespace attention::python {

/// core's engine for Python: what attention_engine.Engine is made of. Every
/// method throws exceptions of attention_client.errors.
class PythonEngine {
 public:
  /// `threads` from 0, one for each processor, to 4096, which are all made now.
  PythonEngine(nanobind::handle threads, nanobind::handle backend);
  ~PythonEngine();
  PythonEngine(const PythonEngine&) = delete;
  PythonEngine& operator=(const PythonEngine&) = delete;

  /// A Result of attention_client. `out`: where the output goes, or None.
  /// `timeout`: seconds, or None. The interpreter's lock is free while it
  /// computes, unless that takes some microseconds alone.
  nanobind::object Attend(nanobind::handle query, nanobind::handle key,
                          nanobind::handle value, nanobind::handle out,
                          nanobind::handle timeout,
                          const nanobind::kwargs& options) const;

  /// The same of keys and values that a store has: of a sequence's layer for
  /// each entry of the batch. `key` and `value`, with the options key_scale and
  /// value_scale, are appended first; all are None where nothing is.
  nanobind::object AttendSequences(const PythonStore& store,
                                   const std::vector<Entry>& entries,
                                   nanobind::handle query, nanobind::handle key,
                                   nanobind::handle value,
                                   nanobind::handle timeout,
                                   const nanobind::kwargs& options) const;

  /// The fields of attention_engine.EngineInfo that the engine knows.
  nanobind::dict Info() const;

  /// Ends the threads once no call runs; calls from then on are refused.
  void Close();

 private:
  // FailedPreconditionError where the engine is closed, or cannot be used here.
  std::shared_ptr<Engine> Get() const;

  std::shared_ptr<Engine> engine_;
  mutable std::optional<Turns> turns_;
};

}  // namespace attention::python

#endif  // ATTENTION_CLIENT_PYTHON_ENGINE_NATIVE_ENGINE_H_
