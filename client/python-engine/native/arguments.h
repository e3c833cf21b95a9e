#ifndef ATTENTION_CLIENT_PYTHON_ENGINE_NATIVE_ARGUMENTS_H_
#define ATTENTION_CLIENT_PYTHON_ENGINE_NATIVE_ARGUMENTS_H_

#include <nanobind/nanobind.h>

#include <vector>

#include "client/python-engine/native/arrays.h"
#include "server/request/attention_request.h"

namespace attention::python {

/// What attend() was called with, as a request. It throws what a call throws.
struct Arguments {
  /// query, key and value, and the options of attention_client.Options.
  Arguments(nanobind::handle query, nanobind::handle key,
            nanobind::handle value, nanobind::handle options);

  server::AttentionRequest request;
  /// What the request's views lie in, with the names that errors have for them.
  struct Named {
    const char* name;
    Array array;
  };
  std::vector<Named> arrays;
  nanobind::object id;  // a str
};

}  // namespace attention::python

#endif  // ATTENTION_CLIENT_PYTHON_ENGINE_NATIVE_ARGUMENTS_H_
