#ifndef ATTENTION_CLIENT_PYTHON_ENGINE_NATIVE_OPTION_VALUES_H_
#define ATTENTION_CLIENT_PYTHON_ENGINE_NATIVE_OPTION_VALUES_H_

#include <nanobind/nanobind.h>

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "server/request/option_value.h"

namespace attention::python {

/// Python's value as an option's: bool, int, float and str; numpy's and other
/// libraries' integers as what they turn into; anything else as its repr, which
/// no option takes and an error shows.
server::OptionValue OptionValueOf(nanobind::handle value);

/// An int of Python's, in 64 bits. InvalidArgumentError, "NAME: VALUE (expected
/// EXPECTED)", for anything else and where it is not from `least` to `most`.
int64_t IntegerOf(nanobind::handle value, const char* name, int64_t least,
                  int64_t most, absl::string_view expected);

/// The text of a str, or of another object's repr.
std::string TextOf(nanobind::handle value);

}  // namespace attention::python

#endif  // ATTENTION_CLIENT_PYTHON_ENGINE_NATIVE_OPTION_VALUES_H_
