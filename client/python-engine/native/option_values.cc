#include "client/python-engine/native/option_values.h"

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/python-engine/native/python.h"
#include "server/request/request_builder.h"

namespace attention::python {
namespace {

namespace nb = nanobind;
using server::OptionValue;

OptionValue IntegerValue(nb::handle value) {
  int overflow = 0;
  const auto number = PyLong_AsLongLongAndOverflow(value.ptr(), &overflow);
  if (overflow == 0) return static_cast<int64_t>(number);
  if (overflow > 0) {
    const auto large = PyLong_AsUnsignedLongLong(value.ptr());
    if (!PyErr_Occurred()) return static_cast<uint64_t>(large);
    PyErr_Clear();
  }
  return TextOf(value);  // of no option's range
}

}  // namespace

std::string TextOf(nb::handle value) {
  const nb::object text =
      PyUnicode_Check(value.ptr()) ? nb::borrow(value) : nb::repr(value);
  Py_ssize_t size = 0;
  const char* const bytes = PyUnicode_AsUTF8AndSize(text.ptr(), &size);
  if (bytes != nullptr) return {bytes, static_cast<size_t>(size)};
  PyErr_Clear();  // half a character, which no option is
  return "a text that is no Unicode";
}

OptionValue OptionValueOf(nb::handle value) {
  PyObject* const object = value.ptr();
  if (PyBool_Check(object)) return object == Py_True;
  if (PyLong_Check(object)) return IntegerValue(value);
  if (PyFloat_Check(object)) return PyFloat_AsDouble(object);
  if (PyUnicode_Check(object)) return TextOf(value);
  if (value.type().is(GetPython().bool_type)) {
    return PyObject_IsTrue(object) == 1;
  }
  const nb::object index = nb::steal(PyNumber_Index(object));
  if (index.is_valid()) return IntegerValue(index);
  PyErr_Clear();
  return TextOf(value);
}

int64_t IntegerOf(nb::handle value, const char* name, int64_t least,
                  int64_t most, absl::string_view expected) {
  const OptionValue given = OptionValueOf(value);
  const auto* const number = std::get_if<int64_t>(&given);
  if (number != nullptr && *number >= least && *number <= most) return *number;
  Check(server::FieldError(name, absl::StrCat(TextOf(nb::repr(value)),
                                              " (expected ", expected, ")")));
  return 0;  // not reached
}

}  // namespace attention::python
