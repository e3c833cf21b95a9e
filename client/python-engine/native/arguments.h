#ifndef ATTENTION_CLIENT_PYTHON_ENGINE_NATIVE_ARGUMENTS_H_
#define ATTENTION_CLIENT_PYTHON_ENGINE_NATIVE_ARGUMENTS_H_

#include <nanobind/nanobind.h>

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "client/python-engine/native/arrays.h"
#include "server/request/attention_request.h"

namespace attention::python {

/// A sequence's name, the layer, and the position of what is appended.
using Entry = std::tuple<std::string, int64_t, std::optional<int64_t>>;

/// What attend() was called with, as a request. It throws what a call throws.
struct Arguments {
  /// query, key and value, and the options of attention_client.Options. With
  /// sequences, one for each entry of the batch, key and value may be None.
  Arguments(nanobind::handle query, nanobind::handle key,
            nanobind::handle value, nanobind::handle options,
            const std::vector<Entry>& sequences = {});

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
