#ifndef ATTENTION_CLIENT_PYTHON_ENGINE_NATIVE_RUN_H_
#define ATTENTION_CLIENT_PYTHON_ENGINE_NATIVE_RUN_H_

#include <nanobind/nanobind.h>

#include "client/python-engine/native/arguments.h"
#include "client/python-engine/native/ending.h"
#include "client/python-engine/native/turns.h"
#include "core/engine.h"
#include "core/store/store.h"

namespace attention::python {

/// Computes a request: a Result whose arrays are new ones of the query's kind,
/// but for the output where `out` is given, which it is then. Ctrl-C ends it,
/// on Python's main thread, with what its handler raises. `turns`: the
/// engine's, as many as it has threads; each call computes on its caller's
/// thread, too. `store`: where the request's sequences are, if it has some; its
/// keys are appended first.
nanobind::object Run(const Engine& engine, Arguments& arguments,
                     nanobind::handle query, nanobind::handle out,
                     const Deadline& deadline, Turns& turns,
                     store::Store* store = nullptr);

}  // namespace attention::python

#endif  // ATTENTION_CLIENT_PYTHON_ENGINE_NATIVE_RUN_H_
